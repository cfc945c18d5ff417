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

}  // namespace jumar::hostcann::aclnn
