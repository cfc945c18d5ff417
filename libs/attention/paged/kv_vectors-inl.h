// Rows of keys and values of a quantised cache to numbers, exactly; the scales are not applied here. Included once per SIMD target.

#if defined(LIBS_ATTENTION_PAGED_KV_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_PAGED_KV_VECTORS_INL_H_
#undef LIBS_ATTENTION_PAGED_KV_VECTORS_INL_H_
#else
#define LIBS_ATTENTION_PAGED_KV_VECTORS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using quant::Format;

// The storage type of a quantised cache. Others are a float type themselves.
template <Format kFormat>
struct Code {
  uint8_t bits;
};

// Whether rows are first decoded to bf16, which holds every code exactly, for the products to read. Int8 becomes fp32 in registers instead,
// except where a look-up gives 64 bf16 numbers at once.
template <typename K>
inline constexpr bool kDecodedFirst = false;
template <Format kFormat>
inline constexpr bool kDecodedFirst<Code<kFormat>> = kFormat != Format::kI8 || quant::HWY_NAMESPACE::format_internal::kTables128;

// What the products read.
template <typename K>
using RowType = std::conditional_t<kDecodedFirst<K>, hwy::bfloat16_t, K>;

// Elements between decoded rows of `dim` elements.
inline int64_t DecodedStride(int64_t dim) { return (dim + 63) / 64 * 64; }

// out[0:count] = the numbers of `count` codes; writes up to DecodedStride(count).
template <Format kFormat>
HWY_INLINE void DecodeRow(const Code<kFormat>* codes, int64_t count, hwy::bfloat16_t* HWY_RESTRICT out) {
  const hn::CappedTag<uint8_t, 64> d8;
  const hn::Repartition<hwy::bfloat16_t, decltype(d8)> dbf;
  constexpr int64_t kCodes = hn::MaxLanes(d8);
  const uint8_t* in = reinterpret_cast<const uint8_t*>(codes);
  for (int64_t d = 0; d < count; d += kCodes) {
    const auto bytes = count - d >= kCodes ? hn::LoadU(d8, in + d) : hn::LoadN(d8, in + d, static_cast<size_t>(count - d));
    hn::Vec<decltype(dbf)> lower, upper;
    quant::HWY_NAMESPACE::DecodeBF16<kFormat>(d8, bytes, lower, upper);
    hn::StoreU(lower, dbf, out + d);
    hn::StoreU(upper, dbf, out + d + kCodes / 2);
  }
}

template <typename K, class DF>
HWY_INLINE hn::Vec<DF> LoadKv(DF df, const K* p) {
  if constexpr (std::is_same_v<K, Code<Format::kI8>>) {
    return quant::HWY_NAMESPACE::DecodeF32<Format::kI8>(df, hn::LoadU(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(p)));
  } else {
    return fv::LoadF32(df, p);
  }
}

// Reads `count` elements, at most one vector; the other lanes are zero.
template <typename K, class DF>
HWY_INLINE hn::Vec<DF> LoadKv(DF df, const K* p, size_t count) {
  if constexpr (std::is_same_v<K, Code<Format::kI8>>) {
    return quant::HWY_NAMESPACE::DecodeF32<Format::kI8>(df, hn::LoadN(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(p), count));
  } else {
    return fv::LoadF32(df, p, count);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
