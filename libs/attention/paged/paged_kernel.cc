#include "libs/attention/paged/paged_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "libs/quant/scratch_buffer.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/paged/paged_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "libs/attention/indexer/key_panel-inl.h"
#include "libs/attention/paged/scales-inl.h"
#include "libs/attention/paged/softmax-inl.h"
#include "libs/attention/paged/tiles-inl.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;
namespace kp = key_panel::HWY_NAMESPACE;

// Everything a worker needs for one row tile, in one grow-only buffer.
struct Scratch {
  float *q, *keys, *values, *scores, *merged, *chunk;
  bool pairs;       // q and keys are pairs of bf16, not scaled: see UsesPairs
  int64_t end;      // of the keys of all chunks
  bool prefetched;  // what the next chunk reads first
  hwy::bfloat16_t *decoded_keys, *decoded_values;  // [kTile][DecodedStride(dim)]
  KeyRange visible[kMaxRows];
  uint8_t hidden[kMaxRows][kTile];
};

float* GrowOnlyBuffer(int64_t floats) {
  static thread_local quant::ScratchBuffer buffer;
  return reinterpret_cast<float*>(buffer.Get(floats * static_cast<int64_t>(sizeof(float))));
}

int64_t QueryOffset(const RowTile& tile, int64_t group, int64_t row, int64_t token_stride, int64_t head_stride) {
  return (tile.query_begin + row / group) * token_stride + (tile.kv_head * group + row % group) * head_stride;
}

// Of the keys [begin, end) of a tile, whose first key is a multiple of kTile.
template <typename K>
HWY_INLINE void LocateKeys(const PagedAttentionArgs& args, const RowTile& tile, int64_t begin, int64_t end, TileRows& rows) {
  const K* k = static_cast<const K*>(args.k) + tile.kv_head * args.k_head_stride;
  const K* v = static_cast<const K*>(args.v) + tile.kv_head * args.v_head_stride;
  const K* r = args.rope_dim == 0 ? nullptr : static_cast<const K*>(args.k_rope) + tile.kv_head * args.k_rope_head_stride;
  const int32_t* blocks = args.block_table == nullptr ? nullptr : args.block_table + tile.seq * args.block_table_stride;
  const int32_t* slots = args.slots == nullptr ? nullptr : args.slots + tile.seq * args.slots_stride;
  for (int64_t key = begin; key < end;) {
    int64_t run = end - key, block = 0, token = tile.kv_begin + key;  // keys that lie one token stride apart
    if (slots != nullptr) {
      block = slots[key] / args.block_size;
      token = slots[key] % args.block_size;
      run = 1;
    } else if (blocks != nullptr) {
      block = blocks[key / args.block_size];
      token = key % args.block_size;
      run = std::min(run, args.block_size - token);
    }
    for (const int64_t run_end = key + run; key < run_end; ++key, ++token) {
      rows.keys[key % kTile] = reinterpret_cast<const char*>(k + block * args.k_block_stride + token * args.k_token_stride);
      rows.values[key % kTile] = reinterpret_cast<const char*>(v + block * args.v_block_stride + token * args.v_token_stride);
      if (r != nullptr) rows.ropes[key % kTile] = reinterpret_cast<const char*>(r + block * args.k_rope_block_stride + token * args.k_rope_token_stride);
    }
  }
}

// Rows are short and lie apart, so the processor's own prefetch does not find them. Many at once wait for each other: what can be asked for
// while something is computed is (AddValuesDirect).
HWY_INLINE void PrefetchRows(const char* const* rows, int64_t count, int64_t bytes) {
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t byte = 0; byte < bytes; byte += 64) hwy::Prefetch(rows[j] + byte);
  }
}

// rows[j] = where the products read key j (or value j) of [first, last): in the cache, or decoded.
template <typename K>
HWY_INLINE void ReadableRows(const char* const* cached, int64_t first, int64_t last, int64_t dim, hwy::bfloat16_t* decoded, const char** rows) {
  for (int64_t j = first; j < last; ++j) {
    rows[j] = cached[j];
    if constexpr (kDecodedFirst<K>) {
      hwy::bfloat16_t* row = decoded + j * DecodedStride(dim);
      DecodeRow(reinterpret_cast<const K*>(cached[j]), dim, row);
      rows[j] = reinterpret_cast<const char*>(row);
    }
  }
}

// Entries outside [first, last) become copies of the nearest.
HWY_INLINE void RepeatOutside(const char** rows, int64_t first, int64_t last) {
  std::fill(rows, rows + first, rows[first]);
  std::fill(rows + last, rows + kTile, rows[last - 1]);
}

// Whether queries and keys are multiplied as pairs of bf16, which the CPU does in one instruction and exactly but for the sums. Then the scale
// comes with the score. It depends on what all rows have in common only.
template <typename T>
bool UsesPairs(const PagedAttentionArgs& args) {
  constexpr int64_t kWhole = 8;  // elements of the words that are transposed together
  return HWY_NATIVE_DOT_BF16 && std::is_same_v<T, hwy::bfloat16_t> && !args.k_scales.PerChannel() && args.head_dim % kWhole == 0 && args.rope_dim % kWhole == 0;
}

// out[0:dim] = in * factor(d); writes up to a whole vector behind.
template <typename T, typename Factor>
HWY_INLINE void ScaleQuery(const T* in, int64_t dim, float* HWY_RESTRICT out, const Factor& factor) {
  for (int64_t d = 0; d < dim; d += kLanes) {
    const size_t count = std::min<int64_t>(kLanes, dim - d);
    hn::StoreU(hn::Mul(fv::LoadF32(DF(), in + d, count), factor(d, count)), DF(), out + d);
  }
}

// scores = cap * tanh(scores / cap), in place.
HWY_NOINLINE void CapScores(float cap, int64_t count, float* HWY_RESTRICT scores) {
  const DF df;
  const VF size = hn::Set(df, cap), inverse = hn::Set(df, 1.0f / cap);
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(hn::Mul(size, hn::Tanh(df, hn::Mul(hn::Load(df, scores + i), inverse))), df, scores + i);
}

// scores[rows][kTile] = the products of q and the tile's keys.
template <typename K>
HWY_INLINE void MultiplyPairs(const PagedAttentionArgs& args, int64_t rows, const char* const* keys, const char* const* ropes, Scratch& scratch) {
  static_assert(kTile == key_panel::kTileKeys && std::is_same_v<RowType<K>, hwy::bfloat16_t>);
  static constexpr int32_t kStarts[kMaxRows] = {};
  uint32_t* panel = reinterpret_cast<uint32_t*>(scratch.keys);
  const int64_t words = (args.head_dim + args.rope_dim) / 2;
  kp::TransposeWords(reinterpret_cast<const uint32_t* const*>(keys), args.head_dim / 2, 0, panel);
  if (args.rope_dim > 0) kp::TransposeWords(reinterpret_cast<const uint32_t* const*>(ropes), args.rope_dim / 2, 0, panel + args.head_dim / 2 * kTile);
  const VF scale = hn::Set(DF(), args.scale);
  kp::MultiplyRows<kp::BF16Math>(rows, 0, reinterpret_cast<const uint32_t*>(scratch.q), kStarts, words, panel, [&](int64_t row, int v, VF products) HWY_ATTR {
    hn::Store(hn::Mul(products, scale), DF(), scratch.scores + row * kTile + v * kLanes);
  });
}

// Per-token scales of K multiply the scores before the softmax, those of V the probabilities after it. Scales per channel are in q, or come
// with the output.
template <typename K>
void Chunk(const PagedAttentionArgs& args, const RowTile& tile, int64_t group, const KeyRange& range, Scratch& scratch, const Partial& out) {
  const int64_t rows = tile.row_end - tile.row_begin, stride = ValueStride(args.value_head_dim), dim = args.head_dim + args.rope_dim;
  std::fill(out.max, out.max + rows, kNone);
  std::fill(out.sum, out.sum + rows, 0.0f);
  std::memset(out.values, 0, rows * stride * sizeof(float));

  TileRows located, next;
  HWY_ALIGN float k_scales[kTile] = {}, v_scales[kTile] = {};
  for (int64_t begin = range.begin / kTile * kTile; begin < range.end; begin += kTile) {
    const int64_t first = std::max(range.begin, begin) - begin, last = std::min(range.end, begin + kTile) - begin;
    if (begin <= range.begin) LocateKeys<K>(args, tile, begin + first, begin + last, located);
    if (!scratch.prefetched) PrefetchRows(located.values + first, last - first, args.value_head_dim * sizeof(K));
    // Keys outside the range are not touched; their scores, of a copy of some other key, are then hidden.
    const char* keys[kTile];
    ReadableRows<K>(located.keys, first, last, args.head_dim, scratch.decoded_keys, keys);
    RepeatOutside(keys, first, last);

    if (args.rope_dim > 0) RepeatOutside(located.ropes, first, last);
    if (scratch.pairs) {
      if constexpr (std::is_same_v<RowType<K>, hwy::bfloat16_t>) MultiplyPairs<K>(args, rows, keys, located.ropes, scratch);
    } else {
      TransposeKeys<RowType<K>>(keys, args.head_dim, scratch.keys);
      if (args.rope_dim > 0) TransposeKeys<RowType<K>>(located.ropes, args.rope_dim, scratch.keys + args.head_dim * kTile);
      std::memset(scratch.scores, 0, rows * kTile * sizeof(float));
      MultiplyRows<kRegisterRows>(rows, scratch.q, dim, scratch.keys, kTile, dim, scratch.scores, kTile);
    }
    if (args.k_scales.PerToken()) {
      GatherScales(args, tile, args.k_scales, begin + first, begin + last, k_scales);
      MultiplyByScales(rows, k_scales, scratch.scores);
    }
    if (args.soft_cap > 0) CapScores(args.soft_cap, rows * kTile, scratch.scores);

    Visible visible[kMaxRows];
    for (int64_t r = 0; r < rows; ++r) {
      visible[r] = VisibleInTile(args, tile, group, r, scratch.visible[r], begin, scratch.hidden[r]);
      if (visible[r].begin >= visible[r].end) continue;
      const float factor = SoftmaxRow(scratch.scores + r * kTile, visible[r], scratch.hidden[r], out.max[r], out.sum[r]);
      if (factor != 1.0f) ScaleRow(out.values + r * stride, stride, factor);
    }
    if (args.v_scales.PerToken()) {
      GatherScales(args, tile, args.v_scales, begin + first, begin + last, v_scales);
      MultiplyByScales(rows, v_scales, scratch.scores);
    }
    const int64_t next_keys = std::min(kTile, scratch.end - begin - kTile);
    if (next_keys > 0) {
      LocateKeys<K>(args, tile, begin + kTile, begin + kTile + next_keys, next);
      RepeatOutside(next.keys, 0, next_keys);
      RepeatOutside(next.values, 0, next_keys);
      if (args.rope_dim > 0) PrefetchRows(next.ropes, next_keys, args.rope_dim * sizeof(K));
    } else {
      next = located;
      RepeatOutside(next.keys, first, last);
      RepeatOutside(next.values, first, last);
    }
    scratch.prefetched = next_keys > 0;
    const bool direct = rows <= kRegisterRows && stride == args.value_head_dim && std::all_of(visible, visible + rows, [&](const Visible& row) {
      return row.whole && row.begin == visible[0].begin && row.end == visible[0].end;
    });
    const char* values[kTile];
    ReadableRows<K>(located.values, first, last, args.value_head_dim, scratch.decoded_values, values);
    if (direct) {
      AddValuesDirect<RowType<K>, sizeof(K)>(rows, scratch.scores, values, visible[0].begin, visible[0].end, stride, next, out.values);
      const int64_t done = stride * sizeof(K), key_bytes = args.head_dim * sizeof(K);
      if (key_bytes > done) {
        for (int64_t j = 0; j < next_keys; ++j) PrefetchRows(&next.keys[j], 1, key_bytes);
      }
    } else {
      for (int64_t j = first; j < last; ++j) {
        PrefetchRows(&next.keys[j], 1, args.head_dim * sizeof(K));
        PrefetchRows(&next.values[j], 1, args.value_head_dim * sizeof(K));
        WidenRow(reinterpret_cast<const RowType<K>*>(values[j]), args.value_head_dim, stride, scratch.values + j * stride);
      }
      AddValues(rows, visible, scratch.scores, scratch.hidden, scratch.values, stride, out.values);
    }
    located = next;
  }
}

// into := the state after the keys of `into` and those of `next`.
HWY_NOINLINE void MergeInto(const Partial& into, const Partial& next, int64_t rows, int64_t stride) {
  const DF df;
  for (int64_t r = 0; r < rows; ++r) {
    if (next.max[r] == kNone) continue;
    float* HWY_RESTRICT to = into.values + r * stride;
    const float* HWY_RESTRICT from = next.values + r * stride;
    if (into.max[r] == kNone) {
      into.max[r] = next.max[r];
      into.sum[r] = next.sum[r];
      std::memcpy(to, from, stride * sizeof(float));
      continue;
    }
    const float max = std::max(into.max[r], next.max[r]);
    const float a = hn::GetLane(ExpNonpositive(df, hn::Set(df, into.max[r] - max)));
    const float b = hn::GetLane(ExpNonpositive(df, hn::Set(df, next.max[r] - max)));
    into.max[r] = max;
    into.sum[r] = into.sum[r] * a + next.sum[r] * b;
    const VF va = hn::Set(df, a), vb = hn::Set(df, b);
    for (int64_t d = 0; d < stride; d += kLanes) {
      hn::Store(hn::MulAdd(hn::Load(df, from + d), vb, hn::Mul(hn::Load(df, to + d), va)), df, to + d);
    }
  }
}

// The state of a row after a score whose value is zero. `factor` is what the values it has are to be multiplied by.
void AddSink(float sink, float& max, float& sum, float& factor) {
  if (sink == kNone) return;
  const DF df;
  const float before = max;
  max = std::max(before, sink);
  factor = before == kNone ? 0.0f : hn::GetLane(ExpNonpositive(df, hn::Set(df, before - max)));
  sum = (before == kNone ? 0.0f : sum * factor) + hn::GetLane(ExpNonpositive(df, hn::Set(df, sink - max)));
}

template <typename T>
void WriteOutputAs(const PagedAttentionArgs& args, const RowTile& tile, const Partial& state) {
  const DF df;
  const int64_t group = args.num_heads / args.num_kv_heads, stride = ValueStride(args.value_head_dim);
  for (int64_t row = tile.row_begin; row < tile.row_end; ++row) {
    const int64_t r = row - tile.row_begin;
    const bool nothing = state.max[r] == kNone;
    float max = state.max[r], sum = state.sum[r], factor = 1.0f;
    if (args.sinks != nullptr) AddSink(args.sinks[tile.kv_head * group + row % group], max, sum, factor);
    const VF inverse = hn::Set(df, factor / sum);
    T* out = static_cast<T*>(args.out) + QueryOffset(tile, group, row, args.out_token_stride, args.out_head_stride);
    for (int64_t d = 0; d < args.value_head_dim; d += kLanes) {
      const size_t count = std::min<int64_t>(kLanes, args.value_head_dim - d);
      // The values of a row that saw nothing were never written.
      VF value = nothing ? hn::Zero(df) : hn::Mul(hn::Load(df, state.values + r * stride + d), inverse);
      if (args.v_scales.PerChannel() && !nothing) value = hn::Mul(value, ChannelScales(args.v_scales, tile.kv_head, d, count));
      fv::StoreF32(df, value, out + d, count);
    }
    if (args.lse != nullptr) {
      args.lse[QueryOffset(tile, group, row, args.lse_token_stride, args.lse_head_stride)] =
          max == kNone ? std::numeric_limits<float>::infinity() : max + std::log(sum);
    }
  }
}

void WriteOutput(const PagedAttentionArgs& args, const RowTile& tile, const Partial& state) {
  switch (args.out_type.value_or(args.type)) {
    case DType::kF32: return WriteOutputAs<float>(args, tile, state);
    case DType::kF16: return WriteOutputAs<hwy::float16_t>(args, tile, state);
    case DType::kBF16: return WriteOutputAs<hwy::bfloat16_t>(args, tile, state);
  }
}

using ChunkFunction = void (*)(const PagedAttentionArgs&, const RowTile&, int64_t group, const KeyRange&, Scratch&, const Partial&);

template <typename T>
ChunkFunction ChunkOf(std::optional<quant::Format> format) {
  if (!format) return Chunk<T>;
  if (*format == quant::Format::kI8) return Chunk<Code<Format::kI8>>;
  return *format == quant::Format::kE4M3 ? Chunk<Code<Format::kE4M3>> : Chunk<Code<Format::kE5M2>>;
}

template <typename T>
void Chunks(const PagedAttentionArgs& args, const RowTile& tile, int64_t chunk_begin, int64_t chunk_end, float* partials) {
  const int64_t group = args.num_heads / args.num_kv_heads, rows = tile.row_end - tile.row_begin;
  const int64_t stride = ValueStride(args.value_head_dim), partial_floats = PartialFloats(rows, args.value_head_dim);
  const int64_t dim = args.head_dim + args.rope_dim, key_floats = dim * kTile, q_floats = (rows * dim + 2 * kTile + 15) / 16 * 16;
  Scratch scratch;
  const int64_t decoded_keys = kTile * DecodedStride(args.head_dim), decoded_values = kTile * DecodedStride(args.value_head_dim);
  const int64_t decoded_floats = args.kv_format ? (decoded_keys + decoded_values) / 2 : 0;
  scratch.q = GrowOnlyBuffer(q_floats + key_floats + kTile * stride + rows * kTile + 2 * partial_floats + decoded_floats);
  scratch.keys = scratch.q + q_floats;
  scratch.values = scratch.keys + key_floats;
  scratch.scores = scratch.values + kTile * stride;
  scratch.merged = scratch.scores + rows * kTile;
  scratch.chunk = scratch.merged + partial_floats;
  scratch.decoded_keys = reinterpret_cast<hwy::bfloat16_t*>(scratch.chunk + partial_floats);
  scratch.decoded_values = scratch.decoded_keys + decoded_keys;

  scratch.prefetched = false;
  scratch.pairs = UsesPairs<T>(args) && (!args.kv_format || kDecodedFirst<Code<Format::kI8>> || *args.kv_format != Format::kI8);
  const ChunkFunction compute_chunk = ChunkOf<T>(args.kv_format);
  const KeyRange all = VisibleKeys(args, tile);
  scratch.end = std::min(all.end, chunk_end * kChunk);
  for (int64_t r = 0; r < rows; ++r) {
    scratch.visible[r] = VisibleKeys(args, tile, tile.row_begin + r);
    // Rows are dense: the next part, or row, overwrites what is written too much.
    float* out = scratch.q + r * dim;
    const VF scale = hn::Set(DF(), args.scale);
    const T* q = static_cast<const T*>(args.q) + QueryOffset(tile, group, tile.row_begin + r, args.q_token_stride, args.q_head_stride);
    const T* rope = args.rope_dim == 0 ? nullptr : static_cast<const T*>(args.q_rope) + QueryOffset(tile, group, tile.row_begin + r, args.q_rope_token_stride, args.q_rope_head_stride);
    if (scratch.pairs) {
      T* words = reinterpret_cast<T*>(scratch.q) + r * dim;
      std::memcpy(words, q, args.head_dim * sizeof(T));
      if (rope != nullptr) std::memcpy(words + args.head_dim, rope, args.rope_dim * sizeof(T));
      continue;
    }
    ScaleQuery(q, args.head_dim, out, [&](int64_t d, size_t count) HWY_ATTR {
      return args.k_scales.PerChannel() ? hn::Mul(scale, ChannelScales(args.k_scales, tile.kv_head, d, count)) : scale;
    });
    if (rope == nullptr) continue;
    ScaleQuery(rope, args.rope_dim, out + args.head_dim, [&](int64_t, size_t) HWY_ATTR { return scale; });
  }
  const Partial merged = PartialAt(scratch.merged, rows, args.value_head_dim);
  std::fill(merged.max, merged.max + rows, kNone);
  for (int64_t chunk = chunk_begin; chunk < chunk_end; ++chunk) {
    float* memory = partials != nullptr ? partials + (chunk - chunk_begin) * partial_floats : scratch.chunk;
    const Partial state = PartialAt(memory, rows, args.value_head_dim);
    const KeyRange range = {std::max(all.begin, chunk * kChunk), std::min(all.end, (chunk + 1) * kChunk)};
    compute_chunk(args, tile, group, range, scratch, state);
    if (partials == nullptr) MergeInto(merged, state, rows, stride);
  }
  if (partials == nullptr) WriteOutput(args, tile, merged);
}

void ChunksOfTile(const PagedAttentionArgs& args, const RowTile& tile, int64_t chunk_begin, int64_t chunk_end, float* partials) {
  switch (args.type) {
    case DType::kF32: return Chunks<float>(args, tile, chunk_begin, chunk_end, partials);
    case DType::kF16: return Chunks<hwy::float16_t>(args, tile, chunk_begin, chunk_end, partials);
    case DType::kBF16: return Chunks<hwy::bfloat16_t>(args, tile, chunk_begin, chunk_end, partials);
  }
}

void MergeTile(const PagedAttentionArgs& args, const RowTile& tile, int64_t num_chunks, float* partials) {
  const int64_t rows = tile.row_end - tile.row_begin, floats = PartialFloats(rows, args.value_head_dim);
  const Partial merged = PartialAt(partials, rows, args.value_head_dim);
  for (int64_t chunk = 1; chunk < num_chunks; ++chunk) {
    MergeInto(merged, PartialAt(partials + chunk * floats, rows, args.value_head_dim), rows, ValueStride(args.value_head_dim));
  }
  WriteOutput(args, tile, merged);
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::attention::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(ChunksOfTile);
HWY_EXPORT(MergeTile);

KeyRange VisibleKeys(const PagedAttentionArgs& args, const RowTile& tile, int64_t row) {
  const int64_t position = tile.kv_len - tile.num_queries + row / (args.num_heads / args.num_kv_heads);
  return {args.window_left < 0 ? 0 : std::max<int64_t>(0, position - args.window_left),
          args.window_right < 0 ? tile.kv_len : std::min(tile.kv_len, position + args.window_right + 1)};
}

KeyRange VisibleKeys(const PagedAttentionArgs& args, const RowTile& tile) {
  // Positions grow with the row, so the first row sees furthest left and the last one furthest right.
  return {VisibleKeys(args, tile, tile.row_begin).begin, VisibleKeys(args, tile, tile.row_end - 1).end};
}

int64_t ValueStride(int64_t value_head_dim) { return (value_head_dim + kTile - 1) / kTile * kTile; }

int64_t PartialFloats(int64_t rows, int64_t value_head_dim) {
  return (2 * rows + 15) / 16 * 16 + rows * ValueStride(value_head_dim);
}

Partial PartialAt(float* memory, int64_t rows, int64_t) { return {memory, memory + rows, memory + (2 * rows + 15) / 16 * 16}; }

void ComputeChunks(const PagedAttentionArgs& args, const RowTile& tile, int64_t chunk_begin, int64_t chunk_end, float* partials) {
  HWY_DYNAMIC_DISPATCH(ChunksOfTile)(args, tile, chunk_begin, chunk_end, partials);
}

void MergeChunks(const PagedAttentionArgs& args, const RowTile& tile, int64_t num_chunks, float* partials) {
  HWY_DYNAMIC_DISPATCH(MergeTile)(args, tile, num_chunks, partials);
}

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
