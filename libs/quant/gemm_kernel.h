#ifndef LIBS_QUANT_GEMM_KERNEL_H_
#define LIBS_QUANT_GEMM_KERNEL_H_

// The SIMD part of gemm.h: one source, compiled for each instruction set, chosen at run time. Internal to libs/quant.

#include <cstdint>

#include "libs/quant/gemm.h"

namespace jumar::quant::internal {

inline constexpr int64_t kPanel = 16;       // columns of `out` that are computed together: the rows of one fractal
inline constexpr int64_t kDecodeRows = 16;  // up to here the weights are the work, above it the products are

// Activations as the kernels want them: fp32 (or bf16, where the CPU multiplies bf16), zero padded to a multiple of 32,
// in the order in which the weight's lanes come.
int64_t PackedRowBytes(DType type, int64_t k);
void PackActivations(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed);

// out[row_begin:row_end, 16 * panel_begin : 16 * panel_end], from activations that are packed whole. Decode, of at most kDecodeRows rows,
// uses each weight where it lies; prefill first packs the weights of a panel, so that its tiles find them in the caches.
void DecodePanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end);
void PrefillPanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end);

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_GEMM_KERNEL_H_
