#ifndef LIBS_ATTENTION_INDEXER_HADAMARD_H_
#define LIBS_ATTENTION_INDEXER_HADAMARD_H_

// The rotation that spreads the outliers of a query or key over all its elements, so that 8 bits represent it well:
//
//   out = dim^-1/2 * H x,   H[i][j] = (-1)^(number of ones in the bits of i & j)      (Sylvester's Hadamard matrix)
//
// It keeps norms and products, and is its own inverse. Computed in fp32 by log2(dim) rounds of sums and differences and one product, then
// rounded once to the type of `out`: exact if dim is a power of four and the sums of magnitudes fit 24 bits.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/scale/quantize.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct HadamardArgs {
  int64_t rows = 0;
  int64_t dim = 128;  // a power of two, 1 .. 65,536
  quant::DType type = quant::DType::kF32;
  const void* in = nullptr;  // [rows, dim], rows `in_stride` elements apart
  int64_t in_stride = 0;
  quant::DType out_type = quant::DType::kF32;
  void* out = nullptr;  // may be `in` if types and strides are equal
  int64_t out_stride = 0;
};

// A row with NaN or infinity gives NaN in that row only. InvalidArgument names the field, the value and the limit.
absl::Status HadamardRotate(const HadamardArgs& args, tiling::Executor& executor);

// The rotation in fp32, not rounded, then codes and a scale per row by the rule: codes [rows, dim], rows `codes_stride` bytes apart; scales
// [rows].
struct RotatedCodes {
  quant::Rule rule = quant::Rule::kCannDynamic;
  quant::Format format = quant::Format::kI8;
  uint8_t* codes = nullptr;
  int64_t codes_stride = 0;
  float* scales = nullptr;
};
// out, out_type and out_stride are not read.
absl::Status HadamardQuantize(const HadamardArgs& args, const RotatedCodes& out, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_INDEXER_HADAMARD_H_
