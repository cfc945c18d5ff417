// Filling, sequences, joining, repeating and reordering.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/roll.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

ACLNN_OP(InplaceZero, Out(self)) {
  // vLLM zeroes its whole KV cache: long ranges give their pages back instead of being written.
  if (self.is_contiguous()) {
    ZeroDeviceMemory(self.data_ptr(), self.nbytes());
  } else {
    self.zero_();
  }
}
ACLNN_OP(InplaceOne, Out(self)) { self.fill_(1); }
ACLNN_OP(InplaceFillScalar, Out(self), Num(value)) { self.fill_(value); }
ACLNN_OP(InplaceFillTensor, Out(self), In(value)) {
  Require(value.numel() == 1, "value has ", value.numel(), " elements; it must have 1");
  self.fill_(value.reshape({}));
}
ACLNN_OP(InplaceFillDiagonal, Out(self), Num(value), Flag(wrap)) { self.fill_diagonal_(value, wrap); }

// [start, end) by step. Integers count exactly; floating point is computed in double, as start + i * step.
ACLNN_OP(Arange, Num(start), Num(end), Num(step), Out(out)) {
  const bool exact = at::isIntegralType(out.scalar_type(), true) && start.isIntegral(false) && step.isIntegral(false);
  const Tensor i = at::arange(out.numel(), exact ? at::kLong : at::kDouble);
  Put(out, exact ? i.mul_(step.toLong()).add_(start.toLong()) : i.mul_(step.toDouble()).add_(start.toDouble()));
}
// [start, end], the end included.
ACLNN_OP(Range, Num(start), Num(end), Num(step), Out(out)) {
  Put(out, at::arange(out.numel(), at::kDouble).mul_(step.toDouble()).add_(start.toDouble()));
}
ACLNN_OP(Linspace, Num(start), Num(end), I64(steps), Out(out)) { at::linspace_out(out, start, end, steps); }
ACLNN_OP(LogSpace, Num(start), Num(end), I64(steps), F64(base), Out(out)) { at::logspace_out(out, start, end, steps, base); }
ACLNN_OP(Eye, I64(n), I64(m), Out(out)) { at::eye_out(out, n, m); }
ACLNN_OP(Tril, In(self), I64(diagonal), Out(out)) { at::tril_out(out, self, diagonal); }
ACLNN_OP(Triu, In(self), I64(diagonal), Out(out)) { at::triu_out(out, self, diagonal); }
ACLNN_OP(InplaceTril, Out(self), I64(diagonal)) { at::tril_out(self, self, diagonal); }
ACLNN_OP(InplaceTriu, Out(self), I64(diagonal)) { at::triu_out(self, self, diagonal); }

ACLNN_OP(Cat, Ins(tensors), I64(dim), Out(out)) {
  std::vector<Tensor> parts;  // of one dtype; torch allows 1-D empty tensors next to anything
  for (const Tensor& t : tensors) {
    if (t.numel() > 0) parts.push_back(t.to(out.scalar_type()));
  }
  if (parts.size() == 1) {
    Put(out, parts[0]);
  } else if (!parts.empty()) {
    at::cat_out(out, parts, dim);
  }
}
ACLNN_OP(Stack, Ins(tensors), I64(dim), Out(out)) { Put(out, at::stack(tensors, dim)); }
ACLNN_OP(Repeat, In(self), Ints(repeats), Out(out)) { Put(out, self.repeat(repeats)); }
ACLNN_OP(RepeatInterleave, In(self), In(repeats), I64(output_size), Out(out)) {
  Put(out, at::repeat_interleave(self.flatten(), repeats.flatten().expand({self.numel()}).to(at::kLong), 0));
}
ACLNN_OP(RepeatInterleaveWithDim, In(self), In(repeats), I64(dim), I64(output_size), Out(out)) {
  Put(out, at::repeat_interleave(self, repeats.to(at::kLong), dim));
}
ACLNN_OP(RepeatInterleaveInt, In(self), I64(repeats), I64(output_size), Out(out)) {
  Put(out, at::repeat_interleave(self, repeats));
}
ACLNN_OP(RepeatInterleaveIntWithDim, In(self), I64(repeats), I64(dim), I64(output_size), Out(out)) {
  Put(out, at::repeat_interleave(self, repeats, dim));
}
// Position i stands repeats[i] times.
ACLNN_OP(RepeatInterleaveTensor, In(repeats), I64(output_size), Out(out)) { Put(out, at::repeat_interleave(repeats)); }
ACLNN_OP(Flip, In(self), Ints(dims), Out(out)) { Put(out, at::flip(self, dims)); }
ACLNN_OP(Roll, In(self), Ints(shifts), Ints(dims), Out(out)) { Put(out, at::roll(self, shifts, dims)); }
ACLNN_OP(ConstantPadNd, In(self), Ints(pad), Num(value), Out(out)) { Put(out, at::constant_pad_nd(self, pad, value)); }
ACLNN_OP(SplitWithSize, In(self), Ints(split_sizes), I64(dim), Ins(out)) {
  Require(out.size() == split_sizes.size(), "there are ", out.size(), " outputs but ", split_sizes.size(), " split sizes");
  int64_t begin = 0;
  for (size_t i = 0; i < out.size(); begin += split_sizes[i++]) Put(out[i], self.narrow(dim, begin, split_sizes[i]));
}

}  // namespace jumar::hostcann::aclnn
