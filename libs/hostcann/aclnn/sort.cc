// Sorting, selection, sets and searches. Operators whose result has a shape that depends on the data are synchronous:
// torch_npu waits for them and reads the shape from the output's descriptor.
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/unique_consecutive.h>
#include <ATen/ops/unique_dim.h>
#include <ATen/ops/where.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

// Gives `out` the shape of `value` (dense) and its contents. The storage behind `out` was made for the largest case.
void PutShaped(aclTensor* out, const Tensor& value) {
  Require(value.numel() <= out->numel() || out->numel() == 0, "the result has ", value.numel(),
          " elements but the output has room for ", out->numel());
  if (out->numel() == 0 && value.numel() > 0) return;  // an output that the caller didn't ask for
  out->sizes.n = out->strides.n = static_cast<int>(value.dim());
  int64_t stride = 1;
  for (int i = out->sizes.n - 1; i >= 0; --i) {
    out->sizes.v[i] = value.size(i);
    out->strides.v[i] = stride;
    stride *= value.size(i);
  }
  Put(ToTensor(*out), value);
}

}  // namespace

ACLNN_OP(Sort, In(self), Flag(stable), I64(dim), Flag(descending), Out(values), Out(indices)) {
  const auto [v, i] = at::sort(self, stable, dim, descending);
  Put(values, v);
  Put(indices, i);
}
ACLNN_PLAN(Topk, In(self), I64(k), I64(dim), Flag(largest), Flag(sorted), Out(values), Out(indices)) {
  const int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  Require(k >= 0 && k <= size, "k is ", k, "; dimension ", dim, " has only ", size, " elements");
  return [=] {
    const auto [v, i] = at::topk(self, k, dim, largest, sorted);
    Put(values, v);
    Put(indices, i);
  };
}

ACLNN_OP(Unique2, In(self), Flag(sorted), Flag(return_inverse), Flag(return_counts), Ret(values), Ret(inverse), Ret(counts)) {
  const auto [v, i, c] = at::_unique2(self, sorted, return_inverse, return_counts);
  PutShaped(values, v);
  if (return_inverse) PutShaped(inverse, i);
  if (return_counts) PutShaped(counts, c);
}
ACLNN_OP(Unique, In(self), Flag(sorted), Flag(return_inverse), Ret(values), Ret(inverse)) {
  const auto [v, i, c] = at::_unique2(self, sorted, return_inverse, false);
  PutShaped(values, v);
  if (return_inverse) PutShaped(inverse, i);
}
// dim = 1000 stands for the flattened tensor.
ACLNN_OP(UniqueConsecutive, In(self), Flag(return_inverse), Flag(return_counts), I64(dim), Ret(values), Ret(inverse), Ret(counts)) {
  const auto [v, i, c] =
      at::unique_consecutive(self, return_inverse, return_counts, dim == 1000 ? std::nullopt : std::optional<int64_t>(dim));
  PutShaped(values, v);
  if (return_inverse) PutShaped(inverse, i);
  if (return_counts) PutShaped(counts, c);
}
ACLNN_OP(UniqueDim, In(self), Flag(sorted), Flag(return_inverse), I64(dim), Ret(values), Ret(inverse), Ret(counts)) {
  const auto [v, i, c] = at::unique_dim(self, dim, sorted, true, true);
  PutShaped(values, v);
  PutShaped(inverse, i);
  PutShaped(counts, c);
}
ACLNN_OP(Nonzero, In(self), Ret(out)) { PutShaped(out, at::nonzero(self)); }        // [found, dims]
ACLNN_OP(NonzeroV2, In(self), Ret(out)) { PutShaped(out, at::nonzero(self).t()); }  // [dims, found]

ACLNN_OP(Bincount, In(self), OptIn(weights), I64(minlength), Out(out)) { Put(out, at::bincount(self, weights, minlength)); }
ACLNN_OP(Histc, In(self), I64(bins), Num(min), Num(max), Out(out)) {
  const Tensor x = at::isFloatingType(self.scalar_type()) ? self : self.to(at::kFloat);
  Put(out, at::histc(x, bins, min, max));
}
ACLNN_OP(SearchSorted, In(sorted_sequence), In(self), Flag(out_int32), Flag(right), OptIn(sorter), Out(out)) {
  Put(out, at::searchsorted(sorted_sequence, self, out_int32, right, std::nullopt, sorter));
}
ACLNN_OP(SearchSorteds, In(sorted_sequence), Num(self), Flag(out_int32), Flag(right), OptIn(sorter), Out(out)) {
  Put(out, at::searchsorted(sorted_sequence, self, out_int32, right, std::nullopt, sorter));
}
ACLNN_OP(Bucketize, In(self), In(boundaries), Flag(out_int32), Flag(right), Out(out)) {
  Put(out, at::bucketize(self, boundaries, out_int32, right));
}
ACLNN_PLAN(OneHot, In(self), I64(depth), In(on_value), In(off_value), I64(axis), Out(out)) {
  Require(axis == -1, "axis is ", axis, "; hostcann puts the classes last (-1)");
  Require(depth >= 1, "depth is ", depth, "; it must be at least 1");
  return [=] {
    const Tensor hit = at::eq(self.unsqueeze(-1), at::arange(depth, self.options()));
    Put(out, at::where(hit, on_value.reshape({}), off_value.reshape({})));
  };
}

}  // namespace jumar::hostcann::aclnn
