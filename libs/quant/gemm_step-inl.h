// How weights meet activations, and how sums end. Included once per SIMD target, see Highway's foreach_target.h.
//
// The order of a sum: a row of 16 weights that are neighbours in k fills one or more vectors of L lanes, and lane l of an accumulator sums
// its share of every such row, from k = 0 up. At the end the lanes are added in a fixed tree. Nothing in this order knows m, the tile, the
// layout or the thread, and tiles differ only in how many of these independent sums are in flight.

#if defined(LIBS_QUANT_GEMM_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_GEMM_STEP_INL_H_
#undef LIBS_QUANT_GEMM_STEP_INL_H_
#else
#define LIBS_QUANT_GEMM_STEP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/gemm_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr bool kManyRegisters = true;  // 32 vector registers, else 16
#else
constexpr bool kManyRegisters = false;
#endif

// ---------------------------------------------------------------------------------------------------------------------
// What is multiplied: vectors of kVectorSize activations with weights that were made the same.

struct WideMath {
  using Activation = float;
  static constexpr int kVectorSize = kLanes;
  static HWY_INLINE VF LoadActivations(const float* a) { return hn::Load(DF(), a); }
  static HWY_INLINE void StoreActivations(VF v, float* a) { hn::Store(v, DF(), a); }
  static HWY_INLINE VF MultiplyAdd(VF a, VF w, VF sum) { return hn::MulAdd(a, w, sum); }
};

#if HWY_NATIVE_DOT_BF16
struct DotMath {  // pairs of bf16 products are summed by one instruction
  using Activation = hwy::bfloat16_t;
  using DB = hn::Repartition<hwy::bfloat16_t, DF>;
  static constexpr int kVectorSize = 2 * kLanes;
  static HWY_INLINE hn::Vec<DB> LoadActivations(const Activation* a) { return hn::Load(DB(), a); }
  static HWY_INLINE void StoreActivations(hn::Vec<DB> v, Activation* a) { hn::Store(v, DB(), a); }
  static HWY_INLINE VF MultiplyAdd(hn::Vec<DB> a, hn::Vec<DB> w, VF sum) {
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), a, w, sum, unused);
  }
};
#endif

// ---------------------------------------------------------------------------------------------------------------------
// A step says how kDepth elements along k of a row become vectors, and in which order the lanes come: the same for both factors.

template <typename T>
struct WideStep : WideMath {  // both are widened to fp32
  using Math = WideMath;
  using Weight = T;
  static constexpr int kDepth = 16;  // along k
  static constexpr int kVectors = kDepth / kLanes;
  // bf16 widens cheaper by taking the even and the odd elements than in order.
  static constexpr bool kEvenOdd = sizeof(T) == 2 && std::is_same_v<T, hwy::bfloat16_t> && kLanes > 1 && kLanes <= 8;

  static HWY_INLINE VF LoadWeights(const T* HWY_RESTRICT w, size_t /*block_stride*/, int vector) {
    const DF df;
    if constexpr (kEvenOdd) {
      const hn::Repartition<T, DF> dt;
      const auto raw = hn::LoadU(dt, w + 2 * kLanes * (vector / 2));
      return vector % 2 == 0 ? hn::PromoteEvenTo(df, raw) : hn::PromoteOddTo(df, raw);
    } else {
      return quant::HWY_NAMESPACE::LoadF32(df, w + vector * kLanes);
    }
  }
};

#if HWY_NATIVE_DOT_BF16
struct DotStep : DotMath {
  using Math = DotMath;
  using Weight = hwy::bfloat16_t;
  static constexpr int kDepth = 32;
  static constexpr int kVectors = kDepth / kVectorSize;

  static HWY_INLINE hn::Vec<DB> LoadWeights(const Weight* HWY_RESTRICT w, size_t block_stride, int vector) {
    if constexpr (kVectors == 1) {  // one vector spans two fractals
      const hn::Half<DB> dh;
      return hn::Combine(DB(), hn::LoadU(dh, w + block_stride), hn::LoadU(dh, w));
    } else {
      constexpr int kPerBlock = kVectors / 2;
      return hn::LoadU(DB(), w + (vector / kPerBlock) * block_stride + (vector % kPerBlock) * 2 * kLanes);
    }
  }
};
using BF16Step = DotStep;
#else
using BF16Step = WideStep<hwy::bfloat16_t>;
#endif

// Calls fn with the step of a type.
template <class Fn>
void WithStep(DType type, const Fn& fn) {
  switch (type) {
    case DType::kF32: return fn(WideStep<float>());
    case DType::kF16: return fn(WideStep<hwy::float16_t>());
    case DType::kBF16: return fn(BF16Step());
  }
}

// sums[i][j] += activations of row i * weights of column j, one vector of each.
template <class Math, int kRows, int kColumns, class W>
HWY_INLINE void MultiplyTile(const typename Math::Activation* HWY_RESTRICT a, size_t a_stride, const W (&weights)[kColumns],
                             VF (&sums)[kRows][kColumns]) {
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    auto activations = Math::LoadActivations(a + i * a_stride);
#if HWY_ARCH_X86
    // Without this, GCC reads the activations from memory again for each column, and the load ports become the limit.
    if constexpr (kColumns > 1) asm("" : "+v"(activations.raw));
#endif
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) sums[i][j] = Math::MultiplyAdd(activations, weights[j], sums[i][j]);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// The end of a sum.

template <class D>
HWY_INLINE void AddBlocks(D d, hn::Vec<D> v, float* HWY_RESTRICT totals) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::Store(v, d, totals);
  } else {
    const hn::Half<D> dh;
    AddBlocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)), totals);
  }
}

// totals = the sums of the lanes of a, b, c and d: in each block of four (0 + 2) + (1 + 3), then the blocks as a tree.
HWY_INLINE void AddLanes(VF a, VF b, VF c, VF d, float* HWY_RESTRICT totals) {
  const DF df;
  if constexpr (kLanes < 4) {
    const VF sums[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) totals[i] = hn::ReduceSum(df, sums[i]);
  } else {
    const hn::Repartition<double, DF> d64;  // pairs of floats
    const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
    const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
    const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
    AddBlocks(df, hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)), hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64))), totals);
  }
}

// result[i * kPanel + j] = the sum of the lanes of sums[i][j]; result is 64-byte aligned at a multiple of kColumns.
template <int kRows, int kColumns>
HWY_INLINE void AddLanesOfTile(const VF (&sums)[kRows][kColumns], float* HWY_RESTRICT result) {
  if constexpr (kColumns % 4 == 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; j += 4) {
        AddLanes(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3], result + i * kPanel + j);
      }
    }
  } else {
    constexpr int kSums = kRows * kColumns;
    const VF zero = hn::Zero(DF());
#pragma GCC unroll 16
    for (int s = 0; s < kSums; s += 4) {
      const auto sum = [&](int t) HWY_ATTR { return t < kSums ? sums[t / kColumns][t % kColumns] : zero; };
      alignas(16) float totals[4];
      AddLanes(sum(s), sum(s + 1), sum(s + 2), sum(s + 3), totals);
#pragma GCC unroll 4
      for (int t = 0; t < 4; ++t) {
        if (s + t < kSums) result[(s + t) / kColumns * kPanel + (s + t) % kColumns] = totals[t];
      }
    }
  }
}

template <typename T>
void WriteRow(const float* result, const T* bias, int columns, T* out) {
  namespace fv = quant::HWY_NAMESPACE;
  const DF df;
  for (int j = 0; j < columns; j += kLanes) {
    const size_t count = std::min(kLanes, columns - j);
    VF sum = hn::Load(df, result + j);
    if (bias != nullptr) sum = hn::Add(sum, fv::LoadF32(df, bias + j, count));
    fv::StoreF32(df, sum, out + j, count);
  }
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
