// Half precisions are computed in fp32 and rounded once; ATen's CPU kernels don't all do so, and some don't take them.
#pragma once

#include <optional>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

// A half-precision tensor as fp32, any other as it is.
inline Tensor Wide(const Tensor& t) {
  return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16 ? t.to(at::kFloat) : t;
}
inline OptTensor Wide(const OptTensor& t) { return t ? OptTensor(Wide(*t)) : t; }

}  // namespace jumar::hostcann::aclnn
