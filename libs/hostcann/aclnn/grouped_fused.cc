// Grouped products of int8 and what follows them: a gate and quantisation, or the way back to the tokens.
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "libs/hostcann/aclnn/grouped_matmul.h"
#include "libs/hostcann/aclnn/int8_kernels.h"

namespace jumar::hostcann::aclnn {
namespace {

using Tensors = std::vector<aclTensor>;

// int8 rows by int8 weights, scaled, gated by silu of the left half, and quantised by row.
Task PlanSwigluQuant(const Tensor& x, const Tensors& weight, const Tensors& weight_scale, const Tensor& x_scale, const OptTensor& smooth,
                     const Tensor& group_list, int64_t group_list_type, const Tensor& y, const Tensor& y_scale) {
  Require(x.scalar_type() == at::kChar && !weight.empty() && weight[0].dtype == DType::kI8, "x is ", at::toString(x.scalar_type()),
          " and weight ", weight.empty() ? "missing" : DTypeName(weight[0].dtype), "; hostcann has int8 with int8");
  Require(weight_scale.size() == 1 || weight_scale.size() == weight.size(), "there are ", weight_scale.size(), " weight scales for ",
          weight.size(), " weights");
  if (Task task = PlanInt8GroupedSwiglu({x, weight, weight_scale, {}, x_scale, group_list, group_list_type}, smooth, y, y_scale)) return task;
  return [=] {
    const int64_t experts = ExpertsIn(weight);
    for (const auto& [e, begin, end] : ReadGroups(group_list, group_list_type, experts, x.size(0))) {
      if (end == begin) continue;
      const int64_t n = end - begin;
      const Tensor sum = F32(IntProduct(x.narrow(0, begin, n), WeightOf(weight, e)));
      const Tensor token = F32(x_scale.flatten().narrow(0, begin, n)).unsqueeze(-1);
      const Tensor wide = at::mul(at::mul(sum, token), ScaleOf(NumbersOf(weight_scale, e, experts)));
      const auto halves = wide.chunk(2, -1);
      Tensor gated = at::mul(at::silu(halves[0]), halves[1]);
      if (smooth) gated = at::mul(gated, F32(smooth->dim() > 1 ? smooth->select(0, smooth->size(0) == 1 ? 0 : e) : *smooth));
      DynamicQuantize(gated, y.narrow(0, begin, n), y_scale.narrow(0, begin, n));
    }
  };
}

// out[row_index of row] = sum of logit[row] * (x[row] * weight of its expert, scaled), and the shared expert's rows from `shared_begin` on.
struct Finalize {
  Tensor x;
  aclTensor weight, scale;
  OptTensor token_scale;
  Tensor group_list;
  OptTensor shared, logit, row_index;
  double shared_weight;
  int64_t shared_begin, group_list_type;
  Tensor out;

  void Run() const {
    const Tensor sum = at::zeros(out.sizes(), at::kFloat);
    if (shared) sum.narrow(0, shared_begin, shared->size(0)).copy_(at::mul(F32(*shared), shared_weight));
    const Tensor where = row_index ? row_index->to(at::kLong) : Tensor();
    // Of all groups in one pass, if the kernel takes them.
    const Tensor product = at::empty({x.size(0), weight.sizes[2]}, at::kFloat);
    const Task multiply = PlanInt8Grouped({x, {weight}, {scale}, {}, token_scale ? token_scale->flatten() : token_scale, group_list, group_list_type}, product);
    if (multiply) multiply();
    for (const auto& [e, begin, end] : ReadGroups(group_list, group_list_type, weight.sizes[0], x.size(0))) {
      if (end == begin) continue;
      const int64_t n = end - begin;
      const auto of_rows = [begin = begin, n](const Tensor& t) { return F32(t.flatten().narrow(0, begin, n)).unsqueeze(-1); };
      Tensor value = product.narrow(0, begin, n);
      if (!multiply) {
        value = at::mul(F32(IntProduct(x.narrow(0, begin, n), WeightOf({weight}, e))), ScaleOf(ToTensor(scale).select(0, e)));
        if (token_scale) value = at::mul(value, of_rows(*token_scale));
      }
      if (logit) value = at::mul(value, of_rows(*logit));
      if (where.defined()) {
        sum.index_add_(0, where.narrow(0, begin, n), value);
      } else {
        sum.narrow(0, begin, n).add_(value);
      }
    }
    Put(out, sum);
  }
};

Task PlanFinalize(const Finalize& f, const OptTensor& bias, bool transpose_x, bool transpose_weight) {
  Require(f.x.scalar_type() == at::kChar && f.weight.dtype == DType::kI8 && f.weight.sizes.n == 3, "x is ", at::toString(f.x.scalar_type()),
          " and w ", DTypeName(f.weight.dtype), " ", ToString(f.weight.sizes), "; hostcann has int8 with int8 [experts, k, n]");
  Require(!transpose_x && !transpose_weight, "transposeX or transposeW is true; hostcann has false");
  Require(!f.shared || (f.shared_begin >= 0 && f.shared_begin + f.shared->size(0) <= f.out.size(0)), "sharedInputOffset is ",
          f.shared_begin, "; the shared rows must fit in out's ", f.out.size(0));
  RefuseGiven("bias", bias && bias->numel() > 0);
  return [f] { f.Run(); };
}

}  // namespace

ACLNN_PLAN(GroupedMatmulSwigluQuantWeightNZ, In(x), Raw(weight), OptIn(bias), OptIn(offset), Raw(weight_scale), In(x_scale),
           In(group_list), Out(y), Out(y_scale), OptOut(y_offset)) {
  RefuseGiven("bias", bias && bias->numel() > 0);
  RefuseGiven("offset", offset && offset->numel() > 0);
  return PlanSwigluQuant(x, {weight}, {weight_scale}, x_scale, std::nullopt, group_list, 0, y, y_scale);
}
ACLNN_PLAN(GroupedMatmulSwigluQuantV2, In(x), RawIns(weight), RawIns(weight_scale), OptRawIns(assist), OptIn(bias), In(x_scale),
           OptIn(smooth_scale), In(group_list), I64(dequant_mode), I64(dequant_dtype), I64(quant_mode), I64(group_list_type),
           Ints(tuning_config), Out(y), Out(y_scale)) {
  RefuseGiven("bias", bias && bias->numel() > 0);
  RefuseGiven("weightAssistMatrix", !assist.empty());
  return PlanSwigluQuant(x, weight, weight_scale, x_scale, smooth_scale, group_list, group_list_type, y, y_scale);
}
ACLNN_PLAN(GroupedMatmulSwigluQuantWeightNzV2, In(x), RawIns(weight), RawIns(weight_scale), OptRawIns(assist), OptIn(bias), In(x_scale),
           OptIn(smooth_scale), In(group_list), I64(dequant_mode), I64(dequant_dtype), I64(quant_mode), I64(group_list_type),
           Ints(tuning_config), Out(y), Out(y_scale)) {
  RefuseGiven("bias", bias && bias->numel() > 0);
  RefuseGiven("weightAssistMatrix", !assist.empty());
  return PlanSwigluQuant(x, weight, weight_scale, x_scale, smooth_scale, group_list, group_list_type, y, y_scale);
}

ACLNN_PLAN(GroupedMatmulFinalizeRoutingV2, In(x), Raw(w), Raw(scale), OptIn(bias), OptRaw(offset),
           OptRaw(antiquant_scale), OptRaw(antiquant_offset), OptIn(pertoken_scale), In(group_list),
           OptIn(shared_input), OptIn(logit), OptIn(row_index), I64(dtype), F32(shared_input_weight), I64(shared_input_offset),
           Flag(transpose_x), Flag(transpose_w), I64(group_list_type), Out(out)) {
  RefuseGiven("offset", offset && offset->numel() > 0);
  return PlanFinalize({x, w, scale, pertoken_scale, group_list, shared_input, logit, row_index, shared_input_weight, shared_input_offset,
                       group_list_type, out},
                      bias, transpose_x, transpose_w);
}
ACLNN_PLAN(GroupedMatmulFinalizeRoutingV3, In(x), Raw(w), Raw(scale), OptIn(bias), OptRaw(offset),
           OptRaw(antiquant_scale), OptRaw(antiquant_offset), OptIn(pertoken_scale), In(group_list),
           OptIn(shared_input), OptIn(logit), OptIn(row_index), I64(dtype), F32(shared_input_weight), I64(shared_input_offset),
           Flag(transpose_x), Flag(transpose_w), I64(group_list_type), Ints(tuning_config), Out(out)) {
  RefuseGiven("offset", offset && offset->numel() > 0);
  return PlanFinalize({x, w, scale, pertoken_scale, group_list, shared_input, logit, row_index, shared_input_weight, shared_input_offset,
                       group_list_type, out},
                      bias, transpose_x, transpose_w);
}
ACLNN_PLAN(GroupedMatmulFinalizeRoutingWeightNz, In(x), Raw(w), Raw(scale), OptIn(bias), OptIn(pertoken_scale),
           In(group_list), OptIn(shared_input), OptIn(logit), OptIn(row_index), I64(dtype), F32(shared_input_weight),
           I64(shared_input_offset),
           Flag(transpose_x), Flag(transpose_w), I64(group_list_type), Out(out)) {
  return PlanFinalize({x, w, scale, pertoken_scale, group_list, shared_input, logit, row_index, shared_input_weight, shared_input_offset,
                       group_list_type, out},
                      bias, transpose_x, transpose_w);
}
ACLNN_PLAN(GroupedMatmulFinalizeRoutingWeightNzV2, In(x), Raw(w), Raw(scale), OptIn(bias), OptRaw(offset),
           OptRaw(antiquant_scale), OptRaw(antiquant_offset), OptIn(pertoken_scale), In(group_list),
           OptIn(shared_input), OptIn(logit), OptIn(row_index), I64(dtype), F32(shared_input_weight), I64(shared_input_offset),
           Flag(transpose_x), Flag(transpose_w), I64(group_list_type), Ints(tuning_config), Out(out)) {
  RefuseGiven("offset", offset && offset->numel() > 0);
  return PlanFinalize({x, w, scale, pertoken_scale, group_list, shared_input, logit, row_index, shared_input_weight, shared_input_offset,
                       group_list_type, out},
                      bias, transpose_x, transpose_w);
}

}  // namespace jumar::hostcann::aclnn
