// Sparse attention of DeepSeek V3.2's sizes (latent 512 + 64, an indexer of 64 heads of 128, top 2,048) against dense attention over the same
// latent cache, in turn:
//   speedup        dense over the indexer and the attention to what it selects together
//   indexer_share  of the indexer, in the time of both
// Times are CPU time of all threads, the best of all iterations. JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the
// threads (2).

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/indexer/lightning_indexer.h"
#include "libs/attention/selected/selected_attention.h"
#include "libs/quant/bench_util.h"

namespace jumar::attention {
namespace {

constexpr int64_t kLatent = 512, kRope = 64, kIndexHeads = 64, kIndexDim = 128, kPage = 128, kTopK = 2048;

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// `queries` of one sequence of `keys` tokens.
void Run(benchmark::State& state, int64_t queries, int64_t keys, int64_t heads) {
  tiling::Executor& pool = quant::BenchmarkPool();
  const int64_t pages = (keys + kPage - 1) / kPage;
  quant::BenchmarkBuffer q(queries * heads * (kLatent + kRope) * 2), cache(pages * kPage * (kLatent + kRope) * 2), out(queries * heads * kLatent * 2);
  quant::BenchmarkBuffer index_q(queries * kIndexHeads * kIndexDim * 2), index_k(pages * kPage * kIndexDim * 2), weights(queries * kIndexHeads * 4);
  std::vector<int32_t> table(static_cast<size_t>(pages)), indices(static_cast<size_t>(queries * kTopK));
  std::iota(table.begin(), table.end(), 0);
  // Random keys of the indexer, so that what is selected lies anywhere.
  uint32_t random = 1;
  for (int64_t i = 0; i < index_k.size() / 2; ++i) {
    random = random * 1664525 + 1013904223;
    reinterpret_cast<uint16_t*>(index_k.data())[i] = static_cast<uint16_t>((random >> 31 << 15) | (0x3F00 + (random >> 24 & 0xFF)));
  }
  LightningIndexerArgs index = {.num_seqs = 1, .num_heads = kIndexHeads, .head_dim = kIndexDim, .top_k = kTopK};
  index.q = index_q.data(), index.q_token_stride = kIndexHeads * kIndexDim, index.q_head_stride = kIndexDim;
  index.k = index_k.data(), index.k_block_stride = kPage * kIndexDim, index.k_token_stride = kIndexDim;
  index.weights = weights.data(), index.weights_token_stride = kIndexHeads;
  index.block_table = table.data(), index.block_table_stride = pages, index.block_size = kPage, index.num_blocks = pages;
  index.query_ends = &queries, index.kv_lens = &keys, index.indices = indices.data(), index.indices_token_stride = kTopK;
  SelectedAttentionArgs selected;
  PagedAttentionArgs& dense = selected.dense;
  dense.type = DType::kBF16, dense.num_seqs = 1, dense.num_heads = heads, dense.num_kv_heads = 1;
  dense.head_dim = dense.value_head_dim = kLatent, dense.rope_dim = kRope;
  dense.q = q.data(), dense.q_rope = q.data() + kLatent * 2;
  dense.q_head_stride = dense.q_rope_head_stride = kLatent + kRope, dense.q_token_stride = dense.q_rope_token_stride = heads * (kLatent + kRope);
  dense.k = dense.v = cache.data(), dense.k_rope = cache.data() + kLatent * 2;
  dense.k_token_stride = dense.v_token_stride = dense.k_rope_token_stride = kLatent + kRope;
  dense.k_block_stride = dense.v_block_stride = dense.k_rope_block_stride = kPage * (kLatent + kRope);
  dense.block_table = table.data(), dense.block_table_stride = pages, dense.block_size = kPage, dense.num_blocks = pages;
  dense.query_ends = &queries, dense.kv_lens = &keys, dense.scale = 1.0f / 24, dense.window_right = 0;
  dense.out = out.data(), dense.out_token_stride = heads * kLatent, dense.out_head_stride = kLatent;
  selected.top_k = kTopK, selected.indices = indices.data(), selected.indices_token_stride = kTopK;

  double best[3] = {HUGE_VAL, HUGE_VAL, HUGE_VAL};
  const auto time = [&](int which, const absl::Status& status, double begin) {
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    best[which] = std::min(best[which], CpuSeconds() - begin);
  };
  for (auto _ : state) {
    double begin = CpuSeconds();
    time(0, LightningIndexer(index, pool), begin);
    begin = CpuSeconds();
    time(1, SelectedAttention(selected, pool), begin);
    begin = CpuSeconds();
    time(2, PagedAttention(dense, pool), begin);
  }
  state.counters["us_indexer"] = best[0] * 1e6;
  state.counters["us_selected"] = best[1] * 1e6;
  state.counters["us_dense"] = best[2] * 1e6;
  state.counters["speedup"] = best[2] / (best[0] + best[1]);
  state.counters["indexer_share"] = best[0] / (best[0] + best[1]);
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  struct Size {
    const char* name;
    int64_t queries, keys, heads;
  };
  for (const Size& size : {Size{"Decode1x32768_128heads", 1, 32768, 128}, Size{"Decode1x131072_128heads", 1, 131072, 128},
                           Size{"Decode1x32768_16heads", 1, 32768, 16}, Size{"Decode1x131072_16heads", 1, 131072, 16},
                           Size{"Prefill16of32768_128heads", 16, 32768, 128}}) {
    benchmark::RegisterBenchmark((std::string("SparseAttention/bfloat16/") + size.name).c_str(), [size](benchmark::State& state) {
      Run(state, size.queries, size.keys, size.heads);
    })->UseRealTime()->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
