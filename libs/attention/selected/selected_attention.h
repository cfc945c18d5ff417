#ifndef LIBS_ATTENTION_SELECTED_SELECTED_ATTENTION_H_
#define LIBS_ATTENTION_SELECTED_SELECTED_ATTENTION_H_

// Softmax attention to selected keys: paged_attention.h's formula, where query t of KV head g sees, of the keys that dense attention would
// show it, those at positions j whose j / selected_tokens is in the list indices[t, g]. With selected_tokens = 1 the lists are of tokens
// (DeepSeek V3.2), else of blocks (MiniMax M3). A list is a set: order and repetitions don't matter; -1 anywhere, and blocks that begin behind
// the last key that the query sees, are left out. No key: out = 0 and lse = +infinity, or the head's sink.
//
// A key may stand for `ratio` tokens, as compressed entries do (DeepSeek V4): kv_lens count tokens, a sequence has kv_len / ratio keys, and the
// query at position p sees the first (p + 1) / ratio of them.
//
// K and V of other keys are not read (and may be NaN). A row's result depends on its own set only, bit for bit.
//
// The cache may be of packed rows (libs/quant/packed): the selected rows become bf16 (or fp16), latent * scale rounded once, and attention reads
// those.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/memory/kv/views.h"
#include "libs/quant/packed/row_codec.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct SelectedAttentionArgs {
  // As for dense attention. window_right is 0 (causal) or -1 (all keys); no window_left, no mask, no slots, no scales by position.
  PagedAttentionArgs dense;
  int64_t selected_tokens = 1;       // keys that an entry stands for
  int64_t ratio = 1;                 // tokens of a key
  bool all = false;                  // every key is selected; there are no lists
  int64_t top_k = 0;                 // length of a list
  const int32_t* indices = nullptr;  // list of (token, KV head) at token * indices_token_stride + head * indices_head_stride
  int64_t indices_token_stride = 0, indices_head_stride = 0;

  // Packed rows instead of dense.k, dense.k_rope and dense.v, which are null: one KV head of codec->dims and codec->rope_dims, whose values are
  // the first part of the keys, with a block_table over these pages. The type is one of 16 bits, and that of the rows' second part.
  const quant::RowCodec* codec = nullptr;
  memory::kv::ConstBlocks pages = {};
};

// InvalidArgument names the field, the value and the limit. Scratch memory (at most some 32 MiB) is kept per calling thread.
absl::Status SelectedAttention(const SelectedAttentionArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_SELECTED_SELECTED_ATTENTION_H_
