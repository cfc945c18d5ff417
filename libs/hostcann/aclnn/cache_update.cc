// Rows written into caches, quantised or not.
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "libs/hostcann/aclnn/quant.h"

namespace jumar::hostcann::aclnn {
namespace {

int64_t Axis(const char* name, int64_t axis, int64_t dims) {
  Require(axis >= -dims && axis < dims, name, " is ", axis, "; it must be an axis of ", dims, " dimensions");
  return axis < 0 ? axis + dims : axis;
}

// Part i of `updates` (along its first dimension) goes to self at indices[i]: from there on along `axis` in row i of self, or, with pairs,
// in the row that the first says.
void ScatterParts(const Tensor& self, const Tensor& indices, const Tensor& updates, int64_t axis) {
  const Tensor where = indices.to(at::kLong).contiguous();
  const int64_t width = updates.size(axis);
  for (int64_t i = 0; i < updates.size(0); ++i) {
    const int64_t row = where.dim() == 2 ? where.const_data_ptr<int64_t>()[2 * i] : i;
    const int64_t begin = where.dim() == 2 ? where.const_data_ptr<int64_t>()[2 * i + 1] : where.const_data_ptr<int64_t>()[i];
    Require(row >= 0 && row < self.size(0) && begin >= 0 && begin + width <= self.size(axis), "indices[", i, "] goes to row ", row,
            ", from ", begin, " to ", begin + width, "; self has ", self.size(0), " rows of ", self.size(axis));
    self.select(0, row).narrow(axis - 1, begin, width).copy_(updates.select(0, i));
  }
}

Task PlanQuantScatter(const Tensor& self, const Tensor& indices, const Tensor& updates, const Tensor& scales, const OptTensor& zero_points,
                      int64_t axis, int64_t quant_axis, int64_t reduction) {
  const int64_t dims = self.dim(), at_axis = Axis("axis", axis, dims), by = Axis("quantAxis", quant_axis, dims);
  Require(updates.dim() == dims && at_axis > 0 && at_axis < dims - 1, "axis is ", axis,
          "; it must be neither the first nor the last of self's ", dims, " dimensions, and updates must have as many");
  Require(by == dims - 1, "quantAxis is ", quant_axis, "; it must be the last");
  Require(reduction == 1 || reduction == 0, "reduction is ", reduction, "; hostcann updates");
  Require(indices.dim() == 1 || (indices.dim() == 2 && indices.size(1) == 2), "indices have shape ", indices.sizes(),
          "; they must be [n] or [n, 2]");
  Require(indices.size(0) == updates.size(0), "there are ", indices.size(0), " indices for ", updates.size(0), " updates");
  return [=] {
    const Tensor value = at::div(F32(updates), F32(scales).flatten());
    const Tensor stored = at::empty(updates.sizes(), self.options());
    PutRounded(stored, zero_points ? at::add(value, F32(*zero_points).flatten()) : value);
    ScatterParts(self, indices, stored, at_axis);
  };
}

}  // namespace

ACLNN_PLAN(InplaceQuantScatter, Out(self), In(indices), In(updates), In(scales), OptIn(zero_points), I64(axis), I64(quant_axis),
           I64(reduction)) {
  return PlanQuantScatter(self, indices, updates, scales, zero_points, axis, quant_axis, reduction);
}
ACLNN_PLAN(InplaceQuantScatterV2, Out(self), In(indices), In(updates), In(scales), OptIn(zero_points), I64(axis), I64(quant_axis),
           I64(reduction), Text(round_mode)) {
  Require(round_mode == "rint", "roundMode is \"", round_mode, "\"; hostcann has \"rint\"");
  return PlanQuantScatter(self, indices, updates, scales, zero_points, axis, quant_axis, reduction);
}

// Tensor i of the list is updated from indices[i] on along `axis` (of updates, whose first dimension is the list); those that the mask
// leaves out are not.
ACLNN_OP(ScatterList, Ins(self), In(indices), In(updates), OptIn(mask), Text(reduce), I64(axis)) {
  Require(reduce == "update", "reduce is \"", reduce, "\"; it must be \"update\"");
  const int64_t along = Axis("axis", axis, updates.dim());
  Require(along > 0, "axis is ", axis, "; it must not be the first");
  Require(updates.size(0) == static_cast<int64_t>(self.size()) && indices.size(0) == updates.size(0), "there are ", self.size(),
          " tensors, ", indices.size(0), " indices and ", updates.size(0), " updates; these must agree");
  const Tensor where = indices.to(at::kLong).contiguous(), used = mask ? mask->to(at::kByte).contiguous() : Tensor();
  for (size_t i = 0; i < self.size(); ++i) {
    const auto n = static_cast<int64_t>(i);
    if (used.defined() && used.const_data_ptr<uint8_t>()[i] == 0) continue;
    const bool pairs = where.dim() == 2;
    const int64_t begin = where.const_data_ptr<int64_t>()[pairs ? 2 * n : n];
    const int64_t count = pairs ? where.const_data_ptr<int64_t>()[2 * n + 1] : updates.size(along);
    Require(begin >= 0 && count >= 0 && count <= updates.size(along) && begin + count <= self[i].size(along - 1), "indices[", n, "] is ",
            begin, "; ", count, " numbers don't fit in ", self[i].size(along - 1), " along axis ", axis);
    self[i].narrow(along - 1, begin, count).copy_(updates.select(0, n).narrow(along - 1, 0, count));
  }
}

}  // namespace jumar::hostcann::aclnn
