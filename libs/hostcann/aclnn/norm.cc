// Normalisation. As CANN documents the fused operators: everything in fp32, one rounding at the end; AddRmsNorm's sum is
// rounded to the tensor's type first, and it is that rounded sum that is normalised.
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_group_norm.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>

#include "libs/attention/rows/rows.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/wide.h"

namespace jumar::hostcann::aclnn {
namespace {

using attention::RmsNormArgs;

struct RmsNormTensors {
  const aclTensor& x;
  const aclTensor* residual;
  const aclTensor& gamma;
  const aclTensor& y;
  const aclTensor* rstd;
  const aclTensor* sum;
};

void CheckRmsNorm(const RmsNormTensors& t) {
  for (const auto& [name, tensor] : {std::pair("x", &t.x), {"residual", t.residual}, {"gamma", &t.gamma}, {"y", &t.y}}) {
    Require(tensor == nullptr || IsBaseFormat(tensor->format), "argument `", name, "` has format ",
            FormatName(tensor ? tensor->format : 0), "; it must be ND (2)");
  }
  const int inner = t.gamma.sizes.n;
  bool suffix = inner >= 1 && inner <= t.x.sizes.n;
  for (int i = 0; suffix && i < inner; ++i) suffix = t.gamma.sizes[i] == t.x.sizes[t.x.sizes.n - inner + i];
  Require(suffix, "gamma has shape ", ToString(t.gamma.sizes), "; it must equal the last dimensions of x, ", ToString(t.x.sizes));
  Require(SameShape(t.x, t.y), "x has shape ", ToString(t.x.sizes), " but y ", ToString(t.y.sizes));
  Require(t.residual == nullptr || SameShape(t.x, *t.residual), "x1 has shape ", ToString(t.x.sizes), " but x2 ",
          ToString(t.residual ? t.residual->sizes : t.x.sizes));
}

// nullopt if a type or stride is one that the kernel doesn't take.
std::optional<RmsNormArgs> PlanRmsNorm(const RmsNormTensors& t, double epsilon) {
  const int inner = t.gamma.sizes.n;
  const auto type = KernelType(t.x.dtype), weight_type = KernelType(t.gamma.dtype);
  const auto x = AsRows(t.x, inner), y = AsRows(t.y, inner);
  if (!type || !weight_type || !x || !y || t.y.dtype != t.x.dtype || !IsContiguous(t.gamma)) return std::nullopt;
  if (*weight_type != *type && *weight_type != quant::DType::kF32) return std::nullopt;
  RmsNormArgs args{.type = *type,
                   .rows = x->rows,
                   .cols = x->cols,
                   .x = t.x.data(),
                   .x_stride = x->stride,
                   .weight_type = *weight_type,
                   .weight = t.gamma.data(),
                   .epsilon = static_cast<float>(epsilon),
                   .out = t.y.data(),
                   .out_stride = y->stride};
  if (t.residual != nullptr) {
    const auto residual = AsRows(*t.residual, inner), sum = AsRows(*t.sum, inner);
    if (!residual || !sum || t.residual->dtype != t.x.dtype || t.sum->dtype != t.x.dtype) return std::nullopt;
    args.residual = t.residual->data();
    args.residual_stride = residual->stride;
    args.sum_out = t.sum->data();
    args.sum_out_stride = sum->stride;
  }
  if (t.rstd != nullptr && t.rstd->numel() > 0) {
    if (t.rstd->dtype != DType::kF32 || !IsContiguous(*t.rstd) || t.rstd->numel() != x->rows) return std::nullopt;
    args.rstd = static_cast<float*>(t.rstd->data());
  }
  return args;
}

// y = x * rstd * (weight_offset + gamma), through ATen.
void RmsNormAten(const Tensor& x, const Tensor& gamma, double weight_offset, double epsilon, const Tensor& y,
                 const OptTensor& rstd) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  IntList dims;
  for (int64_t i = -gamma.dim(); i < 0; ++i) dims.push_back(i);
  const Tensor f = x.to(wide);
  const Tensor r = at::rsqrt(f.square().mean(dims, /*keepdim=*/true).add(epsilon));
  Put(y, at::mul(at::mul(f, r), gamma.to(wide).add(weight_offset)));
  if (rstd && rstd->numel() > 0) Put(*rstd, r);
}

OptTensor MaybeTensor(const aclTensor* t) { return t == nullptr ? OptTensor() : OptTensor(ToTensor(*t)); }

Task PlanRmsNormTask(const RmsNormTensors& t, double epsilon) {
  CheckRmsNorm(t);
  if (const auto args = PlanRmsNorm(t, epsilon)) {
    return [args = *args] { Check(attention::RmsNorm(args, ComputeExecutor())); };
  }
  return [x = ToTensor(t.x), residual = MaybeTensor(t.residual), gamma = ToTensor(t.gamma), y = ToTensor(t.y),
          rstd = MaybeTensor(t.rstd), sum = MaybeTensor(t.sum), epsilon] {
    if (residual) {
      const Tensor s = at::add(x, *residual);
      RmsNormAten(s, gamma, 0, epsilon, y, rstd);
      Put(*sum, s);
    } else {
      RmsNormAten(x, gamma, 0, epsilon, y, rstd);
    }
  };
}

void LayerNorm(const Tensor& input, const IntList& normalized_shape, const OptTensor& weight, const OptTensor& bias, double eps,
               const Tensor& out, const OptTensor& mean, const OptTensor& rstd) {
  const at::ScalarType type = input.scalar_type();
  const auto cast = [type](const OptTensor& t) { return t ? OptTensor(t->to(type)) : OptTensor(); };
  const auto [y, m, r] = at::native_layer_norm(input, normalized_shape, cast(weight), cast(bias), eps);
  Put(out, y);
  if (mean) Put(*mean, m);
  if (rstd) Put(*rstd, r);
}

}  // namespace

ACLNN_PLAN(RmsNorm, Raw(x), Raw(gamma), F64(epsilon), Raw(y), Raw(rstd)) {
  return PlanRmsNormTask({x, nullptr, gamma, y, &rstd, nullptr}, epsilon);
}
ACLNN_PLAN(AddRmsNorm, Raw(x1), Raw(x2), Raw(gamma), F64(epsilon), Raw(y), Raw(rstd), Raw(x)) {
  return PlanRmsNormTask({x1, &x2, gamma, y, &rstd, &x}, epsilon);
}
// y goes into x1, the sum into x2.
ACLNN_PLAN(InplaceAddRmsNorm, Raw(x1), Raw(x2), Raw(gamma), F64(epsilon), Raw(rstd)) {
  return PlanRmsNormTask({x1, &x2, gamma, x1, &rstd, &x2}, epsilon);
}
// Gemma's weight is an offset from one.
ACLNN_OP(GemmaRmsNorm, In(x), In(gamma), F64(epsilon), Out(y), OptOut(rstd)) { RmsNormAten(x, gamma, 1, epsilon, y, rstd); }

ACLNN_OP(LayerNorm, In(input), Ints(normalized_shape), OptIn(weight), OptIn(bias), F64(eps), Out(out), OptOut(mean), OptOut(rstd)) {
  LayerNorm(input, normalized_shape, weight, bias, eps, out, mean, rstd);
}
ACLNN_OP(FastLayerNorm, In(input), Ints(normalized_shape), OptIn(weight), OptIn(bias), F64(eps), Out(out), OptOut(mean),
         OptOut(rstd)) {
  LayerNorm(input, normalized_shape, weight, bias, eps, out, mean, rstd);
}
ACLNN_OP(GroupNorm, In(input), OptIn(weight), OptIn(bias), I64(n), I64(c), I64(hxw), I64(group), F64(eps), Out(out), Out(mean),
         Out(rstd)) {
  const auto [y, m, r] = at::native_group_norm(input, weight, bias, n, c, hxw, group, eps);
  Put(out, y);
  Put(mean, m);
  Put(rstd, r);
}

// y, and mean and rstd of each group; then y * sigmoid(scale * y), in which scale is 1 for SiLU.
static void GroupNormGate(const Tensor& x, const OptTensor& gamma, const OptTensor& beta, int64_t groups, double eps, bool gate,
                          double scale, const Tensor& out, const Tensor& mean, const Tensor& rstd) {
  const int64_t n = x.size(0), channels = x.size(1);
  const auto [y, m, r] = at::native_group_norm(Wide(x).contiguous(), Wide(gamma), Wide(beta), n, channels,
                                               n * channels == 0 ? 0 : x.numel() / (n * channels), groups, eps);
  Put(out, gate ? at::mul(y, at::sigmoid(at::mul(y, scale))) : y);
  Put(mean, m);
  Put(rstd, r);
}
ACLNN_OP(GroupNormSilu, In(self), OptIn(gamma), OptIn(beta), I64(group), F64(eps), Out(out), Out(mean), Out(rstd)) {
  GroupNormGate(self, gamma, beta, group, eps, /*gate=*/true, 1, out, mean, rstd);
}
ACLNN_OP(GroupNormSwish, In(x), OptIn(gamma), OptIn(beta), I64(num_groups), OptText(data_format), F64(eps), Flag(activate_swish),
         F64(swish_scale), Out(y), Out(mean), Out(rstd)) {
  GroupNormGate(x, gamma, beta, num_groups, eps, activate_swish, swish_scale, y, mean, rstd);
}

// The normalised sum x1 + x2 (+ bias) over gamma's dimensions; the sum itself as well, if additional_output says so.
ACLNN_OP(AddLayerNorm, In(x1), In(x2), In(gamma), In(beta), OptIn(bias), F64(eps), Flag(additional_output), Out(y), Out(mean),
         Out(rstd), Out(sum)) {
  Tensor x = at::add(x1.to(at::kFloat), x2.to(at::kFloat));
  if (bias) x = at::add(x, bias->to(at::kFloat));
  const auto [value, m, r] = at::native_layer_norm(x, gamma.sizes(), gamma.to(at::kFloat), beta.to(at::kFloat), eps);
  Put(y, value);
  Put(mean, m);
  Put(rstd, r);
  if (additional_output) Put(sum, x);
}
// The normalised alpha * x + gx.
ACLNN_OP(DeepNorm, In(x), In(gx), In(beta), In(gamma), F64(alpha), F64(eps), Out(mean), Out(rstd), Out(y)) {
  const Tensor sum = at::add(gx.to(at::kFloat), x.to(at::kFloat), alpha);
  const auto [value, m, r] = at::native_layer_norm(sum, gamma.sizes(), gamma.to(at::kFloat), beta.to(at::kFloat), eps);
  Put(y, value);
  Put(mean, m);
  Put(rstd, r);
}

}  // namespace jumar::hostcann::aclnn
