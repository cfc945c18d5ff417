#ifndef LIBS_QUANT_INT8_GEMM_ROW_KERNEL_H_
#define LIBS_QUANT_INT8_GEMM_ROW_KERNEL_H_

// The SIMD part of row_quant.h. Internal to this folder.

#include "libs/quant/int8_gemm/row_quant.h"

namespace jumar::quant::internal {

// Rows [begin, end) of arguments that were checked.
void QuantizeRowRange(int64_t cols, const RowsIn& in, const Int8Rows& to, int64_t begin, int64_t end);
void NormQuantizeRange(const NormQuantArgs& args, int64_t begin, int64_t end);
// They must lie in one group; `scale` and `factor` are those of the rows.
void SwigluQuantizeRange(const SwigluQuantArgs& args, const Numbers& scale, const Numbers& factor, int64_t begin, int64_t end);

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_INT8_GEMM_ROW_KERNEL_H_
