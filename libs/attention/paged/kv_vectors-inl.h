// Keys and values of a quantised cache to vectors of fp32, exactly; the scales are not applied here. Included once per SIMD target.

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

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

// The storage type of a cache: a float type, or a byte that is a code.
struct Int8Code {
  uint8_t bits;
};
struct E4M3Code {
  uint8_t bits;
};
struct E5M2Code {
  uint8_t bits;
};
template <typename K>
inline constexpr bool kIsCode = sizeof(K) == 1;

// Lanes that hold a code each in their lower byte (the upper ones are ignored) to the codes' numbers.
template <class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE hn::Vec<DF> DecodeLanes(DF df, Int8Code, VU bits) {
  const hn::RebindToSigned<DF> di;
  return hn::ConvertTo(df, hn::ShiftRight<24>(hn::BitCast(di, hn::ShiftLeft<24>(bits))));
}

template <class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE hn::Vec<DF> DecodeLanes(DF df, E4M3Code, VU bits) {
  const hn::RebindToUnsigned<DF> du;
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7F));
  const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(du, 0x80)));
  const auto normal = hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23));
  // Subnormal: (1 + m / 8) 2^-6 - 2^-6. No subnormal fp32 number on the way, which would be slow.
  const auto one_up = hn::BitCast(df, hn::Add(normal, hn::Set(du, 1u << 23)));
  const auto subnormal = hn::BitCast(du, hn::Sub(one_up, hn::Set(df, 0x1p-6f)));
  auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 8)), subnormal, normal);
  value = hn::IfThenElse(hn::Eq(magnitude, hn::Set(du, 0x7F)), hn::Set(du, 0x7FC00000), value);
  return hn::BitCast(df, hn::Or(value, sign));
}

// Half of an fp16 number.
template <class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE hn::Vec<DF> DecodeLanes(DF df, E5M2Code, VU bits) {
  const hn::Rebind<uint16_t, DF> d16;
  return fv::WidenF16(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), hn::TruncateTo(d16, hn::ShiftLeft<8>(bits))));
}

template <typename K, class DF, class VB = hn::Vec<hn::Rebind<uint8_t, DF>>>
HWY_INLINE hn::Vec<DF> DecodeBytes(DF df, K code, VB bytes) {
  if constexpr (std::is_same_v<K, Int8Code>) {
    return hn::ConvertTo(df, hn::PromoteTo(hn::RebindToSigned<DF>(), hn::BitCast(hn::Rebind<int8_t, DF>(), bytes)));
  } else {
    return DecodeLanes(df, code, hn::PromoteTo(hn::RebindToUnsigned<DF>(), bytes));
  }
}

template <typename K, class DF>
HWY_INLINE hn::Vec<DF> LoadKv(DF df, const K* p) {
  if constexpr (kIsCode<K>) {
    return DecodeBytes(df, K{}, hn::LoadU(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(p)));
  } else {
    return fv::LoadF32(df, p);
  }
}

// Reads `count` elements, at most one vector; the other lanes are zero.
template <typename K, class DF>
HWY_INLINE hn::Vec<DF> LoadKv(DF df, const K* p, size_t count) {
  if constexpr (kIsCode<K>) {
    return DecodeBytes(df, K{}, hn::LoadN(hn::Rebind<uint8_t, DF>(), reinterpret_cast<const uint8_t*>(p), count));
  } else {
    return fv::LoadF32(df, p, count);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
