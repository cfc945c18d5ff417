// Arithmetic of two or three tensors, or of a tensor and a scalar, with broadcasting and type promotion.
#include <ATen/ScalarOps.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/div.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/fmod.h>
#include <ATen/ops/gcd.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logaddexp2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

// aclnnDivMod's mode.
std::optional<c10::string_view> RoundingMode(int64_t mode) {
  Require(mode >= 0 && mode <= 2, "mode is ", mode, "; it must be 0 (true division), 1 (trunc) or 2 (floor)");
  if (mode == 1) return "trunc";
  if (mode == 2) return "floor";
  return std::nullopt;
}

}  // namespace

#define BINARY(Name, function)                                      \
  ACLNN_PLAN(Name, In(self), In(other), Out(out)) {                 \
    CheckBroadcast(self, other, out);                               \
    return [=]() mutable { at::function##_out(out, self, other); }; \
  }
#define BINARY_INPLACE(Name, function) \
  ACLNN_OP(Inplace##Name, Out(self), In(other)) { at::function##_out(self, self, other); }
// With a scalar, which becomes a 0-dim tensor once: ATen would make it, and a temporary result, at every run.
#define SCALAR(Name, function)                                                                                          \
  ACLNN_PLAN(Name, In(self), Num(other), Out(out)) {                                                                    \
    return [=, number = at::native::wrapped_scalar_tensor(other)]() mutable { at::function##_out(out, self, number); }; \
  }
#define SCALAR_INPLACE(Name, method) \
  ACLNN_OP(Inplace##Name, Out(self), Num(other)) { self.method(other); }

// self + alpha * other
ACLNN_PLAN(Add, In(self), In(other), Num(alpha), Out(out)) {
  CheckBroadcast(self, other, out);
  return [=]() mutable { at::add_out(out, self, other, alpha); };
}
ACLNN_PLAN(Sub, In(self), In(other), Num(alpha), Out(out)) {
  CheckBroadcast(self, other, out);
  return [=]() mutable { at::sub_out(out, self, other, alpha); };
}
ACLNN_OP(Rsub, In(self), In(other), Num(alpha), Out(out)) { Put(out, at::rsub(self, other, alpha)); }
ACLNN_PLAN(Adds, In(self), Num(other), Num(alpha), Out(out)) {
  return [=, number = at::native::wrapped_scalar_tensor(other)]() mutable { at::add_out(out, self, number, alpha); };
}
ACLNN_OP(AddV3, Num(self), In(other), Num(alpha), Out(out)) { Put(out, at::add(at::mul(other, alpha), self)); }
ACLNN_PLAN(Subs, In(self), Num(other), Num(alpha), Out(out)) {
  return [=, number = at::native::wrapped_scalar_tensor(other)]() mutable { at::sub_out(out, self, number, alpha); };
}
ACLNN_OP(Rsubs, In(self), Num(other), Num(alpha), Out(out)) { Put(out, at::rsub(self, other, alpha)); }
ACLNN_OP(InplaceAdd, Out(self), In(other), Num(alpha)) { at::add_out(self, self, other, alpha); }
ACLNN_OP(InplaceSub, Out(self), In(other), Num(alpha)) { at::sub_out(self, self, other, alpha); }
ACLNN_OP(InplaceAdds, Out(self), Num(other), Num(alpha)) { self.add_(other, alpha); }
ACLNN_OP(InplaceSubs, Out(self), Num(other), Num(alpha)) { self.sub_(other, alpha); }
ACLNN_OP(AddRelu, In(self), In(other), Num(alpha), Out(out)) { Put(out, at::relu(at::add(self, other, alpha))); }
ACLNN_OP(InplaceAddRelu, Out(self), In(other), Num(alpha)) { Put(self, at::relu(at::add(self, other, alpha))); }

BINARY(Mul, mul)
BINARY_INPLACE(Mul, mul)
SCALAR(Muls, mul)
SCALAR_INPLACE(Muls, mul_)
BINARY(Div, div)
BINARY_INPLACE(Div, div)
SCALAR(Divs, div)
SCALAR_INPLACE(Divs, div_)
BINARY(FloorDivide, floor_divide)
BINARY_INPLACE(FloorDivide, floor_divide)
SCALAR(FloorDivides, floor_divide)
SCALAR_INPLACE(FloorDivides, floor_divide_)
ACLNN_PLAN(DivMod, In(self), In(other), I32(mode), Out(out)) {
  CheckBroadcast(self, other, out);
  return [=, rounding = RoundingMode(mode)]() mutable { at::div_out(out, self, other, rounding); };
}
ACLNN_PLAN(DivMods, In(self), Num(other), I32(mode), Out(out)) {
  return [=, rounding = RoundingMode(mode)] { Put(out, at::div(self, other, rounding)); };
}
ACLNN_PLAN(InplaceDivMod, Out(self), In(other), I32(mode)) {
  return [=, rounding = RoundingMode(mode)]() mutable { at::div_out(self, self, other, rounding); };
}
ACLNN_PLAN(InplaceDivMods, Out(self), Num(other), I32(mode)) {
  return [=, rounding = RoundingMode(mode)] { self.div_(other, rounding); };
}

BINARY(RemainderTensorTensor, remainder)
BINARY_INPLACE(RemainderTensorTensor, remainder)
SCALAR(RemainderTensorScalar, remainder)
SCALAR_INPLACE(RemainderTensorScalar, remainder_)
ACLNN_OP(RemainderScalarTensor, Num(self), In(other), Out(out)) { Put(out, at::remainder(self, other)); }
BINARY(FmodTensor, fmod)
BINARY_INPLACE(FmodTensor, fmod)
SCALAR(FmodScalar, fmod)
SCALAR_INPLACE(FmodScalar, fmod_)

BINARY(PowTensorTensor, pow)
BINARY_INPLACE(PowTensorTensor, pow)
SCALAR(PowTensorScalar, pow)
SCALAR_INPLACE(PowTensorScalar, pow_)
ACLNN_OP(PowScalarTensor, Num(self), In(exponent), Out(out)) { Put(out, at::pow(self, exponent)); }

BINARY(Maximum, maximum)
BINARY(Minimum, minimum)
BINARY(ClampMinTensor, clamp_min)
BINARY_INPLACE(ClampMinTensor, clamp_min)
BINARY(ClampMaxTensor, clamp_max)
BINARY_INPLACE(ClampMaxTensor, clamp_max)
ACLNN_OP(ClampTensor, In(self), OptIn(min), OptIn(max), Out(out)) { at::clamp_out(out, self, min, max); }

BINARY(Atan2, atan2)
BINARY_INPLACE(Atan2, atan2)
BINARY(Gcd, gcd)
BINARY(LogAddExp, logaddexp)
BINARY(LogAddExp2, logaddexp2)
BINARY(XLogYTensor, xlogy)
BINARY(Complex, complex)

BINARY(BitwiseAndTensor, bitwise_and)
BINARY_INPLACE(BitwiseAndTensor, bitwise_and)
SCALAR(BitwiseAndScalar, bitwise_and)
SCALAR_INPLACE(BitwiseAndScalar, bitwise_and_)
BINARY(BitwiseOrTensor, bitwise_or)
SCALAR(BitwiseOrScalar, bitwise_or)
BINARY(BitwiseXorTensor, bitwise_xor)
BINARY_INPLACE(BitwiseXorTensor, bitwise_xor)
SCALAR(BitwiseXorScalar, bitwise_xor)
SCALAR_INPLACE(BitwiseXorScalar, bitwise_xor_)
BINARY(LeftShift, bitwise_left_shift)
SCALAR(LeftShifts, bitwise_left_shift)
BINARY(RightShift, bitwise_right_shift)

// self + value * tensor1 (/ or *) tensor2; self + weight * (end - self)
ACLNN_OP(Addcdiv, In(self), In(tensor1), In(tensor2), Num(value), Out(out)) { at::addcdiv_out(out, self, tensor1, tensor2, value); }
ACLNN_OP(Addcmul, In(self), In(tensor1), In(tensor2), Num(value), Out(out)) { at::addcmul_out(out, self, tensor1, tensor2, value); }
ACLNN_OP(InplaceAddcdiv, Out(self), In(tensor1), In(tensor2), Num(value)) { at::addcdiv_out(self, self, tensor1, tensor2, value); }
ACLNN_OP(InplaceAddcmul, Out(self), In(tensor1), In(tensor2), Num(value)) { at::addcmul_out(self, self, tensor1, tensor2, value); }
ACLNN_OP(Lerp, In(self), In(end), In(weight), Out(out)) { at::lerp_out(out, self, end, weight); }
ACLNN_OP(Lerps, In(self), In(end), Num(weight), Out(out)) { at::lerp_out(out, self, end, weight); }
ACLNN_OP(InplaceLerp, Out(self), In(end), In(weight)) { at::lerp_out(self, self, end, weight); }
ACLNN_OP(InplaceLerps, Out(self), In(end), Num(weight)) { at::lerp_out(self, self, end, weight); }

ACLNN_OP(XLogYScalarSelf, Num(self), In(other), Out(out)) { Put(out, at::xlogy(self, other)); }
ACLNN_OP(XLogYScalarOther, In(self), Num(other), Out(out)) { Put(out, at::xlogy(self, other)); }
ACLNN_OP(InplaceXLogYScalarOther, Out(self), Num(other)) { Put(self, at::xlogy(self, other)); }
BINARY(Polar, polar)
// x, or x times the weight of its channel (dimension 1) where it is negative.
ACLNN_OP(Prelu, In(self), In(weight), Out(out)) {
  IntList shape(static_cast<size_t>(self.dim()), 1);
  if (weight.numel() > 1 && self.dim() > 1) shape[1] = weight.numel();
  const Tensor w = weight.dim() == self.dim() ? weight : weight.reshape(shape);
  Put(out, at::where(self.ge(0), self, at::mul(self, w)));
}

}  // namespace jumar::hostcann::aclnn
