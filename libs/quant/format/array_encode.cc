#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "libs/quant/format/array_kernel.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/format/array_encode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {

// As many numbers as a vector has bytes.
template <Format kFormat, Overflow kOverflow, typename T, class D8>
HWY_INLINE hn::Vec<D8> EncodeVector(D8 d8, const T* in) {
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    const hn::Repartition<T, D8> dbf;
    return EncodeBF16<kFormat, kOverflow>(d8, hn::LoadU(dbf, in), hn::LoadU(dbf, in + hn::Lanes(dbf)));
  } else {
    const hn::Repartition<float, D8> df;
    const size_t lanes = hn::Lanes(df);
    const auto codes = [&](size_t i) { return format_internal::EncodeLanes<kFormat, kOverflow>(df, LoadF32(df, in + i * lanes)); };
    return format_internal::PackLanes(d8, codes(0), codes(1), codes(2), codes(3));
  }
}

template <Format kFormat, Overflow kOverflow, typename T>
void EncodeAs(const EncodeJob& job, int64_t begin, int64_t end) {
  constexpr int64_t kPerByte = 8 / Bits(kFormat);
  const hn::ScalableTag<uint8_t> d8;
  const int64_t lanes = hn::Lanes(d8), step = lanes * kPerByte;
  const T* in = static_cast<const T*>(job.in);
  const auto bytes = [&](const T* p) {
    const auto codes = EncodeVector<kFormat, kOverflow>(d8, p);
    if constexpr (kPerByte == 2) {
      return hn::Combine(d8, PackNibbles(d8, EncodeVector<kFormat, kOverflow>(d8, p + lanes)), PackNibbles(d8, codes));
    } else {
      return codes;
    }
  };
  const auto partial = [&](int64_t i, int64_t n) {
    T some[hn::MaxLanes(d8) * kPerByte] = {};
    uint8_t packed[hn::MaxLanes(d8)];
    std::memcpy(some, in + i, n * sizeof(T));
    hn::StoreU(bytes(some), d8, packed);
    std::memcpy(job.codes + i / kPerByte, packed, (n + kPerByte - 1) / kPerByte);
  };
  int64_t i = begin;
  if (job.stream) {
    const int64_t skewed = -reinterpret_cast<intptr_t>(job.codes + begin / kPerByte) & (lanes - 1);
    const int64_t head = std::min(skewed * kPerByte, end - begin);
    if (head > 0) partial(i, head);
    i += head;
    for (; i + step <= end; i += step) hn::Stream(bytes(in + i), d8, job.codes + i / kPerByte);
    hwy::FlushStream();
  } else {
    for (; i + step <= end; i += step) hn::StoreU(bytes(in + i), d8, job.codes + i / kPerByte);
  }
  if (i < end) partial(i, end - i);
}

template <Format kFormat, Overflow kOverflow>
void EncodeFrom(const EncodeJob& job, int64_t begin, int64_t end) {
  switch (job.in_type) {
    case DType::kF32: return EncodeAs<kFormat, kOverflow, float>(job, begin, end);
    case DType::kF16: return EncodeAs<kFormat, kOverflow, hwy::float16_t>(job, begin, end);
    case DType::kBF16: return EncodeAs<kFormat, kOverflow, hwy::bfloat16_t>(job, begin, end);
  }
}

template <Format kFormat>
void EncodeFormat(const EncodeJob& job, int64_t begin, int64_t end) {
  if (Traits(kFormat).has_nan && job.overflow == Overflow::kToNanOrInf) {
    return EncodeFrom<kFormat, Traits(kFormat).has_nan ? Overflow::kToNanOrInf : Overflow::kSaturate>(job, begin, end);
  }
  EncodeFrom<kFormat, Overflow::kSaturate>(job, begin, end);
}

void EncodeRange(const EncodeJob& job, int64_t begin, int64_t end) {
  switch (job.format) {
    case Format::kE4M3: return EncodeFormat<Format::kE4M3>(job, begin, end);
    case Format::kE5M2: return EncodeFormat<Format::kE5M2>(job, begin, end);
    case Format::kE8M0: return EncodeFormat<Format::kE8M0>(job, begin, end);
    case Format::kE2M1: return EncodeFormat<Format::kE2M1>(job, begin, end);
    case Format::kHiF8: return EncodeFormat<Format::kHiF8>(job, begin, end);
    case Format::kI8: return EncodeFormat<Format::kI8>(job, begin, end);
    case Format::kI4: return EncodeFormat<Format::kI4>(job, begin, end);
  }
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {
HWY_EXPORT(EncodeRange);
void EncodeCodes(const EncodeJob& job, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(EncodeRange)(job, begin, end); }
}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
