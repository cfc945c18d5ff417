// Comparisons, logic, selection by a mask.
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/isclose.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/le.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logical_xor.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

#define COMPARE(Name, function)                                                                    \
  ACLNN_PLAN(Name##Tensor, In(self), In(other), Out(out)) {                                        \
    CheckBroadcast(self, other, out);                                                              \
    return [=]() mutable { at::function##_out(out, self, other); };                                \
  }                                                                                                \
  ACLNN_OP(Name##Scalar, In(self), Num(other), Out(out)) { at::function##_out(out, self, other); } \
  ACLNN_OP(Inplace##Name##Tensor, Out(self), In(other)) { self.function##_(other); }               \
  ACLNN_OP(Inplace##Name##Scalar, Out(self), Num(other)) { self.function##_(other); }
#define LOGICAL(Name, function)                                     \
  ACLNN_PLAN(Name, In(self), In(other), Out(out)) {                 \
    CheckBroadcast(self, other, out);                               \
    return [=]() mutable { at::function##_out(out, self, other); }; \
  }

COMPARE(Eq, eq)
COMPARE(Ne, ne)
COMPARE(Lt, lt)
COMPARE(Le, le)
COMPARE(Gt, gt)
COMPARE(Ge, ge)

LOGICAL(LogicalAnd, logical_and)
LOGICAL(LogicalOr, logical_or)
LOGICAL(LogicalXor, logical_xor)
ACLNN_OP(InplaceLogicalAnd, Out(self), In(other)) { self.logical_and_(other); }
ACLNN_OP(InplaceLogicalOr, Out(self), In(other)) { self.logical_or_(other); }

ACLNN_OP(Equal, In(self), In(other), Out(out)) { out.fill_(at::equal(self, other)); }
ACLNN_OP(IsClose, In(self), In(other), F64(rtol), F64(atol), Flag(equal_nan), Out(out)) {
  Put(out, at::isclose(self, other, rtol, atol, equal_nan));
}
ACLNN_OP(IsInTensorScalar, In(element), Num(test_element), Flag(assume_unique), Flag(invert), Out(out)) {
  Put(out, at::isin(element, test_element, assume_unique, invert));
}
ACLNN_OP(IsInScalarTensor, Num(element), In(test_elements), Flag(assume_unique), Flag(invert), Out(out)) {
  Put(out, at::isin(element, test_elements, assume_unique, invert));
}

ACLNN_OP(SWhere, In(condition), In(self), In(other), Out(out)) {
  at::where_out(out, condition.to(at::kBool), self.to(out.scalar_type()), other.to(out.scalar_type()));
}
ACLNN_OP(InplaceMaskedFillScalar, Out(self), In(mask), Num(value)) { self.masked_fill_(mask.to(at::kBool), value); }
ACLNN_OP(InplaceMaskedFillTensor, Out(self), In(mask), In(value)) {
  Require(value.numel() == 1, "value has ", value.numel(), " elements; it must have 1");
  self.masked_fill_(mask.to(at::kBool), value.reshape({}).to(self.scalar_type()));
}
ACLNN_OP(InplaceMaskedScatter, Out(self), In(mask), In(source)) {
  self.masked_scatter_(mask.to(at::kBool), source.to(self.scalar_type()));
}
ACLNN_OP(MaskedSelect, In(self), In(mask), Ret(out)) {
  const Tensor selected = at::masked_select(self, mask.to(at::kBool));
  out->sizes.n = out->strides.n = 1;
  out->sizes.v[0] = selected.size(0);
  out->strides.v[0] = 1;
  Put(ToTensor(*out), selected);
}

}  // namespace jumar::hostcann::aclnn
