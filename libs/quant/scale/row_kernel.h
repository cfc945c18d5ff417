#ifndef LIBS_QUANT_SCALE_ROW_KERNEL_H_
#define LIBS_QUANT_SCALE_ROW_KERNEL_H_

// quantize.cc's work on one row.

#include <cstdint>

#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"

namespace jumar::quant::internal {

// A row cut to blocks of `block` columns; block b begins at b * block.
struct RowBlocks {
  int64_t cols, block;
};

// maxima[b] = max(maxima[b], the largest bits of |x| in block b, as the type has them). In that order NaN > infinity > numbers.
void MaxMagnitudes(DType type, const void* row, RowBlocks blocks, uint32_t* maxima);
float MagnitudeToFloat(DType type, uint32_t magnitude);

// low[b], high[b]: the block's extremes, NaN if it has a NaN.
void Extremes(DType type, const void* row, RowBlocks blocks, float* low, float* high);

// offsets: null, or added to the quotient.
void QuantizeRow(Format format, DType type, const void* row, RowBlocks blocks, const float* scales, const float* offsets, uint8_t* codes);
void DequantizeRow(Format format, const uint8_t* codes, RowBlocks blocks, const float* scales, const float* offsets, DType type, void* row);

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_SCALE_ROW_KERNEL_H_
