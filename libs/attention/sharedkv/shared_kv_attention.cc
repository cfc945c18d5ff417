#include "libs/attention/sharedkv/shared_kv_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/merge/merge_attention.h"
#include "libs/attention/selected/selected_attention.h"

namespace jumar::attention {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("shared-KV attention: ", parts...));
}

absl::Status Check(const SharedKvAttentionArgs& args) {
  const PagedAttentionArgs& window = args.window;
  if (window.num_kv_heads != 1 || window.rope_dim != 0 || window.kv_format || window.k != window.v ||
      (window.value_head_dim != 0 && window.value_head_dim != window.head_dim)) {
    return Invalid("keys and values must be the same rows, of one head in one part, not quantised");
  }
  if (window.window_left < 0 || window.window_right != 0) {
    return Invalid("window_left = ", window.window_left, " and window_right = ", window.window_right, "; they must be the window - 1, and 0");
  }
  if (window.soft_cap != 0) return Invalid("soft_cap = ", window.soft_cap, "; there is none");
  if (window.mask != nullptr) return Invalid("there is a mask, but the tokens of a query are its window");
  if (window.num_seqs > 0 && window.query_ends == nullptr) return Invalid("query_ends is null");
  if (window.out_token_stride != window.num_heads * window.out_head_stride) {
    return Invalid("out_token_stride = ", window.out_token_stride, " is not num_heads times out_head_stride = ", window.out_head_stride);
  }
  if (args.ratio < 0) return Invalid("ratio = ", args.ratio, " is negative");
  if (args.rope && args.rope->rotary_dim > window.head_dim) {
    return Invalid("rope.rotary_dim = ", args.rope->rotary_dim, " is more than head_dim = ", window.head_dim);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SharedKvAttention(const SharedKvAttentionArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  const PagedAttentionArgs& window = args.window;
  const DType out_type = window.out_type.value_or(window.type);
  const int64_t tokens = window.num_seqs == 0 ? 0 : *std::max_element(window.query_ends, window.query_ends + window.num_seqs);
  const int64_t heads = window.num_heads, dim = window.head_dim, row = heads * dim;
  if (tokens <= 0) return PagedAttention(window, executor);  // nothing, or what is wrong

  static thread_local std::vector<float> memory;
  const size_t floats = static_cast<size_t>(tokens * (row + heads));  // of a part
  memory.resize(std::max(memory.size(), 2 * floats));
  AttentionPart parts[2];
  for (int i = 0; i < 2; ++i) {
    float* out = memory.data() + static_cast<size_t>(i) * floats;
    std::fill_n(out + tokens * row, tokens * heads, std::numeric_limits<float>::infinity());  // tokens of no sequence have no keys
    parts[i] = {out, row, dim, out + tokens * row, heads, 1};
  }
  const auto to_part = [&](PagedAttentionArgs attention, const AttentionPart& part) {
    attention.sinks = nullptr;
    attention.out_type = DType::kF32;
    attention.out = const_cast<void*>(part.out), attention.out_token_stride = row, attention.out_head_stride = dim;
    attention.lse = const_cast<float*>(part.lse), attention.lse_token_stride = heads, attention.lse_head_stride = 1;
    return attention;
  };
  if (auto status = PagedAttention(to_part(window, parts[0]), executor); !status.ok()) return status;
  if (args.ratio > 0) {
    SelectedAttentionArgs compressed = {.dense = to_part(window, parts[1]), .ratio = args.ratio, .all = args.indices == nullptr};
    PagedAttentionArgs& dense = compressed.dense;
    dense.window_left = -1;
    dense.k = dense.v = args.entries;
    dense.k_block_stride = dense.v_block_stride = args.entries_block_stride;
    dense.k_token_stride = dense.v_token_stride = args.entries_token_stride;
    dense.block_table = args.entries_block_table, dense.block_table_stride = args.entries_block_table_stride;
    dense.block_size = args.entries_block_size, dense.num_blocks = args.entries_num_blocks;
    dense.kv_starts = nullptr;
    if (args.indices != nullptr) {
      compressed.top_k = args.top_k, compressed.indices = args.indices, compressed.indices_token_stride = args.indices_token_stride;
    }
    if (auto status = SelectedAttention(compressed, executor); !status.ok()) return status;
  }
  // Rotated back in fp32, so that the output is rounded once.
  MergeAttentionArgs merge = {.out_type = args.rope ? DType::kF32 : out_type, .num_tokens = tokens, .num_heads = heads, .head_dim = dim,
                              .parts = {parts, args.ratio > 0 ? size_t{2} : size_t{1}}, .sinks = window.sinks};
  merge.out = args.rope ? memory.data() : window.out;
  merge.out_token_stride = args.rope ? row : window.out_token_stride, merge.out_head_stride = args.rope ? dim : window.out_head_stride;
  merge.lse = window.lse, merge.lse_token_stride = window.lse_token_stride, merge.lse_head_stride = window.lse_head_stride;
  if (auto status = MergeAttention(merge, executor); !status.ok() || !args.rope) return status;
  RopeArgs rope = *args.rope;
  rope.type = DType::kF32, rope.tokens = tokens, rope.heads = heads, rope.head_dim = rope.rotary_dim, rope.inverse = true;
  rope.x = rope.out = memory.data() + dim - rope.rotary_dim;
  rope.x_token_stride = rope.out_token_stride = row, rope.x_head_stride = rope.out_head_stride = dim;
  if (auto status = Rope(rope, executor); !status.ok()) return status;
  // One part of weight 1: a conversion to the output's type.
  std::fill_n(const_cast<float*>(parts[0].lse), tokens * heads, 0.0f);
  merge = {.out_type = out_type, .num_tokens = tokens, .num_heads = heads, .head_dim = dim, .parts = {parts, 1}};
  merge.out = window.out, merge.out_token_stride = window.out_token_stride, merge.out_head_stride = window.out_head_stride;
  return MergeAttention(merge, executor);
}

}  // namespace jumar::attention
