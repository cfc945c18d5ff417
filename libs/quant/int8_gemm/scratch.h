#ifndef LIBS_QUANT_INT8_GEMM_SCRATCH_H_
#define LIBS_QUANT_INT8_GEMM_SCRATCH_H_

// Buffers of a thread that its next call uses again. Internal to this folder.

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace jumar::quant::internal {

// Buffers of different uses can be held at once.
enum class ScratchUse { kActivations, kPanel, kProduct, kRows };

// 64-byte aligned; null if there is no memory. Grows, never shrinks: no allocation in steady state. The contents are those of the last use.
template <ScratchUse use>
char* Scratch(int64_t bytes) {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static thread_local std::unique_ptr<char, Free> buffer;
  static thread_local int64_t capacity = 0;
  if (capacity < bytes) {
    buffer.reset();
    capacity = (bytes + 4095) / 4096 * 4096;
    buffer.reset(static_cast<char*>(std::aligned_alloc(64, capacity)));
    if (buffer == nullptr) capacity = 0;
  }
  return buffer.get();
}

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_INT8_GEMM_SCRATCH_H_
