// Pooling and batch normalisation.
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/adaptive_max_pool2d.h>
#include <ATen/ops/adaptive_max_pool3d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool3d_with_indices.h>
#include <ATen/ops/max_unpool2d.h>
#include <ATen/ops/max_unpool3d.h>
#include <ATen/ops/native_batch_norm.h>

#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/wide.h"

namespace jumar::hostcann::aclnn {
namespace {

std::optional<int64_t> Divisor(int64_t given) { return given == 0 ? std::nullopt : std::optional<int64_t>(given); }

}  // namespace

ACLNN_OP(AvgPool2d, In(self), Ints(kernel), Ints(stride), Ints(padding), Flag(ceil_mode), Flag(count_include_pad),
         I64(divisor_override), I8(cube_math_type), Out(out)) {
  Put(out, at::avg_pool2d(Wide(self), kernel, stride, padding, ceil_mode, count_include_pad, Divisor(divisor_override)));
}
ACLNN_OP(AvgPool3d, In(self), Ints(kernel), Ints(stride), Ints(padding), Flag(ceil_mode), Flag(count_include_pad),
         I64(divisor_override), Out(out)) {
  Put(out, at::avg_pool3d(Wide(self), kernel, stride, padding, ceil_mode, count_include_pad, Divisor(divisor_override)));
}
ACLNN_OP(AdaptiveAvgPool2d, In(self), Ints(size), Out(out)) { Put(out, at::_adaptive_avg_pool2d(Wide(self), size)); }
ACLNN_OP(AdaptiveAvgPool3d, In(self), Ints(size), Out(out)) { Put(out, at::_adaptive_avg_pool3d(Wide(self), size)); }

ACLNN_OP(AdaptiveMaxPool2d, In(self), Ints(size), Out(out), Out(indices)) {
  const auto [values, where] = at::adaptive_max_pool2d(self, size);
  Put(out, values);
  Put(indices, where);
}
ACLNN_OP(AdaptiveMaxPool3d, In(self), Ints(size), Out(out), Out(indices)) {
  const auto [values, where] = at::adaptive_max_pool3d(Wide(self), size);
  Put(out, values);
  Put(indices, where);
}
ACLNN_OP(MaxPool2dWithIndices, In(self), Ints(kernel), Ints(stride), Ints(padding), Ints(dilation), Flag(ceil_mode), Out(out),
         Out(indices)) {
  const auto [values, where] = at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
  Put(out, values);
  Put(indices, where);
}
// The mask is for the backward pass of the hardware, in a layout of its own. It is zeroed: there is no backward pass here.
ACLNN_OP(MaxPool2dWithMask, In(self), Ints(kernel), Ints(stride), Ints(padding), Ints(dilation), Flag(ceil_mode), Out(out),
         Out(mask)) {
  Put(out, std::get<0>(at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode)));
  mask.zero_();
}
ACLNN_OP(MaxPool3dWithArgmax, In(self), Ints(kernel), Ints(stride), Ints(padding), Ints(dilation), Flag(ceil_mode), Out(out),
         Out(indices)) {
  const auto [values, where] = at::max_pool3d_with_indices(Wide(self), kernel, stride, padding, dilation, ceil_mode);
  Put(out, values);
  Put(indices, where);
}
ACLNN_OP(MaxUnpool2d, In(self), In(indices), Ints(size), Out(out)) { Put(out, at::max_unpool2d(Wide(self), indices, size)); }
ACLNN_OP(MaxUnpool3d, In(self), In(indices), Ints(size), Ints(stride), Ints(padding), Out(out)) {
  Put(out, at::max_unpool3d(Wide(self), indices, size, stride, padding));
}

// With `training` the statistics are the batch's, and the running ones are updated. Else save_mean and save_invstd say nothing.
ACLNN_OP(BatchNorm, In(input), OptIn(weight), OptIn(bias), OptIn(running_mean), OptIn(running_var), Flag(training), F64(momentum),
         F64(eps), Out(out), Out(save_mean), Out(save_invstd)) {
  const OptTensor mean = Wide(running_mean), var = Wide(running_var);
  const auto [values, batch_mean, batch_invstd] =
      at::native_batch_norm(Wide(input), Wide(weight), Wide(bias), mean, var, training, momentum, eps);
  Put(out, values);
  if (!training) {
    save_mean.zero_();
    save_invstd.zero_();
    return;
  }
  Put(save_mean, batch_mean);
  Put(save_invstd, batch_invstd);
  if (running_mean) running_mean->copy_(*mean);
  if (running_var) running_var->copy_(*var);
}

}  // namespace jumar::hostcann::aclnn
