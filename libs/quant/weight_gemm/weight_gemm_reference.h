#ifndef LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_REFERENCE_H_
#define LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_REFERENCE_H_

// weight_gemm.h by its definition, one element at a time in float64.

#include <cstdint>
#include <vector>

#include "libs/quant/weight_gemm/weight_gemm.h"

namespace jumar::quant {

struct WeightGemmResult {
  std::vector<double> value, bound;  // [m, n] or, for SwiGLU, [m, n / 2]; `bound` is of the error that the header promises
};
WeightGemmResult WeightGemmReference(const WeightGemmArgs& args);

// One code, and one scale (1 or 0 without data: `missing`).
double ReadCode(Format format, CodeLayout layout, const void* w, int64_t ld, int64_t n, int64_t row, int64_t k);
double ReadScale(const Scales& scales, int64_t row, int64_t k, int64_t depth, double missing);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_REFERENCE_H_
