#include "libs/quant/scale/row_kernel.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/scale/row_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {

using internal::RowBlocks;

// 32 codes at a time, the smallest group in use; AVX-512 vectors would be longer.
using CodesTag = hn::CappedTag<uint8_t, 32>;
using FloatsTag = hn::Repartition<float, CodesTag>;

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;

template <typename T>
uint32_t MaxMagnitude(const BitsOf<T>* p, int64_t n) {
  using TU = BitsOf<T>;
  const hn::ScalableTag<TU> d;
  const hn::RebindToSigned<decltype(d)> ds;  // without the sign they compare alike, and SSE2 has no unsigned maximum of 16 bits
  const int64_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, static_cast<TU>(std::numeric_limits<TU>::max() >> 1));
  auto most = hn::Zero(ds);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) most = hn::Max(most, hn::BitCast(ds, hn::And(hn::LoadU(d, p + i), mask)));
  if (i < n) most = hn::Max(most, hn::BitCast(ds, hn::And(hn::LoadN(d, p + i, n - i), mask)));
  return static_cast<uint32_t>(hn::ReduceMax(ds, most));
}

template <typename T>
void MaxMagnitudesAs(const void* row, RowBlocks blocks, uint32_t* maxima) {
  const auto* bits = static_cast<const BitsOf<T>*>(row);
  if (blocks.block == 1) {
    for (int64_t c = 0; c < blocks.cols; ++c) {
      maxima[c] = std::max<uint32_t>(maxima[c], bits[c] & (std::numeric_limits<BitsOf<T>>::max() >> 1));
    }
    return;
  }
  for (int64_t begin = 0; begin < blocks.cols; begin += blocks.block, ++maxima) {
    *maxima = std::max(*maxima, MaxMagnitude<T>(bits + begin, std::min(blocks.block, blocks.cols - begin)));
  }
}

void MaxMagnitudes(DType type, const void* row, RowBlocks blocks, uint32_t* maxima) {
  return type == DType::kF32 ? MaxMagnitudesAs<float>(row, blocks, maxima) : MaxMagnitudesAs<hwy::bfloat16_t>(row, blocks, maxima);
}

template <typename T>
void ExtremesAs(const void* row, RowBlocks blocks, float* low, float* high) {
  const hn::ScalableTag<float> df;
  const int64_t lanes = hn::Lanes(df);
  for (int64_t begin = 0; begin < blocks.cols; begin += blocks.block, ++low, ++high) {
    const T* p = static_cast<const T*>(row) + begin;
    const int64_t n = std::min(blocks.block, blocks.cols - begin);
    const auto single = [&](int64_t k) { return hn::Set(df, hn::GetLane(LoadF32(df, p + k, 1))); };
    auto least = single(0), most = least;
    auto nan = hn::IsNaN(least);
    const auto take = [&](auto v) {
      nan = hn::Or(nan, hn::IsNaN(v));
      least = hn::Min(least, v), most = hn::Max(most, v);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) take(LoadF32(df, p + i));
    for (; i < n; ++i) take(single(i));
    const bool broken = !hn::AllFalse(df, nan);
    *low = broken ? std::bit_cast<float>(internal::kNanBits) : hn::ReduceMin(df, least);
    *high = broken ? *low : hn::ReduceMax(df, most);
  }
}

void Extremes(DType type, const void* row, RowBlocks blocks, float* low, float* high) {
  switch (type) {
    case DType::kF32: return ExtremesAs<float>(row, blocks, low, high);
    case DType::kF16: return ExtremesAs<hwy::float16_t>(row, blocks, low, high);
    case DType::kBF16: return ExtremesAs<hwy::bfloat16_t>(row, blocks, low, high);
  }
}

// codes = f(x, index of x) for n numbers.
template <Format kFormat, typename T, class F>
HWY_INLINE void QuantizeSpan(const T* in, int64_t n, uint8_t* codes, const F& f) {
  constexpr int64_t kPerByte = 8 / Bits(kFormat);
  const CodesTag d8;
  const FloatsTag df;
  const int64_t lanes = hn::Lanes(df), bytes = hn::Lanes(d8), step = bytes * kPerByte;
  const auto some = [&](const T* p, int64_t at) {
    const auto lane_codes = [&](int64_t k) {
      return format_internal::EncodeLanes<kFormat, Overflow::kSaturate>(df, f(LoadF32(df, p + k * lanes), at + k * lanes));
    };
    return format_internal::PackLanes(d8, lane_codes(0), lane_codes(1), lane_codes(2), lane_codes(3));
  };
  const auto store = [&](const T* p, int64_t at, uint8_t* to) {
    if constexpr (kPerByte == 2) {
      hn::StoreU(hn::Combine(d8, PackNibbles(d8, some(p + bytes, at + bytes)), PackNibbles(d8, some(p, at))), d8, to);
    } else {
      hn::StoreU(some(p, at), d8, to);
    }
  };
  int64_t i = 0;
  for (; i + step <= n; i += step) store(in + i, i, codes + i / kPerByte);
  if (i < n) {
    T rest[2 * hn::MaxLanes(d8)] = {};
    uint8_t packed[hn::MaxLanes(d8)];
    std::memcpy(rest, in + i, (n - i) * sizeof(T));
    store(rest, i, packed);
    std::memcpy(codes + i / kPerByte, packed, (n - i + kPerByte - 1) / kPerByte);
  }
}

// Columns [i, i + lanes) of a row of n; ones behind it.
template <class DF>
HWY_INLINE hn::Vec<DF> LoadColumns(DF df, const float* p, int64_t i, int64_t n) {
  if (i + static_cast<int64_t>(hn::Lanes(df)) <= n) return hn::LoadU(df, p + i);
  return i < n ? hn::LoadN(df, p + i, n - i) : hn::Zero(df);
}

// x / scale; 0 if the scale is 0, and what a broken block's numbers become if it is NaN.
template <Format kFormat, class V>
HWY_INLINE V Quotient(V x, V scale) {
  const hn::DFromV<V> df;
  const V quotient = hn::IfThenZeroElse(hn::Eq(scale, hn::Zero(df)), hn::Div(x, scale));
  if constexpr (Traits(kFormat).has_nan) {
    return hn::IfThenElse(hn::IsNaN(scale), scale, quotient);
  } else {
    return hn::IfThenZeroElse(hn::IsNaN(scale), quotient);
  }
}

template <Format kFormat, typename T>
void QuantizeRowAs(const void* row, RowBlocks blocks, const float* scales, const float* offsets, uint8_t* codes) {
  const FloatsTag df;
  using V = hn::Vec<FloatsTag>;
  const T* in = static_cast<const T*>(row);
  if (blocks.block == 1) {
    QuantizeSpan<kFormat>(in, blocks.cols, codes, [&](V x, int64_t i) HWY_ATTR {
      return Quotient<kFormat>(x, LoadColumns(df, scales, i, blocks.cols));
    });
    return;
  }
  for (int64_t begin = 0, b = 0; begin < blocks.cols; begin += blocks.block, ++b) {
    const int64_t n = std::min(blocks.block, blocks.cols - begin);
    const float scale = scales[b];
    uint8_t* out = codes + begin * Bits(kFormat) / 8;
    const uint32_t bits = std::bit_cast<uint32_t>(scale);
    if (offsets != nullptr) {
      const V divisor = hn::Set(df, scale), offset = hn::Set(df, offsets[b]);
      QuantizeSpan<kFormat>(in + begin, n, out, [&](V x, int64_t) HWY_ATTR { return hn::Add(Quotient<kFormat>(x, divisor), offset); });
    } else if (scale == 0 || scale != scale) {
      const V same = hn::Set(df, scale != scale && Traits(kFormat).has_nan ? scale : 0.0f);
      QuantizeSpan<kFormat>(in + begin, n, out, [&](V, int64_t) HWY_ATTR { return same; });
    } else if ((bits & 0x7FFFFF) == 0 && bits < 0x7F000000) {
      // A normal power of two whose inverse is one, too: the product is the quotient.
      const V inverse = hn::Set(df, 1 / scale);
      QuantizeSpan<kFormat>(in + begin, n, out, [&](V x, int64_t) HWY_ATTR { return hn::Mul(x, inverse); });
    } else {
      const V divisor = hn::Set(df, scale);
      QuantizeSpan<kFormat>(in + begin, n, out, [&](V x, int64_t) HWY_ATTR { return hn::Div(x, divisor); });
    }
  }
}

template <Format kFormat>
void QuantizeRowFrom(DType type, const void* row, RowBlocks blocks, const float* scales, const float* offsets, uint8_t* codes) {
  switch (type) {
    case DType::kF32: return QuantizeRowAs<kFormat, float>(row, blocks, scales, offsets, codes);
    case DType::kF16: return QuantizeRowAs<kFormat, hwy::float16_t>(row, blocks, scales, offsets, codes);
    case DType::kBF16: return QuantizeRowAs<kFormat, hwy::bfloat16_t>(row, blocks, scales, offsets, codes);
  }
}

void QuantizeRow(Format format, DType type, const void* row, RowBlocks blocks, const float* scales, const float* offsets,
                 uint8_t* codes) {
  switch (format) {
    case Format::kE4M3: return QuantizeRowFrom<Format::kE4M3>(type, row, blocks, scales, offsets, codes);
    case Format::kE5M2: return QuantizeRowFrom<Format::kE5M2>(type, row, blocks, scales, offsets, codes);
    case Format::kE2M1: return QuantizeRowFrom<Format::kE2M1>(type, row, blocks, scales, offsets, codes);
    case Format::kHiF8: return QuantizeRowFrom<Format::kHiF8>(type, row, blocks, scales, offsets, codes);
    case Format::kI8: return QuantizeRowFrom<Format::kI8>(type, row, blocks, scales, offsets, codes);
    case Format::kI4: return QuantizeRowFrom<Format::kI4>(type, row, blocks, scales, offsets, codes);
    case Format::kE8M0: return;  // quantize.cc refuses it
  }
}

// out = f(decoded code, index) for n codes.
template <Format kFormat, typename T, class F>
HWY_INLINE void DequantizeSpan(const uint8_t* codes, int64_t n, T* out, const F& f) {
  constexpr int64_t kPerByte = 8 / Bits(kFormat);
  const CodesTag d8;
  const FloatsTag df;
  const hn::Repartition<hwy::bfloat16_t, CodesTag> dbf;
  const int64_t lanes = hn::Lanes(df), bytes = hn::Lanes(d8), step = bytes * kPerByte;
  const auto some = [&](hn::Vec<CodesTag> v, int64_t at, T* to) {
    hn::Vec<decltype(dbf)> lower, upper;
    DecodeBF16<kFormat>(d8, v, lower, upper);
    StoreF32(df, f(hn::PromoteLowerTo(df, lower), at), to);
    StoreF32(df, f(hn::PromoteUpperTo(df, lower), at + lanes), to + lanes);
    StoreF32(df, f(hn::PromoteLowerTo(df, upper), at + 2 * lanes), to + 2 * lanes);
    StoreF32(df, f(hn::PromoteUpperTo(df, upper), at + 3 * lanes), to + 3 * lanes);
  };
  const auto load = [&](const uint8_t* p, int64_t at, T* to) {
    if constexpr (kPerByte == 2) {
      hn::Vec<CodesTag> lower, upper;
      UnpackNibbles(d8, hn::LoadU(d8, p), lower, upper);
      some(lower, at, to);
      some(upper, at + bytes, to + bytes);
    } else {
      some(hn::LoadU(d8, p), at, to);
    }
  };
  int64_t i = 0;
  for (; i + step <= n; i += step) load(codes + i / kPerByte, i, out + i);
  if (i < n) {
    uint8_t packed[hn::MaxLanes(d8)] = {};
    T rest[2 * hn::MaxLanes(d8)];
    std::memcpy(packed, codes + i / kPerByte, (n - i + kPerByte - 1) / kPerByte);
    load(packed, i, rest);
    std::memcpy(out + i, rest, (n - i) * sizeof(T));
  }
}

template <Format kFormat, typename T>
void DequantizeRowAs(const uint8_t* codes, RowBlocks blocks, const float* scales, const float* offsets, void* row) {
  const FloatsTag df;
  using V = hn::Vec<FloatsTag>;
  T* out = static_cast<T*>(row);
  if (blocks.block == 1) {
    DequantizeSpan<kFormat>(codes, blocks.cols, out, [&](V code, int64_t i) HWY_ATTR {
      if (offsets != nullptr) code = hn::Sub(code, LoadColumns(df, offsets, i, blocks.cols));
      return hn::Mul(code, LoadColumns(df, scales, i, blocks.cols));
    });
    return;
  }
  for (int64_t begin = 0, b = 0; begin < blocks.cols; begin += blocks.block, ++b) {
    const int64_t n = std::min(blocks.block, blocks.cols - begin);
    const V scale = hn::Set(df, scales[b]), offset = hn::Set(df, offsets == nullptr ? 0.0f : offsets[b]);
    const uint8_t* in = codes + begin * Bits(kFormat) / 8;
    if (offsets == nullptr) {
      DequantizeSpan<kFormat>(in, n, out + begin, [&](V code, int64_t) HWY_ATTR { return hn::Mul(code, scale); });
    } else {
      DequantizeSpan<kFormat>(in, n, out + begin, [&](V code, int64_t) HWY_ATTR { return hn::Mul(hn::Sub(code, offset), scale); });
    }
  }
}

template <Format kFormat>
void DequantizeRowTo(const uint8_t* codes, RowBlocks blocks, const float* scales, const float* offsets, DType type, void* row) {
  switch (type) {
    case DType::kF32: return DequantizeRowAs<kFormat, float>(codes, blocks, scales, offsets, row);
    case DType::kF16: return DequantizeRowAs<kFormat, hwy::float16_t>(codes, blocks, scales, offsets, row);
    case DType::kBF16: return DequantizeRowAs<kFormat, hwy::bfloat16_t>(codes, blocks, scales, offsets, row);
  }
}

void DequantizeRow(Format format, const uint8_t* codes, RowBlocks blocks, const float* scales, const float* offsets, DType type,
                   void* row) {
  switch (format) {
    case Format::kE4M3: return DequantizeRowTo<Format::kE4M3>(codes, blocks, scales, offsets, type, row);
    case Format::kE5M2: return DequantizeRowTo<Format::kE5M2>(codes, blocks, scales, offsets, type, row);
    case Format::kE2M1: return DequantizeRowTo<Format::kE2M1>(codes, blocks, scales, offsets, type, row);
    case Format::kHiF8: return DequantizeRowTo<Format::kHiF8>(codes, blocks, scales, offsets, type, row);
    case Format::kI8: return DequantizeRowTo<Format::kI8>(codes, blocks, scales, offsets, type, row);
    case Format::kI4: return DequantizeRowTo<Format::kI4>(codes, blocks, scales, offsets, type, row);
    case Format::kE8M0: return;
  }
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {
HWY_EXPORT(MaxMagnitudes);
HWY_EXPORT(Extremes);
HWY_EXPORT(QuantizeRow);
HWY_EXPORT(DequantizeRow);

void MaxMagnitudes(DType type, const void* row, RowBlocks blocks, uint32_t* maxima) {
  HWY_DYNAMIC_DISPATCH(MaxMagnitudes)(type, row, blocks, maxima);
}
float MagnitudeToFloat(DType type, uint32_t magnitude) {
  if (type == DType::kF32) return std::bit_cast<float>(magnitude);
  if (type == DType::kBF16) return std::bit_cast<float>(magnitude << 16);
  return hwy::F32FromF16(hwy::float16_t::FromBits(static_cast<uint16_t>(magnitude)));
}
void Extremes(DType type, const void* row, RowBlocks blocks, float* low, float* high) {
  HWY_DYNAMIC_DISPATCH(Extremes)(type, row, blocks, low, high);
}
void QuantizeRow(Format format, DType type, const void* row, RowBlocks blocks, const float* scales, const float* offsets,
                 uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(QuantizeRow)(format, type, row, blocks, scales, offsets, codes);
}
void DequantizeRow(Format format, const uint8_t* codes, RowBlocks blocks, const float* scales, const float* offsets, DType type,
                   void* row) {
  HWY_DYNAMIC_DISPATCH(DequantizeRow)(format, codes, blocks, scales, offsets, type, row);
}
}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
