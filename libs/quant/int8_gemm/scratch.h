#ifndef LIBS_QUANT_INT8_GEMM_SCRATCH_H_
#define LIBS_QUANT_INT8_GEMM_SCRATCH_H_

// Buffers of a thread that its next call uses again. Internal to this folder.

#include "libs/quant/scratch_buffer.h"

namespace jumar::quant::internal {

// Buffers of different uses can be held at once.
enum class ScratchUse { kActivations, kPanel, kProduct, kRows };

// As ScratchBuffer::Get. The contents are those of the last use.
template <ScratchUse use>
char* Scratch(int64_t bytes) {
  static thread_local ScratchBuffer buffer;
  return buffer.Get(bytes);
}

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_INT8_GEMM_SCRATCH_H_
