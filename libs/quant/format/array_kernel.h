#ifndef LIBS_QUANT_FORMAT_ARRAY_KERNEL_H_
#define LIBS_QUANT_FORMAT_ARRAY_KERNEL_H_

// array.cc's work on elements [begin, end): begin is even. `stream`: write past the caches.

#include <cstdint>

#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"

namespace jumar::quant {

struct EncodeJob {
  Format format;
  Overflow overflow;
  DType in_type;
  const void* in;
  uint8_t* codes;
  bool stream;
};
struct DecodeJob {
  Format format;
  const uint8_t* codes;
  DType out_type;
  void* out;
  bool stream;
};

namespace internal {
void EncodeCodes(const EncodeJob& job, int64_t begin, int64_t end);
void DecodeCodes(const DecodeJob& job, int64_t begin, int64_t end);
}  // namespace internal

}  // namespace jumar::quant

#endif  // LIBS_QUANT_FORMAT_ARRAY_KERNEL_H_
