#ifndef LIBS_QUANT_FORMAT_FORMAT_H_
#define LIBS_QUANT_FORMAT_FORMAT_H_

// Number formats of 8 and 4 bits, one code at a time: what a code is worth, and which code a number becomes. constexpr throughout; arrays
// are convert_codes.h's matter, vectors format-inl.h's.
//
//   static_assert(Encode(Format::kE4M3, 465.0f, Overflow::kSaturate) == 0x7E);     // 448, the largest
//   static_assert(kDecoded<Format::kE4M3>.f32[0x7E] == 448.0f);
//
// Rounding is to the nearest, ties to the even code; HiF8: ties away from zero; E8M0: up. Results equal ml_dtypes' (HiF8: arXiv 2409.16626's table).
//
//           largest  smallest  -0    too large, to NaN or inf | saturated, and inf   NaN        source
//   E4M3    448      2^-9      yes   NaN (there is no inf)    | +-448                0x7F|sign  OCP OFP8, "E4M3FN"
//   E5M2    57,344   2^-16     yes   inf                      | +-57,344             0x7E|sign  OCP OFP8
//   E8M0    2^127    2^-127    no    NaN                      | 2^127                0xFF       OCP MX
//   E2M1    6        0.5       yes   +-6, both                | +-6                  none       OCP MX
//   HiF8    2^15     2^-22     no    inf, from 1.25 2^15 on   | +-2^15               0x80       arXiv 2409.16626
//   I8      127      1         no    -128 or 127, both        | -128 or 127          none
//   I4      7        1         no    -8 or 7, both            | -8 or 7              none
//
//   - A NaN stays NaN in both modes where there is a code for it; I8, I4: 0; E2M1: a zero of the other sign (ml_dtypes' choice, kept).
//   - Subnormal numbers of E4M3, E5M2, E2M1 are codes like others; what rounds below the smallest is a zero (HiF8: +0; E8M0: 2^-127).
//   - E8M0 has neither sign nor zero: 0, -0 and negative numbers are NaN in both modes. A tie, 1.5 2^k, goes up, for the significand of a
//     power of two is odd. All below 2^-126 but above 2^-127 becomes 2^-126 (ml_dtypes rounds the bits of a subnormal fp32).
//   - 4-bit codes stand in the low half of the byte; Decode ignores the high half. I4 is two's complement.

#include <array>
#include <bit>
#include <cstdint>

namespace jumar::quant {

enum class Format : uint8_t { kE4M3, kE5M2, kE8M0, kE2M1, kHiF8, kI8, kI4 };
inline constexpr std::array kFormats = {Format::kE4M3, Format::kE5M2, Format::kE8M0, Format::kE2M1,
                                        Format::kHiF8, Format::kI8,   Format::kI4};

enum class Overflow : uint8_t { kSaturate, kToNanOrInf };

struct FormatTraits {
  const char* name;
  int bits;                 // of a code
  int emax;                 // exponent of the largest finite number: OCP MX's emax (for E4M3, E5M2, E2M1)
  float max, min_positive;  // finite
  bool has_nan, has_inf, is_float;
};
constexpr FormatTraits Traits(Format format) {
  switch (format) {
    case Format::kE4M3: return {"e4m3", 8, 8, 448, 0x1p-9f, true, false, true};
    case Format::kE5M2: return {"e5m2", 8, 15, 57344, 0x1p-16f, true, true, true};
    case Format::kE8M0: return {"e8m0", 8, 127, 0x1p127f, 0x1p-127f, true, false, true};
    case Format::kE2M1: return {"e2m1", 4, 2, 6, 0.5f, false, false, true};
    case Format::kHiF8: return {"hif8", 8, 15, 32768, 0x1p-22f, true, true, true};
    case Format::kI8: return {"int8", 8, 6, 127, 1, false, false, false};
    case Format::kI4: break;
  }
  return {"int4", 4, 2, 7, 1, false, false, false};
}
constexpr const char* Name(Format format) { return Traits(format).name; }
constexpr int Bits(Format format) { return Traits(format).bits; }
constexpr float Max(Format format) { return Traits(format).max; }

namespace internal {

inline constexpr uint32_t kInfBits = 0x7F800000, kNanBits = 0x7FC00000;

// 2^exponent * (1 + fraction / 2^23), exponent in [-126, 127].
constexpr float Power(int exponent, uint32_t fraction = 0) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23 | fraction);
}
constexpr float WithSign(bool negative, float magnitude) { return negative ? -magnitude : magnitude; }

// IEEE-like: `mantissa` bits below an exponent of that bias.
struct Mini {
  int mantissa, bias;
  uint32_t largest, overflow, nan;  // codes without sign
};
constexpr Mini MiniOf(Format format) {
  if (format == Format::kE4M3) return {3, 7, 0x7E, 0x7F, 0x7F};
  if (format == Format::kE5M2) return {2, 15, 0x7B, 0x7C, 0x7E};
  return {1, 1, 0x7, 0x7, 0x0};  // E2M1
}

constexpr float DecodeMini(const Mini& m, uint32_t code) {
  const int exponent = static_cast<int>(code >> m.mantissa);
  const uint32_t fraction = code & ((1u << m.mantissa) - 1);
  if (exponent == 0) return static_cast<float>(fraction) * Power(1 - m.bias - m.mantissa);
  return Power(exponent - m.bias, fraction << (23 - m.mantissa));
}

// `bits`: of a finite fp32 without its sign.
constexpr uint32_t EncodeMini(const Mini& m, uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23) - 127, above = exponent - (1 - m.bias);  // the smallest normal's binade is 0
  const int drop = 23 - m.mantissa - (above < 0 ? above : 0);
  if (bits < 0x00800000 || drop > 24) return 0;  // less than half of the smallest
  const uint32_t full = (bits & 0x7FFFFF) | 0x800000, half = 1u << (drop - 1);
  const uint32_t units = (full + half - 1 + (full >> drop & 1)) >> drop;
  // The implicit bit of `units` counts as one exponent, so that a carry moves on by itself.
  return units + (static_cast<uint32_t>(above > 0 ? above : 0) << m.mantissa);
}

// A HiF8 number's exponent e has 3, 2 or 1 bits of mantissa for |e| < 4, < 8, < 16; below 2^-15 it is a power of two.
constexpr int HiF8Mantissa(int exponent) {
  if (exponent < -15) return 0;
  const int size = exponent < 0 ? -exponent : exponent;
  return size < 4 ? 3 : size < 8 ? 2 : 1;
}

// Of a code, sign bit 0: the dot (11, 10, 01, 001, 0001 for D = 4, 3, 2, 1, 0; 0000: denormal), the exponent's sign, its D - 1 lower bits
// (the first is implied), the mantissa.
constexpr float DecodeHiF8(uint32_t code) {
  if (code < 8) return code == 0 ? 0.0f : Power(static_cast<int>(code) - 23);
  if (code == 0x6F) return std::bit_cast<float>(kInfBits);
  const int d = code >= 0x60 ? 4 : code >= 0x40 ? 3 : code >= 0x20 ? 2 : code >= 0x10 ? 1 : 0;
  const int mantissa = d == 4 ? 1 : d == 3 ? 2 : 3;
  const uint32_t fraction = (code & ((1u << mantissa) - 1)) << (23 - mantissa);
  if (d == 0) return Power(0, fraction);
  const uint32_t field = code >> mantissa, low = field & ((1u << (d - 1)) - 1);
  const int size = static_cast<int>(low | 1u << (d - 1));
  return Power(field >> (d - 1) & 1 ? -size : size, fraction);
}

// `bits`: of a finite fp32 without its sign. 0x6F, infinity, from 1.25 * 2^15 on.
constexpr uint32_t EncodeHiF8(uint32_t bits) {
  int exponent = static_cast<int>(bits >> 23) - 127;
  if (exponent <= -23) return exponent == -23;  // 2^-23 is a tie
  if (exponent > 15) return 0x6F;
  const int before = HiF8Mantissa(exponent);
  bits += 1u << (22 - before);  // half of a unit, in the binade that the number comes from
  exponent = static_cast<int>(bits >> 23) - 127;
  if (exponent > 15) return 0x6F;
  if (exponent < -15) return static_cast<uint32_t>(exponent + 23);
  const int mantissa = HiF8Mantissa(exponent);
  const uint32_t fraction = (bits & 0x7FFFFF) >> (23 - mantissa);
  if (exponent == 0) return 0x08 | fraction;
  const uint32_t size = static_cast<uint32_t>(exponent < 0 ? -exponent : exponent);
  const int d = std::bit_width(size);
  const uint32_t dot = d == 4 ? 0x60 : d == 3 ? 0x40 : d == 2 ? 0x20 : 0x10;
  const uint32_t field = (exponent < 0 ? 1u << (d - 1) : 0) | (size & ((1u << (d - 1)) - 1));
  return dot | field << mantissa | fraction;
}

constexpr uint32_t EncodeE8M0(uint32_t bits, Overflow overflow) {
  if (bits == 0 || bits > kInfBits) return 0xFF;  // zero, negative, NaN
  const uint32_t code = bits == 0x400000 ? 0 : (bits + 0x400000) >> 23;
  return code < 0xFF ? code : overflow == Overflow::kSaturate ? 0xFE : 0xFF;
}

// Nearest whole number in [low, high], ties to even; NaN gives 0. Adding 1.5 * 2^23 makes the fp32 adder round.
constexpr int EncodeInt(float value, int low, int high) {
  if (value != value) return 0;
  if (value <= static_cast<float>(low)) return low;
  if (value >= static_cast<float>(high)) return high;
  return static_cast<int>((value + 0x1.8p23f) - 0x1.8p23f);
}

}  // namespace internal

// Exact. Every code is a bf16 number, too.
constexpr float Decode(Format format, uint8_t code) {
  switch (format) {
    case Format::kE4M3:
    case Format::kE5M2: {
      const internal::Mini mini = internal::MiniOf(format);
      const uint32_t magnitude = code & 0x7F;
      const bool special = magnitude > mini.largest;
      const float value = !special ? internal::DecodeMini(mini, magnitude)
                                   : std::bit_cast<float>(format == Format::kE5M2 && magnitude == mini.overflow ? internal::kInfBits
                                                                                                                : internal::kNanBits);
      return internal::WithSign(code & 0x80, value);
    }
    case Format::kE2M1: return internal::WithSign(code & 8, internal::DecodeMini(internal::MiniOf(format), code & 7));
    case Format::kE8M0:
      // 2^-127 is subnormal in fp32.
      return std::bit_cast<float>(code == 0xFF ? internal::kNanBits : code == 0 ? 0x400000u : static_cast<uint32_t>(code) << 23);
    case Format::kHiF8:
      if (code == 0x80) return std::bit_cast<float>(internal::kNanBits);
      return internal::WithSign(code & 0x80, internal::DecodeHiF8(code & 0x7F));
    case Format::kI8: return static_cast<float>(static_cast<int8_t>(code));
    case Format::kI4: break;
  }
  return static_cast<float>(static_cast<int8_t>(static_cast<uint8_t>(code << 4)) >> 4);
}

constexpr uint8_t Encode(Format format, float value, Overflow overflow) {
  const uint32_t all = std::bit_cast<uint32_t>(value), bits = all & 0x7FFFFFFF;
  const bool nan = bits > internal::kInfBits, saturate = overflow == Overflow::kSaturate;
  uint32_t sign = all >> 24 & 0x80, code = 0;
  switch (format) {
    case Format::kE4M3:
    case Format::kE5M2:
    case Format::kE2M1: {
      const internal::Mini mini = internal::MiniOf(format);
      if (format == Format::kE2M1) sign = (sign >> 4) ^ (nan ? 8 : 0);
      code = bits >= internal::kInfBits ? mini.overflow : internal::EncodeMini(mini, bits);
      if (code > mini.largest) code = saturate ? mini.largest : mini.overflow;
      if (bits == internal::kInfBits && saturate) code = mini.largest;
      return static_cast<uint8_t>(sign | (nan ? mini.nan : code));
    }
    case Format::kE8M0: return static_cast<uint8_t>(internal::EncodeE8M0(all, overflow));
    case Format::kHiF8:
      if (nan) return 0x80;
      code = bits >= internal::kInfBits ? 0x6F : internal::EncodeHiF8(bits);
      if (code == 0x6F && saturate) code = 0x6E;
      return static_cast<uint8_t>(code == 0 ? 0 : sign | code);
    case Format::kI8: return static_cast<uint8_t>(internal::EncodeInt(value, -128, 127));
    case Format::kI4: break;
  }
  return static_cast<uint8_t>(internal::EncodeInt(value, -8, 7) & 15);
}

// All codes' values. For a 4-bit format the table repeats every 16 entries.
struct DecodeTable {
  std::array<float, 256> f32;
  std::array<uint16_t, 256> bf16;  // bits; NaN is 0x7FC0, with the code's sign
};
namespace internal {
constexpr DecodeTable MakeTable(Format format) {
  DecodeTable table = {};
  for (uint32_t code = 0; code < 256; ++code) {
    table.f32[code] = Decode(format, static_cast<uint8_t>(code));
    table.bf16[code] = static_cast<uint16_t>(std::bit_cast<uint32_t>(table.f32[code]) >> 16);
  }
  return table;
}
}  // namespace internal
template <Format kFormat>
inline constexpr DecodeTable kDecoded = internal::MakeTable(kFormat);

// The same by a format that is known at run time only.
constexpr const DecodeTable& Decoded(Format format) {
  switch (format) {
    case Format::kE4M3: return kDecoded<Format::kE4M3>;
    case Format::kE5M2: return kDecoded<Format::kE5M2>;
    case Format::kE8M0: return kDecoded<Format::kE8M0>;
    case Format::kE2M1: return kDecoded<Format::kE2M1>;
    case Format::kHiF8: return kDecoded<Format::kHiF8>;
    case Format::kI8: return kDecoded<Format::kI8>;
    case Format::kI4: break;
  }
  return kDecoded<Format::kI4>;
}

}  // namespace jumar::quant

#endif  // LIBS_QUANT_FORMAT_FORMAT_H_
