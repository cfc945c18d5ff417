#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "libs/quant/format/array_kernel.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/format/array_decode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {

template <bool kStream, class D, typename T>
HWY_INLINE void Put(D d, hn::Vec<D> value, T* out) {
  if constexpr (kStream) {
    hn::Stream(value, d, out);
  } else {
    hn::StoreU(value, d, out);
  }
}

// As many numbers as a vector has bytes.
template <Format kFormat, bool kStream, typename T, class D8>
HWY_INLINE void DecodeVector(D8 d8, hn::Vec<D8> codes, T* out) {
  const hn::Repartition<hwy::bfloat16_t, D8> dbf;
  const hn::Repartition<float, D8> df;
  hn::Vec<decltype(dbf)> lower, upper;
  DecodeBF16<kFormat>(d8, codes, lower, upper);
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    Put<kStream>(dbf, lower, out);
    Put<kStream>(dbf, upper, out + hn::Lanes(dbf));
  } else {
    const auto a = hn::PromoteLowerTo(df, lower), b = hn::PromoteUpperTo(df, lower);
    const auto c = hn::PromoteLowerTo(df, upper), d = hn::PromoteUpperTo(df, upper);
    const size_t lanes = hn::Lanes(df);
    if constexpr (std::is_same_v<T, float>) {
      Put<kStream>(df, a, out);
      Put<kStream>(df, b, out + lanes);
      Put<kStream>(df, c, out + 2 * lanes);
      Put<kStream>(df, d, out + 3 * lanes);
    } else {  // whole vectors: a part of one can't be streamed
      const hn::Repartition<T, D8> d16;
      Put<kStream>(d16, hn::Combine(d16, NarrowF16(df, b), NarrowF16(df, a)), out);
      Put<kStream>(d16, hn::Combine(d16, NarrowF16(df, d), NarrowF16(df, c)), out + 2 * lanes);
    }
  }
}

// As many codes as two vectors of bytes (of one, if they are packed) hold.
template <Format kFormat, bool kStream, typename T, class D8>
HWY_INLINE void DecodeBlock(D8 d8, const uint8_t* codes, T* out) {
  const int64_t step = hn::Lanes(d8);
  if constexpr (Bits(kFormat) == 4) {
    hn::Vec<D8> lower, upper;
    UnpackNibbles(d8, hn::LoadU(d8, codes), lower, upper);
    DecodeVector<kFormat, kStream>(d8, lower, out);
    DecodeVector<kFormat, kStream>(d8, upper, out + step);
  } else {
    DecodeVector<kFormat, kStream>(d8, hn::LoadU(d8, codes), out);
    DecodeVector<kFormat, kStream>(d8, hn::LoadU(d8, codes + step), out + step);
  }
}

template <Format kFormat, typename T>
void DecodeAs(const DecodeJob& job, int64_t begin, int64_t end) {
  constexpr int64_t kPerByte = 8 / Bits(kFormat);
  const hn::ScalableTag<uint8_t> d8;
  const int64_t step = 2 * hn::Lanes(d8);
  T* out = static_cast<T*>(job.out);
  const auto partial = [&](int64_t i, int64_t n) {
    T some[2 * hn::MaxLanes(d8)];
    uint8_t packed[2 * hn::MaxLanes(d8)] = {};
    std::memcpy(packed, job.codes + i / kPerByte, (n + kPerByte - 1) / kPerByte);
    DecodeBlock<kFormat, false>(d8, packed, some);
    std::memcpy(out + i, some, n * sizeof(T));
  };
  int64_t i = begin;
  const int64_t skewed = -reinterpret_cast<intptr_t>(out + begin) & (hn::Lanes(d8) - 1);  // bytes
  if (job.stream && skewed % (kPerByte * static_cast<int64_t>(sizeof(T))) == 0) {
    const int64_t head = std::min(skewed / static_cast<int64_t>(sizeof(T)), end - begin);
    if (head > 0) partial(i, head);
    i += head;
    for (; i + step <= end; i += step) DecodeBlock<kFormat, true>(d8, job.codes + i / kPerByte, out + i);
    hwy::FlushStream();
  } else {
    for (; i + step <= end; i += step) DecodeBlock<kFormat, false>(d8, job.codes + i / kPerByte, out + i);
  }
  if (i < end) partial(i, end - i);
}

template <Format kFormat>
void DecodeTo(const DecodeJob& job, int64_t begin, int64_t end) {
  switch (job.out_type) {
    case DType::kF32: return DecodeAs<kFormat, float>(job, begin, end);
    case DType::kF16: return DecodeAs<kFormat, hwy::float16_t>(job, begin, end);
    case DType::kBF16: return DecodeAs<kFormat, hwy::bfloat16_t>(job, begin, end);
  }
}

void DecodeRange(const DecodeJob& job, int64_t begin, int64_t end) {
  switch (job.format) {
    case Format::kE4M3: return DecodeTo<Format::kE4M3>(job, begin, end);
    case Format::kE5M2: return DecodeTo<Format::kE5M2>(job, begin, end);
    case Format::kE8M0: return DecodeTo<Format::kE8M0>(job, begin, end);
    case Format::kE2M1: return DecodeTo<Format::kE2M1>(job, begin, end);
    case Format::kHiF8: return DecodeTo<Format::kHiF8>(job, begin, end);
    case Format::kI8: return DecodeTo<Format::kI8>(job, begin, end);
    case Format::kI4: return DecodeTo<Format::kI4>(job, begin, end);
  }
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {
HWY_EXPORT(DecodeRange);
void DecodeCodes(const DecodeJob& job, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(DecodeRange)(job, begin, end); }
}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
