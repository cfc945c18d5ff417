#ifndef LIBS_ATTENTION_INDEXER_LIGHTNING_INDEXER_H_
#define LIBS_ATTENTION_INDEXER_LIGHTNING_INDEXER_H_

// The lightning indexer (DeepSeek V3.2 and V4): scores every entry of the context and names the top_k best ones of each query.
//
//   score[t, s] = sum_h w[t, h] * relu(q[t, h, :] · k[s, :])                                   over the heads h, one key head
//   quantised:    (sum_h (w[t, h] * q_scale[t, h]) * relu(q[t, h, :] · k[s, :])) * k_scale[s]  of int8 or E4M3 codes
//
// which is sum_h w * relu(q_scale * k_scale * (q · k)), as scales are not negative.
//
// Sequence b has query tokens [query_starts[b], query_ends[b]), S1 of them, and S2 = kv_lens[b] tokens of context, of which `cmp_ratio` = r
// make one entry: it has S2 / r entries (rounded down). Query i of S1 sees the entries
//   s < (S2 - S1 + i + 1) / r   causal (right-down alignment; rounded down, none if negative)
//   s < S2 / r                  otherwise
//
// The row of indices: the visible entries with the highest scores, in descending order, of equal ones the smaller index first; then -1. +0
// and -0 are equal. A NaN score ranks below every number, -infinity included: a broken key is only chosen if too few others are visible.
// (Of the public documents at hand none defines ties or NaN; op-plugin's tests sort in descending order, stably in the quantised form.)
//
// Products of int8 are exact. Others are summed in fp32, as are the heads, from the first to the last. A row is bit-equal in every batch,
// block table, chunking of the queries and number of threads. Entries that no query sees may be NaN, and so may unused blocks and padding.
//
// Scores are not kept: a row holds at most 2 * min(top_k, entries) + 289 candidates of 8 bytes, 8 rows a thread, whatever the context's
// length.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

struct LightningIndexerArgs {
  DType type = DType::kBF16;                   // of q and k, unless they are quantised
  std::optional<quant::Format> format = {};    // of quantised q and k, both: kI8 or kE4M3
  int64_t num_seqs = 0;
  int64_t num_heads = 0;   // 1 .. 1024
  int64_t head_dim = 128;  // a multiple of 16, up to 1024
  int64_t top_k = 2048;    // 1 .. 2^31 - 1

  // All strides are in elements; the head dimension itself is contiguous.
  const void* q = nullptr;  // row of (token, head) at token * q_token_stride + head * q_head_stride
  int64_t q_token_stride = 0, q_head_stride = 0;

  // Entry s of sequence b:
  //   paged       block_table[b][s / block_size] * k_block_stride + (s % block_size) * k_token_stride
  //   contiguous  (kv_starts[b] + s) * k_token_stride
  const void* k = nullptr;
  int64_t k_block_stride = 0, k_token_stride = 0;

  const void* weights = nullptr;  // [token, head], heads contiguous
  DType weights_type = DType::kF32;
  int64_t weights_token_stride = 0;

  // Of quantised q and k. Not negative; fp32 or fp16. q_scales [token, head], heads contiguous; k_scales as k's rows, a number each.
  const void* q_scales = nullptr;
  const void* k_scales = nullptr;
  DType scales_type = DType::kF32;
  int64_t q_scales_token_stride = 0;
  int64_t k_scales_block_stride = 0, k_scales_token_stride = 0;

  const int32_t* block_table = nullptr;  // [num_seqs, block_table_stride], or null = contiguous
  int64_t block_table_stride = 0;        // >= ceil(entries / block_size)
  int64_t block_size = 0;                // in entries
  int64_t num_blocks = 0;                // every table entry that is used lies in [0, num_blocks)

  const int64_t* query_ends = nullptr;    // [num_seqs], cumulative
  const int64_t* query_starts = nullptr;  // [num_seqs], or null = the end of the previous sequence (0 for the first)
  const int64_t* kv_lens = nullptr;       // [num_seqs], tokens, not compressed, new ones included
  const int64_t* kv_starts = nullptr;     // [num_seqs] in entries, contiguous only; null = sum of the previous sequences' entries
  int64_t cmp_ratio = 1;                  // tokens of an entry
  bool causal = true;

  int32_t* indices = nullptr;  // row of a token at token * indices_token_stride, top_k of them
  int64_t indices_token_stride = 0;
  float* scores = nullptr;  // optional, of the indices; -infinity beside -1
  int64_t scores_token_stride = 0;
};

// InvalidArgument names the field, the value and the limit; block-table entries are checked before anything is read through them.
// Thread safe. Scratch memory is kept per calling thread and per worker.
absl::Status LightningIndexer(const LightningIndexerArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_INDEXER_LIGHTNING_INDEXER_H_
