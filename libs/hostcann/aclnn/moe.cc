// Mixture of experts: choosing the experts of each token.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The k largest of each row, in falling order; of equal ones the first.
std::pair<Tensor, Tensor> Largest(const Tensor& x, int64_t k) {
  const auto [values, indices] = at::sort(x, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  return {values.narrow(-1, 0, k), indices.narrow(-1, 0, k)};
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

namespace {

struct Gating {
  Tensor x;
  OptTensor bias;
  OptTensor input_ids, experts_of_token;  // a table instead of a choice
  int64_t k, k_group, group_count, group_select_mode, renorm, norm_type;
  bool out_flag;
  double routed_scaling_factor, eps;
  Tensor y, expert_idx, out;

  Tensor Choose(const Tensor& scores) const {
    if (experts_of_token) return experts_of_token->to(at::kLong).index_select(0, input_ids->to(at::kLong));
    Tensor ranked = bias ? at::add(scores, bias->to(at::kFloat)) : scores;
    if (group_count > 1) {
      const int64_t size = x.size(-1) / group_count;
      const Tensor groups = ranked.unflatten(-1, {group_count, size});
      const Tensor power = group_select_mode == 0 ? groups.amax(-1) : Largest(groups, std::min<int64_t>(2, size)).first.sum(-1);
      Tensor hidden = at::zeros(power.sizes(), at::kBool).fill_(true);
      hidden.scatter_(-1, Largest(power, k_group).second, false);
      ranked = groups.masked_fill(hidden.unsqueeze(-1), -kInfinity).flatten(-2);
    }
    return Largest(ranked, k).second;
  }

  void Run() const {
    const Tensor wide = x.to(at::kFloat);
    const Tensor scores = norm_type == 0 ? at::softmax(wide, -1) : at::sigmoid(wide);
    const Tensor chosen = Choose(scores);
    Tensor weights = scores.gather(-1, chosen);
    if (norm_type == 1 || renorm == 1) weights = weights.div(weights.sum(-1, true).add(eps));
    Put(y, at::mul(weights, routed_scaling_factor));
    Put(expert_idx, chosen);
    if (out_flag) Put(out, scores);
  }
};

Task PlanGating(const Gating& g) {
  const int64_t experts = g.x.size(-1);
  Require(g.k >= 1 && g.k <= experts && g.group_count >= 1 && experts % g.group_count == 0 && g.k_group >= 1 && g.k_group <= g.group_count,
          "k is ", g.k, ", k_group ", g.k_group, ", group_count ", g.group_count, "; with ", experts,
          " experts these must divide and fit");
  Require(g.norm_type == 0 || g.norm_type == 1, "norm_type is ", g.norm_type, "; it must be 0 (softmax) or 1 (sigmoid)");
  Require(g.group_select_mode == 0 || g.group_select_mode == 1, "group_select_mode is ", g.group_select_mode,
          "; it must be 0 (maximum) or 1 (sum of the best two)");
  Require(g.input_ids.has_value() == g.experts_of_token.has_value(), "inputIds and tid2eid must be given together");
  return [g] { g.Run(); };
}

}  // namespace

// Scores by softmax (norm_type 0) or sigmoid (1). The bias decides who is chosen, not how much it counts; groups of experts
// compete first, by their best (mode 0) or their best two (mode 1).
ACLNN_PLAN(MoeGatingTopK, In(x), OptIn(bias), I64(k), I64(k_group), I64(group_count), I64(group_select_mode), I64(renorm),
           I64(norm_type), Flag(out_flag), F64(routed_scaling_factor), F64(eps), Out(y), Out(expert_idx), Out(out)) {
  return PlanGating({x, bias, std::nullopt, std::nullopt, k, k_group, group_count, group_select_mode, renorm, norm_type, out_flag,
                     routed_scaling_factor, eps, y, expert_idx, out});
}
// tid2eid has the experts of each token of the vocabulary.
ACLNN_PLAN(MoeGatingTopKV2, In(x), OptIn(bias), OptIn(input_ids), OptIn(tid2eid), I64(k), I64(k_group), I64(group_count),
           I64(group_select_mode), I64(renorm), I64(norm_type), Flag(out_flag), F64(routed_scaling_factor), F64(eps), Out(y),
           Out(expert_idx), Out(out)) {
  return PlanGating({x, bias, input_ids, tid2eid, k, k_group, group_count, group_select_mode, renorm, norm_type, out_flag,
                     routed_scaling_factor, eps, y, expert_idx, out});
}

}  // namespace jumar::hostcann::aclnn
