#ifndef LIBS_QUANT_INT8_GEMM_INT8_KERNEL_H_
#define LIBS_QUANT_INT8_GEMM_INT8_KERNEL_H_

// The SIMD part of int8_gemm.h: one source, compiled for each instruction set, chosen at run time. Internal to this folder.

#include <cstdint>

#include "libs/quant/int8_gemm/int8_gemm.h"

namespace jumar::quant::internal {

inline constexpr int64_t kInt8Stripe = 32;  // columns of `out` that are computed together

// A row of activations as the kernel wants it: int8 (int16 where the CPU has no dot product of bytes), zero padded to 64 elements, and
// behind them, in int32, what the sums start with. A multiple of 64 bytes.
int64_t PackedInt8RowBytes(int64_t k);
void PackInt8Rows(const Int8GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed);

// out[group rows row_begin:row_end, columns of the stripes], from activations that are packed whole. `group` may be any part of args.
void ComputeInt8Stripes(const Int8GemmArgs& args, const Int8Group& group, const void* packed, int64_t row_begin, int64_t row_end,
                        int64_t stripe_begin, int64_t stripe_end);

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_INT8_GEMM_INT8_KERNEL_H_
