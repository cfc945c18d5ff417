// Mixture of experts: choosing the experts of each token, bringing tokens of one expert together, multiplying each group with
// its expert's weight, and adding up.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/gemm.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The k largest of each row, in falling order; of equal ones the first.
std::pair<Tensor, Tensor> Largest(const Tensor& x, int64_t k) {
  const auto [values, indices] = at::sort(x, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  return {values.narrow(-1, 0, k), indices.narrow(-1, 0, k)};
}

// One product of a group: rows [begin, end) of x with the weight of an expert, [k, n].
struct Expert {
  const void* weight;
  const void* bias;
};

// y[rows of e] = x[rows of e] * weight[e] (+ bias[e]), the groups being consecutive rows of x.
Task PlanGroupedMatmul(const std::vector<aclTensor>& x, const std::vector<aclTensor>& weight, const std::vector<aclTensor>& bias,
                       const OptTensor& group_list, int64_t split_item, int64_t group_type, int64_t group_list_type,
                       int64_t act_type, const std::vector<aclTensor>& y) {
  Require(x.size() == 1 && y.size() == 1, "there are ", x.size(), " tensors x and ", y.size(),
          " outputs; hostcann groups the rows of one tensor (split_item 2 or 3)");
  Require(group_type == 0, "group_type is ", group_type, "; hostcann groups along the rows (0)");
  Require(group_list_type == 0 || group_list_type == 1, "group_list_type is ", group_list_type,
          "; it must be 0 (ends) or 1 (counts)");
  Require(act_type == 0, "act_type is ", act_type, "; hostcann applies no activation (0)");
  Require(group_list.has_value(), "group_list is missing");
  const auto type = KernelType(x[0].dtype);
  const auto a = AsRows(x[0], 1), o = AsRows(y[0], 1);
  Require(type && a && o && y[0].dtype == x[0].dtype, "x is ", DTypeName(x[0].dtype), " with strides ", ToString(x[0].strides),
          " and y ", DTypeName(y[0].dtype), "; both must be of one floating-point type with contiguous rows");
  const int64_t size = ItemSize(x[0].dtype);
  const bool stacked = weight.size() == 1 && weight[0].sizes.n == 3;
  const int64_t experts = stacked ? weight[0].sizes[0] : static_cast<int64_t>(weight.size());
  quant::GemmArgs shared{.n = o->cols, .k = a->cols, .type = *type, .lda = a->stride, .ldo = o->stride};
  std::vector<Expert> table;
  for (int64_t e = 0; e < experts; ++e) {
    const aclTensor& w = weight[stacked ? 0 : static_cast<size_t>(e)];
    const int r = w.sizes.n - 2;
    Require(w.dtype == x[0].dtype && IsBaseFormat(w.format) && r >= 0 && w.sizes[r] == a->cols && w.sizes[r + 1] == o->cols,
            "weight ", e, " is ", DTypeName(w.dtype), " ", ToString(w.sizes), " in format ", FormatName(w.format), "; it must be ",
            DTypeName(x[0].dtype), " ND [", a->cols, ", ", o->cols, "]");
    const bool transposed = w.strides[r] == 1 && w.strides[r + 1] >= a->cols;
    Require(transposed || w.strides[r + 1] == 1, "weight ", e, " has strides ", ToString(w.strides),
            "; its rows or columns must be contiguous");
    const auto layout = transposed ? quant::WeightLayout::kNK : quant::WeightLayout::kKN;
    const int64_t ld = transposed ? w.strides[r + 1] : w.strides[r];
    Require(e == 0 || (layout == shared.layout && ld == shared.ldw), "weight ", e, " has strides ", ToString(w.strides),
            ", others than weight 0");
    shared.layout = layout;
    shared.ldw = ld;
    const void* b = nullptr;
    if (!bias.empty()) {
      const aclTensor& t = bias[bias.size() == 1 ? 0 : static_cast<size_t>(e)];
      Require(t.dtype == x[0].dtype && IsContiguous(t), "bias ", e, " is ", DTypeName(t.dtype), "; it must be contiguous ",
              DTypeName(x[0].dtype));
      b = static_cast<const char*>(t.data()) + (bias.size() == 1 && t.sizes.n == 2 ? e * t.strides[0] * size : 0);
    }
    table.push_back({static_cast<const char*>(w.data()) + (stacked ? e * w.strides[0] * size : 0), b});
  }
  return [=, groups = *group_list, rows = a->rows, xs = x[0].data(), ys = y[0].data()] {
    const Tensor ends = (group_list_type == 0 ? groups : at::cumsum(groups, 0)).to(at::kLong).contiguous();
    Require(ends.numel() <= experts, "group_list has ", ends.numel(), " entries; there are ", experts, " weights");
    int64_t begin = 0;
    for (int64_t e = 0; e < ends.numel(); ++e) {
      const int64_t end = ends.const_data_ptr<int64_t>()[e];
      Require(end >= begin && end <= rows, "group ", e, " of group_list ends at ", end, "; it must lie in [", begin, ", ", rows,
              "]");
      quant::GemmArgs args = shared;
      args.m = end - begin;
      args.a = static_cast<const char*>(xs) + begin * args.lda * size;
      args.out = static_cast<char*>(ys) + begin * args.ldo * size;
      args.w = table[static_cast<size_t>(e)].weight;
      args.bias = table[static_cast<size_t>(e)].bias;
      if (args.m > 0) Check(quant::Gemm(args, ComputeExecutor()));
      begin = end;
    }
  };
}

void RefuseGiven(const char* name, bool given) {
  Require(!given, "argument `", name, "` is given; hostcann's grouped product isn't quantised");
}

}  // namespace

// Softmax, then the k largest. row_idx numbers the outcomes column by column.
ACLNN_OP(MoeGatingTopKSoftmax, In(x), OptIn(finished), I64(k), Out(y), Out(expert_idx), Out(row_idx)) {
  auto [values, experts] = Largest(at::softmax(x.to(at::kFloat), -1), k);
  const int64_t rows = x.numel() / x.size(-1);
  if (finished) experts = experts.masked_fill(finished->unsqueeze(-1), x.size(-1));  // a row that is done goes to no expert
  Put(y, values);
  Put(expert_idx, experts);
  Put(row_idx, at::arange(rows * k).view({k, rows}).t().contiguous());
}

// Scores by softmax (norm_type 0) or sigmoid (1). The bias decides who is chosen, not how much it counts; groups of experts
// compete first, by their best (mode 0) or their best two (mode 1).
ACLNN_PLAN(MoeGatingTopK, In(x), OptIn(bias), I64(k), I64(k_group), I64(group_count), I64(group_select_mode), I64(renorm),
           I64(norm_type), Flag(out_flag), F64(routed_scaling_factor), F64(eps), Out(y), Out(expert_idx), Out(out)) {
  const int64_t experts = x.size(-1);
  Require(k >= 1 && k <= experts && group_count >= 1 && experts % group_count == 0 && k_group >= 1 && k_group <= group_count,
          "k is ", k, ", k_group ", k_group, ", group_count ", group_count, "; with ", experts,
          " experts these must divide and fit");
  Require(norm_type == 0 || norm_type == 1, "norm_type is ", norm_type, "; it must be 0 (softmax) or 1 (sigmoid)");
  Require(group_select_mode == 0 || group_select_mode == 1, "group_select_mode is ", group_select_mode,
          "; it must be 0 (maximum) or 1 (sum of the best two)");
  return [=] {
    const Tensor wide = x.to(at::kFloat);
    const Tensor scores = norm_type == 0 ? at::softmax(wide, -1) : at::sigmoid(wide);
    Tensor ranked = bias ? at::add(scores, bias->to(at::kFloat)) : scores.clone();
    if (group_count > 1) {
      const Tensor groups = ranked.unflatten(-1, {group_count, experts / group_count});
      const Tensor power =
          group_select_mode == 0 ? groups.amax(-1) : Largest(groups, std::min<int64_t>(2, experts / group_count)).first.sum(-1);
      Tensor hidden = at::zeros(power.sizes(), at::kBool).fill_(true);
      hidden.scatter_(-1, Largest(power, k_group).second, false);
      ranked = groups.masked_fill(hidden.unsqueeze(-1), -kInfinity).flatten(-2);
    }
    const Tensor chosen = Largest(ranked, k).second;
    Tensor weights = scores.gather(-1, chosen);
    if (norm_type == 1 || renorm == 1) weights = weights.div(weights.sum(-1, true).add(eps));
    Put(y, at::mul(weights, routed_scaling_factor));
    Put(expert_idx, chosen);
    if (out_flag) Put(out, scores);
  };
}

ACLNN_PLAN(GroupedMatmulV4, RawIns(x), RawIns(weight), OptRawIns(bias), OptRawIns(scale), OptRawIns(offset),
           OptRawIns(antiquant_scale), OptRawIns(antiquant_offset), OptRawIns(per_token_scale), OptIn(group_list),
           OptRawIns(activation_input), OptRawIns(activation_quant_scale), OptRawIns(activation_quant_offset), I64(split_item),
           I64(group_type), I64(group_list_type), I64(act_type), RawIns(out), OptRawIns(activation_feature_out),
           OptRawIns(dynamic_quant_scale_out)) {
  RefuseGiven("scale", !scale.empty());
  RefuseGiven("antiquant_scale", !antiquant_scale.empty());
  RefuseGiven("per_token_scale", !per_token_scale.empty());
  return PlanGroupedMatmul(x, weight, bias, group_list, split_item, group_type, group_list_type, act_type, out);
}
ACLNN_PLAN(GroupedMatmulV5, RawIns(x), RawIns(weight), OptRawIns(bias), OptRawIns(scale), OptRawIns(offset),
           OptRawIns(antiquant_scale), OptRawIns(antiquant_offset), OptRawIns(per_token_scale), OptIn(group_list),
           OptRawIns(activation_input), OptRawIns(activation_quant_scale), OptRawIns(activation_quant_offset), I64(split_item),
           I64(group_type), I64(group_list_type), I64(act_type), Ints(tuning_config), RawIns(out),
           OptRawIns(activation_feature_out), OptRawIns(dynamic_quant_scale_out)) {
  RefuseGiven("scale", !scale.empty());
  RefuseGiven("antiquant_scale", !antiquant_scale.empty());
  RefuseGiven("per_token_scale", !per_token_scale.empty());
  return PlanGroupedMatmul(x, weight, bias, group_list, split_item, group_type, group_list_type, act_type, out);
}

}  // namespace jumar::hostcann::aclnn
