// MlaProlog over the registry's sizes, bf16 and both int8 forms, against what the machine can do in the same run:
//   ReadBandwidth   compare with the counter bytes: the weights, once (decode)
//   BF16DotPeak, Int8DotPeak   compare with the counter flops (prefill)
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <string>

#include "benchmark/benchmark.h"
#include "libs/attention/mla/test_problem.h"
#include "libs/quant/bench_util.h"

namespace jumar::attention {
namespace {

void Run(benchmark::State& state, const MlaShape& s, MlaForm form) {
  tiling::Executor& pool = quant::BenchmarkPool();
  MlaProblem problem(s, DType::kBF16, form, false, 1);
  for (auto _ : state) {
    if (!MlaProlog(problem.args, pool).ok()) state.SkipWithError("mla_prolog failed");
  }
  const int64_t down = s.hidden * (s.q_rank + s.kv_rank + s.rope_dim), up = s.q_rank * s.heads * (s.nope_dim + s.rope_dim), absorb = s.heads * s.nope_dim * s.kv_rank;
  state.counters["bytes"] = quant::Rate(static_cast<double>(down * (form == MlaForm::kInt8 ? 1 : 2) + up * (form == MlaForm::kFloat ? 2 : 1) + absorb * 2));
  state.counters["flops"] = quant::Rate(2.0 * static_cast<double>(s.tokens * (down + up + absorb)));
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  quant::RegisterMachineLimits();
#define JUMAR_MLA_BENCH(name, ...) \
  for (const auto& [form, suffix] : {std::pair(MlaForm::kFloat, "bf16"), {MlaForm::kInt8Up, "int8_up"}, {MlaForm::kInt8, "int8"}}) {                     \
    benchmark::RegisterBenchmark((std::string("MlaProlog/" #name "/") + suffix).c_str(), [form = form](benchmark::State& state) { Run(state, {__VA_ARGS__}, form); }) \
        ->UseRealTime()                                                                                                                                  \
        ->Unit(benchmark::kMicrosecond);                                                                                                                 \
  }
#include "libs/attention/mla/cases.inc"
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
