// The scales of a quantised cache, where the kernel needs them. Included once per SIMD target.

#if defined(LIBS_ATTENTION_PAGED_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_PAGED_SCALES_INL_H_
#undef LIBS_ATTENTION_PAGED_SCALES_INL_H_
#else
#define LIBS_ATTENTION_PAGED_SCALES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "libs/attention/paged/paged_kernel.h"
#include "libs/attention/paged/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[j % kTile] = the per-token scale of key j, for the keys [begin, end) of a tile. Those of other keys aren't touched.
inline void GatherScales(const PagedAttentionArgs& args, const RowTile& tile, const KvScales& scales, int64_t begin, int64_t end, float* out) {
  const float* head = scales.data + tile.kv_head * scales.head_stride;
  if (scales.per == KvScales::Per::kPosition) {
    head += tile.seq * scales.seq_stride;
    for (int64_t key = begin; key < end; ++key) out[key % kTile] = head[key * scales.token_stride];
  } else if (args.slots != nullptr) {
    const int32_t* slots = args.slots + tile.seq * args.slots_stride;
    for (int64_t key = begin; key < end; ++key) {
      out[key % kTile] = head[slots[key] / args.block_size * scales.block_stride + slots[key] % args.block_size * scales.token_stride];
    }
  } else if (args.block_table == nullptr) {
    for (int64_t key = begin; key < end; ++key) out[key % kTile] = head[(tile.kv_begin + key) * scales.token_stride];
  } else {
    const int32_t* blocks = args.block_table + tile.seq * args.block_table_stride;
    for (int64_t key = begin; key < end;) {
      const int64_t slot = key % args.block_size, run_end = std::min(end, key - slot + args.block_size);
      const float* scale = head + blocks[key / args.block_size] * scales.block_stride + slot * scales.token_stride;
      for (; key < run_end; ++key, scale += scales.token_stride) out[key % kTile] = *scale;
    }
  }
}

// Scales [d, d + count) of a head's channels, count at most one vector.
HWY_INLINE VF ChannelScales(const KvScales& scales, int64_t kv_head, int64_t d, size_t count) {
  const DF df;
  const float* head = scales.data + kv_head * scales.head_stride;
  if (scales.channel_stride == 0) return hn::Set(df, *head);
  if (scales.channel_stride == 1) return hn::LoadN(df, head + d, count);
  HWY_ALIGN float lanes[kLanes] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = head[(d + i) * scales.channel_stride];
  return hn::Load(df, lanes);
}

HWY_INLINE void MultiplyByScales(int64_t rows, const float* HWY_RESTRICT scales, float* HWY_RESTRICT scores) {
  const DF df;
  VF factors[kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) factors[v] = hn::Load(df, scales + v * kLanes);
  for (int64_t r = 0; r < rows; ++r, scores += kTile) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::Store(hn::Mul(hn::Load(df, scores + v * kLanes), factors[v]), df, scores + v * kLanes);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
