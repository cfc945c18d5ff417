// Mixture of experts: bringing the tokens of one expert together, quantised or not, and back.
//
// A token goes to k experts; pair p = token * k + choice. Sorting the pairs by expert (stable) gives `order`, the pairs in order of
// their experts; its inverse is the place of each pair.
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "libs/hostcann/aclnn/quant.h"

namespace jumar::hostcann::aclnn {
namespace {

Tensor Order(const Tensor& keys) { return at::argsort(keys.flatten().to(at::kLong), /*stable=*/true, /*dim=*/0); }
Tensor Inverse(const Tensor& order) {
  const Tensor place = at::empty_like(order);
  place.scatter_(0, order, at::arange(order.numel()));
  return place;
}
Tensor CountExperts(const Tensor& experts, int64_t count) {
  return at::bincount(experts.flatten().to(at::kLong), {}, count).narrow(0, 0, count);
}

// Writes the first rows of out; rows behind them mean nothing and are zeroed.
void PutRows(const Tensor& out, const Tensor& rows) {
  const int64_t n = std::min(out.size(0), rows.size(0));
  out.narrow(0, 0, n).copy_(rows.narrow(0, 0, n));
  if (n < out.size(0)) out.narrow(0, n, out.size(0) - n).zero_();
}

// For each pair its row in [experts, capacity], and -1 for what the capacity has no room for.
Tensor PlacesWithCapacity(const Tensor& experts, int64_t expert_num, int64_t capacity) {
  const Tensor flat = experts.flatten().to(at::kLong);
  const Tensor counts = CountExperts(flat, expert_num);
  const Tensor begins = at::cumsum(counts, 0).sub(counts);
  const Tensor within = Inverse(Order(flat)).sub(begins.index_select(0, flat));
  return at::where(within.lt(capacity), flat.mul(capacity).add(within), at::full({flat.numel()}, -1, at::kLong));
}
// out[place of pair] = x[token of pair]; the rest is zero.
void ScatterRows(const Tensor& x, const Tensor& places, int64_t k, const Tensor& out) {
  const Tensor rows = at::zeros({out.numel() / std::max<int64_t>(1, out.size(-1)), out.size(-1)}, x.options());
  const Tensor kept = places.ge(0).nonzero().flatten();
  rows.index_copy_(0, places.index_select(0, kept), x.index_select(0, kept.div(k, "floor")));
  Put(out, rows);
}

}  // namespace

ACLNN_OP(MoeInitRouting, In(x), In(row_idx), In(expert_idx), I64(active_num), Out(expanded_x), Out(expanded_row_idx),
         Out(expanded_expert_idx)) {
  const int64_t rows = x.size(0);
  const Tensor order = Order(expert_idx);
  const Tensor source = row_idx.flatten().to(at::kLong).index_select(0, order);  // numbered column by column
  Put(expanded_expert_idx, expert_idx.flatten().index_select(0, order));
  Put(expanded_row_idx, Inverse(source));
  PutRows(expanded_x, x.index_select(0, source.narrow(0, 0, expanded_x.size(0)).remainder(rows)));
}

// flag: 0 counts nothing, 1 the ends of the experts' rows, 2 their numbers. With drop_pad_mode 1 each expert has `capacity` rows.
ACLNN_PLAN(MoeInitRoutingV2, In(x), In(expert_idx), I64(active_num), I64(capacity), I64(expert_num), I64(drop_pad_mode), I64(flag),
           Flag(before_capacity_flag), Out(expanded_x), Out(expanded_row_idx), OptOut(counts), OptOut(before_capacity)) {
  Require(drop_pad_mode == 0 || (capacity > 0 && expert_num > 0), "drop_pad_mode is ", drop_pad_mode, ", expert_capacity ", capacity,
          ", expert_num ", expert_num, "; with drop_pad_mode 1 the others must be positive");
  return [=] {
    const int64_t k = expert_idx.size(-1);
    if (drop_pad_mode == 1) {
      const Tensor places = PlacesWithCapacity(expert_idx, expert_num, capacity);
      Put(expanded_row_idx, places);
      ScatterRows(x, places, k, expanded_x);
      if (before_capacity_flag && before_capacity) Put(*before_capacity, CountExperts(expert_idx, expert_num));
      return;
    }
    const Tensor order = Order(expert_idx);
    Put(expanded_row_idx, Inverse(order));
    PutRows(expanded_x, x.index_select(0, order.narrow(0, 0, expanded_x.size(0)).div(k, "floor")));
    if (flag == 0 || !counts || expert_num == 0) return;
    const Tensor count = CountExperts(expert_idx, expert_num);
    Put(*counts, flag == 1 ? at::cumsum(count, 0) : count);
  };
}

// As V2, quantised: statically (0) with one scale and one offset, or per row (1) after a multiplication by scale, of one row or a row
// per expert.
ACLNN_PLAN(MoeInitRoutingQuantV2, In(x), In(expert_idx), OptIn(scale), OptIn(offset), I64(active_num), I64(capacity), I64(expert_num),
           I64(drop_pad_mode), I64(flag), Flag(before_capacity_flag), I64(quant_mode), Out(expanded_x), Out(expanded_row_idx),
           OptOut(counts), OptOut(before_capacity), OptOut(expanded_scale)) {
  Require(quant_mode == 0 || quant_mode == 1, "quantMode is ", quant_mode, "; it must be 0 (static) or 1 (dynamic)");
  Require(quant_mode == 1 || (scale && offset), "quantMode is 0, which needs scale and offset");
  Require(drop_pad_mode == 0 || (capacity > 0 && expert_num > 0), "dropPadMode is ", drop_pad_mode, ", expertCapacity ", capacity,
          ", expertNum ", expert_num, "; with dropPadMode 1 the others must be positive");
  return [=] {
    const int64_t k = expert_idx.size(-1);
    const Tensor flat = expert_idx.flatten().to(at::kLong), out = expanded_x.view({-1, expanded_x.size(-1)});
    const Tensor places = drop_pad_mode == 1 ? PlacesWithCapacity(expert_idx, expert_num, capacity) : Inverse(Order(expert_idx));
    Put(expanded_row_idx, places);
    const Tensor kept = places.ge(0).logical_and(places.lt(out.size(0))).nonzero().flatten(), where = places.index_select(0, kept);
    Tensor rows = F32(x.index_select(0, kept.div(k, "floor")));
    expanded_x.zero_();
    if (quant_mode == 0) {
      rows = at::mul(rows, F32(*scale)).add(F32(*offset));
    } else {
      if (scale) rows = at::mul(rows, scale->size(0) == 1 ? F32(*scale) : F32(scale->index_select(0, flat.index_select(0, kept))));
      const Tensor s = rows.abs().amax(-1, true).div(127.0);
      rows = at::where(s.eq(0), at::zeros_like(rows), at::div(rows, s));
      if (expanded_scale) expanded_scale->zero_().index_copy_(0, where, s.flatten());
    }
    out.index_copy_(0, where, at::round(rows).clamp(-128, 127).to(at::kChar));
    const Tensor count = expert_num > 0 ? CountExperts(expert_idx, expert_num) : Tensor();
    if (drop_pad_mode == 1 && before_capacity_flag && before_capacity) Put(*before_capacity, count);
    if (drop_pad_mode == 0 && flag != 0 && counts && count.defined()) Put(*counts, flag == 1 ? at::cumsum(count, 0) : count);
  };
}

// As V2, for experts [first, end) of active_expert_range only, whose pairs come first; optionally quantised: statically (0) with a
// scale and an offset, or per row (1) after a multiplication by scale, of one row or a row per expert.
ACLNN_PLAN(MoeInitRoutingV3, In(x), In(expert_idx), OptIn(scale), OptIn(offset), I64(active_num), I64(capacity), I64(expert_num),
           I64(drop_pad_mode), I64(counts_type), Flag(counts_flag), I64(quant_mode), Ints(range), I64(row_idx_type), Out(expanded_x),
           Out(expanded_row_idx), OptOut(counts), OptOut(expanded_scale)) {
  Require(quant_mode >= -1 && quant_mode <= 1, "quant_mode is ", quant_mode, "; hostcann has -1 (none), 0 (static) and 1 (dynamic)");
  Require(quant_mode != 0 || (scale && offset), "quant_mode is 0, which needs scale and offset");
  Require(drop_pad_mode == 0 || (capacity > 0 && expert_num > 0 && quant_mode == -1), "drop_pad_mode is ", drop_pad_mode,
          ", expert_capacity ", capacity, ", quant_mode ", quant_mode, "; with drop_pad_mode 1 capacity must be positive and there is "
          "no quantisation");
  Require(range.empty() || range.size() == 2, "active_expert_range has ", range.size(), " numbers; it must have 2");
  return [=] {
    const int64_t k = expert_idx.size(-1), pairs = expert_idx.numel();
    const int64_t first = range.empty() ? 0 : range[0], end = range.empty() ? std::max<int64_t>(expert_num, 1) : range[1];
    if (drop_pad_mode == 1) {
      const Tensor places = PlacesWithCapacity(expert_idx, expert_num, capacity);
      Put(expanded_row_idx, places);
      return ScatterRows(x, places, k, expanded_x);
    }
    const Tensor flat = expert_idx.flatten().to(at::kLong);
    const Tensor active = flat.ge(first).logical_and(range.empty() ? flat.ge(0) : flat.lt(end));
    const Tensor order = Order(at::where(active, flat, at::full({pairs}, int64_t{1} << 40, at::kLong)));
    const int64_t used = active.sum().item<int64_t>();
    const Tensor kept = order.narrow(0, 0, used);
    if (row_idx_type == 1) {
      PutRows(expanded_row_idx, kept);
    } else {
      Put(expanded_row_idx, at::where(active, Inverse(order), at::full({pairs}, -1, at::kLong)));
    }
    const Tensor tokens = kept.div(k, "floor");
    Tensor rows = x.index_select(0, tokens);
    if (quant_mode == 0) {
      rows = at::round(at::mul(rows.to(at::kFloat), *scale).add(*offset)).clamp(-128, 127);
    } else if (quant_mode == 1) {
      rows = rows.to(at::kFloat);
      if (scale) rows = at::mul(rows, scale->size(0) == 1 ? *scale : scale->index_select(0, flat.index_select(0, kept).sub(first)));
      const Tensor s = rows.abs().amax(-1, true).div(127.0);
      rows = at::round(at::where(s.eq(0), at::zeros_like(rows), at::div(rows, s)));
      if (expanded_scale) PutRows(*expanded_scale, s.flatten());
    } else if (scale && expanded_scale) {
      PutRows(*expanded_scale, scale->flatten().index_select(0, tokens));
    }
    PutRows(expanded_x, rows);
    if (!counts_flag || !counts) return;
    const Tensor count = CountExperts(flat.index_select(0, kept).sub(first), end - first);
    if (counts_type == 2) {
      const Tensor busy = count.nonzero().flatten();
      return PutRows(*counts, at::stack({busy.add(first), count.index_select(0, busy)}, 1));
    }
    Put(*counts, counts_type == 0 ? at::cumsum(count, 0) : count);
  };
}

// out[i] = skip1 + skip2 + sum over k of scales[i, k] * (rows[place of (i, k)] + bias[expert]); a place of -1 was dropped. Places are
// numbered column by column in modes 0 and 1, row by row in 2 and 3.
static void Finalize(const Tensor& expanded, const Tensor& places, const OptTensor& skip1, const OptTensor& skip2,
                     const OptTensor& bias, const OptTensor& scales, const OptTensor& experts, int64_t mode, const Tensor& out) {
  const int64_t width = expanded.size(-1), n = out.size(0), k = places.numel() / std::max<int64_t>(1, n);
  const Tensor rows = expanded.reshape({-1, width}).to(at::kFloat);
  const Tensor flat = places.flatten().to(at::kLong);
  const Tensor place = mode < 2 ? flat.view({k, n}).t() : flat.view({n, k});
  Tensor sum = at::zeros({n, width}, at::kFloat);
  for (const OptTensor* skip : {&skip1, &skip2}) {
    if (*skip) sum = sum.add((*skip)->to(at::kFloat));
  }
  for (int64_t j = 0; j < k; ++j) {
    const Tensor p = place.select(1, j);
    Tensor term = rows.index_select(0, p.clamp_min(0)).masked_fill(p.lt(0).unsqueeze(-1), 0);
    if (bias && experts) term = term.add(bias->to(at::kFloat).index_select(0, experts->select(1, j).to(at::kLong)));
    sum = sum.add(scales ? term.mul(scales->select(1, j).to(at::kFloat).unsqueeze(-1)) : term);
  }
  Put(out, sum);
}
ACLNN_OP(MoeFinalizeRouting, In(expanded), In(skip1), OptIn(skip2), In(bias), In(scales), In(places), In(experts), Out(out)) {
  Finalize(expanded, places, skip1, skip2, bias, scales, experts, 0, out);
}
ACLNN_OP(MoeFinalizeRoutingV2, In(expanded), In(places), OptIn(skip1), OptIn(skip2), OptIn(bias), OptIn(scales), OptIn(experts),
         I64(drop_pad_mode), Out(out)) {
  Finalize(expanded, places, skip1, skip2, bias, scales, experts, drop_pad_mode, out);
}

ACLNN_PLAN(MoeTokenPermute, In(tokens), In(indices), I64(num_out_tokens), Flag(padded_mode), Out(permuted), Out(sorted_indices)) {
  Require(!padded_mode, "padded_mode is true; hostcann has only false");
  return [=] {
    const int64_t k = indices.dim() == 1 ? 1 : indices.size(1);
    const Tensor order = Order(indices);
    Put(sorted_indices, Inverse(order));
    PutRows(permuted, tokens.index_select(0, order.narrow(0, 0, std::min(permuted.size(0), order.numel())).div(k, "floor")));
  };
}
// Rows that were cut off (an index behind the last) count as zero.
ACLNN_PLAN(MoeTokenUnpermute, In(permuted), In(sorted_indices), OptIn(probs), Flag(padded_mode), OptInts(restore_shape), Out(out)) {
  Require(!padded_mode, "padded_mode is true; hostcann has only false");
  return [=] {
    const Tensor place = sorted_indices.to(at::kLong), lost = place.ge(permuted.size(0));
    const int64_t k = probs ? probs->size(1) : 1;
    Tensor rows = permuted.to(at::kFloat).index_select(0, place.masked_fill(lost, 0)).masked_fill(lost.unsqueeze(-1), 0);
    rows = rows.reshape({-1, k, permuted.size(1)});
    if (probs) rows = at::mul(rows, probs->to(at::kFloat).unsqueeze(-1));
    Put(out, rows.sum(1));
  };
}

// Where the rows of each expert end.
ACLNN_OP(MoeComputeExpertTokens, In(sorted_experts), I64(num_experts), Out(out)) {
  Put(out, at::searchsorted(sorted_experts.contiguous(), at::arange(num_experts).to(sorted_experts.scalar_type()), false, true));
}

// Tokens that lie rank by rank, and in a rank expert by expert, are brought expert by expert.
ACLNN_PLAN(MoeReRouting, In(tokens), In(counts), OptIn(scales), I64(count_type), I64(idx_type), Out(permuted), OptOut(permuted_scales),
           Out(token_idx), Out(expert_counts)) {
  Require(idx_type == 0 || idx_type == 1, "idxType is ", idx_type, "; it must be 0 (gather) or 1 (scatter)");
  return [=] {
    const int64_t ranks = counts.size(0), experts = counts.size(1);
    const Tensor expert_of = at::arange(experts).repeat({ranks}).repeat_interleave(counts.flatten().to(at::kLong));
    const Tensor order = Order(expert_of);
    PutRows(permuted, tokens.index_select(0, order));
    if (scales && permuted_scales) PutRows(*permuted_scales, scales->index_select(0, order));
    PutRows(token_idx, idx_type == 0 ? order : Inverse(order));
    const Tensor sums = counts.sum(0);
    Put(expert_counts, count_type == 0 ? at::cumsum(sums, 0) : sums);
  };
}

// renorm 0: softmax, then the k largest (and, if asked for, the softmax itself). 1: the k largest, then their softmax.
ACLNN_OP(MoeGatingTopKSoftmaxV2, In(x), OptIn(finished), I64(k), I64(renorm), Flag(output_softmax), Out(y), Out(expert_idx),
         OptOut(softmax_out)) {
  const Tensor wide = x.to(at::kFloat), all = at::softmax(wide, -1);
  const auto [values, indices] = at::sort(renorm == 0 ? all : wide, /*stable=*/true, -1, /*descending=*/true);
  Tensor experts = indices.narrow(-1, 0, k);
  if (finished) experts = experts.masked_fill(finished->unsqueeze(-1), x.size(-1));
  Put(y, renorm == 0 ? values.narrow(-1, 0, k) : at::softmax(values.narrow(-1, 0, k), -1));
  Put(expert_idx, experts);
  if (output_softmax && renorm == 0 && softmax_out) Put(*softmax_out, all);
}

}  // namespace jumar::hostcann::aclnn
