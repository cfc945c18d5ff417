// One tensor in, one of the same shape out. Half precisions are computed in fp32 and rounded once, as ATen's CPU
// kernels do.
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/acosh.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/asinh.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/atanh.h>
#include <ATen/ops/bitwise_not.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/glu.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isneginf.h>
#include <ATen/ops/isposinf.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/signbit.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinc.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/trunc.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

#define UNARY(Name, function) \
  ACLNN_OP(Name, In(self), Out(out)) { at::function##_out(out, self); }
#define UNARY_AND_INPLACE(Name, function) \
  UNARY(Name, function)                   \
  ACLNN_OP(Inplace##Name, Out(self)) { at::function##_out(self, self); }

UNARY(Abs, abs)
UNARY_AND_INPLACE(Acos, acos)
UNARY_AND_INPLACE(Acosh, acosh)
UNARY_AND_INPLACE(Asin, asin)
UNARY_AND_INPLACE(Asinh, asinh)
UNARY_AND_INPLACE(Atan, atan)
UNARY_AND_INPLACE(Atanh, atanh)
UNARY_AND_INPLACE(Ceil, ceil)
UNARY_AND_INPLACE(Cos, cos)
UNARY_AND_INPLACE(Cosh, cosh)
UNARY_AND_INPLACE(Erf, erf)
UNARY_AND_INPLACE(Erfc, erfc)
UNARY_AND_INPLACE(Erfinv, erfinv)
UNARY_AND_INPLACE(Exp, exp)
UNARY_AND_INPLACE(Exp2, exp2)
UNARY_AND_INPLACE(Expm1, expm1)
UNARY_AND_INPLACE(Floor, floor)
UNARY_AND_INPLACE(Frac, frac)
UNARY_AND_INPLACE(Log, log)
UNARY_AND_INPLACE(Log10, log10)
UNARY_AND_INPLACE(Log1p, log1p)
UNARY_AND_INPLACE(Log2, log2)
UNARY(Neg, neg)
UNARY_AND_INPLACE(Reciprocal, reciprocal)
UNARY(Round, round)
UNARY_AND_INPLACE(Rsqrt, rsqrt)
UNARY_AND_INPLACE(Sigmoid, sigmoid)
UNARY(Sign, sign)
UNARY(Signbit, signbit)
UNARY_AND_INPLACE(Sin, sin)
UNARY_AND_INPLACE(Sinc, sinc)
UNARY_AND_INPLACE(Sinh, sinh)
UNARY_AND_INPLACE(Sqrt, sqrt)
UNARY_AND_INPLACE(Tan, tan)
UNARY_AND_INPLACE(Tanh, tanh)
UNARY(Trunc, trunc)

UNARY(BitwiseNot, bitwise_not)
UNARY_AND_INPLACE(LogicalNot, logical_not)
UNARY(IsPosInf, isposinf)
UNARY(IsNegInf, isneginf)
ACLNN_OP(IsFinite, In(self), Out(out)) { Put(out, at::isfinite(self)); }

ACLNN_OP(RoundDecimals, In(self), I64(decimals), Out(out)) { at::round_out(out, self, decimals); }
ACLNN_OP(InplaceRoundDecimals, Out(self), I64(decimals)) { at::round_out(self, self, decimals); }
ACLNN_OP(NanToNum, In(self), F32(nan), F32(posinf), F32(neginf), Out(out)) { at::nan_to_num_out(out, self, nan, posinf, neginf); }
ACLNN_OP(InplaceNanToNum, Out(self), F32(nan), F32(posinf), F32(neginf)) { at::nan_to_num_out(self, self, nan, posinf, neginf); }

ACLNN_OP(Clamp, In(self), OptNum(min), OptNum(max), Out(out)) { at::clamp_out(out, self, min, max); }
ACLNN_OP(ClampMin, In(self), Num(min), Out(out)) { at::clamp_min_out(out, self, min); }
ACLNN_OP(ClampMax, In(self), Num(max), Out(out)) { at::clamp_max_out(out, self, max); }
ACLNN_OP(InplaceClampMax, Out(self), Num(max)) { at::clamp_max_out(self, self, max); }

// Activations. Those that matter for speed (SiLU and GELU gates) are also fused, in activation.cc.
UNARY_AND_INPLACE(Relu, relu)
UNARY(Silu, silu)
UNARY_AND_INPLACE(Hardsigmoid, hardsigmoid)
UNARY_AND_INPLACE(Hardswish, hardswish)
UNARY_AND_INPLACE(Mish, mish)
// As on the hardware, the operator without a mode is the tanh approximation, whatever torch's caller asked for; with
// TORCH_NPU_USE_COMPATIBLE_IMPL=1 torch_npu calls GeluV2, which has the mode.
ACLNN_OP(Gelu, In(self), Out(out)) { at::gelu_out(out, self, "tanh"); }
ACLNN_PLAN(GeluV2, In(self), I64(approximate), Out(out)) {
  Require(approximate == 0 || approximate == 1, "approximate is ", approximate, "; it must be 0 (erf) or 1 (tanh)");
  return [=]() mutable { at::gelu_out(out, self, approximate == 1 ? "tanh" : "none"); };
}
// x * sigmoid(1.702 x), which is what the documented exp(0.851 (x - |x|)) x / (1 + exp(-1.702 |x|)) comes to.
ACLNN_OP(FastGelu, In(self), Out(out)) {
  const Tensor x = self.to(at::kFloat);
  Put(out, at::mul(at::sigmoid(at::mul(x, 1.702)), x));
}
ACLNN_OP(Elu, In(self), Num(alpha), Num(scale), Num(input_scale), Out(out)) { at::elu_out(out, self, alpha, scale, input_scale); }
ACLNN_OP(InplaceElu, Out(self), Num(alpha), Num(scale), Num(input_scale)) { at::elu_out(self, self, alpha, scale, input_scale); }
ACLNN_OP(Celu, In(self), Num(alpha), Out(out)) { at::elu_out(out, self, alpha, 1, 1 / alpha.toDouble()); }
ACLNN_OP(InplaceCelu, Out(self), Num(alpha)) { at::elu_out(self, self, alpha, 1, 1 / alpha.toDouble()); }
ACLNN_OP(LeakyRelu, In(self), Num(negative_slope), Out(out)) { at::leaky_relu_out(out, self, negative_slope); }
ACLNN_OP(InplaceLeakyRelu, Out(self), Num(negative_slope)) { at::leaky_relu_out(self, self, negative_slope); }
ACLNN_OP(Hardtanh, In(self), Num(min), Num(max), Out(out)) { at::hardtanh_out(out, self, min, max); }
ACLNN_OP(InplaceHardtanh, Out(self), Num(min), Num(max)) { at::hardtanh_out(self, self, min, max); }
ACLNN_OP(Softplus, In(self), Num(beta), Num(threshold), Out(out)) { at::softplus_out(out, self, beta, threshold); }
ACLNN_OP(Threshold, In(self), Num(threshold), Num(value), Out(out)) { at::threshold_out(out, self, threshold, value); }
ACLNN_OP(InplaceThreshold, Out(self), Num(threshold), Num(value)) { at::threshold_out(self, self, threshold, value); }
ACLNN_OP(LogSigmoid, In(self), Out(out)) { at::log_sigmoid_out(out, self); }
// The buffer is for the backward pass of another device; nobody reads it here.
ACLNN_OP(LogSigmoidForward, In(self), Out(out), Out(buffer)) { at::log_sigmoid_out(out, self); }
// eps < 0 stands for no clamping.
ACLNN_OP(Logit, In(self), F64(eps), Out(out)) { at::logit_out(out, self, eps < 0 ? std::nullopt : std::optional<double>(eps)); }
ACLNN_OP(Glu, In(self), I64(dim), Out(out)) { at::glu_out(out, self, dim); }
ACLNN_OP(Hardshrink, In(self), Num(lambd), Out(out)) { at::hardshrink_out(out, self, lambd); }
ACLNN_OP(Softshrink, In(self), Num(lambd), Out(out)) { at::softshrink_out(out, self, lambd); }
ACLNN_OP(AngleV2, In(self), Out(out)) { Put(out, at::angle(self)); }

}  // namespace jumar::hostcann::aclnn
