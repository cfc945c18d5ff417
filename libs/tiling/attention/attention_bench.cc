// Time of a solve, with the solution beside it: predicted time over the bound (1 = nothing can be faster), and the fixed rule's over ours.

#include <random>
#include <string>

#include "benchmark/benchmark.h"
#include "libs/tiling/attention/lightning_indexer.h"
#include "libs/tiling/attention/mla_decode.h"
#include "libs/tiling/attention/paged_attention.h"
#include "libs/tiling/attention/selected_attention.h"
#include "libs/tiling/attention/shared_kv_attention.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

struct Shape {
  const char* name;
  int64_t batch, context, queries;
  bool ragged;
};

constexpr Shape kDecodes[] = {{"1x1M", 1, 1 << 20, 1, false}, {"64x8k", 64, 1 << 13, 1, false}, {"32_ragged", 32, 1 << 15, 1, true}, {"256_ragged", 256, 1 << 15, 1, true}};
constexpr Shape kPrefills[] = {{"1x8k", 1, 1 << 13, 1 << 13, false}, {"chunk_of_1M", 1, 1 << 20, 1 << 13, false}, {"16_ragged", 16, 1 << 13, 1 << 13, true}};

template <typename Problem, typename KernelOf, typename Solve>
void Register(const char* solver, std::span<const Shape> shapes, KernelOf kernel_of, Solve solve) {
  for (const Shape& shape : shapes) {
    benchmark::RegisterBenchmark((std::string(solver) + "/" + shape.name).c_str(), [=](benchmark::State& state) {
      Problem problem;
      problem.context.clear();
      problem.queries.clear();
      std::mt19937_64 random(1);
      for (int64_t i = 0; i < shape.batch; ++i) {
        problem.context.push_back(shape.ragged ? 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(shape.context)) : shape.context);
        problem.queries.push_back(std::min(problem.context.back(), shape.queries));
      }
      const HardwareSpec spec = SyntheticSpec();
      for (auto _ : state) benchmark::DoNotOptimize(solve(problem, spec));
      const auto solved = solve(problem, spec);
      const auto fixed = PredictFixedRule(problem, *kernel_of(problem), spec);
      if (!solved.ok()) return state.SkipWithError(std::string(solved.status().message()).c_str());
      state.counters["of_bound"] = solved->plan.prediction.seconds / solved->bound.Seconds();
      if (fixed.ok()) state.counters["fixed_rule"] = fixed->seconds / solved->plan.prediction.seconds;
    })->Unit(benchmark::kMicrosecond);
  }
}

const int registered = [] {
  Register<PagedPrefillProblem>("paged_prefill", kPrefills, PagedPrefillKernel, SolvePagedPrefill);
  Register<PagedDecodeProblem>("paged_decode", kDecodes, PagedDecodeKernel, SolvePagedDecode);
  Register<MlaDecodeProblem>("mla_decode", kDecodes, MlaDecodeKernel, SolveMlaDecode);
  Register<LightningIndexerProblem>("lightning_indexer", kDecodes, LightningIndexerKernel, SolveLightningIndexer);
  Register<SelectedAttentionProblem>("selected_attention", kDecodes, SelectedAttentionKernel, SolveSelectedAttention);
  Register<SharedKvAttentionProblem>("shared_kv_attention", kDecodes, SharedKvAttentionKernel, SolveSharedKvAttention);
  return 0;
}();

}  // namespace
}  // namespace jumar::tiling
