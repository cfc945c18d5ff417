#ifndef LIBS_ATTENTION_SHAREDKV_SHARED_KV_ATTENTION_H_
#define LIBS_ATTENTION_SHAREDKV_SHARED_KV_ATTENTION_H_

// Attention of DeepSeek V4: each query sees the last tokens themselves, in a sliding window, and compressed entries of all that came before; one
// softmax over both, with a sink. Keys and values are the same rows, which carry their rotation, so the output is rotated back by the query's position.
//
//   keys of the query at position p:  tokens p - window + 1 .. p,  and of the compressed entries (libs/attention/compressor) the first
//                                     (p + 1) / ratio: all of them (ratio 128), or those in its list (ratio 4, by the indexer)
//   out[t, h, :] = R(-p) * sum_j softmax_j(scale * q[t, h, :] · k[j, :]; sink of h) * k[j, :]
//
// Attention over each kind is in fp32 and merged (merge.h), in that order; what is said there and in paged_attention.h of batches, chunks, threads
// and NaN holds here, too.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/attention/rows/rows.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct SharedKvAttentionArgs {
  // Queries, the cache of tokens (v = k), lengths, scale, sinks, out and lse as for attention to the window alone: window_left = window - 1,
  // window_right = 0. No soft cap, no mask. out must be dense rows, head after head: out_token_stride = num_heads * out_head_stride.
  PagedAttentionArgs window;

  // The compressed entries; ratio 0: there are none. Strides as the window's k_*.
  int64_t ratio = 0;
  const void* entries = nullptr;
  int64_t entries_block_stride = 0, entries_token_stride = 0;
  const int32_t* entries_block_table = nullptr;  // [num_seqs, entries_block_table_stride]
  int64_t entries_block_table_stride = 0, entries_block_size = 0, entries_num_blocks = 0;
  // The list of a token at token * indices_token_stride, top_k of them, -1 where there is none; null: every entry.
  const int32_t* indices = nullptr;
  int64_t top_k = 0, indices_token_stride = 0;

  // Of the outputs' last elements: rotary_dim, interleaved, cos, sin (fp32, as the keys were rotated by), table_*, positions for each token. The rest is set
  // here.
  std::optional<RopeArgs> rope = {};
};

// InvalidArgument names the field, the value and the limit. Scratch memory is kept per calling thread.
absl::Status SharedKvAttention(const SharedKvAttentionArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_SHAREDKV_SHARED_KV_ATTENTION_H_
