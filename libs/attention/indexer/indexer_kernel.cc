#include "libs/attention/indexer/indexer_kernel.h"

#include <algorithm>
#include <utility>

#include "libs/quant/scratch_buffer.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/indexer/indexer_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/attention/indexer/key_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace kp = key_panel::HWY_NAMESPACE;
using key_panel::KeyCode;
using key_panel::kTileKeys;
using kp::DF;
using kp::DU;
using kp::kLanes;
using kp::kVectors;
using kp::VF;
using quant::Format;

float LoadNumber(DType type, const void* data, int64_t i) {
  const hn::CappedTag<float, 1> d1;
  switch (type) {
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kF16: return hn::GetLane(quant::HWY_NAMESPACE::LoadF32(d1, static_cast<const hwy::float16_t*>(data) + i, 1));
    case DType::kBF16: return hn::GetLane(quant::HWY_NAMESPACE::LoadF32(d1, static_cast<const hwy::bfloat16_t*>(data) + i, 1));
  }
  return 0;
}

// A tile of entries: where their rows are, and their scales.
struct Entries {
  const char* rows[kTileKeys];
  HWY_ALIGN float scales[kTileKeys] = {};
};

// The entries [begin, end), at most kTileKeys; none if end <= begin. Lanes without an entry repeat the first.
template <class Key>
HWY_INLINE void LocateEntries(const LightningIndexerArgs& args, const TokenTile& tile, int64_t begin, int64_t end, Entries& entries) {
  if (end <= begin) return;
  // A contiguous sequence is one page.
  const int32_t first_page = 0;
  const bool paged = args.block_table != nullptr;
  const int32_t* pages = paged ? args.block_table + tile.seq * args.block_table_stride : &first_page;
  const int64_t page_size = paged ? args.block_size : tile.num_entries, kv_begin = paged ? 0 : tile.kv_begin;
  const Key* k = static_cast<const Key*>(args.k) + kv_begin * args.k_token_stride;
  kp::LocateKeys(k, pages, page_size, args.k_block_stride, args.k_token_stride, args.head_dim, begin, end, entries.rows);
  std::fill(entries.rows + (end - begin), entries.rows + kTileKeys, entries.rows[0]);
  if (!args.format) return;
  for (int64_t entry = begin; entry < end; ++entry) {
    const int64_t page = pages[entry / page_size], slot = entry % page_size;
    entries.scales[entry - begin] =
        LoadNumber(args.scales_type, args.k_scales, page * args.k_scales_block_stride + (kv_begin + slot) * args.k_scales_token_stride);
  }
}

// The scores of a query with the tile's keys.
template <class Key>
HWY_INLINE void ScoreTile(const LightningIndexerArgs& args, const uint32_t* q, const int32_t* starts, const float* HWY_RESTRICT weights,
                          const uint32_t* panel, VF (&scores)[kVectors]) {
  const DF df;
  for (VF& score : scores) score = hn::Zero(df);
  kp::MultiplyRows<kp::MathOf<Key>>(args.num_heads, 0, q, starts, kp::WordsOf<Key>(args.head_dim), panel, [&](int64_t head, int v, VF products) HWY_ATTR {
    const VF relu = hn::IfThenZeroElse(hn::Lt(products, hn::Zero(df)), products);  // NaN stays NaN
    scores[v] = hn::MulAdd(hn::Set(df, weights[head]), relu, scores[v]);
  });
}

// OrderedScore of each.
HWY_INLINE kp::VU Ordered(VF score) {
  const DU du;
  const kp::DI di;
  const auto number = hn::Add(score, hn::Zero(DF()));  // no -0
  const auto bits = hn::BitCast(du, number);
  const auto sign = hn::BitCast(du, hn::ShiftRight<31>(hn::BitCast(di, bits)));
  const auto ordered = hn::Xor(bits, hn::Or(sign, hn::Set(du, 0x80000000u)));
  return hn::IfThenZeroElse(hn::RebindMask(du, hn::IsNaN(score)), ordered);
}

template <class Key>
void Score(const LightningIndexerArgs& args, const TokenTile& tile, int64_t begin, int64_t end, TopK* top) {
  const int64_t heads = args.num_heads, words = kp::WordsOf<Key>(args.head_dim), rows = tile.num_tokens * heads;
  const int64_t panel_words = kp::PanelWords(args.head_dim);
  static thread_local quant::ScratchBuffer buffer;
  uint32_t* panel = reinterpret_cast<uint32_t*>(buffer.Get((2 * panel_words + rows * (words + 2)) * 4));
  uint32_t* widened = panel + panel_words;
  uint32_t* q = widened + panel_words;
  int32_t* starts = reinterpret_cast<int32_t*>(q + rows * words);
  float* weights = reinterpret_cast<float*>(starts + rows);

  int64_t visible[kTileTokens];
  for (int64_t t = 0; t < tile.num_tokens; ++t) {
    visible[t] = VisibleEntries(args, tile, t);
    const int64_t token = tile.first_token + t;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t r = t * heads + h;
      const Key* row = static_cast<const Key*>(args.q) + token * args.q_token_stride + h * args.q_head_stride;
      kp::WidenRow(row, args.head_dim, q + r * words);
      starts[r] = kp::RowStart(row, args.head_dim);
      weights[r] = LoadNumber(args.weights_type, args.weights, token * args.weights_token_stride + h);
      if (args.format) weights[r] *= LoadNumber(args.scales_type, args.q_scales, token * args.q_scales_token_stride + h);
    }
  }
  end = std::min(end, visible[tile.num_tokens - 1]);  // the last query sees the most

  const DF df;
  const DU du;
  HWY_ALIGN uint32_t ordered[kTileKeys];
  Entries buffers[2], *entries = &buffers[0], *next = &buffers[1];
  LocateEntries<Key>(args, tile, begin, std::min(begin + kTileKeys, end), *entries);
  for (int64_t entry = begin; entry < end; entry += kTileKeys, std::swap(entries, next)) {
    const int64_t last = std::min(entry + kTileKeys, end);
    kp::MakePanel<Key>(entries->rows, args.head_dim, widened, panel);
    LocateEntries<Key>(args, tile, last, std::min(last + kTileKeys, end), *next);  // while these are multiplied, those come
    for (int64_t t = 0; t < tile.num_tokens; ++t) {
      const int64_t count = std::min(last, visible[t]) - entry;
      if (count <= 0) continue;
      VF scores[kVectors];
      ScoreTile<Key>(args, q + t * heads * words, starts + t * heads, weights + t * heads, panel, scores);
      top[t].MakeRoom();
      const auto least = hn::Set(du, top[t].least);
      bool any = false;
      for (int v = 0; v < kVectors; ++v) {
        VF score = scores[v];
        if (args.format) score = hn::Mul(score, hn::Load(df, entries->scales + v * kLanes));
        const auto order = Ordered(score);
        hn::Store(order, du, ordered + v * kLanes);
        any |= !hn::AllFalse(du, hn::Ge(order, least));
      }
      if (!any) continue;
      for (int64_t j = 0; j < count; ++j) top[t].Push(ordered[j], entry + j);
    }
  }
}

void ScoreEntriesOfTile(const LightningIndexerArgs& args, const TokenTile& tile, int64_t begin, int64_t end, TopK* top) {
  if (args.format) {
    if (*args.format == Format::kI8) return Score<KeyCode<Format::kI8>>(args, tile, begin, end, top);
    return Score<KeyCode<Format::kE4M3>>(args, tile, begin, end, top);
  }
  switch (args.type) {
    case DType::kF32: return Score<float>(args, tile, begin, end, top);
    case DType::kF16: return Score<hwy::float16_t>(args, tile, begin, end, top);
    case DType::kBF16: return Score<hwy::bfloat16_t>(args, tile, begin, end, top);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::attention::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(ScoreEntriesOfTile);

void ScoreEntries(const LightningIndexerArgs& args, const TokenTile& tile, int64_t begin, int64_t end, TopK* top) {
  HWY_DYNAMIC_DISPATCH(ScoreEntriesOfTile)(args, tile, begin, end, top);
}

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
