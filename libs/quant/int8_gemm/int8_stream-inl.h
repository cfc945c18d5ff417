// Decode: few rows, whose sums fit the registers, go over weights as they come from memory. Included once per SIMD target.

#if defined(LIBS_QUANT_INT8_GEMM_INT8_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_INT8_GEMM_INT8_STREAM_INL_H_
#undef LIBS_QUANT_INT8_GEMM_INT8_STREAM_INL_H_
#else
#define LIBS_QUANT_INT8_GEMM_INT8_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "libs/quant/int8_gemm/int8_kernel.h"
#include "libs/quant/int8_gemm/int8_panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE VI MultiplyAdd(VI a, VI w, VI sum) {
  const DI di;
  if constexpr (kDot) {
    return hn::SumOfMulQuadAccumulate(di, hn::BitCast(hn::Repartition<uint8_t, DI>(), w), hn::BitCast(hn::Repartition<int8_t, DI>(), a), sum);
  } else {
    const hn::Repartition<int16_t, DI> d16;
    return hn::Add(sum, hn::WidenMulPairwiseAdd(di, hn::BitCast(d16, a), hn::BitCast(d16, w)));
  }
}

// The sums of kRows rows by kVectors vectors of columns, in registers while steps of weights go over them.
template <int kRows, int kVectors>
HWY_INLINE void LoadSums(const int32_t* HWY_RESTRICT sums, VI (&sum)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Load(DI(), sums + i * kColumns + v * kLanes);
  }
}
template <int kRows, int kVectors>
HWY_INLINE void StoreSums(const VI (&sum)[kRows][kVectors], int32_t* HWY_RESTRICT sums) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[i][v], DI(), sums + i * kColumns + v * kLanes);
  }
}

// One step: a lane of activations of each row (a_stride bytes apart) times the vectors of weights.
template <int kRows, int kVectors>
HWY_INLINE void AddStep(const char* HWY_RESTRICT a, int64_t a_stride, const VI (&weights)[kVectors], VI (&sum)[kRows][kVectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    int32_t lane;
    std::memcpy(&lane, a + i * a_stride, sizeof(lane));
    const VI activations = hn::Set(DI(), lane);
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[i][v] = MultiplyAdd(activations, weights[v], sum[i][v]);
  }
}

// FRACTAL_NZ of [k, n]: a lane of a sum is a column, as in a panel. `w` is where the stripe begins; sums: [kRows][kColumns], added to.
template <int kRows>
HWY_NOINLINE void StreamStripe(const char* HWY_RESTRICT a, int64_t a_stride, const int8_t* HWY_RESTRICT w, int64_t steps, int32_t* HWY_RESTRICT sums) {
  VI sum[kRows][kStripeVectors];
  LoadSums(sums, sum);
  for (int64_t step = 0; step < steps; ++step) {
    const int8_t* rows[kPerLane];
    for (int i = 0; i < kPerLane; ++i) rows[i] = w + i * kColumns;
    PrefetchStep(w);
    VI weights[kStripeVectors];
    LoadStep(rows, weights);
    AddStep(a, a_stride, weights, sum);
    a += sizeof(int32_t);
    w += kPerLane * kColumns;
  }
  StoreSums(sum, sums);
}
inline constexpr int kStreamStripeRows = kLanes == 16 ? 12 : 2;

// Weights of which the neighbours in k are contiguous: lanes of a sum share a column (two columns, where a vector of bytes is longer than the
// 32 elements of a fractal's row), and are added up at the end.
inline constexpr int kElementBytes = 4 / kPerLane;      // of an activation
inline constexpr int kLaneBytes = kLanes * kPerLane;  // of weights in a vector
inline constexpr int kStreamColumnsRows = 3;

template <class D>
HWY_INLINE hn::Vec<D> LoadWeights(D d, const int8_t* w) {
  if constexpr (hn::MaxLanes(D()) * 4 == kLaneBytes) {
    const hn::Repartition<int8_t, D> d8;
    return hn::BitCast(d, hn::Xor(hn::LoadU(d8, w), hn::Set(d8, int8_t{-128})));
  } else {
    const hn::Repartition<int16_t, D> d16;
    return hn::BitCast(d, hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, decltype(d16)>(), w)));
  }
}

// Adds the products of kVectors vectors of columns, vector_stride apart: `blocks` times kSteps vectors along k, the next block block_stride
// further. With kPair a vector holds 32 elements of k of two columns. sums: [kRows][kColumns].
template <int kRows, int kVectors, int kSteps, bool kPair>
HWY_NOINLINE void StreamVectors(const char* HWY_RESTRICT a, int64_t a_stride, const int8_t* HWY_RESTRICT w, int64_t vector_stride,
                                int64_t block_stride, int64_t blocks, int64_t ahead, int32_t* HWY_RESTRICT sums) {
  const DI di;
  const hn::Half<DI> dh;
  constexpr int64_t kStepBytes = kPair ? 32 : kLanes * sizeof(int32_t);  // of activations
  VI sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[i][v] = hn::Zero(di);
  }
  for (int64_t block = 0; block < blocks; ++block) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(w + v * vector_stride + ahead);
#pragma GCC unroll 16
    for (int s = 0; s < kSteps; ++s) {
      VI activations[kRows];
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const auto* from = reinterpret_cast<const int32_t*>(a + i * a_stride + s * kStepBytes);
        if constexpr (kPair) {
          activations[i] = hn::Combine(di, hn::LoadU(dh, from), hn::LoadU(dh, from));
        } else {
          activations[i] = hn::LoadU(di, from);
        }
      }
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) {
        const VI weights = LoadWeights(di, w + v * vector_stride + s * kLaneBytes);
#pragma GCC unroll 16
        for (int i = 0; i < kRows; ++i) sum[i][v] = MultiplyAdd(activations[i], weights, sum[i][v]);
      }
    }
    a += kSteps * kStepBytes;
    w += block_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kPair) {
        sums[i * kColumns + 2 * v] += hn::ReduceSum(dh, hn::LowerHalf(dh, sum[i][v]));
        sums[i * kColumns + 2 * v + 1] += hn::ReduceSum(dh, hn::UpperHalf(dh, sum[i][v]));
      } else {
        sums[i * kColumns + v] += hn::ReduceSum(di, sum[i][v]);
      }
    }
  }
}

template <int kRows>
HWY_INLINE void StreamColumns(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, const char* a, int64_t a_stride, int32_t* sums) {
  constexpr bool kManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;
  constexpr int kVectors = kManyRegisters || kRows == 1 ? 8 : 4;
  constexpr int kDepth = std::max(32, kLaneBytes);
  const int64_t blocks_n = (args.n + 15) / 16;
  for (int64_t half = 0; half < 2; ++half, sums += 16) {
    const int64_t n0 = stripe * kColumns + half * 16, columns = std::min<int64_t>(16, args.n - n0);
    if (columns <= 0) return;
    if (args.layout == Int8Layout::kFractalNK) {
      const int8_t* from = w + n0 * 32;
      const int64_t stride = blocks_n * 512, blocks = (args.k + 31) / 32;
      if constexpr (kLaneBytes == 64) {
        StreamVectors<kRows, 8, 1, true>(a, a_stride, from, 64, stride, blocks, kBlocksAhead * stride, sums);
      } else {
        for (int j = 0; j < 16; j += kVectors) {
          StreamVectors<kRows, kVectors, 32 / kLaneBytes, false>(a, a_stride, from + j * 32, 32, stride, blocks, kBlocksAhead * stride, sums + j);
        }
      }
      continue;
    }
    const int8_t* from = w + n0 * args.ldw;
    const int64_t blocks = args.k / kDepth, whole = blocks * kDepth;
    constexpr int kSteps = kDepth / kLaneBytes;
    int64_t j = 0;
    for (; j + kVectors <= columns; j += kVectors) {
      StreamVectors<kRows, kVectors, kSteps, false>(a, a_stride, from + j * args.ldw, args.ldw, kDepth, blocks, kVectors * args.ldw, sums + j);
    }
    for (; j < columns; ++j) StreamVectors<kRows, 1, kSteps, false>(a, a_stride, from + j * args.ldw, 0, kDepth, blocks, 0, sums + j);
    if (whole == args.k) continue;
    for (j = 0; j < columns; ++j) {  // nothing outside of the matrix is read
      int8_t padded[kDepth] = {};
      std::memcpy(padded, from + j * args.ldw + whole, args.k - whole);
      StreamVectors<kRows, 1, kSteps, false>(a + whole * kElementBytes, a_stride, padded, 0, 0, 1, 0, sums + j);
    }
  }
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
