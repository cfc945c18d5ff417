#include "libs/attention/paged/reference.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

// Element offset of key `j` of the sequence in K (or V, by its strides).
int64_t KeyOffset(const PagedAttentionArgs& args, int64_t seq, int64_t j, int64_t block_stride, int64_t token_stride) {
  if (args.slots != nullptr) {
    const int64_t slot = args.slots[seq * args.slots_stride + j];
    return slot / args.block_size * block_stride + slot % args.block_size * token_stride;
  }
  if (args.block_table != nullptr) {
    return args.block_table[seq * args.block_table_stride + j / args.block_size] * block_stride + j % args.block_size * token_stride;
  }
  int64_t start = 0;
  if (args.kv_starts != nullptr) {
    start = args.kv_starts[seq];
  } else {
    for (int64_t s = 0; s < seq; ++s) start += args.kv_lens[s];
  }
  return (start + j) * token_stride;
}

// Element `index` of K or V, whose row is key `j` of the sequence and element `d` of the head, as the number that it stands for.
double LoadKv(const PagedAttentionArgs& args, const KvScales& scales, const void* cache, int64_t index, int64_t seq, int64_t j, int64_t kv_head,
              int64_t d) {
  if (!args.kv_format) return quant::LoadScalar(args.type, cache, index);
  const double number = quant::Decode(*args.kv_format, static_cast<const uint8_t*>(cache)[index]);
  if (scales.data == nullptr) return number;
  int64_t at = kv_head * scales.head_stride;
  switch (scales.per) {
    case KvScales::Per::kChannel: at += d * scales.channel_stride; break;
    case KvScales::Per::kSlot: at += KeyOffset(args, seq, j, scales.block_stride, scales.token_stride); break;
    case KvScales::Per::kPosition: at += seq * scales.seq_stride + j * scales.token_stride; break;
  }
  return number * scales.data[at];
}

// Relative error of a probability, and of their sum.
double RelativeError(const PagedAttentionArgs& args, const AttentionReferenceRow& row) {
  constexpr double u = 0x1p-24, exp_error = 0x1p-22;
  // With a cap, whose slope is at most 1: its division, a tanh of 4 units in the last place, and the product with it.
  const double cap_error = args.soft_cap > 0 ? 10 * u * std::min<double>(row.score_magnitude, args.soft_cap) : 0;
  const double score_error = (args.head_dim + args.rope_dim + 3) * u * row.score_magnitude + cap_error;
  const double one_exp = u * (row.score_range + 2 * score_error) + exp_error;
  const double steps = row.visible_keys / 16.0 + 64;  // the maxima rise in steps whose sum is at most score_range
  return std::expm1(2 * score_error + one_exp + u * row.score_range + steps * (exp_error + u) + u);
}

}  // namespace

AttentionReferenceRow AttentionReference(const PagedAttentionArgs& args, int64_t seq, int64_t query, int64_t head) {
  const int64_t value_head_dim = args.value_head_dim == 0 ? args.head_dim : args.value_head_dim;
  const int64_t query_start = args.query_starts != nullptr ? args.query_starts[seq] : seq == 0 ? 0 : args.query_ends[seq - 1];
  const int64_t num_queries = args.query_ends[seq] - query_start, kv_len = args.kv_lens[seq];
  const int64_t position = kv_len - num_queries + query, kv_head = head / (args.num_heads / args.num_kv_heads);
  const int64_t q = (query_start + query) * args.q_token_stride + head * args.q_head_stride;

  AttentionReferenceRow row;
  std::vector<int64_t> keys;
  std::vector<double> scores;
  for (int64_t j = 0; j < kv_len; ++j) {
    if (args.window_left >= 0 && j < position - args.window_left) continue;
    if (args.window_right >= 0 && j > position + args.window_right) continue;
    if (args.mask != nullptr &&
        args.mask[seq * args.mask_seq_stride + head * args.mask_head_stride + query * args.mask_query_stride + j] != 0) {
      continue;
    }
    const int64_t k = KeyOffset(args, seq, j, args.k_block_stride, args.k_token_stride) + kv_head * args.k_head_stride;
    double score = 0, magnitude = 0;
    const auto add = [&](double term) {
      score += term;
      magnitude += std::fabs(term);
    };
    for (int64_t d = 0; d < args.head_dim; ++d) {
      const double term = args.scale * quant::LoadScalar(args.type, args.q, q + d) * LoadKv(args, args.k_scales, args.k, k + d, seq, j, kv_head, d);
      add(term);
    }
    const int64_t q_rope = (query_start + query) * args.q_rope_token_stride + head * args.q_rope_head_stride;
    const int64_t k_rope = KeyOffset(args, seq, j, args.k_rope_block_stride, args.k_rope_token_stride) + kv_head * args.k_rope_head_stride;
    for (int64_t d = 0; d < args.rope_dim; ++d) {
      add(args.scale * quant::LoadScalar(args.type, args.q_rope, q_rope + d) * quant::LoadScalar(args.type, args.k_rope, k_rope + d));
    }
    keys.push_back(j);
    scores.push_back(args.soft_cap > 0 ? args.soft_cap * std::tanh(score / args.soft_cap) : score);
    row.score_magnitude = std::max(row.score_magnitude, magnitude);
  }

  row.out.assign(value_head_dim, 0);
  row.magnitude.assign(value_head_dim, 0);
  row.values.assign(value_head_dim, 0);
  row.visible_keys = keys.size();
  row.lse = HUGE_VAL;
  std::vector<double> logits = scores;
  if (args.sinks != nullptr && std::isfinite(args.sinks[head])) logits.push_back(args.sinks[head]);
  if (logits.empty()) return row;
  const double max = *std::max_element(logits.begin(), logits.end());
  row.score_range = max - *std::min_element(logits.begin(), logits.end());
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - max);
  row.lse = max + std::log(sum);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double p = std::exp(scores[i] - row.lse);
    const int64_t v = KeyOffset(args, seq, keys[i], args.v_block_stride, args.v_token_stride) + kv_head * args.v_head_stride;
    for (int64_t d = 0; d < value_head_dim; ++d) {
      const double value = LoadKv(args, args.v_scales, args.v, v + d, seq, keys[i], kv_head, d);
      row.out[d] += p * value;
      row.magnitude[d] += p * std::fabs(value);
      row.values[d] += std::fabs(value);
    }
  }
  return row;
}

double AttentionErrorBound(const PagedAttentionArgs& args, const AttentionReferenceRow& row, int64_t d) {
  // Numerator, denominator, and their product; then what is too small.
  const double error = 2.5 * RelativeError(args, row) * row.magnitude[d] + 0x1p-126 * row.values[d];
  return error + quant::HalfUlp(args.out_type.value_or(args.type), std::fabs(row.out[d]) + error);
}

double LseErrorBound(const PagedAttentionArgs& args, const AttentionReferenceRow& row) {
  if (std::isinf(row.lse)) return 0;
  return 1.5 * RelativeError(args, row) + 0x1p-23 * (std::fabs(row.lse) + 1);
}

}  // namespace jumar::attention
