// The lightning indexer over the registry's sizes, for each kind of keys. Counters:
//   of_peak      multiply-adds of the visible entries, as a share of what the instruction that the kernel uses does at most (fp32 multiply-add, bf16
//                or int8 dot product), measured in turn on the same threads
//   key_bytes_per_cpu_second  each key once a call; compare with ReadBandwidth, the limit if heads were few
//   top_k_share  of the time, what choosing top_k costs more than choosing one, pair by pair
// Times are CPU time of all threads, the best of all iterations.
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/indexer/lightning_indexer.h"
#include "libs/attention/indexer/test_problem.h"
#include "libs/quant/bench_util.h"
#include "libs/tiling/machine_limits.h"

namespace jumar::attention {
namespace {

using Limit = double (*)(tiling::Executor&);

// What runs the fastest instruction that the kernel may use for these keys; a multiply-add is two operations.
Limit LimitOf(Keys keys, tiling::Executor& pool) {
  if (keys == Keys::kI8) return tiling::Int8DotOps;
  if ((keys == Keys::kBF16 || keys == Keys::kE4M3) && tiling::BF16DotOps(pool) > 0) return tiling::BF16DotOps;
  return tiling::MultiplyAdds;
}

// CPU seconds of all threads, which others on the machine disturb less than the time that passes.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void Run(benchmark::State& state, const IndexerCase& c, Keys keys) {
  tiling::Executor& pool = quant::BenchmarkPool();
  IndexerProblem all(c, keys, 1), one(c, keys, 1);
  all.args.scores = one.args.scores = nullptr;
  one.args.top_k = 1;
  double products = 0, bytes = 0;
  for (const SequenceShape& s : c.sequences) {
    products += s.queries * (s.tokens - (s.queries - 1) / 2.0) * c.heads;  // right-down causal
    bytes += static_cast<double>(s.tokens) * c.head_dim * (all.args.format ? 1 : quant::SizeOf(all.args.type));
  }
  const Limit limit = LimitOf(keys, pool);
  double best[2] = {HUGE_VAL, HUGE_VAL}, peak = 0;
  for (auto _ : state) {
    int which = 0;
    for (IndexerProblem* problem : {&all, &one}) {
      const double begin = CpuSeconds();
      if (!LightningIndexer(problem->args, pool).ok()) state.SkipWithError("lightning indexer failed");
      best[which] = std::min(best[which], CpuSeconds() - begin);
      ++which;
    }
    const double begin = CpuSeconds(), operations = limit(pool);
    peak = std::max(peak, operations / (CpuSeconds() - begin));
  }
  state.counters["cpu_us"] = best[0] * 1e6;
  state.counters["of_peak"] = 2 * products * c.head_dim / best[0] / peak;
  state.counters["key_bytes_per_cpu_second"] = bytes / best[0];
  state.counters["top_k_share"] = 1 - best[1] / best[0];
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  quant::RegisterMachineLimits();
  for (Keys keys : kAllKeys) {
    const auto add = [keys](const char* name, std::vector<SequenceShape> sequences, int64_t heads, int64_t head_dim, int64_t top_k, int64_t block_size) {
      benchmark::RegisterBenchmark((std::string("LightningIndexer/") + Name(keys) + "/" + name).c_str(), [=](benchmark::State& state) {
        Run(state, {name, sequences, heads, head_dim, top_k, block_size, 1, true}, keys);
      })->UseRealTime()->Unit(benchmark::kMicrosecond);
    };
#define JUMAR_INDEXER_BENCH(name, sequences, ...) add(#name, sequences, __VA_ARGS__);
#include "libs/attention/indexer/cases.inc"
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
