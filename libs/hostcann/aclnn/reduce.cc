// Reductions, scans and softmax. Sums and softmax of half precisions accumulate in fp32 and round once.
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/all.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/median.h>
#include <ATen/ops/min.h>
#include <ATen/ops/nanmedian.h>
#include <ATen/ops/nansum.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/std.h>
#include <ATen/ops/std_mean.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/trace.h>
#include <ATen/ops/var.h>
#include <ATen/ops/var_mean.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

void PutBoth(const Tensor& out0, const Tensor& out1, const std::tuple<Tensor, Tensor>& values) {
  Put(out0, std::get<0>(values));
  Put(out1, std::get<1>(values));
}

// An empty list of dimensions stands for all of them.
at::OptionalIntArrayRef AllIfEmpty(const IntList& dims) {
  return dims.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(dims);
}

Tensor Wide(const Tensor& t) { return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat); }

}  // namespace

ACLNN_OP(ReduceSum, In(self), Ints(dims), Flag(keepdim), Type(dtype), Out(out)) {
  Put(out, at::sum(self, AllIfEmpty(dims), keepdim, dtype));
}
ACLNN_OP(ReduceNansum, In(self), Ints(dims), Flag(keepdim), Type(dtype), Out(out)) {
  Put(out, at::nansum(self, AllIfEmpty(dims), keepdim, dtype));
}
ACLNN_OP(Mean, In(self), Ints(dims), Flag(keepdim), Type(dtype), Out(out)) {
  Put(out, at::mean(self, AllIfEmpty(dims), keepdim, dtype));
}
ACLNN_OP(Max, In(self), Out(out)) { Put(out, at::max(self)); }
ACLNN_OP(Min, In(self), Out(out)) { Put(out, at::min(self)); }
ACLNN_OP(Amax, In(self), Ints(dims), Flag(keepdim), Out(out)) { at::amax_out(out, self, dims, keepdim); }
ACLNN_OP(Amin, In(self), Ints(dims), Flag(keepdim), Out(out)) { at::amin_out(out, self, dims, keepdim); }
ACLNN_OP(AminmaxAll, In(self), Out(min), Out(max)) { PutBoth(min, max, at::aminmax(self)); }
ACLNN_OP(AminmaxDim, In(self), I64(dim), Flag(keepdim), Out(min), Out(max)) { PutBoth(min, max, at::aminmax(self, dim, keepdim)); }
ACLNN_OP(Aminmax, In(self), Ints(dims), Flag(keepdim), Out(min), Out(max)) {
  at::amin_out(min, self, dims, keepdim);
  at::amax_out(max, self, dims, keepdim);
}
ACLNN_OP(MaxDim, In(self), I64(dim), Flag(keepdim), Out(values), Out(indices)) {
  PutBoth(values, indices, at::max(self, dim, keepdim));
}
ACLNN_OP(MinDim, In(self), I64(dim), Flag(keepdim), Out(values), Out(indices)) {
  PutBoth(values, indices, at::min(self, dim, keepdim));
}
ACLNN_OP(ArgMax, In(self), I64(dim), Flag(keepdim), Out(out)) { at::argmax_out(out, self, dim, keepdim); }
ACLNN_OP(ArgMin, In(self), I64(dim), Flag(keepdim), Out(out)) { at::argmin_out(out, self, dim, keepdim); }
ACLNN_OP(Any, In(self), Ints(dims), Flag(keepdim), Out(out)) { Put(out, at::any(self, AllIfEmpty(dims), keepdim)); }
ACLNN_OP(All, In(self), Ints(dims), Flag(keepdim), Out(out)) { Put(out, at::all(self, AllIfEmpty(dims), keepdim)); }
ACLNN_OP(Prod, In(self), Type(dtype), Out(out)) { Put(out, at::prod(self, dtype)); }
ACLNN_OP(ProdDim, In(self), I64(dim), Flag(keepdim), Type(dtype), Out(out)) { Put(out, at::prod(self, dim, keepdim, dtype)); }
ACLNN_OP(Std, In(self), Ints(dims), I64(correction), Flag(keepdim), Out(out)) {
  Put(out, at::std(self, AllIfEmpty(dims), correction, keepdim));
}
ACLNN_OP(VarCorrection, In(self), Ints(dims), I64(correction), Flag(keepdim), Out(out)) {
  Put(out, at::var(self, AllIfEmpty(dims), correction, keepdim));
}
ACLNN_OP(VarMean, In(self), Ints(dims), I64(correction), Flag(keepdim), Out(var), Out(mean)) {
  PutBoth(var, mean, at::var_mean(self, AllIfEmpty(dims), correction, keepdim));
}
ACLNN_OP(StdMeanCorrection, In(self), Ints(dims), I64(correction), Flag(keepdim), Out(std), Out(mean)) {
  PutBoth(std, mean, at::std_mean(self, AllIfEmpty(dims), correction, keepdim));
}
ACLNN_OP(Norm, In(self), Num(p), Ints(dims), Flag(keepdim), Out(out)) { Put(out, at::norm(self, p, dims, keepdim)); }
ACLNN_OP(LinalgVectorNorm, In(self), Num(ord), OptInts(dims), Flag(keepdim), Type(dtype), Out(out)) {
  Put(out, at::linalg_vector_norm(self, ord, dims ? AllIfEmpty(*dims) : at::OptionalIntArrayRef(), keepdim, dtype));
}
ACLNN_OP(LogSumExp, In(self), Ints(dims), Flag(keepdim), Out(out)) { Put(out, at::logsumexp(self, dims, keepdim)); }
ACLNN_OP(Median, In(self), Out(out)) { Put(out, at::median(self)); }
ACLNN_OP(MedianDim, In(self), I64(dim), Flag(keepdim), Out(values), Out(indices)) {
  PutBoth(values, indices, at::median(self, dim, keepdim));
}
ACLNN_OP(Kthvalue, In(self), I64(k), I64(dim), Flag(keepdim), Out(values), Out(indices)) {
  PutBoth(values, indices, at::kthvalue(self, k, dim, keepdim));
}
ACLNN_OP(Trace, In(self), Out(out)) { Put(out, at::trace(self)); }

ACLNN_OP(Cumsum, In(self), I64(dim), Type(dtype), Out(out)) { Put(out, at::cumsum(self, dim, dtype)); }
ACLNN_OP(Cumprod, In(self), Num(dim), Type(dtype), Out(out)) { Put(out, at::cumprod(self, dim.toLong(), dtype)); }
ACLNN_OP(Cummax, In(self), I64(dim), Out(values), Out(indices)) { PutBoth(values, indices, at::cummax(self, dim)); }
ACLNN_OP(Cummin, In(self), I64(dim), Out(values), Out(indices)) { PutBoth(values, indices, at::cummin(self, dim)); }

// ATen's log_softmax of half precisions rounds in between for some shapes.
ACLNN_OP(Softmax, In(self), I64(dim), Out(out)) { Put(out, at::_softmax(Wide(self), dim, false)); }
ACLNN_OP(LogSoftmax, In(self), I64(dim), Out(out)) { Put(out, at::_log_softmax(Wide(self), dim, false)); }
ACLNN_OP(SoftmaxBackward, In(grad_output), In(output), I64(dim), Out(grad_input)) {
  Put(grad_input, at::_softmax_backward_data(grad_output, output, dim, output.scalar_type()));
}

ACLNN_OP(NanMedian, In(self), Out(out)) { Put(out, at::nanmedian(self)); }
ACLNN_OP(NanMedianDim, In(self), I64(dim), Flag(keepdim), Out(values), Out(indices)) {
  const auto [median, where] = at::nanmedian(self, dim, keepdim);
  Put(values, median);
  Put(indices, where);
}

}  // namespace jumar::hostcann::aclnn
