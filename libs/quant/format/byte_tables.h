#ifndef LIBS_QUANT_FORMAT_BYTE_TABLES_H_
#define LIBS_QUANT_FORMAT_BYTE_TABLES_H_

// The decode tables as SIMD shuffles want them: the two bytes of the bf16 number of each code apart. Codes 0 to 127; a sign, if the format
// has one, is the caller's.

#include <array>

#include "libs/quant/format/format.h"

namespace jumar::quant {

struct ByteTables {
  alignas(64) std::array<uint8_t, 128> low, high;
};

namespace internal {
constexpr ByteTables MakeByteTables(const DecodeTable& decoded) {
  ByteTables tables = {};
  for (size_t code = 0; code < 128; ++code) {
    tables.low[code] = static_cast<uint8_t>(decoded.bf16[code]);
    tables.high[code] = static_cast<uint8_t>(decoded.bf16[code] >> 8);
  }
  return tables;
}
}  // namespace internal
template <Format kFormat>
inline constexpr ByteTables kByteTables = internal::MakeByteTables(kDecoded<kFormat>);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_FORMAT_BYTE_TABLES_H_
