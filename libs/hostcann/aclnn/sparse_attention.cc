// Sparse attention of DeepSeek V3.2: the lightning indexer, and attention to the tokens that it selects. By libs/attention.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "libs/attention/indexer/lightning_indexer.h"
#include "libs/attention/selected/selected_attention.h"
#include "libs/hostcann/aclnn/attention_scales.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/memory/kv/layouts.h"

namespace jumar::hostcann::aclnn {
namespace {

enum class SparseMode : int64_t { kAll = 0, kRightDownCausal = 3 };

bool IsCausal(int64_t sparse_mode, int64_t pre_tokens, int64_t next_tokens) {
  Require(sparse_mode == static_cast<int64_t>(SparseMode::kAll) || sparse_mode == static_cast<int64_t>(SparseMode::kRightDownCausal), "sparse_mode is ",
          sparse_mode, "; it must be 0 (all) or 3 (right-down causal)");
  Require(pre_tokens == INT64_MAX && next_tokens == INT64_MAX, "pre_tokens is ", pre_tokens, " and next_tokens ", next_tokens, "; both must be 2^63 - 1");
  return sparse_mode == static_cast<int64_t>(SparseMode::kRightDownCausal);
}

// Rows [tokens, heads, dim] of a tensor [B, S, N, D] or [T, N, D]. In elements.
struct TokenRows {
  void* data = nullptr;
  int64_t batch = 0, length = 0;  // BSND: B and S; TND: 0 and T
  int64_t heads = 1, dim = 0, token_stride = 0, head_stride = 0;
};
TokenRows RowsOf(const char* name, const aclTensor& t, const std::string& layout) {
  Require(layout == "BSND" || layout == "TND", "the layout of `", name, "` is \"", layout, "\"; it must be BSND or TND, or PA_BSND for keys");
  const bool batched = layout == "BSND";
  const int n = t.sizes.n;
  Require(IsBaseFormat(t.format) && n == (batched ? 4 : 3), "`", name, "` has shape ", ToString(t.sizes), "; layout ", layout, " has ", batched ? 4 : 3,
          " dimensions");
  const auto tokens = Merge(t, 0, n - 2);
  Require(tokens && (t.sizes[n - 1] <= 1 || t.strides[n - 1] == 1), "`", name, "` has strides ", ToString(t.strides),
          "; its tokens must lie one stride apart, and its last dimension must be contiguous");
  return {t.data(), batched ? t.sizes[0] : 0, batched ? t.sizes[1] : t.sizes[0], t.sizes[n - 2], t.sizes[n - 1], tokens->stride, t.strides[n - 2]};
}

// Where keys of one head lie: pages, or rows one after the other.
struct KeyRows {
  TokenRows rows;                             // token_stride between the tokens of a page
  int64_t blocks = 0, block_size = 0, block_stride = 0;  // of pages
  bool paged() const { return block_size > 0; }
};
KeyRows KeysOf(const char* name, const aclTensor& t, const std::string& layout) {
  KeyRows keys;
  if (layout != "PA_BSND") {
    keys.rows = RowsOf(name, t, layout);
  } else {
    Require(IsBaseFormat(t.format) && t.sizes.n == 4 && t.strides[3] == 1, "`", name, "` has shape ", ToString(t.sizes), " and strides ", ToString(t.strides),
            "; layout PA_BSND is [blocks, block_size, heads, dim] with a contiguous last dimension");
    keys.rows = {t.data(), 0, 0, t.sizes[2], t.sizes[3], t.strides[1], t.strides[2]};
    keys.blocks = t.sizes[0], keys.block_size = t.sizes[1], keys.block_stride = t.strides[0];
    Require(keys.block_size > 0, "`", name, "` has blocks of no tokens");
  }
  Require(keys.rows.heads == 1, "`", name, "` has ", keys.rows.heads, " heads; it must have 1");
  return keys;
}

// Lengths as the operator has them, of which the kernels' are made when it runs.
struct Lengths {
  int64_t batch = 0, query_length = 0, key_length = 0;  // query_length, key_length: of BSND, where there are no lists
  OptTensor query, key;
  bool packed_query = false, packed_key = false;        // the list has prefix sums

  IntList query_starts = {}, query_ends = {}, kv_starts = {}, kv_lens = {};

  static IntList Read(const OptTensor& t, int64_t count, int64_t whole) {
    if (!t) return IntList(static_cast<size_t>(count), whole);
    const Tensor wide = t->to(at::kLong).contiguous();
    const int64_t* p = wide.const_data_ptr<int64_t>();
    return IntList(p, p + count);
  }
  void Resolve() {
    const IntList queries = Read(query, batch, query_length), keys = Read(key, batch, key_length);
    query_starts.clear(), query_ends.clear(), kv_starts.clear(), kv_lens.clear();
    for (int64_t i = 0; i < batch; ++i) {
      const size_t at = static_cast<size_t>(i);
      const int64_t before = i == 0 ? 0 : queries[at - 1], keys_before = i == 0 ? 0 : keys[at - 1];
      query_starts.push_back(packed_query ? before : i * query_length);
      query_ends.push_back(packed_query ? queries[at] : i * query_length + queries[at]);
      kv_starts.push_back(packed_key ? keys_before : i * key_length);
      kv_lens.push_back(packed_key ? keys[at] - keys_before : keys[at]);
      Require(query_ends.back() >= query_starts.back() && (packed_query ? queries[at] : queries[at]) <= query_length, "actual_seq_lengths_query[", i, "] is ",
              queries[at], "; query has ", query_length, packed_query ? " tokens, and the lengths are prefix sums" : " tokens per sequence");
    }
  }
};

Lengths LengthsOf(const TokenRows& query, const KeyRows& keys, const OptTensor& query_lengths, const OptTensor& key_lengths, const std::optional<aclTensor>& table) {
  Lengths lengths{.query_length = query.length, .key_length = keys.rows.length, .query = query_lengths, .key = key_lengths,
                  .packed_query = query.batch == 0, .packed_key = !keys.paged() && keys.rows.batch == 0};
  Require(query_lengths || !lengths.packed_query, "actual_seq_lengths_query is missing; layout TND needs it");
  Require(key_lengths || (!lengths.packed_key && !keys.paged()), "actual_seq_lengths of the keys is missing; layouts TND and PA_BSND need it");
  lengths.batch = query_lengths ? query_lengths->numel() : query.batch;
  for (const OptTensor* list : {&query_lengths, &key_lengths}) {
    Require(!*list || ((*list)->numel() == lengths.batch && !(*list)->is_floating_point()), "a list of lengths has ", *list ? (*list)->numel() : 0,
            " elements; it must have ", lengths.batch, " integers, as there are sequences");
  }
  Require(lengths.packed_query || query.batch == lengths.batch, "actual_seq_lengths_query has ", lengths.batch, " elements; query has ", query.batch, " sequences");
  Require(keys.paged() == table.has_value(), "block_table is ", table ? "given" : "missing", "; layout PA_BSND needs it, others take none");
  Require(keys.paged() || (lengths.packed_query == lengths.packed_key && query.batch == keys.rows.batch),
          "query and key have different layouts or batches; without pages they must have the same");
  Require(!table || (table->dtype == DType::kI32 && table->sizes.n == 2 && table->sizes[0] == lengths.batch && (table->strides[1] == 1 || table->sizes[1] <= 1)),
          "block_table is ", table ? DTypeName(table->dtype) : "", " of shape ", table ? ToString(table->sizes) : "", "; it must be int32 [", lengths.batch, ", blocks]");
  return lengths;
}

template <class Args>
void SetLengths(const Lengths& lengths, bool paged, Args& args) {
  args.num_seqs = lengths.batch;
  args.query_starts = lengths.query_starts.data(), args.query_ends = lengths.query_ends.data(), args.kv_lens = lengths.kv_lens.data();
  if (!paged) args.kv_starts = lengths.kv_starts.data();
}
template <class Args>
void SetPages(const KeyRows& keys, const std::optional<aclTensor>& table, Args& args) {
  if (!keys.paged()) return;
  args.block_table = static_cast<const int32_t*>(table->data()), args.block_table_stride = table->strides[0];
  args.block_size = keys.block_size, args.num_blocks = keys.blocks;
}

struct IndexerCall {
  aclTensor query, key, weights;
  std::optional<aclTensor> query_scale = {}, key_scale = {};
  OptTensor query_lengths, key_lengths;
  std::optional<aclTensor> table;
  std::string query_layout, key_layout;
  int64_t count;
  bool causal;
  aclTensor indices;
  OptTensor values = {};
};

Task PlanIndexer(const IndexerCall& c) {
  const TokenRows query = RowsOf("query", c.query, c.query_layout);
  const KeyRows keys = KeysOf("key", c.key, c.key_layout);
  Require(query.dim == keys.rows.dim && c.query.dtype == c.key.dtype, "query is ", DTypeName(c.query.dtype), " of head size ", query.dim, " and key ",
          DTypeName(c.key.dtype), " of ", keys.rows.dim, "; both must be the same");
  const auto weights_type = KernelType(c.weights.dtype);
  const auto weights = Merge(c.weights, 0, c.weights.sizes.n - 1);
  Require(weights_type && weights && c.weights.sizes.n == c.query.sizes.n - 1 && c.weights.numel() * query.dim == c.query.numel() &&
              (query.heads <= 1 || c.weights.strides[c.weights.sizes.n - 1] == 1),
          "weights is ", DTypeName(c.weights.dtype), " of shape ", ToString(c.weights.sizes), "; it must be a float for each token and head of query ", ToString(c.query.sizes));
  attention::LightningIndexerArgs args{.num_heads = query.heads, .head_dim = query.dim, .top_k = c.count};
  if (c.query_scale) {
    args.format = CacheFormat(c.query, DType::kF32);
    const auto type = KernelType(c.query_scale->dtype);
    const aclTensor &qs = *c.query_scale, &ks = *c.key_scale;
    const auto q_rows = Merge(qs, 0, qs.sizes.n - 1);
    Require(args.format && type && *type != quant::DType::kBF16 && ks.dtype == qs.dtype && q_rows && qs.numel() == c.weights.numel() &&
                (query.heads <= 1 || qs.strides[qs.sizes.n - 1] == 1) && ks.sizes.n == c.key.sizes.n - 1 && ks.numel() * query.dim == c.key.numel(),
            "query_dequant_scale is ", DTypeName(qs.dtype), " of shape ", ToString(qs.sizes), " and key_dequant_scale ", DTypeName(ks.dtype), " of shape ",
            ToString(ks.sizes), "; both must be float16 or float32, one for each token and head");
    args.scales_type = *type;
    args.q_scales = qs.data(), args.q_scales_token_stride = q_rows->stride;
    args.k_scales = ks.data();
    if (keys.paged()) {
      args.k_scales_block_stride = ks.strides[0], args.k_scales_token_stride = ks.strides[1];
    } else {
      const auto k_rows = Merge(ks, 0, ks.sizes.n - 1);
      Require(k_rows.has_value(), "key_dequant_scale has strides ", ToString(ks.strides), "; its tokens must lie one stride apart");
      args.k_scales_token_stride = k_rows->stride;
    }
  } else {
    const auto type = KernelType(c.query.dtype);
    Require(type.has_value(), "query is ", DTypeName(c.query.dtype), "; it must be float16, bfloat16 or float32");
    args.type = *type;
  }
  args.q = query.data, args.q_token_stride = query.token_stride, args.q_head_stride = query.head_stride;
  args.k = keys.rows.data, args.k_block_stride = keys.block_stride, args.k_token_stride = keys.rows.token_stride;
  args.weights = c.weights.data(), args.weights_type = *weights_type, args.weights_token_stride = weights->stride;
  args.causal = c.causal;
  SetPages(keys, c.table, args);
  const int64_t tokens = query.batch == 0 ? query.length : query.batch * query.length;
  Require(c.indices.dtype == DType::kI32 && IsContiguous(c.indices) && c.indices.numel() == tokens * c.count, "sparse_indices is ", DTypeName(c.indices.dtype),
          " of shape ", ToString(c.indices.sizes), "; it must be int32, dense, with ", c.count, " for each of ", tokens, " tokens");
  args.indices = static_cast<int32_t*>(c.indices.data()), args.indices_token_stride = c.count;
  return [args, lengths = LengthsOf(query, keys, c.query_lengths, c.key_lengths, c.table), paged = keys.paged(), values = c.values, tokens, count = c.count]() mutable {
    lengths.Resolve();
    SetLengths(lengths, paged, args);
    Tensor scores;
    if (values) {
      scores = at::empty({tokens, count}, at::kFloat);
      args.scores = scores.mutable_data_ptr<float>(), args.scores_token_stride = count;
    }
    Check(attention::LightningIndexer(args, ComputeExecutor()));
    if (values) Put(*values, scores);
  };
}

struct SparseCall {
  aclTensor query;
  std::optional<aclTensor> key = {}, value = {}, query_rope = {}, key_rope = {};
  std::optional<aclTensor> packed = {};  // rows of 656 bytes instead of key, value and key_rope; query has both parts then
  aclTensor indices;
  std::optional<aclTensor> table;
  OptTensor query_lengths, key_lengths, sinks = {};
  double scale;
  int64_t block;
  std::string query_layout, key_layout;
  bool causal;
  aclTensor out;
  OptTensor softmax_max = {}, softmax_sum = {};
};

constexpr int64_t kPackedBytes = 656, kPackedLatent = 512, kPackedRope = 64;

Task PlanSparse(const SparseCall& c) {
  TokenRows query = RowsOf("query", c.query, c.query_layout);
  const TokenRows out = RowsOf("attention_out", c.out, c.query_layout);
  const KeyRows keys = KeysOf("key", c.packed ? *c.packed : *c.key, c.key_layout);
  const auto type = KernelType(c.query.dtype);
  Require(type && c.out.dtype == c.query.dtype, "query is ", DTypeName(c.query.dtype), " and attention_out ", DTypeName(c.out.dtype),
          "; both must be the same of float32, float16, bfloat16");
  attention::SelectedAttentionArgs args{.selected_tokens = c.block, .top_k = c.indices.sizes[c.indices.sizes.n - 1]};
  attention::PagedAttentionArgs& dense = args.dense;
  dense.type = *type, dense.num_heads = query.heads, dense.num_kv_heads = 1;
  dense.q = query.data, dense.q_token_stride = query.token_stride, dense.q_head_stride = query.head_stride;
  quant::RowCodec codec;
  if (c.packed) {
    const auto format = CacheFormat(*c.packed, DType::kF32);
    Require(format && *format != quant::Format::kE5M2 && keys.rows.dim == kPackedBytes && query.dim == kPackedLatent + kPackedRope, "key is ",
            DTypeName(c.packed->dtype), " with rows of ", keys.rows.dim, " and query has rows of ", query.dim,
            "; they must be int8 or float8_e4m3fn of 656 bytes, and 576");
    memory::kv::PageLayout layout = memory::kv::Packed656(std::max<int64_t>(1, keys.block_size));
    if (*format == quant::Format::kI8) layout.parts[0].element = memory::kv::Element::kInt8;
    auto made = quant::MakeRowCodec(layout, quant::Rule::kDeepSeek);
    Check(made.status());
    codec = *made;
    Require(keys.rows.token_stride == kPackedBytes, "key has strides ", ToString(c.packed->strides), "; its rows must lie 656 bytes apart");
    dense.head_dim = dense.value_head_dim = kPackedLatent, dense.rope_dim = kPackedRope;
    dense.q_rope = static_cast<const char*>(dense.q) + kPackedLatent * 2;
    dense.q_rope_token_stride = query.token_stride, dense.q_rope_head_stride = query.head_stride;
  } else {
    const KeyRows values = KeysOf("value", *c.value, c.key_layout);
    Require(c.key->dtype == c.query.dtype && c.value->dtype == c.query.dtype && keys.rows.dim == query.dim && values.rows.dim == out.dim &&
                values.blocks == keys.blocks && values.block_size == keys.block_size && values.rows.length == keys.rows.length,
            "key ", ToString(c.key->sizes), " and value ", ToString(c.value->sizes), " don't fit query ", ToString(c.query.sizes), " and attention_out ",
            ToString(c.out.sizes), ", or have another type");
    dense.head_dim = query.dim, dense.value_head_dim = out.dim;
    dense.k = keys.rows.data, dense.k_block_stride = keys.block_stride, dense.k_token_stride = keys.rows.token_stride;
    dense.v = values.rows.data, dense.v_block_stride = values.block_stride, dense.v_token_stride = values.rows.token_stride;
    Require(c.query_rope.has_value() == c.key_rope.has_value(), "query_rope and key_rope must be given together");
    if (c.query_rope) {
      const TokenRows q_rope = RowsOf("query_rope", *c.query_rope, c.query_layout);
      const KeyRows k_rope = KeysOf("key_rope", *c.key_rope, c.key_layout);
      Require(c.query_rope->dtype == c.query.dtype && c.key_rope->dtype == c.query.dtype && q_rope.dim == k_rope.rows.dim && q_rope.heads == query.heads &&
                  q_rope.length == query.length && k_rope.blocks == keys.blocks && k_rope.block_size == keys.block_size && k_rope.rows.length == keys.rows.length,
              "query_rope ", ToString(c.query_rope->sizes), " and key_rope ", ToString(c.key_rope->sizes), " don't fit query ", ToString(c.query.sizes),
              " and key ", ToString(c.key->sizes), ", or have another type");
      dense.rope_dim = q_rope.dim;
      dense.q_rope = q_rope.data, dense.q_rope_token_stride = q_rope.token_stride, dense.q_rope_head_stride = q_rope.head_stride;
      dense.k_rope = k_rope.rows.data, dense.k_rope_block_stride = k_rope.block_stride, dense.k_rope_token_stride = k_rope.rows.token_stride;
    }
  }
  Require(out.heads == query.heads && out.batch == query.batch && out.length == query.length && out.dim == dense.value_head_dim, "attention_out has shape ",
          ToString(c.out.sizes), ", which doesn't fit query ", ToString(c.query.sizes));
  const int64_t tokens = query.batch == 0 ? query.length : query.batch * query.length;
  Require(c.indices.dtype == DType::kI32 && IsContiguous(c.indices) && c.indices.numel() == tokens * args.top_k, "sparse_indices is ",
          DTypeName(c.indices.dtype), " of shape ", ToString(c.indices.sizes), "; it must be int32, dense, with a list for each of ", tokens, " tokens");
  Require(c.block >= 1 && c.block <= 128 && (c.block & (c.block - 1)) == 0, "sparse_block_size is ", c.block, "; it must be a power of two up to 128");
  args.indices = static_cast<const int32_t*>(c.indices.data()), args.indices_token_stride = args.top_k;
  dense.scale = static_cast<float>(c.scale), dense.window_right = c.causal ? 0 : -1;
  dense.out = out.data, dense.out_token_stride = out.token_stride, dense.out_head_stride = out.head_stride;
  SetPages(keys, c.table, dense);
  Require(!c.sinks || c.sinks->numel() == query.heads, "sinks has ", c.sinks ? c.sinks->numel() : 0, " elements; it must have ", query.heads, ", one for each head");
  if (c.softmax_max) {
    Require(c.softmax_max->numel() == tokens * query.heads && c.softmax_max->scalar_type() == at::kFloat && c.softmax_max->is_contiguous() && c.softmax_sum,
            "softmax_max must be float32, dense, with ", tokens * query.heads, " elements, and softmax_sum must be there");
    dense.lse_token_stride = query.heads, dense.lse_head_stride = 1;
  }
  return [args, codec, keys, lengths = LengthsOf(query, keys, c.query_lengths, c.key_lengths, c.table), packed = c.packed, sinks = c.sinks, max = c.softmax_max,
          sum = c.softmax_sum, all = keys.rows.batch == 0 ? keys.rows.length : keys.rows.batch * keys.rows.length]() mutable {
    lengths.Resolve();
    SetLengths(lengths, keys.paged() || packed, args.dense);
    const Tensor sink_floats = sinks ? sinks->to(at::kFloat).contiguous() : Tensor();
    if (sinks) args.dense.sinks = sink_floats.const_data_ptr<float>();
    if (max) args.dense.lse = max->mutable_data_ptr<float>();
    std::vector<int32_t> table;
    if (packed) {
      args.codec = &codec;
      const int64_t page_bytes = codec.layout.page_bytes[0];
      const int64_t pages = keys.paged() ? keys.blocks : all, stride = keys.paged() ? keys.block_stride : kPackedBytes;
      args.pages = {{static_cast<const std::byte*>(packed->data()), static_cast<size_t>(pages == 0 ? 0 : (pages - 1) * stride + page_bytes)}, pages, page_bytes, stride};
      if (!keys.paged()) {  // pages of one row
        const int64_t most = lengths.kv_lens.empty() ? 0 : *std::max_element(lengths.kv_lens.begin(), lengths.kv_lens.end());
        for (int64_t start : lengths.kv_starts) {
          table.resize(table.size() + static_cast<size_t>(most));
          std::iota(table.end() - most, table.end(), static_cast<int32_t>(start));
        }
        table.push_back(0);
        args.dense.block_table = table.data(), args.dense.block_table_stride = most, args.dense.block_size = 1, args.dense.num_blocks = all;
      }
    }
    Check(attention::SelectedAttention(args, ComputeExecutor()));
    // Only max + log(sum) matters to who reads them.
    if (sum) sum->fill_(1);
  };
}

// Null, or of no elements, as torch_npu passes what isn't asked for.
OptTensor Wanted(bool wanted, const OptTensor& t) { return wanted && t && t->numel() > 0 ? t : std::nullopt; }

void RequireAbsorbed(int64_t attention_mode) {
  Require(attention_mode == 2, "attention_mode is ", attention_mode, "; it must be 2: the values are the first part of the keys");
}

}  // namespace

ACLNN_PLAN(LightningIndexer, Raw(query), Raw(key), Raw(weights), OptIn(actual_seq_lengths_query), OptIn(actual_seq_lengths_key), OptRaw(block_table),
           Text(layout_query), Text(layout_key), I64(sparse_count), I64(sparse_mode), I64(pre_tokens), I64(next_tokens), Flag(return_value),
           Raw(sparse_indices), OptOut(sparse_values)) {
  return PlanIndexer({.query = query, .key = key, .weights = weights, .query_lengths = actual_seq_lengths_query, .key_lengths = actual_seq_lengths_key,
                      .table = block_table, .query_layout = layout_query, .key_layout = layout_key, .count = sparse_count,
                      .causal = IsCausal(sparse_mode, pre_tokens, next_tokens), .indices = sparse_indices, .values = Wanted(return_value, sparse_values)});
}

ACLNN_PLAN(QuantLightningIndexer, Raw(query), Raw(key), Raw(weights), Raw(query_dequant_scale), Raw(key_dequant_scale), OptIn(actual_seq_lengths_query),
           OptIn(actual_seq_lengths_key), OptRaw(block_table), I64(query_quant_mode), I64(key_quant_mode), Text(layout_query), Text(layout_key), I64(sparse_count),
           I64(sparse_mode), I64(pre_tokens), I64(next_tokens), Raw(sparse_indices)) {
  Require(query_quant_mode == 0 && key_quant_mode == 0, "query_quant_mode is ", query_quant_mode, " and key_quant_mode ", key_quant_mode,
          "; both must be 0 (per token and head)");
  return PlanIndexer({.query = query, .key = key, .weights = weights, .query_scale = query_dequant_scale, .key_scale = key_dequant_scale,
                      .query_lengths = actual_seq_lengths_query, .key_lengths = actual_seq_lengths_key, .table = block_table, .query_layout = layout_query,
                      .key_layout = layout_key, .count = sparse_count, .causal = IsCausal(sparse_mode, pre_tokens, next_tokens), .indices = sparse_indices});
}

#define SPARSE_INPUTS                                                                                                                     \
  Raw(query), Raw(key), Raw(value), Raw(sparse_indices), OptRaw(block_table), OptIn(actual_seq_lengths_query), OptIn(actual_seq_lengths_kv), \
      OptRaw(query_rope), OptRaw(key_rope)
#define SPARSE_SETTINGS                                                                                                                       \
  F64(scale_value), I64(sparse_block_size), Text(layout_query), Text(layout_kv), I64(sparse_mode), I64(pre_tokens), I64(next_tokens), I64(attention_mode), \
      Flag(return_softmax_lse), Raw(attention_out), OptOut(softmax_max), OptOut(softmax_sum)
#define SPARSE_CALL(sinks_)                                                                                                                    \
  {.query = query, .key = key, .value = value, .query_rope = query_rope, .key_rope = key_rope, .indices = sparse_indices, .table = block_table, \
   .query_lengths = actual_seq_lengths_query, .key_lengths = actual_seq_lengths_kv, .sinks = sinks_, .scale = scale_value,                      \
   .block = sparse_block_size, .query_layout = layout_query, .key_layout = layout_kv, .causal = IsCausal(sparse_mode, pre_tokens, next_tokens), \
   .out = attention_out, .softmax_max = Wanted(return_softmax_lse, softmax_max), .softmax_sum = Wanted(return_softmax_lse, softmax_sum)}

ACLNN_PLAN(SparseFlashAttention, SPARSE_INPUTS, SPARSE_SETTINGS) {
  RequireAbsorbed(attention_mode);
  return PlanSparse(SPARSE_CALL(OptTensor()));
}
ACLNN_PLAN(SparseFlashAttentionV2, SPARSE_INPUTS, OptIn(sinks), SPARSE_SETTINGS) {
  RequireAbsorbed(attention_mode);
  return PlanSparse(SPARSE_CALL(sinks));
}

ACLNN_PLAN(KvQuantSparseFlashAttention, Raw(query), Raw(key), Raw(value), Raw(sparse_indices), OptRaw(key_dequant_scale), OptRaw(value_dequant_scale),
           OptRaw(block_table), OptIn(actual_seq_lengths_query), OptIn(actual_seq_lengths_kv), F64(scale_value), I64(key_quant_mode), I64(value_quant_mode),
           I64(sparse_block_size), Text(layout_query), Text(layout_kv), I64(sparse_mode), I64(pre_tokens), I64(next_tokens), I64(attention_mode),
           I64(quant_scale_repo_mode), I64(tile_size), I64(rope_head_dim), Raw(attention_out)) {
  RequireAbsorbed(attention_mode);
  Require(!key_dequant_scale && !value_dequant_scale, "the scales lie in the rows; key_dequant_scale and value_dequant_scale must be null");
  Require(value.data() == key.data(), "value is not key; the values are the first part of key's rows");
  Require(key_quant_mode == 2 && value_quant_mode == 2 && quant_scale_repo_mode == 1 && tile_size == 128 && rope_head_dim == kPackedRope, "key_quant_mode is ",
          key_quant_mode, ", value_quant_mode ", value_quant_mode, ", quant_scale_repo_mode ", quant_scale_repo_mode, ", tile_size ", tile_size,
          ", rope_head_dim ", rope_head_dim, "; they must be 2, 2, 1, 128, 64");
  return PlanSparse({.query = query, .packed = key, .indices = sparse_indices, .table = block_table, .query_lengths = actual_seq_lengths_query,
                     .key_lengths = actual_seq_lengths_kv, .scale = scale_value, .block = sparse_block_size, .query_layout = layout_query,
                     .key_layout = layout_kv, .causal = IsCausal(sparse_mode, pre_tokens, next_tokens), .out = attention_out});
}

}  // namespace jumar::hostcann::aclnn
