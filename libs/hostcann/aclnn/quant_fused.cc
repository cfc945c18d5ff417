// A norm or a gated activation, and then quantised.
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <limits>

#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/quant.h"

namespace jumar::hostcann::aclnn {

using quant::Int8Rows;

namespace {

Tensor Rstd(const Tensor& x, double eps) { return at::rsqrt(x.square().mean({-1}, true).add(eps)); }

Tensor RmsNormed(const Tensor& x, const Tensor& gamma, const OptTensor& beta, double eps) {
  const Tensor y = at::mul(at::mul(x, Rstd(x, eps)), F32(gamma).flatten());
  return beta ? at::add(y, F32(*beta).flatten()) : y;
}

// y, a tensor like x, as the kernel writes it.
std::optional<Int8Rows> LikeX(const Tensor& x, Int8Rows::Kind kind, const OptTensor& factor, const OptTensor& offset, const Tensor& y,
                             const OptTensor& scale) {
  if (x.dim() < 1 || x.size(-1) == 0) return std::nullopt;
  return KernelInt8Rows(kind, factor, offset, y, scale, x.numel() / x.size(-1), x.size(-1));
}
Int8Rows::Kind StaticKind(bool div_mode) { return div_mode ? Int8Rows::Kind::kDivide : Int8Rows::Kind::kMultiply; }

}  // namespace

// Divided by the scale with div_mode, else multiplied.
ACLNN_OP(RmsNormQuantV3, In(x), In(gamma), In(scale), OptIn(offset), OptIn(beta), F64(eps), Flag(div_mode), Flag(output_rstd), Out(y),
         OptOut(rstd)) {
  const Tensor wide = F32(x), normed = RmsNormed(wide, gamma, beta, eps);
  const Tensor value = div_mode ? at::div(normed, F32(scale)) : at::mul(normed, F32(scale));
  PutRounded(y, offset ? at::add(value, F32(*offset)) : value);
  if (output_rstd && rstd) Put(*rstd, Rstd(wide, eps));
}
ACLNN_PLAN(RmsNormQuant, In(x), In(gamma), In(beta), In(scale), In(offset), F64(eps), Out(y)) {
  const auto to = LikeX(x, Int8Rows::Kind::kMultiply, scale, offset, y, std::nullopt);
  if (Task task = PlanInt8Norm(x, std::nullopt, std::nullopt, gamma, beta, eps, {to})) return task;
  return [=] { PutRounded(y, at::add(at::mul(RmsNormed(F32(x), gamma, beta, eps), F32(scale)), F32(offset))); };
}
// The normalised sum, quantised with one pair of scale and offset or two: divided by the scale with div_mode, else multiplied.
static void AddRmsNormQuant(const Tensor& x1, const Tensor& x2, const Tensor& gamma, const OptTensor& beta, const Tensor& scales1,
                            const OptTensor& scales2, const OptTensor& zero_points1, const OptTensor& zero_points2, double eps,
                            bool div_mode, const Tensor& y1, const OptTensor& y2, const Tensor& sum, const OptTensor& normed) {
  const Tensor x = at::add(F32(x1), F32(x2));
  Put(sum, x);
  const Tensor y = RmsNormed(x, gamma, beta, eps);
  const auto quantized = [&](const Tensor& scale, const OptTensor& zero) {
    const Tensor value = div_mode ? at::div(y, F32(scale)) : at::mul(y, F32(scale));
    return zero ? at::add(value, F32(*zero)) : value;
  };
  PutRounded(y1, quantized(scales1, zero_points1));
  if (y2 && scales2) PutRounded(*y2, quantized(*scales2, zero_points2));
  if (normed && normed->numel() == y.numel()) Put(*normed, y);
}
static Task PlanAddRmsNormQuant(const Tensor& x1, const Tensor& x2, const Tensor& gamma, const OptTensor& beta, const Tensor& scales1,
                                const OptTensor& scales2, const OptTensor& zero_points1, const OptTensor& zero_points2, double eps, bool div_mode,
                                const Tensor& y1, const OptTensor& y2, const Tensor& sum, const OptTensor& normed) {
  if (!normed || normed->numel() != y1.numel()) {
    std::vector<std::optional<Int8Rows>> to = {LikeX(x1, StaticKind(div_mode), scales1, zero_points1, y1, std::nullopt)};
    if (y2 && scales2) to.push_back(LikeX(x1, StaticKind(div_mode), scales2, zero_points2, *y2, std::nullopt));
    if (Task task = PlanInt8Norm(x1, x2, sum, gamma, beta, eps, to)) return task;
  }
  return [=] {
    AddRmsNormQuant(x1, x2, gamma, beta, scales1, scales2, zero_points1, zero_points2, eps, div_mode, y1, y2, sum, normed);
  };
}
ACLNN_PLAN(AddRmsNormQuant, In(x1), In(x2), In(gamma), In(scales1), OptIn(scales2), OptIn(zero_points1), OptIn(zero_points2), I64(axis),
         F64(eps), Flag(div_mode), Out(y1), OptOut(y2), Out(sum)) {
  return PlanAddRmsNormQuant(x1, x2, gamma, std::nullopt, scales1, scales2, zero_points1, zero_points2, eps, div_mode, y1, y2, sum, std::nullopt);
}
ACLNN_PLAN(AddRmsNormQuantV2, In(x1), In(x2), In(gamma), In(scales1), OptIn(scales2), OptIn(zero_points1), OptIn(zero_points2),
         OptIn(beta), I64(axis), F64(eps), Flag(div_mode), Out(y1), OptOut(y2), Out(sum), OptOut(normed)) {
  return PlanAddRmsNormQuant(x1, x2, gamma, beta, scales1, scales2, zero_points1, zero_points2, eps, div_mode, y1, y2, sum, normed);
}
// y1 is the norm in fp32, y2 in the type of x.
ACLNN_OP(AddRmsNormCast, In(x1), In(x2), In(gamma), F64(eps), Out(y1), Out(y2), Out(rstd), Out(sum)) {
  const Tensor x = at::add(F32(x1), F32(x2));
  Put(sum, x);
  Put(rstd, Rstd(x, eps));
  const Tensor y = RmsNormed(x, gamma, std::nullopt, eps);
  Put(y1, y);
  Put(y2, y);
}
static void AddRmsNormDynamicQuant(const Tensor& x1, const Tensor& x2, const Tensor& gamma, const OptTensor& smooth1,
                                   const OptTensor& smooth2, const OptTensor& beta, double eps, bool first, bool second,
                                   const Tensor& y1, const Tensor& y2, const Tensor& sum, const Tensor& scale1, const Tensor& scale2) {
  const Tensor x = at::add(F32(x1), F32(x2));
  Put(sum, x);
  const Tensor y = RmsNormed(x, gamma, beta, eps);
  if (first) DynamicQuantize(smooth1 ? at::mul(y, F32(*smooth1)) : y, y1, scale1);
  if (second) DynamicQuantize(smooth2 ? at::mul(y, F32(*smooth2)) : y, y2, scale2);
}
static Task PlanAddRmsNormDynamicQuant(const Tensor& x1, const Tensor& x2, const Tensor& gamma, const OptTensor& smooth1,
                                       const OptTensor& smooth2, const OptTensor& beta, double eps, bool first, bool second, const Tensor& y1,
                                       const Tensor& y2, const Tensor& sum, const Tensor& scale1, const Tensor& scale2) {
  std::vector<std::optional<Int8Rows>> to;
  if (first) to.push_back(LikeX(x1, Int8Rows::Kind::kDynamic, smooth1, std::nullopt, y1, scale1));
  if (second) to.push_back(LikeX(x1, Int8Rows::Kind::kDynamic, smooth2, std::nullopt, y2, scale2));
  if (Task task = PlanInt8Norm(x1, x2, sum, gamma, beta, eps, to)) return task;
  return [=] { AddRmsNormDynamicQuant(x1, x2, gamma, smooth1, smooth2, beta, eps, first, second, y1, y2, sum, scale1, scale2); };
}
ACLNN_PLAN(AddRmsNormDynamicQuant, In(x1), In(x2), In(gamma), OptIn(smooth1), OptIn(smooth2), F64(eps), Out(y1), Out(y2), Out(sum),
         Out(scale1), Out(scale2)) {
  return PlanAddRmsNormDynamicQuant(x1, x2, gamma, smooth1, smooth2, std::nullopt, eps, true, smooth1 && smooth2, y1, y2, sum, scale1, scale2);
}
ACLNN_PLAN(AddRmsNormDynamicQuantV2, In(x1), In(x2), In(gamma), OptIn(smooth1), OptIn(smooth2), OptIn(beta), F64(eps), Bools(mask),
         Out(y1), Out(y2), Out(sum), Out(scale1), Out(scale2)) {
  const bool first = mask.empty() || mask[0] != 0;
  const bool second = mask.empty() ? smooth1 && smooth2 : mask.size() > 1 && mask[1] != 0;
  return PlanAddRmsNormDynamicQuant(x1, x2, gamma, smooth1, smooth2, beta, eps, first, second, y1, y2, sum, scale1, scale2);
}

namespace {

// What is done with the two halves of x, or with its even and odd columns.
struct Gate {
  int64_t mode = 0;  // 0: silu(a) * b. 1 and 2: with limits, as GPT-OSS has it; in 1, a has the even columns and b the odd ones
  double limit = std::numeric_limits<double>::infinity(), alpha = 1, bias = 0;
};

Tensor Gated(const Tensor& x, bool activate_left, const Gate& gate) {
  Require(gate.mode >= 0 && gate.mode <= 2, "swigluMode is ", gate.mode, "; hostcann has 0, 1 and 2");
  Require(x.size(-1) % 2 == 0, "x has ", x.size(-1), " columns; they must be even");
  const std::vector<Tensor> halves = gate.mode == 1 ? x.unflatten(-1, {-1, 2}).unbind(-1) : x.chunk(2, -1);
  const Tensor &a = halves[activate_left ? 0 : 1], &b = halves[activate_left ? 1 : 0];
  if (gate.mode == 0) return at::mul(at::silu(a), b);
  const Tensor glu = a.clamp_max(gate.limit), linear = b.clamp(-gate.limit, gate.limit);
  return at::mul(at::mul(glu, at::sigmoid(at::mul(glu, gate.alpha))), at::add(linear, gate.bias));
}

// The product of the gate as int8, with a scale that was given ("static") or one per row ("dynamic").
void QuantizeGated(const Tensor& product, const OptTensor& smooth, const OptTensor& offsets, const OptTensor& groups, int64_t group_type,
                   const std::string& mode, const Tensor& y, const Tensor& scale) {
  Require(mode == "dynamic" || mode == "static", "quantMode is \"", mode, "\"; it must be \"static\" or \"dynamic\"");
  const Tensor smoothed = Smooth(product, smooth, groups, group_type);
  if (mode == "dynamic") return DynamicQuantize(smoothed, y, scale);
  if (!offsets) return PutRounded(y, smoothed);
  const bool per_group = groups && offsets->dim() >= 1 && offsets->size(0) > 1;
  Tensor o = F32(*offsets);
  if (per_group) o = o.index_select(0, GroupOfRows(*groups, group_type, product.size(0)));
  PutRounded(y, at::add(smoothed, per_group && o.dim() == 1 ? o.unsqueeze(-1) : o));
}

// x, if it is int32 sums of products, becomes fp32: times weight_scale per column (of the row's group) and activation_scale per row.
Tensor Dequantized(const Tensor& x, const OptTensor& weight_scale, const OptTensor& activation_scale, const OptTensor& bias,
                   const OptTensor& groups) {
  Tensor value = x.reshape({-1, x.size(-1)});
  if (bias && bias->scalar_type() == at::kInt) value = at::add(value, *bias);
  value = F32(value);
  if (x.scalar_type() == at::kInt) value = Smooth(value, weight_scale, groups, 1);
  if (x.scalar_type() == at::kInt && activation_scale) value = at::mul(value, F32(*activation_scale).reshape({-1, 1}));
  return bias && bias->scalar_type() != at::kInt ? at::add(value, F32(*bias)) : value;
}

}  // namespace

ACLNN_PLAN(SwiGluQuantV2, In(x), OptIn(smooth_scales), OptIn(offsets), OptIn(group_index), Flag(activate_left), Text(quant_mode),
           I64(group_list_type), I32(dst_type), Out(y), Out(scale)) {
  if (quant_mode == "dynamic" && x.scalar_type() != at::kInt) {
    const Int8Gated gated{.x = x, .smooth = smooth_scales, .groups = group_index, .group_type = group_list_type, .activate_left = activate_left};
    if (Task task = PlanInt8Gated(gated, y, scale)) return task;
  }
  return [=] {
    QuantizeGated(Gated(Rows(x), activate_left, {}), smooth_scales, offsets, group_index, group_list_type, quant_mode, y, scale);
  };
}
static Task PlanDequantSwigluQuant(const Tensor& x, const OptTensor& weight_scale, const OptTensor& activation_scale, const OptTensor& bias,
                                   const OptTensor& quant_scale, const OptTensor& quant_offset, const OptTensor& group_index,
                                   bool activate_left, const std::string& quant_mode, const Gate& gate, const Tensor& y, const Tensor& scale) {
  if (quant_mode == "dynamic" && gate.mode == 0) {
    const Int8Gated gated{x, weight_scale, activation_scale, bias, quant_scale, group_index, /*group_type=*/1, activate_left};
    if (Task task = PlanInt8Gated(gated, y, scale)) return task;
  }
  return [=] {
    const Tensor product = Gated(Dequantized(x, weight_scale, activation_scale, bias, group_index), activate_left, gate);
    QuantizeGated(product, quant_scale, quant_offset, group_index, /*group_type=*/1, quant_mode, y, scale);
  };
}
ACLNN_PLAN(DequantSwigluQuant, In(x), OptIn(weight_scale), OptIn(activation_scale), OptIn(bias), OptIn(quant_scale),
           OptIn(quant_offset), OptIn(group_index), Flag(activate_left), Text(quant_mode), Out(y), Out(scale)) {
  return PlanDequantSwigluQuant(x, weight_scale, activation_scale, bias, quant_scale, quant_offset, group_index, activate_left, quant_mode,
                                {}, y, scale);
}
ACLNN_PLAN(DequantSwigluQuantV2, In(x), OptIn(weight_scale), OptIn(activation_scale), OptIn(bias), OptIn(quant_scale),
         OptIn(quant_offset), OptIn(group_index), Flag(activate_left), Text(quant_mode), I32(dst_type), Text(round_mode), I32(activate_dim),
         I64(swiglu_mode), F64(clamp_limit), F64(glu_alpha), F64(glu_bias), Out(y), Out(scale)) {
  Require(round_mode == "rint", "roundMode is \"", round_mode, "\"; hostcann has \"rint\"");
  Require(activate_dim == -1 || activate_dim == x.dim() - 1, "activateDim is ", activate_dim, "; hostcann splits the last dimension");
  const Gate gate{.mode = swiglu_mode, .limit = clamp_limit, .alpha = glu_alpha, .bias = glu_bias};
  return PlanDequantSwigluQuant(x, weight_scale, activation_scale, bias, quant_scale, quant_offset, group_index, activate_left, quant_mode, gate,
                                y, scale);
}

ACLNN_OP(GeluQuant, In(self), OptIn(scale), OptIn(offset), Text(approximate), Text(quant_mode), Text(round_mode), I64(dst_type), Out(y),
         OptOut(out_scale)) {
  Require(round_mode == "rint", "roundMode is \"", round_mode, "\"; hostcann has \"rint\"");
  Require(quant_mode == "static" || (quant_mode == "dynamic" && out_scale), "quantMode is \"", quant_mode,
          "\"; it must be \"static\", or \"dynamic\" with outScaleOptional");
  const Tensor gelu = at::gelu(F32(self), approximate), scaled = scale ? at::mul(gelu, F32(*scale)) : gelu;
  if (quant_mode == "dynamic") return DynamicQuantize(scaled, y, *out_scale);
  PutRounded(y, offset ? at::add(scaled, F32(*offset)) : scaled);
}
// A scale per group of rows and column; group_index has the groups' ends.
ACLNN_OP(GroupQuant, In(x), In(scale), In(group_index), OptIn(offset), I32(dst_type), Out(y)) {
  const Tensor value = Smooth(F32(x), scale, group_index, 0);
  PutRounded(y, offset ? at::add(value, F32(*offset)) : value);
}
ACLNN_OP(DequantBias, In(x), In(weight_scale), OptIn(activate_scale), OptIn(bias), I64(output_dtype), Out(out)) {
  const bool whole = bias && bias->scalar_type() == at::kInt;
  Tensor value = at::mul(F32(whole ? at::add(x, *bias) : x), F32(weight_scale));
  if (activate_scale) value = at::mul(value, F32(*activate_scale).reshape({-1, 1}));
  Put(out, bias && !whole ? at::add(value, F32(*bias)) : value);
}

}  // namespace jumar::hostcann::aclnn
