#ifndef LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SPARSE_ATTENTION_H_
#define LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SPARSE_ATTENTION_H_

// Causal attention with grouped query heads over selected blocks of a paged KV cache: paged_attention.h's formula, where query t of KV head
// g sees the key at position j if j <= its own position and j / block_tokens is in the list indices[t, g]. A list is a set: order and
// repetitions don't matter; -1 anywhere, and blocks that begin behind the query, are left out. No block: out = 0, lse = +infinity.
//
// It is one call of paged attention for each KV head, in which each query is a sequence of its own over a table of its selected pages: K
// and V of other blocks are not read (and may be NaN), and a row's result depends on its own list only, bit for bit.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct BlockSparseAttentionArgs {
  // As for dense attention over pages of dense.block_size, which divides block_tokens. window_right is 0 or -1: both causal here; no
  // window_left, no mask, no scales by position.
  PagedAttentionArgs dense;
  int64_t block_tokens = 128;
  int64_t top_k = 0;                 // length of a list
  const int32_t* indices = nullptr;  // list of (token, KV head) at token * indices_token_stride + head * indices_head_stride
  int64_t indices_token_stride = 0, indices_head_stride = 0;
};

// InvalidArgument names the field, the value and the limit.
absl::Status BlockSparseAttention(const BlockSparseAttentionArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SPARSE_ATTENTION_H_
