// A stripe of weights in the order in which the kernel multiplies it. Included once per SIMD target, see Highway's foreach_target.h.
//
// A step of a panel is 32 lanes of 32 bits, one per column. A lane holds the weights of a column that are neighbours in k: four as bytes, their
// sign bit flipped (w + 128), where the CPU has a dot product of unsigned with signed bytes; else two as int16. Lanes of columns behind n,
// and elements of the last step behind k, hold anything: sums of the former are not stored, and the latter meet zeros.

#if defined(LIBS_QUANT_INT8_GEMM_INT8_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_INT8_GEMM_INT8_PANEL_INL_H_
#undef LIBS_QUANT_INT8_GEMM_INT8_PANEL_INL_H_
#else
#define LIBS_QUANT_INT8_GEMM_INT8_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "libs/quant/int8_gemm/int8_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
inline constexpr bool kDot = true;  // vpdpbusd
#else
inline constexpr bool kDot = false;
#endif

using DI = hn::CappedTag<int32_t, 16>;
using VI = hn::Vec<DI>;
inline constexpr int kLanes = hn::MaxLanes(DI());
inline constexpr int kPerLane = kDot ? 4 : 2;     // elements of k in a lane
inline constexpr int64_t kColumns = kInt8Stripe;  // lanes of a step

using D32x4 = hn::FixedTag<int32_t, 4>;

// Four lanes of a column: its weights from `w` on.
HWY_INLINE hn::Vec<D32x4> FourLanes(const int8_t* HWY_RESTRICT w) {
  const D32x4 d;
  if constexpr (kDot) {
    const hn::FixedTag<int8_t, 16> d8;
    return hn::BitCast(d, hn::Xor(hn::LoadU(d8, w), hn::Set(d8, int8_t{-128})));
  } else {
    return hn::BitCast(d, hn::PromoteTo(hn::FixedTag<int16_t, 8>(), hn::LoadU(hn::FixedTag<int8_t, 8>(), w)));
  }
}

// 16 columns by 32 elements of k; column j is contiguous at w + j * stride.
HWY_INLINE void PackBlock(const int8_t* HWY_RESTRICT w, int64_t stride, int32_t* HWY_RESTRICT panel) {
  const D32x4 d;
  const hn::Repartition<int64_t, D32x4> d64;
  for (int j = 0; j < 16; j += 4) {
    for (int step = 0; step < 32 / kPerLane; step += 4) {
      const int8_t* from = w + j * stride + step * kPerLane;
      const auto a = FourLanes(from), b = FourLanes(from + stride), c = FourLanes(from + 2 * stride), e = FourLanes(from + 3 * stride);
      const auto ab0 = hn::BitCast(d64, hn::InterleaveLower(d, a, b)), ab1 = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ce0 = hn::BitCast(d64, hn::InterleaveLower(d, c, e)), ce1 = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
      int32_t* to = panel + step * kColumns + j;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab0, ce0)), d, to);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab0, ce0)), d, to + kColumns);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab1, ce1)), d, to + 2 * kColumns);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab1, ce1)), d, to + 3 * kColumns);
    }
  }
}

inline constexpr int kStripeVectors = kColumns / kLanes;

// 16 pairs of bytes as pairs of int16.
template <class D, class V8 = hn::Vec<hn::FixedTag<int8_t, 16>>>
HWY_INLINE void Widen(D d, V8 lower, V8 upper, hn::Vec<D>* to) {
  const hn::Repartition<int16_t, D> d16;
  if constexpr (hn::MaxLanes(D()) == 16) {
    const hn::Half<decltype(d16)> dh;
    to[0] = hn::BitCast(d, hn::Combine(d16, hn::PromoteTo(dh, upper), hn::PromoteTo(dh, lower)));
  } else if constexpr (hn::MaxLanes(D()) == 8) {
    to[0] = hn::BitCast(d, hn::PromoteTo(d16, lower));
    to[1] = hn::BitCast(d, hn::PromoteTo(d16, upper));
  } else {
    to[0] = hn::BitCast(d, hn::PromoteLowerTo(d16, lower));
    to[1] = hn::BitCast(d, hn::PromoteUpperTo(d16, lower));
    to[2] = hn::BitCast(d, hn::PromoteLowerTo(d16, upper));
    to[3] = hn::BitCast(d, hn::PromoteUpperTo(d16, upper));
  }
}

// One step from kPerLane rows of 32 columns.
HWY_INLINE void LoadStep(const int8_t* const (&rows)[kPerLane], VI (&step)[kStripeVectors]) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  const hn::FixedTag<uint8_t, 64> d;
  const hn::Half<decltype(d)> dh;
  HWY_ALIGN static constexpr struct Order {
    constexpr Order() : of_lower(), of_upper() {
      for (int lane = 0; lane < 16; ++lane) {
        for (int row = 0; row < 4; ++row) {
          of_lower[lane * 4 + row] = row * 32 + lane;
          of_upper[lane * 4 + row] = row * 32 + lane + 16;
        }
      }
    }
    uint8_t of_lower[64], of_upper[64];
  } kOrder;
  const auto load = [&](int row) HWY_ATTR { return hn::LoadU(dh, reinterpret_cast<const uint8_t*>(rows[row])); };
  const auto flip = hn::Set(d, uint8_t{128});
  const auto a = hn::Xor(hn::Combine(d, load(1), load(0)), flip), b = hn::Xor(hn::Combine(d, load(3), load(2)), flip);
  step[0] = hn::BitCast(DI(), hn::TwoTablesLookupLanes(d, a, b, hn::SetTableIndices(d, kOrder.of_lower)));
  step[1] = hn::BitCast(DI(), hn::TwoTablesLookupLanes(d, a, b, hn::SetTableIndices(d, kOrder.of_upper)));
#else
  const hn::FixedTag<int8_t, 16> d8;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const auto a = hn::LoadU(d8, rows[0] + half * 16), b = hn::LoadU(d8, rows[1] + half * 16);
    Widen(DI(), hn::InterleaveLower(d8, a, b), hn::InterleaveUpper(d8, a, b), step + half * (kStripeVectors / 2));
  }
#endif
}

HWY_INLINE void PackStep(const int8_t* const (&rows)[kPerLane], int32_t* HWY_RESTRICT panel) {
  VI step[kStripeVectors];
  LoadStep(rows, step);
#pragma GCC unroll 8
  for (int v = 0; v < kStripeVectors; ++v) hn::Store(step[v], DI(), panel + v * kLanes);
}

// How far ahead weights are fetched, in blocks of 512 bytes. The processor's own prefetch does not guess short pieces, and has nothing to go
// on while a panel is multiplied.
inline constexpr int64_t kBlocksAhead = 8;

// Of the fractals of [k, n], which lie one behind the other: 8 KiB ahead, into the second-level cache, as the misses that the first may wait
// for are too few to keep the memory busy.
HWY_INLINE void PrefetchStep(const int8_t* w) {
  for (int byte = 0; byte < kPerLane * kColumns; byte += 64) __builtin_prefetch(w + 2 * kBlocksAhead * 512 + byte, /*rw=*/0, /*locality=*/2);
}

// Weights of which the neighbours in k are contiguous.
HWY_INLINE void PackColumns(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, int64_t k_begin, int64_t k_end, int32_t* panel) {
  const int64_t blocks_n = (args.n + 15) / 16;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t n0 = stripe * kColumns + half * 16, columns = std::min<int64_t>(16, args.n - n0);
    if (columns <= 0) return;
    for (int64_t k = k_begin; k < k_end; k += 32) {
      int32_t* to = panel + (k - k_begin) / kPerLane * kColumns + half * 16;
      if (args.layout == Int8Layout::kFractalNK) {
        const int8_t* from = w + (k / 32 * blocks_n + n0 / 16) * 512;
        for (int byte = 0; byte < 512; byte += 64) hwy::Prefetch(from + kBlocksAhead * blocks_n * 512 + byte);
        PackBlock(from, 32, to);
        continue;
      }
      const int8_t* from = w + n0 * args.ldw + k;
      for (int j = 0; j < 16; ++j) hwy::Prefetch(from + j * args.ldw + kBlocksAhead * 32);
      const int64_t depth = std::min<int64_t>(32, k_end - k);
      if (columns == 16 && depth == 32) {
        PackBlock(from, args.ldw, to);
      } else {  // nothing outside of the matrix is read
        int8_t block[16 * 32] = {};
        for (int64_t j = 0; j < columns; ++j) std::memcpy(block + j * 32, from + j * args.ldw, depth);
        PackBlock(block, 32, to);
      }
    }
  }
}

// Weights of which the neighbours in n are contiguous.
HWY_INLINE void PackRowsOfWeights(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, int64_t k_begin, int64_t k_end, int32_t* panel) {
  const bool fractal = args.layout == Int8Layout::kFractalKN;
  const int64_t ld = fractal ? kColumns : args.ldw, columns = fractal ? kColumns : std::min(kColumns, args.n - stripe * kColumns);
  const int8_t* from = fractal ? w + stripe * ((args.k + 15) / 16 * 16 * kColumns) : w + stripe * kColumns;
  for (int64_t k = k_begin; k < k_end; k += kPerLane, panel += kColumns) {
    const int8_t* rows[kPerLane];
    if (columns == kColumns && (fractal || k + kPerLane <= k_end)) {
      for (int i = 0; i < kPerLane; ++i) rows[i] = from + (k + i) * ld;
      if (fractal) PrefetchStep(rows[0]);
      PackStep(rows, panel);
    } else {
      int8_t padded[kPerLane][kColumns] = {};
      for (int i = 0; i < kPerLane; ++i) {
        if (k + i < k_end) std::memcpy(padded[i], from + (k + i) * ld, columns);
        rows[i] = padded[i];
      }
      PackStep(rows, panel);
    }
  }
}

// The elements [k_begin, k_end) of a stripe's columns; k_begin is a multiple of 32. Room for a multiple of 32 elements of k.
HWY_INLINE void PackPanel(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, int64_t k_begin, int64_t k_end, int32_t* panel) {
  if (args.layout == Int8Layout::kNK || args.layout == Int8Layout::kFractalNK) return PackColumns(args, w, stripe, k_begin, k_end, panel);
  PackRowsOfWeights(args, w, stripe, k_begin, k_end, panel);
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
