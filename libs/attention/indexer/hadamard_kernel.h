#ifndef LIBS_ATTENTION_INDEXER_HADAMARD_KERNEL_H_
#define LIBS_ATTENTION_INDEXER_HADAMARD_KERNEL_H_

#include <cstdint>

#include "libs/quant/dtype.h"

namespace jumar::attention::internal {

// out = factor * H in; `row` is scratch [dim], 64-byte aligned. dim is a power of two.
void RotateRow(quant::DType type, const void* in, int64_t dim, float factor, float* row, quant::DType out_type, void* out);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_INDEXER_HADAMARD_KERNEL_H_
