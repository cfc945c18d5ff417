#include "libs/attention/block_sparse/block_score_kernel.h"

#include <algorithm>
#include <limits>

#include "libs/quant/scratch_buffer.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/block_sparse/block_score_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/attention/indexer/key_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace kp = key_panel::HWY_NAMESPACE;
using key_panel::kTileKeys;
using kp::DF;
using kp::kLanes;
using kp::VF;

template <class Key>
void Score(const BlockSelectArgs& args, const ScoreTile& tile, int64_t begin, int64_t end, float* scores) {
  const DF df;
  const int64_t group = args.num_heads / args.num_key_heads, rows = tile.num_tokens * group, words = kp::WordsOf<Key>(args.head_dim);
  const int64_t panel_words = kp::PanelWords(args.head_dim);
  static thread_local quant::ScratchBuffer buffer;
  uint32_t* panel = reinterpret_cast<uint32_t*>(buffer.Get((2 * panel_words + rows * (words + 1 + kLanes)) * 4));
  uint32_t* widened = panel + panel_words;
  float* maxima = reinterpret_cast<float*>(widened + panel_words);  // a vector for each row
  uint32_t* q = reinterpret_cast<uint32_t*>(maxima + rows * kLanes);
  int32_t* starts = reinterpret_cast<int32_t*>(q + rows * words);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t token = tile.first_token + r / group, head = tile.key_head * group + r % group;
    const Key* row = static_cast<const Key*>(args.q) + token * args.q_token_stride + head * args.q_head_stride;
    kp::WidenRow(row, args.head_dim, q + r * words);
    starts[r] = kp::RowStart(row, args.head_dim);
  }
  const Key* k = static_cast<const Key*>(args.k) + tile.key_head * args.k_head_stride;
  const int32_t* pages = args.block_table + tile.seq * args.block_table_stride;
  const int64_t last_key = tile.first_position + tile.num_tokens;  // the last query sees the most
  const VF none = hn::Set(df, -std::numeric_limits<float>::infinity());
  const int64_t end_key = std::min(end * args.block_tokens, last_key);
  const char *key_rows[kTileKeys], *next_rows[kTileKeys];
  for (int64_t block = begin; block < end; ++block) {
    for (int64_t r = 0; r < rows; ++r) hn::Store(none, df, maxima + r * kLanes);
    const int64_t block_end = std::min((block + 1) * args.block_tokens, last_key);
    for (int64_t key = block * args.block_tokens; key < block_end; key += kTileKeys) {
      const int64_t count = std::min(kTileKeys, block_end - key);
      const auto locate = [&](int64_t from, int64_t to, const char** rows) HWY_ATTR {
        kp::LocateKeys(k, pages, args.page_size, args.k_page_stride, args.k_token_stride, args.head_dim, from, to, rows);
      };
      locate(key, key + count, key_rows);
      std::fill(key_rows + count, key_rows + kTileKeys, key_rows[0]);
      kp::MakePanel<Key>(key_rows, args.head_dim, widened, panel);
      locate(key + count, std::min(key + count + kTileKeys, end_key), next_rows);  // while these are multiplied, those come
      kp::MultiplyRows<kp::MathOf<Key>>(rows, 0, q, starts, words, panel, [&](int64_t r, int v, VF products) HWY_ATTR {
        const int64_t visible = std::min(count, tile.first_position + r / group + 1 - key), lanes = std::clamp<int64_t>(visible - v * kLanes, 0, kLanes);
        const auto counts = hn::AndNot(hn::IsNaN(products), hn::FirstN(df, lanes));
        hn::Store(hn::Max(hn::Load(df, maxima + r * kLanes), hn::IfThenElse(counts, products, none)), df, maxima + r * kLanes);
      });
    }
    for (int64_t r = 0; r < rows; ++r) scores[tile.scores + r * tile.row_blocks + block] = hn::ReduceMax(df, hn::Load(df, maxima + r * kLanes));
  }
}

void ScoreBlocksOfTile(const BlockSelectArgs& args, const ScoreTile& tile, int64_t begin, int64_t end, float* scores) {
  if (args.format) return Score<key_panel::KeyCode<quant::Format::kE4M3>>(args, tile, begin, end, scores);
  switch (args.type) {
    case DType::kF32: return Score<float>(args, tile, begin, end, scores);
    case DType::kF16: return Score<hwy::float16_t>(args, tile, begin, end, scores);
    case DType::kBF16: return Score<hwy::bfloat16_t>(args, tile, begin, end, scores);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::attention::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(ScoreBlocksOfTile);

void ScoreBlocks(const BlockSelectArgs& args, const ScoreTile& tile, int64_t begin, int64_t end, float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreBlocksOfTile)(args, tile, begin, end, scores);
}

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
