#ifndef LIBS_QUANT_INT8_GEMM_INT8_REFERENCE_H_
#define LIBS_QUANT_INT8_GEMM_INT8_REFERENCE_H_

// The formulas of int8_gemm.h and row_quant.h as plain loops, for tests. Shares no code with the kernels.

#include <cstdint>
#include <span>
#include <vector>

#include "libs/quant/int8_gemm/int8_gemm.h"

namespace jumar::quant {

// Element (j, kk) of a weight of n columns and k rows in a layout.
int8_t& WeightAt(int8_t* w, Int8Layout layout, int64_t ldw, int64_t n, int64_t k, int64_t j, int64_t kk);
// Bytes that a weight takes.
int64_t WeightBytes(Int8Layout layout, int64_t ldw, int64_t n, int64_t k);

float NumberOf(const Numbers& numbers, int64_t index, float absent);

// Σ a w, in 64 bits. [rows of the group, n]
std::vector<int64_t> Int8Sums(const Int8GemmArgs& args, const Int8Group& group);

// What the kernel must write, element for element, into `out` (a buffer like args.out).
void Int8GemmReference(const Int8GemmArgs& args, std::span<const Int8Group> groups, void* out);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_INT8_GEMM_INT8_REFERENCE_H_
