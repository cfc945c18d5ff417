#ifndef LIBS_QUANT_FORMAT_ARRAY_H_
#define LIBS_QUANT_FORMAT_ARRAY_H_

// Arrays of fp32, fp16 or bf16 to codes and back, vectorised; element by element what format.h's Encode and Decode give.
//
//   absl::Status status = EncodeArray(Format::kE4M3, Overflow::kSaturate, DType::kBF16, in, count, codes, executor);
//
// A code takes a byte, or half of one if its format has 4 bits: byte i holds elements 2i (low half) and 2i + 1; the last high half of an
// odd count is written as 0. Arrays beyond the caches are written past them.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

// Bytes of `count` codes.
constexpr int64_t CodeBytes(Format format, int64_t count) { return Bits(format) == 4 ? count / 2 + count % 2 : count; }

// in: [count]; codes: [CodeBytes(format, count)], apart from `in`. InvalidArgument for a negative count or a null array.
absl::Status EncodeArray(Format format, Overflow overflow, DType in_type, const void* in, int64_t count, uint8_t* codes,
                         tiling::Executor& executor);

// Exact, but for E8M0 to fp16: that rounds to nearest, ties to even, overflow to infinity.
absl::Status DecodeArray(Format format, const uint8_t* codes, int64_t count, DType out_type, void* out, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_FORMAT_ARRAY_H_
