#ifndef LIBS_QUANT_DTYPE_H_
#define LIBS_QUANT_DTYPE_H_

#include <cstdint>

namespace jumar::quant {

enum class DType : uint8_t { kF32, kF16, kBF16 };

constexpr int64_t SizeOf(DType type) { return type == DType::kF32 ? 4 : 2; }

constexpr const char* Name(DType type) {
  return type == DType::kF32 ? "float32" : type == DType::kF16 ? "float16" : "bfloat16";
}

}  // namespace jumar::quant

#endif  // LIBS_QUANT_DTYPE_H_
