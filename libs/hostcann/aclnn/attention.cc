// Fused attention: the inference operators (with a paged cache or without) and the one behind scaled_dot_product_attention.
#include "libs/hostcann/aclnn/attention.h"

#include <utility>

#include "libs/attention/merge/merge_attention.h"
#include "libs/hostcann/aclnn/attention_scales.h"
#include "libs/hostcann/aclnn/kernel.h"

namespace jumar::hostcann::aclnn {
namespace {

// An optional input that hostcann doesn't know how to use.
void Refuse(std::initializer_list<std::pair<const char*, bool>> given) {
  for (const auto& [name, present] : given) {
    Require(!present, "argument `", name,
            "` is given; hostcann's attention takes a quantised cache, but no quantised query or output, no offsets, prefix and padding");
  }
}

// A mask that torch_npu made for the shape's sake but that has no elements is none.
std::optional<aclTensor> Given(const std::optional<aclTensor>& t) { return t && t->numel() > 0 ? t : std::nullopt; }

// The scales of keys and values: each its own, or both in one tensor [2, ...].
AttentionCall WithScales(AttentionCall call, const std::optional<aclTensor>& both, int64_t mode, const std::optional<aclTensor>& key, int64_t key_mode,
                         const std::optional<aclTensor>& value, int64_t value_mode) {
  if (key || value) {
    call.key_scale = key, call.value_scale = value;
    call.key_scale_mode = key_mode, call.value_scale_mode = value_mode;
  } else if (both) {
    Require(mode == 0 || mode == 1, "antiquant_mode is ", mode, "; it must be 0 (per tensor or channel) or 1 (per token)");
    call.key_scale = HalfOfScales(*both, 0), call.value_scale = HalfOfScales(*both, 1);
    call.key_scale_mode = call.value_scale_mode = mode;
  }
  return call;
}

AttentionCall WithRope(AttentionCall call, const std::optional<aclTensor>& query, const std::optional<aclTensor>& key) {
  Require(query.has_value() == key.has_value(), "query_rope and key_rope must be given together");
  call.query_rope = query, call.key_rope = key;
  return call;
}

AttentionCall WithSink(AttentionCall call, const std::optional<aclTensor>& sink) {
  call.sink = Given(sink);
  return call;
}

// With a single query per sequence these operators ignore sparse_mode: the query sees all keys, save for an explicit mask.
AttentionCall ForInference(AttentionCall call) {
  const bool packed = call.layout.starts_with("TND") || call.layout.starts_with("NTD");
  const size_t axis = call.layout.find('S');
  if (!packed && axis < static_cast<size_t>(call.query.sizes.n) && call.query.sizes[static_cast<int>(axis)] == 1) {
    if (call.sparse_mode >= 2) call.mask.reset();
    call.sparse_mode = 0;
    call.pre_tokens = call.next_tokens = 2147483647;
    call.query_lengths.reset();
  }
  return call;
}

// For the backward pass CANN returns the row maximum m and the sum s of exp(score - m), eight copies of each. Only
// m + log(s) matters to it, so m = lse and s = 1 serve.
Task PlanFlash(AttentionCall call, const aclTensor& softmax_max, const aclTensor& softmax_sum) {
  const bool packed = call.layout == "TND";
  Require(softmax_max.dtype == DType::kF32 && softmax_max.sizes.n == (packed ? 3 : 4), "softmax_max is ",
          DTypeName(softmax_max.dtype), " of shape ", ToString(softmax_max.sizes),
          "; it must be float32 [batch, heads, queries, 8] (or [tokens, heads, 8] for TND)");
  call.lse = softmax_max;  // the first of the eight; the rest is filled from it
  return [run = PlanAttention(call), max = ToTensor(softmax_max), sum = ToTensor(softmax_sum)] {
    run();
    max.copy_(max.select(-1, 0).clone().unsqueeze(-1).expand_as(max));
    sum.fill_(1);
  };
}

}  // namespace

// What the versions of fused inference attention have in common: the inputs before those that a version adds, the settings after
// them, what is refused, and the call. V4 has other names for some (dequant_scale_key for key_antiquant_scale), at the same places.
#define FUSED_INPUTS                                                                                                              \
  Raw(query), RawIns(key), RawIns(value), OptRaw(pse_shift), OptRaw(atten_mask), OptInts(actual_seq_lengths),                     \
      OptInts(actual_seq_lengths_kv), OptRaw(dequant_scale1), OptRaw(quant_scale1), OptRaw(dequant_scale2), OptRaw(quant_scale2), \
      OptRaw(quant_offset2), OptRaw(antiquant_scale), OptRaw(antiquant_offset), OptRaw(block_table), OptRaw(query_padding_size),  \
      OptRaw(kv_padding_size), OptRaw(key_antiquant_scale), OptRaw(key_antiquant_offset), OptRaw(value_antiquant_scale),          \
      OptRaw(value_antiquant_offset), OptRaw(key_shared_prefix), OptRaw(value_shared_prefix), OptInts(actual_shared_prefix_len)
#define FUSED_SETTINGS                                                                                                    \
  I64(num_heads), F64(scale), I64(pre_tokens), I64(next_tokens), Text(input_layout), I64(num_key_value_heads),            \
      I64(sparse_mode), I64(inner_precise), I64(block_size), I64(antiquant_mode), Flag(softmax_lse_flag), I64(key_antiquant_mode), \
      I64(value_antiquant_mode)
#define FUSED_REFUSED                                                                                             \
  {"pse_shift", !!pse_shift}, {"dequant_scale1", !!dequant_scale1}, {"quant_scale1", !!quant_scale1},             \
      {"dequant_scale2", !!dequant_scale2}, {"quant_scale2", !!quant_scale2}, {"antiquant_offset", !!antiquant_offset}, \
      {"query_padding_size", !!query_padding_size}, {"kv_padding_size", !!kv_padding_size},                       \
      {"key_antiquant_offset", !!key_antiquant_offset}, {"value_antiquant_offset", !!value_antiquant_offset},     \
      {"key_shared_prefix", !!key_shared_prefix}, {"value_shared_prefix", !!value_shared_prefix}
#define FUSED_CALL                                                                                                                   \
  WithScales({.query = query,                                                                                                        \
              .keys = key,                                                                                                           \
              .values = value,                                                                                                       \
              .mask = Given(atten_mask),                                                                                             \
              .block_table = block_table,                                                                                            \
              .query_lengths = actual_seq_lengths,                                                                                   \
              .key_lengths = actual_seq_lengths_kv,                                                                                  \
              .num_heads = num_heads,                                                                                                \
              .num_kv_heads = num_key_value_heads,                                                                                   \
              .scale = scale,                                                                                                        \
              .pre_tokens = pre_tokens,                                                                                              \
              .next_tokens = next_tokens,                                                                                            \
              .layout = input_layout,                                                                                                \
              .block_size = block_size,                                                                                              \
              .sparse_mode = sparse_mode,                                                                                            \
              .out = attention_out,                                                                                                  \
              .lse = softmax_lse_flag ? softmax_lse : std::nullopt},                                                                 \
             antiquant_scale, antiquant_mode, key_antiquant_scale, key_antiquant_mode, value_antiquant_scale, value_antiquant_mode)

ACLNN_PLAN(FusedInferAttentionScoreV2, FUSED_INPUTS, FUSED_SETTINGS, Raw(attention_out), OptRaw(softmax_lse)) {
  Refuse({FUSED_REFUSED});
  return PlanAttention(ForInference(FUSED_CALL));
}
ACLNN_PLAN(FusedInferAttentionScoreV3, FUSED_INPUTS, OptRaw(query_rope), OptRaw(key_rope), OptRaw(key_rope_antiquant_scale),
           FUSED_SETTINGS, Raw(attention_out), OptRaw(softmax_lse)) {
  Refuse({FUSED_REFUSED,
          {"key_rope_antiquant_scale", !!key_rope_antiquant_scale}});
  return PlanAttention(WithRope(ForInference(FUSED_CALL), query_rope, key_rope));
}
ACLNN_PLAN(FusedInferAttentionScoreV4, FUSED_INPUTS, OptRaw(query_rope), OptRaw(key_rope), OptRaw(dequant_scale_key_rope),
           OptRaw(dequant_scale_query), OptRaw(learnable_sink), FUSED_SETTINGS, I64(query_quant_mode), Raw(attention_out),
           OptRaw(softmax_lse)) {
  Refuse({FUSED_REFUSED,
          {"dequant_scale_key_rope", !!dequant_scale_key_rope},
          {"dequant_scale_query", !!dequant_scale_query}});
  return PlanAttention(WithSink(WithRope(ForInference(FUSED_CALL), query_rope, key_rope), learnable_sink));
}

// The only one on Ascend950.
ACLNN_PLAN(FusedInferAttentionScoreV5, FUSED_INPUTS, OptRaw(query_rope), OptRaw(key_rope), OptRaw(dequant_scale_key_rope),
           OptRaw(dequant_scale_query), OptRaw(learnable_sink), OptRaw(q_start_idx), OptRaw(kv_start_idx), FUSED_SETTINGS,
           I64(query_quant_mode), I64(pse_type), Raw(attention_out), OptRaw(softmax_lse)) {
  Refuse({FUSED_REFUSED,
          {"dequant_scale_key_rope", !!dequant_scale_key_rope},
          {"dequant_scale_query", !!dequant_scale_query},
          {"q_start_idx", !!q_start_idx},
          {"kv_start_idx", !!kv_start_idx}});
  return PlanAttention(WithSink(WithRope(ForInference(FUSED_CALL), query_rope, key_rope), learnable_sink));
}

// What a captured graph reserves before the lengths are known. No workspace here, whatever they are.
ACLNN_EXPORT decltype(aclnnFusedInferAttentionScoreV3GetWorkspaceSize) aclnnFusedInferAttentionScoreV3GetMaxWorkspaceSize
    __attribute__((alias("aclnnFusedInferAttentionScoreV3GetWorkspaceSize")));
ACLNN_EXPORT decltype(aclnnFusedInferAttentionScoreV4GetWorkspaceSize) aclnnFusedInferAttentionScoreV4GetMaxWorkspaceSize
    __attribute__((alias("aclnnFusedInferAttentionScoreV4GetWorkspaceSize")));
ACLNN_EXPORT decltype(aclnnFusedInferAttentionScoreV5GetWorkspaceSize) aclnnFusedInferAttentionScoreV5GetMaxWorkspaceSize
    __attribute__((alias("aclnnFusedInferAttentionScoreV5GetWorkspaceSize")));

ACLNN_PLAN(PromptFlashAttentionV3, Raw(query), Raw(key), Raw(value), OptRaw(pse_shift), OptRaw(atten_mask),
           OptInts(actual_seq_lengths), OptInts(actual_seq_lengths_kv), OptRaw(deq_scale1), OptRaw(quant_scale1),
           OptRaw(deq_scale2), OptRaw(quant_scale2), OptRaw(quant_offset2), I64(num_heads), F64(scale), I64(pre_tokens),
           I64(next_tokens), Text(input_layout), I64(num_key_value_heads), I64(sparse_mode), I64(inner_precise),
           Raw(attention_out)) {
  Refuse({{"pse_shift", !!pse_shift},
          {"deq_scale1", !!deq_scale1},
          {"quant_scale1", !!quant_scale1},
          {"deq_scale2", !!deq_scale2},
          {"quant_scale2", !!quant_scale2}});
  return PlanAttention(ForInference({.query = query,
                                     .keys = {key},
                                     .values = {value},
                                     .mask = Given(atten_mask),
                                     .query_lengths = actual_seq_lengths,
                                     .key_lengths = actual_seq_lengths_kv,
                                     .num_heads = num_heads,
                                     .num_kv_heads = num_key_value_heads,
                                     .scale = scale,
                                     .pre_tokens = pre_tokens,
                                     .next_tokens = next_tokens,
                                     .layout = input_layout,
                                     .sparse_mode = sparse_mode,
                                     .out = attention_out}));
}

// One query per sequence; actual_seq_lengths are those of the keys.
ACLNN_PLAN(IncreFlashAttentionV4, Raw(query), RawIns(key), RawIns(value), OptRaw(pse_shift), OptRaw(atten_mask),
           OptInts(actual_seq_lengths), OptRaw(dequant_scale1), OptRaw(quant_scale1), OptRaw(dequant_scale2), OptRaw(quant_scale2),
           OptRaw(quant_offset2), OptRaw(antiquant_scale), OptRaw(antiquant_offset), OptRaw(block_table), OptRaw(kv_padding_size),
           I64(num_heads), F64(scale), Text(input_layout), I64(num_key_value_heads), I64(block_size), I64(inner_precise),
           Raw(attention_out)) {
  Refuse({{"pse_shift", !!pse_shift},
          {"dequant_scale1", !!dequant_scale1},
          {"quant_scale1", !!quant_scale1},
          {"dequant_scale2", !!dequant_scale2},
          {"quant_scale2", !!quant_scale2},
          {"antiquant_offset", !!antiquant_offset},
          {"kv_padding_size", !!kv_padding_size}});
  return PlanAttention(ForInference(WithScales({.query = query,
                                     .keys = key,
                                     .values = value,
                                     .mask = Given(atten_mask),
                                     .block_table = block_table,
                                     .key_lengths = actual_seq_lengths,
                                     .num_heads = num_heads,
                                     .num_kv_heads = num_key_value_heads,
                                     .scale = scale,
                                     .layout = input_layout,
                                     .block_size = block_size,
                                     .out = attention_out},
                                                antiquant_scale, 0, {}, 0, {}, 0)));
}

static int64_t KvHeads(const aclTensor& query, const aclTensor& key, int64_t head_num, const std::string& layout) {
  const size_t heads = layout.find('N');
  if (heads != std::string::npos) return key.sizes[static_cast<int>(heads)];
  return query.sizes[2] == 0 ? head_num : head_num * key.sizes[2] / query.sizes[2];
}
#define FLASH_REFUSED                                                                                                \
  {"pse", !!Given(pse)}, {"drop_mask", !!Given(drop_mask)}, {"padding_mask", !!Given(padding_mask)}, { "prefix", !prefix.empty() }
#define FLASH_CALL(query_ends, key_ends, kv_heads)             \
  {                                                            \
    .query = query, .keys = {key}, .values = {value},          \
    .mask = Given(atten_mask),                                 \
    .query_lengths = query_ends,                               \
    .key_lengths = key_ends,                                   \
    .num_heads = head_num,                                     \
    .num_kv_heads = kv_heads,                                  \
    .scale = scale,                                            \
    .pre_tokens = pre_tokens,                                  \
    .next_tokens = next_tokens,                                \
    .layout = input_layout,                                    \
    .sparse_mode = sparse_mode,                                \
    .out = attention_out                                       \
  }

ACLNN_PLAN(FlashAttentionScore, Raw(query), Raw(key), Raw(value), OptRaw(pse), OptRaw(drop_mask), OptRaw(padding_mask),
           OptRaw(atten_mask), Ints(prefix), F64(scale), F64(keep_prob), I64(pre_tokens), I64(next_tokens), I64(head_num),
           Text(input_layout), I64(inner_precise), I64(sparse_mode), Raw(softmax_max), Raw(softmax_sum), OptRaw(softmax_out),
           Raw(attention_out)) {
  Refuse({FLASH_REFUSED});
  return PlanFlash(FLASH_CALL({}, {}, KvHeads(query, key, head_num, input_layout)), softmax_max, softmax_sum);
}
// The first indices and the type are about pse, which isn't there.
ACLNN_PLAN(FlashAttentionScoreV2, Raw(query), Raw(key), Raw(value), OptRaw(pse), OptRaw(drop_mask), OptRaw(padding_mask),
           OptRaw(atten_mask), Ints(prefix), Ints(q_start_idx), Ints(kv_start_idx), F64(scale), F64(keep_prob), I64(pre_tokens),
           I64(next_tokens), I64(head_num), Text(input_layout), I64(inner_precise), I64(sparse_mode), I64(pse_type), Raw(softmax_max),
           Raw(softmax_sum), OptRaw(softmax_out), Raw(attention_out)) {
  Refuse({FLASH_REFUSED});
  return PlanFlash(FLASH_CALL({}, {}, KvHeads(query, key, head_num, input_layout)), softmax_max, softmax_sum);
}

ACLNN_PLAN(FlashAttentionVarLenScore, Raw(query), Raw(key), Raw(value), OptRaw(pse), OptRaw(drop_mask), OptRaw(padding_mask),
           OptRaw(atten_mask), Ints(prefix), OptInts(actual_seq_qlen), OptInts(actual_seq_kvlen), F64(scale), F64(keep_prob),
           I64(pre_tokens), I64(next_tokens), I64(head_num), Text(input_layout), I64(inner_precise), I64(sparse_mode),
           Raw(softmax_max), Raw(softmax_sum), OptRaw(softmax_out), Raw(attention_out)) {
  Refuse({FLASH_REFUSED});
  return PlanFlash(FLASH_CALL(actual_seq_qlen, actual_seq_kvlen, key.sizes[1]), softmax_max, softmax_sum);
}
ACLNN_PLAN(FlashAttentionVarLenScoreV2, Raw(query), Raw(key), Raw(value), OptRaw(pse), OptRaw(drop_mask), OptRaw(padding_mask),
           OptRaw(atten_mask), Ints(prefix), OptInts(actual_seq_qlen), OptInts(actual_seq_kvlen), Ints(q_start_idx), Ints(kv_start_idx),
           F64(scale), F64(keep_prob), I64(pre_tokens), I64(next_tokens), I64(head_num), Text(input_layout), I64(inner_precise),
           I64(sparse_mode), I64(pse_type), Raw(softmax_max), Raw(softmax_sum), OptRaw(softmax_out), Raw(attention_out)) {
  Refuse({FLASH_REFUSED});
  return PlanFlash(FLASH_CALL(actual_seq_qlen, actual_seq_kvlen, key.sizes[1]), softmax_max, softmax_sum);
}

// The attention over all keys, from attentions over parts of them and the logarithms of their sums of exponentials.
ACLNN_PLAN(AttentionUpdate, RawIns(lse), RawIns(local_out), I64(update_type), Raw(out), OptRaw(lse_out)) {
  Require(!lse.empty() && lse.size() == local_out.size(), "there are ", lse.size(), " sums and ", local_out.size(), " outputs; there must be one of each per part");
  Require(lse.size() <= 16, "there are ", lse.size(), " parts; the operator takes 16: merge in turns");
  const auto type = KernelType(local_out[0].dtype), out_type = KernelType(out.dtype);
  const int64_t rows = lse[0].numel(), dim = out.sizes.n == 0 ? 0 : out.sizes[out.sizes.n - 1];
  Require(type && out_type && IsContiguous(out) && out.numel() == rows * dim, "out is ", DTypeName(out.dtype), " of shape ", ToString(out.sizes),
          "; it must be floats, dense, a row for each of the ", rows, " sums");
  std::vector<attention::AttentionPart> parts;
  for (size_t i = 0; i < lse.size(); ++i) {
    Require(lse[i].dtype == DType::kF32 && IsContiguous(lse[i]) && lse[i].numel() == rows && local_out[i].dtype == local_out[0].dtype &&
                IsContiguous(local_out[i]) && local_out[i].numel() == rows * dim,
            "part ", i, " has sums ", DTypeName(lse[i].dtype), " ", ToString(lse[i].sizes), " and outputs ", DTypeName(local_out[i].dtype), " ",
            ToString(local_out[i].sizes), "; they must be dense, ", rows, " of float32 and as many rows of ", dim, " of the others' type");
    parts.push_back({local_out[i].data(), dim, dim, static_cast<const float*>(lse[i].data()), 1, 1});
  }
  attention::MergeAttentionArgs args{.type = *type, .out_type = *out_type, .num_tokens = rows, .num_heads = 1, .head_dim = dim,
                                     .out = out.data(), .out_token_stride = dim, .out_head_stride = dim};
  if (update_type == 1 && lse_out) {
    Require(lse_out->dtype == DType::kF32 && IsContiguous(*lse_out) && lse_out->numel() == rows, "lse_out is ", DTypeName(lse_out->dtype), " of shape ",
            ToString(lse_out->sizes), "; it must be float32, dense, of ", rows, " elements");
    args.lse = static_cast<float*>(lse_out->data()), args.lse_token_stride = args.lse_head_stride = 1;
  }
  return [args, parts = std::move(parts)]() mutable {
    args.parts = parts;
    Check(attention::MergeAttention(args, ComputeExecutor()));
  };
}

}  // namespace jumar::hostcann::aclnn
