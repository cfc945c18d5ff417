// Products with compact weights by the kernel of libs/quant/weight_gemm. A function returns nullptr for what the kernel doesn't take.
#pragma once

#include <optional>
#include <vector>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

// y = x * ((weight + offset) * scale) + bias: floats times int8, int4, float8 or MXFP4.
Task PlanWeightOnly(const aclTensor& x, const aclTensor& weight, const aclTensor& scale, const std::optional<aclTensor>& offset,
                    const std::optional<aclTensor>& quant_scale, const std::optional<aclTensor>& bias, int64_t group_size, const aclTensor& y);

// out = x1 * x2 with scales of both: float8, HiFloat8, MXFP8, MXFP4. `group_size`: m, n and k of a block, in 16 bits each from the top, or 0.
Task PlanFloat8Matmul(const aclTensor& x1, const aclTensor& x2, const std::optional<aclTensor>& x1_scale, const std::optional<aclTensor>& x2_scale,
                      const std::optional<aclTensor>& bias, bool transpose1, bool transpose2, int64_t group_size, const aclTensor& out);

// One x whose rows are grouped and a stack of weights: floats times int8, int4 or float8 (antiquant_scale), or float8 and MX with scales of both.
struct GroupedWeights {
  const aclTensor &x, &weight;
  const std::vector<aclTensor>&bias, &scale, &antiquant_scale, &antiquant_offset, &per_token_scale;
  const Tensor& group_list;
  int64_t group_list_type;
  const aclTensor& y;
};
Task PlanGroupedWeights(const GroupedWeights& call);

}  // namespace jumar::hostcann::aclnn
