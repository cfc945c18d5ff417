#ifndef LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SELECT_H_
#define LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SELECT_H_

// Which blocks of the context a query attends to (MiniMax-M3 kind):
//
//   score[t, h, b] = max of q[t, h, :] · k[j, g, :] over the keys j of block b that the query sees,   g = h / (num_heads / num_key_heads)
//
// Block b of a sequence is its keys b * block_tokens .. (b + 1) * block_tokens - 1. Query i of S1 sees the keys j <= p = S2 - S1 + i
// (causal, right-down), so the blocks 0 .. p / block_tokens, none if p < 0. Of these come first the `init_blocks` first ones of the
// sequence, then the `local_blocks` last ones (a block that is both counts as local; both ascending), then the others by descending score,
// of equal ones the smaller index first; at most top_k in all. The rest of the row is -1. A NaN product is left out of the maximum; a block
// of nothing else ranks last, but is chosen before -1.
//
// Products are summed in fp32. A row is bit-equal in every batch, block table, chunking of the queries and number of threads; keys that no
// query sees may be NaN. Scratch memory: 4 bytes for each query, head and block.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

struct BlockSelectArgs {
  DType type = DType::kBF16;  // of q and k, unless they are E4M3 codes: scales of a tensor or head don't change the order and aren't needed
  std::optional<quant::Format> format = {};  // kE4M3
  int64_t num_seqs = 0;
  int64_t num_heads = 0;
  int64_t num_key_heads = 1;  // divides num_heads
  int64_t head_dim = 128;     // a multiple of 16, up to 1024

  // All strides are in elements; the head dimension itself is contiguous.
  const void* q = nullptr;  // row of (token, head) at token * q_token_stride + head * q_head_stride
  int64_t q_token_stride = 0, q_head_stride = 0;
  // Key j of sequence s: block_table[s][j / page_size] * k_page_stride + (j % page_size) * k_token_stride + head * k_head_stride
  const void* k = nullptr;
  int64_t k_page_stride = 0, k_token_stride = 0, k_head_stride = 0;
  const int32_t* block_table = nullptr;  // [num_seqs, block_table_stride], of pages
  int64_t block_table_stride = 0;        // >= ceil(kv_len / page_size)
  int64_t page_size = 128;
  int64_t num_pages = 0;

  const int64_t* query_ends = nullptr;    // [num_seqs], cumulative
  const int64_t* query_starts = nullptr;  // [num_seqs], or null = the end of the previous sequence (0 for the first)
  const int64_t* kv_lens = nullptr;       // [num_seqs], keys of each sequence, new ones included

  int64_t block_tokens = 128;
  int64_t top_k = 16;
  int64_t init_blocks = 0, local_blocks = 0;

  int32_t* indices = nullptr;  // row of (token, head) at token * indices_token_stride + head * indices_head_stride, top_k of them
  int64_t indices_token_stride = 0, indices_head_stride = 0;
};

// InvalidArgument names the field, the value and the limit; block-table entries are checked before anything is read through them.
absl::Status SelectBlocks(const BlockSelectArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SELECT_H_
