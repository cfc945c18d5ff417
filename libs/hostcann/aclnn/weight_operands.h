// Arguments of products with compact weights, as what libs/quant/weight_gemm takes. No ATen: what doesn't fit (nullopt) is left to it.
#pragma once

#include <optional>

#include "libs/hostcann/aclnn/code_types.h"
#include "libs/quant/weight_gemm/weight_gemm.h"

namespace jumar::hostcann::aclnn {

// The format of a tensor's codes; int32 words hold eight int4.
std::optional<quant::Format> CodeFormat(DType dtype);

// A weight that is given as a [k, n] view, or a stack [e, k, n] of such.
struct WeightCodes {
  quant::Format format;
  quant::CodeLayout layout;
  const void* data;
  int64_t k, n, ld;              // ld in bytes
  int64_t experts = 1, step = 0;  // bytes from an expert to the next
};
std::optional<WeightCodes> AsWeight(const aclTensor& w);

// Activations [..., k] as rows: codes, or floats.
struct ActivationRows {
  quant::Activations type;
  const void* data;
  int64_t rows, k, ld;  // ld in bytes
};
std::optional<ActivationRows> AsActivations(const aclTensor& x);

// Scales (or offsets) of a [k, n] weight: one number, [n], [1, n], [groups, n], [k / block, n / block], or E8M0 [k / 64, n, 2]. `group`: rows of a
// group, 0 if the shape has to tell; `group_n`: columns of a block, 0 likewise. `t` without its stack dimension.
std::optional<quant::Scales> WeightScales(const aclTensor& t, int64_t k, int64_t n, int64_t group, int64_t group_n = 0);
// Scales of activations: one number, [m], [m, 1], [m, groups], or E8M0 [m, k / 64, 2], batches of rows being flattened.
std::optional<quant::Scales> ActivationScales(const aclTensor& t, int64_t m, int64_t k, int64_t group);

// The dimensions [first, n) of a tensor.
aclTensor Inner(const aclTensor& t, int first);

}  // namespace jumar::hostcann::aclnn
