// Codes of 8-bit and 4-bit formats from and to vectors of bf16 and fp32: what format.h's Decode and Encode give, lane by lane. Included once
// per SIMD target, see Highway's foreach_target.h.
//
//   DecodeBF16<Format::kE4M3>(d8, codes, lower, upper)               2N codes -> two vectors of N bf16, in order
//   DecodeF32<Format::kE4M3>(df, codes)                              N codes (a quarter of a vector) -> N fp32
//   EncodeF32<Format::kE4M3, Overflow::kSaturate>(df, value)         N fp32 -> N codes (a quarter of a vector)
//   EncodeBF16<Format::kE4M3, Overflow::kSaturate>(d8, lower, upper) two vectors of N bf16 -> 2N codes
//   UnpackNibbles(d8, bytes, lower, upper), PackNibbles(d8, codes)   4-bit codes: two per byte, the first in the low half
//
// AVX-512 machines with VBMI look codes up in tables of 128 bytes; others compute.

#if defined(LIBS_QUANT_FORMAT_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_FORMAT_FORMAT_INL_H_
#undef LIBS_QUANT_FORMAT_FORMAT_INL_H_
#else
#define LIBS_QUANT_FORMAT_FORMAT_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "libs/quant/format/byte_tables.h"
#include "libs/quant/format/format.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Whether a format is a sign bit over an IEEE-like magnitude.
constexpr bool IsMini(Format format) { return format == Format::kE4M3 || format == Format::kE5M2 || format == Format::kE2M1; }

namespace format_internal {

// Whether a table of 128 bytes is looked up by one instruction.
#if HWY_TARGET <= HWY_AVX3_DL
inline constexpr bool kTables128 = true;
#else
inline constexpr bool kTables128 = false;
#endif

// 16 bytes, in every block of 16 that a vector has.
template <class D8>
HWY_INLINE auto LoadTable16(D8, const uint8_t* table) {
  if constexpr (HWY_MAX_BYTES >= 16 && hn::MaxLanes(D8()) < 16) {
    return hn::Load(hn::Full128<uint8_t>(), table);
  } else {
    return hn::LoadDup128(D8(), table);
  }
}

// table[index] for 128 bytes; index < 128.
template <class D8, class V = hn::Vec<D8>>
HWY_INLINE V Lookup128(D8 d8, const uint8_t* table, V index) {
#if HWY_TARGET <= HWY_AVX3_DL
  if constexpr (hn::MaxLanes(D8()) == 64) {
    return hn::TwoTablesLookupLanes(d8, hn::Load(d8, table), hn::Load(d8, table + 64), hn::IndicesFromVec(d8, index));
  }
#endif
  V found = hn::Zero(d8);
  for (int block = 0; block < 8; ++block) {
    // Below 16 if the index is of this block; else the top bit is set, for which the look-up gives 0.
    const V in_block = hn::SaturatedAdd(hn::Xor(index, hn::Set(d8, static_cast<uint8_t>(16 * block))), hn::Set(d8, 0x70));
    found = hn::Or(found, hn::TableLookupBytesOr0(LoadTable16(d8, table + 16 * block), in_block));
  }
  return found;
}

// The bf16 numbers' low and high bytes of E4M3 and E5M2, by shifting the exponent to its place.
template <Format kFormat, class D8, class V = hn::Vec<D8>>
HWY_INLINE void MiniBytes(D8 d8, V codes, V& low, V& high) {
  constexpr internal::Mini kMini = internal::MiniOf(kFormat);
  constexpr int kUp = 7 - kMini.mantissa;  // from the code's place to bf16's
  const hn::RebindToSigned<D8> ds;
  const V magnitude = hn::And(codes, hn::Set(d8, 0x7F));
  low = hn::ShiftLeft<kUp>(magnitude);
  high = hn::Add(hn::ShiftRight<8 - kUp>(magnitude), hn::Set(d8, static_cast<uint8_t>((127 - kMini.bias) >> 1)));
  const auto& table = kByteTables<kFormat>;
  const auto signed_magnitude = hn::BitCast(ds, magnitude);  // below 128: the signed comparison is right, and one instruction
  const auto subnormal = hn::RebindMask(d8, hn::Lt(signed_magnitude, hn::Set(ds, 1 << kMini.mantissa)));
  low = hn::IfThenElse(subnormal, hn::TableLookupBytes(LoadTable16(d8, table.low.data()), magnitude), low);
  high = hn::IfThenElse(subnormal, hn::TableLookupBytes(LoadTable16(d8, table.high.data()), magnitude), high);
  if constexpr (kFormat == Format::kE4M3) {
    const auto nan = hn::Eq(magnitude, hn::Set(d8, 0x7F));
    low = hn::IfThenElse(nan, hn::Set(d8, 0xC0), low);
    high = hn::IfThenElse(nan, hn::Set(d8, 0x7F), high);
  } else {
    const auto special = hn::RebindMask(d8, hn::Gt(signed_magnitude, hn::Set(ds, 0x7B)));
    const auto infinite = hn::Eq(magnitude, hn::Set(d8, 0x7C));
    low = hn::IfThenElse(special, hn::IfThenElse(infinite, hn::Set(d8, 0x80), hn::Set(d8, 0xC0)), low);
    high = hn::IfThenElse(special, hn::Set(d8, 0x7F), high);
  }
  high = hn::Or(high, hn::And(codes, hn::Set(d8, 0x80)));
}

// The low and the high byte of the bf16 number of each code; of vectors of any size.
template <Format kFormat, class D8, class V = hn::Vec<D8>>
HWY_INLINE void DecodeBytes(D8 d8, V codes, V& low, V& high) {
  const auto& table = kByteTables<kFormat>;
  if constexpr (kFormat == Format::kE2M1 || kFormat == Format::kI4) {
    const V index = hn::And(codes, hn::Set(d8, 15));
    low = hn::TableLookupBytes(LoadTable16(d8, table.low.data()), index);
    high = hn::TableLookupBytes(LoadTable16(d8, table.high.data()), index);
  } else if constexpr (kFormat == Format::kE8M0) {
    // A bf16's exponent field is the code; 0 and 255 have a bit of mantissa.
    const V one = hn::Set(d8, 0x40);
    const V special = hn::VecFromMask(d8, hn::Or(hn::Eq(codes, hn::Zero(d8)), hn::Eq(codes, hn::Set(d8, 0xFF))));
    low = hn::Or(hn::ShiftLeft<7>(codes), hn::And(special, one));
    high = hn::ShiftRight<1>(codes);
  } else if constexpr (kFormat == Format::kI8) {
    // |code| is at most 128 = 0x80: as for a magnitude, with a table of 128 for all but that one.
    const V sign = hn::And(codes, hn::Set(d8, 0x80));
    const auto negative = hn::Eq(sign, hn::Set(d8, 0x80));
    const V magnitude = hn::IfThenElse(negative, hn::Sub(hn::Zero(d8), codes), codes);
    const auto largest = hn::Eq(codes, hn::Set(d8, 0x80));
    const V index = hn::And(magnitude, hn::Set(d8, 0x7F));
    low = hn::IfThenElse(largest, hn::Zero(d8), Lookup128(d8, table.low.data(), index));
    high = hn::IfThenElse(largest, hn::Set(d8, 0xC3), hn::Or(Lookup128(d8, table.high.data(), index), sign));
  } else {
    constexpr bool kLookup = kFormat == Format::kHiF8 || (kTables128 && hn::MaxLanes(D8()) == 64);
    if constexpr (!kLookup) {
      MiniBytes<kFormat>(d8, codes, low, high);
    } else {
      const V magnitude = hn::And(codes, hn::Set(d8, 0x7F)), sign = hn::And(codes, hn::Set(d8, 0x80));
      low = Lookup128(d8, table.low.data(), magnitude);
      high = hn::Or(Lookup128(d8, table.high.data(), magnitude), sign);
      if constexpr (kFormat == Format::kHiF8) {  // where a zero's sign would be
        const auto nan = hn::Eq(codes, hn::Set(d8, 0x80));
        low = hn::IfThenElse(nan, hn::Set(d8, 0xC0), low);
        high = hn::IfThenElse(nan, hn::Set(d8, 0x7F), high);
      }
    }
  }
}

// E4M3, E5M2, E2M1 from the bits of fp32, in 32-bit lanes.
template <Format kFormat, Overflow kOverflow, class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE VU EncodeMiniLanes(DF df, VU bits) {
  constexpr internal::Mini kMini = internal::MiniOf(kFormat);
  constexpr int kDrop = 23 - kMini.mantissa;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kMini.bias) << 23;
  constexpr uint32_t kLimit = kOverflow == Overflow::kSaturate ? kMini.largest : kMini.overflow;
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const VU magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFF));
  // Normal results: half a unit less one, plus the last bit that stays (ties to even).
  const VU odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(du, 1));
  const VU normal = hn::ShiftRight<kDrop>(hn::Add(hn::Add(magnitude, hn::Set(du, (1u << (kDrop - 1)) - 1 - kRebias)), odd));
  // Subnormal ones: the fp32 adder rounds at the smallest unit if the sum's last bit is worth as much.
  const auto magic = hn::Set(df, internal::Power(1 - kMini.bias - kMini.mantissa + 23));
  const VU subnormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), magic)), hn::BitCast(du, magic));
  const auto compared = hn::BitCast(di, magnitude);
  VU code = hn::IfThenElse(hn::RebindMask(du, hn::Lt(compared, hn::Set(di, static_cast<int32_t>(kRebias + 0x800000)))), subnormal, normal);
  code = hn::BitCast(du, hn::Min(hn::BitCast(di, code), hn::Set(di, static_cast<int32_t>(kLimit))));
  const auto nan = hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x7F800000)));
  if constexpr (kFormat == Format::kE2M1) {
    const VU sign = hn::And(hn::ShiftRight<28>(bits), hn::Set(du, 8));
    return hn::IfThenElse(nan, hn::Xor(sign, hn::Set(du, 8)), hn::Or(code, sign));
  } else {
    if constexpr (kLimit != kMini.nan) code = hn::IfThenElse(nan, hn::Set(du, kMini.nan), code);
    return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(du, 0x80)));
  }
}

// The same steps as format.h's EncodeHiF8.
template <Overflow kOverflow, class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE VU EncodeHiF8Lanes(DF df, VU all) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, hn::And(all, hn::Set(du, 0x7FFFFFFF)));
  const auto set = [&](int32_t value) { return hn::Set(di, value); };
  const auto exponent_of = [&](auto number) { return hn::Sub(hn::ShiftRight<23>(number), set(127)); };

  const auto before = exponent_of(bits), size_before = hn::Abs(before);
  auto half = hn::IfThenElse(hn::Gt(size_before, set(3)), set(1 << 20), set(1 << 19));
  half = hn::IfThenElse(hn::Gt(size_before, set(7)), set(1 << 21), half);
  half = hn::IfThenElse(hn::Lt(before, set(-15)), set(1 << 22), half);
  const auto rounded = hn::Add(bits, half);

  const auto exponent = exponent_of(rounded), size = hn::Abs(exponent);
  const auto negative = hn::ShiftRight<31>(exponent);  // -1 or 0
  // The exponent's size over 3 bits of mantissa. Shifted so that its first bit is worth 16 (8 for a size of 1), a constant replaces that bit
  // by the dot.
  const auto joined = hn::Or(hn::ShiftLeft<3>(size), hn::And(hn::ShiftRight<20>(rounded), set(7)));
  const auto sign16 = hn::And(negative, set(16));
  auto code = hn::Add(joined, set(0x08));                                                                       // D = 0
  code = hn::IfThenElse(hn::Gt(size, set(0)), hn::Add(hn::Add(joined, set(0x08)), hn::And(negative, set(8))), code);  // 1
  code = hn::IfThenElse(hn::Gt(size, set(1)), hn::Add(hn::Add(joined, set(0x10)), sign16), code);
  code = hn::IfThenElse(hn::Gt(size, set(3)), hn::Add(hn::Add(hn::ShiftRight<1>(joined), set(0x30)), sign16), code);
  code = hn::IfThenElse(hn::Gt(size, set(7)), hn::Add(hn::Add(hn::ShiftRight<2>(joined), set(0x50)), sign16), code);
  code = hn::IfThenElse(hn::Lt(exponent, set(-15)), hn::Add(exponent, set(23)), code);
  code = hn::IfThenElse(hn::Eq(before, set(-23)), set(1), code);
  const auto too_large = hn::Gt(rounded, set(0x473FFFFF));  // 1.5 * 2^15 and more, which is infinity's place
  code = hn::IfThenElse(too_large, set(kOverflow == Overflow::kSaturate ? 0x6E : 0x6F), code);
  const auto tiny = hn::Lt(before, set(-23));
  const VU sign = hn::And(hn::ShiftRight<24>(all), hn::Set(du, 0x80));
  VU result = hn::Or(hn::BitCast(du, code), sign);
  result = hn::IfThenZeroElse(hn::RebindMask(du, tiny), result);
  return hn::IfThenElse(hn::RebindMask(du, hn::Gt(bits, set(0x7F800000))), hn::Set(du, 0x80), result);
}

template <Overflow kOverflow, class DF, class VU = hn::Vec<hn::RebindToUnsigned<DF>>>
HWY_INLINE VU EncodeE8M0Lanes(DF, VU bits) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const VU half = hn::Set(du, 0x400000);  // of a unit, and 2^-127 itself
  VU code = hn::IfThenZeroElse(hn::Eq(bits, half), hn::ShiftRight<23>(hn::Add(bits, half)));
  if constexpr (kOverflow == Overflow::kSaturate) code = hn::Min(code, hn::Set(du, 0xFE));
  const auto as_signed = hn::BitCast(di, bits);
  const auto nan = hn::Or(hn::Lt(as_signed, hn::Set(di, 1)), hn::Gt(as_signed, hn::Set(di, 0x7F800000)));
  return hn::IfThenElse(hn::RebindMask(du, nan), hn::Set(du, 0xFF), code);
}

template <int kLow, int kHigh, class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> EncodeIntLanes(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  value = hn::IfThenZeroElse(hn::IsNaN(value), value);
  value = hn::Min(hn::Max(value, hn::Set(df, kLow)), hn::Set(df, kHigh));
  return hn::And(hn::BitCast(du, hn::NearestInt(value)), hn::Set(du, kHigh - kLow));
}

// Codes in 32-bit lanes.
template <Format kFormat, Overflow kOverflow, class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> EncodeLanes(DF df, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  if constexpr (IsMini(kFormat)) {
    return EncodeMiniLanes<kFormat, kOverflow>(df, hn::BitCast(du, value));
  } else if constexpr (kFormat == Format::kHiF8) {
    return EncodeHiF8Lanes<kOverflow>(df, hn::BitCast(du, value));
  } else if constexpr (kFormat == Format::kE8M0) {
    return EncodeE8M0Lanes<kOverflow>(df, hn::BitCast(du, value));
  } else if constexpr (kFormat == Format::kI8) {
    return EncodeIntLanes<-128, 127>(df, value);
  } else {
    return EncodeIntLanes<-8, 7>(df, value);
  }
}

// Four vectors of codes in 32-bit lanes to one of bytes.
template <class D8, class VU>
HWY_INLINE hn::Vec<D8> PackLanes(D8 d8, VU a, VU b, VU c, VU d) {
  const hn::Repartition<uint16_t, D8> d16;
  const hn::Repartition<int16_t, D8> ds16;
  const hn::Repartition<int32_t, D8> ds32;
  const auto ab = hn::OrderedDemote2To(d16, hn::BitCast(ds32, a), hn::BitCast(ds32, b));
  const auto cd = hn::OrderedDemote2To(d16, hn::BitCast(ds32, c), hn::BitCast(ds32, d));
  return hn::OrderedDemote2To(d8, hn::BitCast(ds16, ab), hn::BitCast(ds16, cd));
}

// E4M3 and E5M2 from the bits of bf16, in 16-bit lanes: twice as many at a time.
template <Format kFormat, Overflow kOverflow, class D16, class V = hn::Vec<D16>>
HWY_INLINE V EncodeMiniBF16(D16 d16, V bits) {
  constexpr internal::Mini kMini = internal::MiniOf(kFormat);
  constexpr int kDrop = 7 - kMini.mantissa;
  constexpr uint16_t kRebias = static_cast<uint16_t>((127 - kMini.bias) << 7);
  constexpr uint32_t kLimit = kOverflow == Overflow::kSaturate ? kMini.largest : kMini.overflow;
  const hn::RebindToSigned<D16> ds;
  const hn::RepartitionToWide<D16> d32;
  const hn::RebindToSigned<decltype(d32)> ds32;
  const hn::RebindToFloat<decltype(d32)> df;
  const V magnitude = hn::And(bits, hn::Set(d16, 0x7FFF));
  const V odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(d16, 1));
  const V offset = hn::Set(d16, static_cast<uint16_t>((1 << (kDrop - 1)) - 1 - kRebias));
  const V normal = hn::ShiftRight<kDrop>(hn::Add(hn::Add(magnitude, offset), odd));
  // Below a zero, a bf16's bits are an fp32's. The narrowing undoes the interleaving, block by block.
  const auto magic = hn::Set(df, internal::Power(1 - kMini.bias - kMini.mantissa + 23));
  const auto units = [&](V pairs) {
    return hn::BitCast(ds32, hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(df, pairs), magic)), hn::BitCast(d32, magic)));
  };
  const V zero = hn::Zero(d16);
  const V subnormal =
      hn::ReorderDemote2To(d16, units(hn::InterleaveLower(d16, zero, magnitude)), units(hn::InterleaveUpper(d16, zero, magnitude)));
  const auto compared = hn::BitCast(ds, magnitude);
  V code = hn::IfThenElse(hn::RebindMask(d16, hn::Lt(compared, hn::Set(ds, static_cast<int16_t>(kRebias + 0x80)))), subnormal, normal);
  code = hn::BitCast(d16, hn::Min(hn::BitCast(ds, code), hn::Set(ds, static_cast<int16_t>(kLimit))));
  if constexpr (kLimit != kMini.nan) {
    code = hn::IfThenElse(hn::RebindMask(d16, hn::Gt(compared, hn::Set(ds, 0x7F80))), hn::Set(d16, kMini.nan), code);
  }
  return hn::Or(code, hn::And(hn::ShiftRight<8>(bits), hn::Set(d16, 0x80)));
}

}  // namespace format_internal

template <Format kFormat, class D8, class VB = hn::Vec<hn::Repartition<hwy::bfloat16_t, D8>>>
HWY_INLINE void DecodeBF16(D8 d8, hn::Vec<D8> codes, VB& lower, VB& upper) {
  const hn::Repartition<hwy::bfloat16_t, D8> dbf;
  if constexpr (kFormat == Format::kI8 && !format_internal::kTables128) {
    const hn::Repartition<int8_t, D8> di8;
    const hn::Repartition<int16_t, D8> di16;
    const hn::Repartition<int32_t, D8> di32;
    const hn::Repartition<float, D8> df;
    const auto narrow = [&](auto v16) {
      return hn::OrderedDemote2To(dbf, hn::ConvertTo(df, hn::PromoteLowerTo(di32, v16)), hn::ConvertTo(df, hn::PromoteUpperTo(di32, v16)));
    };
    lower = narrow(hn::PromoteLowerTo(di16, hn::BitCast(di8, codes)));
    upper = narrow(hn::PromoteUpperTo(di16, hn::BitCast(di8, codes)));
    return;
  }
  hn::Vec<D8> low, high;
  format_internal::DecodeBytes<kFormat>(d8, codes, low, high);
  lower = hn::BitCast(dbf, hn::InterleaveWholeLower(d8, low, high));
  upper = hn::BitCast(dbf, hn::InterleaveWholeUpper(d8, low, high));
}

template <Format kFormat, class DF>
HWY_INLINE hn::Vec<DF> DecodeF32(DF df, hn::Vec<hn::Rebind<uint8_t, DF>> codes) {
  const hn::Rebind<uint8_t, DF> d8;
  const hn::Rebind<uint16_t, DF> d16;
  if constexpr (kFormat == Format::kI8) {
    return hn::ConvertTo(df, hn::PromoteTo(hn::RebindToSigned<DF>(), hn::BitCast(hn::RebindToSigned<decltype(d8)>(), codes)));
  } else {
    hn::Vec<decltype(d8)> low, high;
    format_internal::DecodeBytes<kFormat>(d8, codes, low, high);
    const auto bits = hn::Or(hn::ShiftLeft<8>(hn::PromoteTo(d16, high)), hn::PromoteTo(d16, low));
    return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::bfloat16_t, DF>(), bits));
  }
}

template <Format kFormat, Overflow kOverflow, class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, DF>> EncodeF32(DF df, hn::Vec<DF> value) {
  return hn::TruncateTo(hn::Rebind<uint8_t, DF>(), format_internal::EncodeLanes<kFormat, kOverflow>(df, value));
}

template <Format kFormat, Overflow kOverflow, class D8, class VB = hn::Vec<hn::Repartition<hwy::bfloat16_t, D8>>>
HWY_INLINE hn::Vec<D8> EncodeBF16(D8 d8, VB lower, VB upper) {
  using format_internal::EncodeLanes;
  if constexpr (kFormat == Format::kE4M3 || kFormat == Format::kE5M2) {
    const hn::Repartition<uint16_t, D8> d16;
    const hn::Repartition<int16_t, D8> ds16;
    const auto a = format_internal::EncodeMiniBF16<kFormat, kOverflow>(d16, hn::BitCast(d16, lower));
    const auto b = format_internal::EncodeMiniBF16<kFormat, kOverflow>(d16, hn::BitCast(d16, upper));
    return hn::OrderedDemote2To(d8, hn::BitCast(ds16, a), hn::BitCast(ds16, b));
  } else {
    const hn::Repartition<float, D8> df;
    return format_internal::PackLanes(d8, EncodeLanes<kFormat, kOverflow>(df, hn::PromoteLowerTo(df, lower)),
                                      EncodeLanes<kFormat, kOverflow>(df, hn::PromoteUpperTo(df, lower)),
                                      EncodeLanes<kFormat, kOverflow>(df, hn::PromoteLowerTo(df, upper)),
                                      EncodeLanes<kFormat, kOverflow>(df, hn::PromoteUpperTo(df, upper)));
  }
}

// Byte i holds codes 2i (low half) and 2i + 1.
template <class D8, class V = hn::Vec<D8>>
HWY_INLINE void UnpackNibbles(D8 d8, V bytes, V& lower, V& upper) {
  const V even = hn::And(bytes, hn::Set(d8, 15)), odd = hn::ShiftRight<4>(bytes);
  lower = hn::InterleaveWholeLower(d8, even, odd);
  upper = hn::InterleaveWholeUpper(d8, even, odd);
}

// Codes below 16.
template <class D8>
HWY_INLINE hn::Vec<hn::Half<D8>> PackNibbles(D8 d8, hn::Vec<D8> codes) {
  const hn::Repartition<uint16_t, D8> d16;
  const auto pairs = hn::BitCast(d16, codes);
  return hn::TruncateTo(hn::Half<D8>(), hn::Or(pairs, hn::ShiftRight<4>(pairs)));
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
