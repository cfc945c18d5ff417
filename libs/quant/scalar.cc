#include "libs/quant/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace jumar::quant {
namespace {

struct Format {
  int mantissa_bits, min_exponent, max_exponent;  // exponents of normal numbers
};

Format FormatOf(DType type) {
  switch (type) {
    case DType::kF16: return {10, -14, 15};
    case DType::kBF16: return {7, -126, 127};
    default: return {23, -126, 127};
  }
}

double Ulp(DType type, double value) {
  const Format f = FormatOf(type);
  const int exponent = value == 0 ? f.min_exponent : std::max(std::ilogb(value), f.min_exponent);
  return std::ldexp(1.0, exponent - f.mantissa_bits);
}

}  // namespace

double LoadScalar(DType type, const void* data, int64_t index) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, static_cast<const char*>(data) + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, static_cast<const char*>(data) + 2 * index, 2);
  if (type == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa ? std::nan("") : HUGE_VAL)
                 : exponent == 0 ? std::ldexp(mantissa, -24)
                                 : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

void StoreScalar(DType type, double value, void* data, int64_t index) {
  if (type == DType::kF32) {
    const float rounded = static_cast<float>(value);
    std::memcpy(static_cast<char*>(data) + 4 * index, &rounded, 4);
    return;
  }
  const Format f = FormatOf(type);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>((f.max_exponent - f.min_exponent + 2) << f.mantissa_bits);
  uint16_t bits;
  if (std::isnan(value)) {
    bits = sign | infinity | static_cast<uint16_t>(1u << (f.mantissa_bits - 1));
  } else {
    const double magnitude = std::fabs(value), ulp = Ulp(type, std::isinf(value) ? 1.0 : magnitude);
    const double units = std::nearbyint(magnitude / ulp);  // ties to even; exact, as ulp is a power of two
    if (units * ulp >= std::ldexp(1.0, f.max_exponent + 1)) {
      bits = sign | infinity;
    } else {
      // Biased exponent of the binade, plus the units beyond its start; a carry moves into the exponent by itself.
      const int exponent = magnitude == 0 ? f.min_exponent : std::max(std::ilogb(magnitude), f.min_exponent);
      bits = sign | static_cast<uint16_t>(((exponent - f.min_exponent) << f.mantissa_bits) + static_cast<int>(units));
    }
  }
  std::memcpy(static_cast<char*>(data) + 2 * index, &bits, 2);
}

double HalfUlp(DType type, double value) { return 0.5 * Ulp(type, value); }

}  // namespace jumar::quant
