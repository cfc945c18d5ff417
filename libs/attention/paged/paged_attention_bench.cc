// Paged attention over the registry's sizes, against what the machine can do, measured in the same run:
//   ReadBandwidth    the limit of decode; compare with the counter kv_bytes (K and V once per call)
//   MultiplyAddPeak  the limit of prefill; compare with the counter flops (of the visible keys only)
//   QuantizedCache   a bf16 cache against a quantised one, pair by pair
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/quant/bench_util.h"

namespace jumar::attention {
namespace {

using quant::BenchmarkPool;
using quant::Rate;

void Run(benchmark::State& state, DType type, const std::vector<SequenceShape>& shapes, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block_size) {
  tiling::Executor& pool = BenchmarkPool();
  AttentionProblem problem(type, shapes, heads, kv_heads, head_dim, head_dim, block_size, -1, 0, 1, /*gap=*/0);
  problem.args.lse = nullptr;
  double kv_bytes = 0, flops = 0;
  for (const SequenceShape& shape : shapes) {
    kv_bytes += 2.0 * shape.keys * kv_heads * head_dim * quant::SizeOf(type);
    const double pairs = shape.queries * (shape.keys - (shape.queries - 1) / 2.0);  // right-down causal
    flops += 4.0 * heads * head_dim * pairs;
  }
  for (auto _ : state) {
    if (!PagedAttention(problem.args, pool).ok()) state.SkipWithError("paged attention failed");
  }
  state.counters["kv_bytes"] = Rate(kv_bytes);
  state.counters["flops"] = Rate(flops);
  state.SetLabel(tiling::SimdTarget());
}

// One call over a bf16 cache and one over a quantised one with a scale per token and head, in turn. In CPU time, which others on the machine
// disturb less; speedup: of the fastest of each.
void Compare(benchmark::State& state, quant::Format format, const std::vector<SequenceShape>& shapes, int64_t heads, int64_t kv_heads, int64_t head_dim,
             int64_t block_size) {
  tiling::Executor& pool = BenchmarkPool();
  const auto make = [&] {
    AttentionProblem problem(DType::kBF16, shapes, heads, kv_heads, head_dim, head_dim, block_size, -1, 0, 1, /*gap=*/0);
    problem.args.lse = nullptr;
    return problem;
  };
  AttentionProblem plain = make(), quantized = make();
  quantized.Quantize(format, TestScales::kSlot, TestScales::kSlot, 1);
  double best[2] = {HUGE_VAL, HUGE_VAL};
  for (auto _ : state) {
    int which = 0;
    for (const AttentionProblem* problem : {&plain, &quantized}) {
      const std::clock_t begin = std::clock();
      if (!PagedAttention(problem->args, pool).ok()) state.SkipWithError("paged attention failed");
      best[which] = std::min(best[which], static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
      ++which;
    }
  }
  state.counters["speedup"] = best[0] / best[1];
  state.counters["us_bf16"] = best[0] * 1e6;
  state.counters["us_quantized"] = best[1] * 1e6;
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  quant::RegisterMachineLimits();
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    const auto add = [type](const char* name, std::vector<SequenceShape> shapes, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block_size) {
      benchmark::RegisterBenchmark((std::string("PagedAttention/") + quant::Name(type) + "/" + name).c_str(), [=](benchmark::State& state) {
        Run(state, type, shapes, heads, kv_heads, head_dim, block_size);
      })->UseRealTime()->Unit(benchmark::kMicrosecond);
    };
#define JUMAR_PAGED_BENCH(name, sequences, ...) add(#name, sequences, __VA_ARGS__);
#include "libs/attention/paged/cases.inc"
  }
  for (quant::Format format : {quant::Format::kI8, quant::Format::kE4M3}) {
    const auto add = [format](const char* name, std::vector<SequenceShape> shapes, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block_size) {
      benchmark::RegisterBenchmark((std::string("QuantizedCache/") + quant::Name(format) + "/" + name).c_str(), [=](benchmark::State& state) {
        Compare(state, format, shapes, heads, kv_heads, head_dim, block_size);
      })->UseRealTime()->Unit(benchmark::kMicrosecond);
    };
#define JUMAR_PAGED_BENCH(name, sequences, ...) add(#name, sequences, __VA_ARGS__);
#include "libs/attention/paged/cases.inc"
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
