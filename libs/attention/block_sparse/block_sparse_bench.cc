// Block-sparse attention (MiniMax-M3's sizes: blocks of 128, 16 of them) against dense paged attention over the same cache, in turn:
//   speedup        dense over the choice of blocks and the attention to them together
//   select_share   of the choice, in the time of both
//   select_of_peak multiply-adds of the choice, as a share of the peak of the instruction that it uses
// Times are CPU time of all threads, the best of all iterations. JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the
// threads (2).

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/block_sparse/block_csr.h"
#include "libs/attention/block_sparse/test_problem.h"
#include "libs/quant/bench_util.h"
#include "libs/tiling/machine_limits.h"

namespace jumar::attention {
namespace {

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void Run(benchmark::State& state, const BlockCase& c) {
  tiling::Executor& pool = quant::BenchmarkPool();
  BlockProblem p(c, DType::kBF16, 1);
  p.attention.dense.lse = nullptr;
  p.select.init_blocks = p.select.local_blocks = 1;
  const auto limit = tiling::BF16DotOps(pool) > 0 ? tiling::BF16DotOps : tiling::MultiplyAdds;
  double best[3] = {HUGE_VAL, HUGE_VAL, HUGE_VAL}, peak = 0, products = 0;
  for (const BlockSequence& s : c.sequences) products += s.queries * (s.keys - (s.queries - 1) / 2.0) * c.kv_heads;
  const auto time = [&](int which, const absl::Status& status, double begin) {
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    best[which] = std::min(best[which], CpuSeconds() - begin);
  };
  for (auto _ : state) {
    double begin = CpuSeconds();
    time(0, SelectBlocks(p.select, pool), begin);
    begin = CpuSeconds();
    time(1, SelectedAttention(p.attention, pool), begin);
    begin = CpuSeconds();
    time(2, PagedAttention(p.attention.dense, pool), begin);
    begin = CpuSeconds();
    const double operations = limit(pool);
    peak = std::max(peak, operations / (CpuSeconds() - begin));
  }
  state.counters["us_select"] = best[0] * 1e6;
  state.counters["us_attention"] = best[1] * 1e6;
  state.counters["us_dense"] = best[2] * 1e6;
  state.counters["speedup"] = best[2] / (best[0] + best[1]);
  state.counters["select_share"] = best[0] / (best[0] + best[1]);
  state.counters["select_of_peak"] = 2 * products * c.head_dim / best[0] / peak;
  state.SetLabel(tiling::SimdTarget());
}

// Pairs of a query and a block a second, for each KV head.
void Csr(benchmark::State& state) {
  BlockProblem p({{{2048, 8192}}, 4, 4, 16, 128, 128, 16}, DType::kBF16, 1);
  if (!SelectBlocks(p.select, quant::BenchmarkPool()).ok()) state.SkipWithError("block select failed");
  std::vector<int32_t> starts(4 * 65), queries(4 * 2048 * 16);
  const BlockCsrArgs args = {.num_seqs = 1, .query_ends = p.query_ends.data(), .kv_lens = p.kv_lens.data(), .num_kv_heads = 4, .top_k = 16,
                             .indices = p.indices.data(), .indices_token_stride = p.select.indices_token_stride,
                             .indices_head_stride = p.select.indices_head_stride, .row_starts = starts.data(), .row_starts_stride = 65,
                             .queries = queries.data(), .queries_stride = 2048 * 16};
  for (auto _ : state) {
    if (!BuildBlockCsr(args, quant::BenchmarkPool()).ok()) state.SkipWithError("block CSR failed");
  }
  state.counters["pairs"] = quant::Rate(4 * 2048 * 16);
}

const int registered = [] {
  quant::RegisterMachineLimits();
  const std::pair<const char*, BlockCase> cases[] = {
      {"Decode1x32768", {{{1, 32768}}, 64, 4, 128, 128, 128, 16}},
      {"Decode4x8192", {std::vector<BlockSequence>(4, {1, 8192}), 64, 4, 128, 128, 128, 16}},
      {"Prefill64of8192", {{{64, 8192}}, 16, 1, 128, 128, 128, 16}},
  };
  for (const auto& [name, c] : cases) {
    benchmark::RegisterBenchmark((std::string("BlockSparse/bfloat16/") + name).c_str(), [c = c](benchmark::State& state) { Run(state, c); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("BlockCsr/2048x16of64", Csr)->UseRealTime()->Unit(benchmark::kMicrosecond);
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
