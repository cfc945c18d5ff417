#ifndef LIBS_QUANT_GEMM_REFERENCE_H_
#define LIBS_QUANT_GEMM_REFERENCE_H_

#include <vector>

#include "libs/quant/gemm.h"

namespace jumar::quant {

// gemm.h in naive float64, without the final rounding: product[i * n + j], and magnitude[i * n + j] = sum |a w| + |bias|, of
// which an error bound is made.
struct GemmReferenceResult {
  std::vector<double> product, magnitude;
};
GemmReferenceResult GemmReference(const GemmArgs& args);

// What |out - product| may be. With u = 2^-24, summing k fp32 products and a bias in any order errs by at most
// (k + 1) u / (1 - (k + 1) u) * magnitude (Higham, Accuracy and Stability, chapter 3); the instruction that sums pairs of bf16
// products flushes subnormal results, which adds at most 2^-126 per step; the final rounding adds half a unit in the last place.
double GemmErrorBound(DType type, int64_t k, double product, double magnitude);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_GEMM_REFERENCE_H_
