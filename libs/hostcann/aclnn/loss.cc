// Losses and distances: how far a model is from what it should say. `reduction` is 0 (none), 1 (mean) or 2 (sum).
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_pdist_forward.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/multilabel_margin_loss_forward.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>

#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/wide.h"

namespace jumar::hostcann::aclnn {

#define LOSS(Name, function) \
  ACLNN_OP(Name, In(self), In(target), I64(reduction), Out(out)) { Put(out, at::function(Wide(self), Wide(target), reduction)); }
LOSS(L1Loss, l1_loss)
LOSS(MseLoss, mse_loss)
LOSS(SoftMarginLoss, soft_margin_loss)

ACLNN_OP(SmoothL1Loss, In(self), In(target), I64(reduction), F32(beta), Out(out)) {
  Put(out, at::smooth_l1_loss(Wide(self), Wide(target), reduction, beta));
}
ACLNN_OP(BinaryCrossEntropy, In(self), In(target), OptIn(weight), I64(reduction), Out(out)) {
  Put(out, at::binary_cross_entropy(Wide(self), Wide(target), Wide(weight), reduction));
}
ACLNN_OP(BinaryCrossEntropyWithLogits, In(self), In(target), OptIn(weight), OptIn(pos_weight), I64(reduction), Out(out)) {
  Put(out, at::binary_cross_entropy_with_logits(Wide(self), Wide(target), Wide(weight), Wide(pos_weight), reduction));
}
ACLNN_OP(KlDiv, In(self), In(target), I64(reduction), Flag(log_target), Out(out)) {
  Put(out, at::kl_div(Wide(self), Wide(target), reduction, log_target));
}
ACLNN_OP(NLLLoss, In(self), In(target), In(weight), I64(reduction), I64(ignore_index), Out(out), Out(total_weight)) {
  const auto [loss, total] = at::nll_loss_forward(Wide(self), target.to(at::kLong), Wide(weight), reduction, ignore_index);
  Put(out, loss);
  Put(total_weight, total);
}
ACLNN_OP(NLLLoss2d, In(self), In(target), In(weight), I64(reduction), I64(ignore_index), Out(out), Out(total_weight)) {
  const auto [loss, total] = at::nll_loss2d_forward(Wide(self), target.to(at::kLong), Wide(weight), reduction, ignore_index);
  Put(out, loss);
  Put(total_weight, total);
}
ACLNN_OP(MultilabelMarginLoss, In(self), In(target), I64(reduction), Out(out), Out(is_target)) {
  const auto [loss, hit] = at::multilabel_margin_loss_forward(Wide(self), target.to(at::kLong), reduction);
  Put(out, loss);
  Put(is_target, hit);
}
// The lengths come by value. log_alpha may be padded to more columns than the longest target needs.
ACLNN_OP(CtcLoss, In(log_probs), In(targets), Ints(input_lengths), Ints(target_lengths), I64(blank), Flag(zero_infinity), Out(out),
         Out(log_alpha)) {
  const auto [loss, alpha] =
      at::_ctc_loss(Wide(log_probs), targets.to(at::kLong), input_lengths, target_lengths, blank, zero_infinity);
  Put(out, zero_infinity ? at::where(loss.isinf(), at::scalar_tensor(0.0, loss.options()), loss) : loss);
  log_alpha.fill_(-std::numeric_limits<double>::infinity());
  const int64_t columns = std::min(alpha.size(-1), log_alpha.size(-1));
  log_alpha.narrow(-1, 0, columns).copy_(alpha.narrow(-1, 0, columns));
}

// mode: 0 to use a product of matrices where it pays, 1 always, 2 never.
ACLNN_OP(Cdist, In(x1), In(x2), F32(p), I64(mode), Out(out)) { Put(out, at::_cdist_forward(Wide(x1), Wide(x2), p, mode)); }
ACLNN_OP(Pdist, In(self), F32(p), Out(out)) { Put(out, at::_pdist_forward(Wide(self).contiguous(), p)); }

// log_prob is the logarithm of softmax. z-loss, a penalty on the normaliser, isn't there.
ACLNN_PLAN(CrossEntropyLoss, In(input), In(target), OptIn(weight), Text(reduction), I64(ignore_index), F64(label_smoothing),
           F64(lse_square_scale), Flag(return_zloss), Out(loss), Out(log_prob), OptOut(zloss), OptOut(lse_for_zloss)) {
  Require(reduction == "none" || reduction == "mean" || reduction == "sum", "reduction is \"", reduction,
          "\"; it must be \"none\", \"mean\" or \"sum\"");
  Require(label_smoothing == 0 && lse_square_scale == 0 && !return_zloss, "label_smoothing is ", label_smoothing,
          ", lse_square_scale_for_zloss ", lse_square_scale, ", return_zloss ", return_zloss, "; hostcann takes only zeros");
  return [=] {
    const Tensor p = at::log_softmax(Wide(input), -1);
    const int64_t mode = reduction == "none" ? 0 : reduction == "mean" ? 1 : 2;
    Put(loss, at::nll_loss(p, target.to(at::kLong), Wide(weight), mode, ignore_index));
    Put(log_prob, p);
  };
}

}  // namespace jumar::hostcann::aclnn
