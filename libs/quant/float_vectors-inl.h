// Vectors of fp32 from and to fp32, fp16 and bf16 memory. Included once per SIMD target, see Highway's foreach_target.h.
//
// Highway's own fp16 conversions, where the CPU has none, take infinity and NaN for numbers; here every code is right.

#if defined(LIBS_QUANT_FLOAT_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_FLOAT_VECTORS_INL_H_
#undef LIBS_QUANT_FLOAT_VECTORS_INL_H_
#else
#define LIBS_QUANT_FLOAT_VECTORS_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2) || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
inline constexpr bool kNativeF16 = false;
#else
inline constexpr bool kNativeF16 = true;
#endif

template <class DF, class V = hn::Vec<hn::Rebind<hwy::float16_t, DF>>>
HWY_INLINE hn::Vec<DF> WidenF16(DF df, V half) {
  if constexpr (kNativeF16) {
    return hn::PromoteTo(df, half);
  } else {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::PromoteTo(du, hn::BitCast(hn::Rebind<uint16_t, DF>(), half));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFF));
    // The exponent moves to fp32's place and is mended by an exact product; that also normalises subnormal numbers.
    auto value = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
    const auto special = hn::RebindMask(df, hn::Gt(magnitude, hn::Set(du, 0x7BFF)));
    value = hn::IfThenElse(special, hn::BitCast(df, hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000))), value);
    return hn::Or(value, hn::BitCast(df, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)))));
  }
}

template <class DF, class D16 = hn::Rebind<hwy::float16_t, DF>>
HWY_INLINE hn::Vec<D16> NarrowF16(DF df, hn::Vec<DF> value) {
  if constexpr (kNativeF16) {
    return hn::DemoteTo(D16(), value);
  } else {
    const hn::RebindToUnsigned<DF> du;
    const auto bits = hn::BitCast(du, value);
    const auto sign = hn::And(bits, hn::Set(du, 0x80000000u)), magnitude = hn::Xor(bits, sign);
    // Normal results: rebias, then add half an ulp less one, plus the last bit kept (ties to even).
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto rebiased = hn::Sub(magnitude, hn::Set(du, 112u << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(rebiased, hn::Set(du, 0xFFF)), odd));
    // Subnormal results: adding 0.5 makes the fp32 adder round at 2^-24.
    const auto half = hn::Set(df, 0.5f);
    const auto subnormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(du, half));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113u << 23)), subnormal, normal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x477FEFFF)), hn::Set(du, 0x7C00), result);  // 65520 and more
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7F800000)), hn::Set(du, 0x7E00), result);
    result = hn::Or(result, hn::ShiftRight<16>(sign));
    return hn::BitCast(D16(), hn::TruncateTo(hn::Rebind<uint16_t, DF>(), result));
  }
}

template <class DF, class D16 = hn::Rebind<hwy::bfloat16_t, DF>>
HWY_INLINE hn::Vec<D16> NarrowBF16(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  (void)df;
  return hn::BitCast(D16(), hn::TruncateTo(hn::Rebind<uint16_t, DF>(), hn::ShiftRight<16>(result)));
}

template <typename T, class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF df, const T* p) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadU(df, p);
  } else if constexpr (std::is_same_v<T, hwy::float16_t>) {
    return WidenF16(df, hn::LoadU(hn::Rebind<T, DF>(), p));
  } else {
    return hn::PromoteTo(df, hn::LoadU(hn::Rebind<T, DF>(), p));
  }
}

// Reads `count` elements, at most one vector; the other lanes are zero.
template <typename T, class DF>
HWY_INLINE hn::Vec<DF> LoadF32(DF df, const T* p, size_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::LoadN(df, p, count);
  } else if constexpr (std::is_same_v<T, hwy::float16_t>) {
    return WidenF16(df, hn::LoadN(hn::Rebind<T, DF>(), p, count));
  } else {
    return hn::PromoteTo(df, hn::LoadN(hn::Rebind<T, DF>(), p, count));
  }
}

template <typename T, class DF>
HWY_INLINE auto Narrow(DF df, hn::Vec<DF> value) {
  if constexpr (std::is_same_v<T, float>) {
    (void)df;
    return value;
  } else if constexpr (std::is_same_v<T, hwy::float16_t>) {
    return NarrowF16(df, value);
  } else {
    return NarrowBF16(df, value);
  }
}

template <typename T, class DF>
HWY_INLINE void StoreF32(DF df, hn::Vec<DF> value, T* p) {
  hn::StoreU(Narrow<T>(df, value), hn::Rebind<T, DF>(), p);
}

template <typename T, class DF>
HWY_INLINE void StoreF32(DF df, hn::Vec<DF> value, T* p, size_t count) {
  hn::StoreN(Narrow<T>(df, value), hn::Rebind<T, DF>(), p, count);
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
