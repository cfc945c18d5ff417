// The register tiles of paged attention: products, and keys and values to fp32. Included once per SIMD target.

#if defined(LIBS_ATTENTION_PAGED_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_PAGED_TILES_INL_H_
#undef LIBS_ATTENTION_PAGED_TILES_INL_H_
#else
#define LIBS_ATTENTION_PAGED_TILES_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "libs/attention/paged/kv_vectors-inl.h"
#include "libs/attention/paged/paged_kernel.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kVectors = kTile / kLanes;  // in a tile's row of scores, and in a column block of values
constexpr int kRegisterRows = (HWY_ARCH_X86 && kLanes == 16) ? 8 : 3;  // accumulators: kRegisterRows * kVectors

// c[kRows][kTile] (rows ldc apart) += a[kRows][depth] * b[depth][kTile]. Each element is one chain of multiply-adds over the depth, so
// neither kRows nor a cut of the depth changes a bit.
template <int kRows>
HWY_INLINE void MultiplyTile(const float* HWY_RESTRICT a, int64_t lda, const float* HWY_RESTRICT b, int64_t ldb, int64_t depth,
                             float* HWY_RESTRICT c, int64_t ldc) {
  const DF df;
  VF sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Load(df, c + i * ldc + v * kLanes);
  }
  for (int64_t d = 0; d < depth; ++d, b += ldb) {
    VF right[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) right[v] = hn::Load(df, b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const VF left = hn::Set(df, a[i * lda + d]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[i][v], df, c + i * ldc + v * kLanes);
  }
}

template <int kRows>
void MultiplyRows(int64_t rows, const float* a, int64_t lda, const float* b, int64_t ldb, int64_t depth, float* c, int64_t ldc) {
  int64_t i = 0;
  for (; i + kRows <= rows; i += kRows) MultiplyTile<kRows>(a + i * lda, lda, b, ldb, depth, c + i * ldc, ldc);
  if constexpr (kRows > 1) {
    if (i < rows) MultiplyRows<kRows / 2>(rows - i, a + i * lda, lda, b, ldb, depth, c + i * ldc, ldc);
  }
}

#if HWY_MAX_BYTES >= 32
using D32 = hn::FixedTag<uint32_t, 8>;
using V32 = hn::Vec<D32>;

// r[i] lane j := r[j] lane i.
HWY_INLINE void Transpose8x8(V32 (&r)[8]) {
  const D32 d;
  const hn::Repartition<uint64_t, D32> d64;
  V32 half[2][4];  // of four rows each: in the lower block column i, in the upper one column 4 + i
#pragma GCC unroll 2
  for (int g = 0; g < 2; ++g) {
    const auto a0 = hn::BitCast(d64, hn::InterleaveLower(d, r[4 * g], r[4 * g + 1]));
    const auto a1 = hn::BitCast(d64, hn::InterleaveLower(d, r[4 * g + 2], r[4 * g + 3]));
    const auto b0 = hn::BitCast(d64, hn::InterleaveUpper(d, r[4 * g], r[4 * g + 1]));
    const auto b1 = hn::BitCast(d64, hn::InterleaveUpper(d, r[4 * g + 2], r[4 * g + 3]));
    half[g][0] = hn::BitCast(d, hn::InterleaveLower(d64, a0, a1));
    half[g][1] = hn::BitCast(d, hn::InterleaveUpper(d64, a0, a1));
    half[g][2] = hn::BitCast(d, hn::InterleaveLower(d64, b0, b1));
    half[g][3] = hn::BitCast(d, hn::InterleaveUpper(d64, b0, b1));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = hn::ConcatLowerLower(d, half[1][i], half[0][i]);
    r[4 + i] = hn::ConcatUpperUpper(d, half[1][i], half[0][i]);
  }
}

// Eight keys, as far as whole vectors go; returns the first element that is left. Four bytes of a key, which are one element, two of bf16 or
// four codes, are transposed as one, then widened.
template <typename K>
HWY_INLINE int64_t TransposeEightKeys(const char* const* rows, int64_t dim, float* HWY_RESTRICT keys) {
  const D32 d;
  const hn::RebindToFloat<D32> df;
  constexpr bool kPairs = std::is_same_v<K, hwy::bfloat16_t>, kInt8 = std::is_same_v<K, Code<Format::kI8>>;
  constexpr int64_t kStep = kInt8 ? 32 : kPairs ? 16 : 8;
  int64_t e = 0;
  for (; e + kStep <= dim; e += kStep) {
    V32 r[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const K* row = reinterpret_cast<const K*>(rows[i]) + e;
      if constexpr (kInt8 || kPairs) {
        r[i] = hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D32>(), reinterpret_cast<const uint8_t*>(row)));
      } else {
        r[i] = hn::BitCast(d, fv::LoadF32(df, row));
      }
    }
    Transpose8x8(r);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      if constexpr (kInt8) {
        const hn::RebindToSigned<D32> di;
        const auto bytes = hn::BitCast(di, r[i]);
        float* HWY_RESTRICT out = keys + (e + 4 * i) * kTile;
        hn::Store(hn::ConvertTo(df, hn::ShiftRight<24>(hn::ShiftLeft<24>(bytes))), df, out);
        hn::Store(hn::ConvertTo(df, hn::ShiftRight<24>(hn::ShiftLeft<16>(bytes))), df, out + kTile);
        hn::Store(hn::ConvertTo(df, hn::ShiftRight<24>(hn::ShiftLeft<8>(bytes))), df, out + 2 * kTile);
        hn::Store(hn::ConvertTo(df, hn::ShiftRight<24>(bytes)), df, out + 3 * kTile);
      } else if constexpr (kPairs) {
        hn::Store(hn::BitCast(df, hn::ShiftLeft<16>(r[i])), df, keys + (e + 2 * i) * kTile);
        hn::Store(hn::BitCast(df, hn::And(r[i], hn::Set(d, 0xFFFF0000u))), df, keys + (e + 2 * i + 1) * kTile);
      } else {
        hn::Store(hn::BitCast(df, r[i]), df, keys + (e + i) * kTile);
      }
    }
  }
  return e;
}
#endif

// keys[d][j] = element d of key j, for the kTile keys whose rows are given.
template <typename K>
void TransposeKeys(const char* const* rows, int64_t dim, float* HWY_RESTRICT keys) {
  const hn::FixedTag<float, 4> d4;
  const hn::Repartition<uint64_t, decltype(d4)> d2;  // pairs of floats
  int64_t done = 0;
#if HWY_MAX_BYTES >= 32
  for (int64_t j = 0; j < kTile; j += 8) done = TransposeEightKeys<K>(rows + j, dim, keys + j);
#endif
  for (int64_t j = 0; j < kTile; j += 4) {
    const K* HWY_RESTRICT row[4];
    for (int i = 0; i < 4; ++i) row[i] = reinterpret_cast<const K*>(rows[j + i]);
    int64_t d = done;
    for (; d + 4 <= dim; d += 4) {
      const auto r0 = LoadKv(d4, row[0] + d), r1 = LoadKv(d4, row[1] + d);
      const auto r2 = LoadKv(d4, row[2] + d), r3 = LoadKv(d4, row[3] + d);
      const auto a0 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1)), a1 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto b0 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1)), b1 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, a0, a1)), d4, keys + (d + 0) * kTile + j);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, a0, a1)), d4, keys + (d + 1) * kTile + j);
      hn::Store(hn::BitCast(d4, hn::InterleaveLower(d2, b0, b1)), d4, keys + (d + 2) * kTile + j);
      hn::Store(hn::BitCast(d4, hn::InterleaveUpper(d2, b0, b1)), d4, keys + (d + 3) * kTile + j);
    }
    for (; d < dim; ++d) {
      for (int i = 0; i < 4; ++i) keys[d * kTile + j + i] = hn::GetLane(LoadKv(d4, row[i] + d, 1));
    }
  }
}

// out[0:count] = in in fp32, zero up to `padded` (a multiple of the lanes).
template <typename K>
HWY_INLINE void WidenRow(const K* HWY_RESTRICT in, int64_t count, int64_t padded, float* HWY_RESTRICT out) {
  const DF df;
  int64_t d = 0;
  for (; d + kLanes <= count; d += kLanes) hn::Store(LoadKv(df, in + d), df, out + d);
  if (d < count) {
    hn::Store(LoadKv(df, in + d, count - d), df, out + d);
    d += kLanes;
  }
  for (; d < padded; d += kLanes) hn::Store(hn::Zero(df), df, out + d);
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
