#ifndef LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_CSR_H_
#define LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_CSR_H_

// From each query's list of blocks to each block's list of queries, as prefill wants it that reads a block once for all its queries:
// compressed sparse rows, one matrix for each KV head.
//
// Row r = first_row[s] + b is block b of sequence s, first_row[s] the sum of ceil(kv_len / block_tokens) of the sequences before s. Its
// queries are queries[head][row_starts[head][r] .. row_starts[head][r + 1]), ascending. A pair (query, block) is in it once if
// block_sparse_attention.h attends to it: lists are sets, -1 and blocks that begin behind the query are left out.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

struct BlockCsrArgs {
  int64_t num_seqs = 0;
  const int64_t* query_ends = nullptr;    // [num_seqs], cumulative
  const int64_t* query_starts = nullptr;  // [num_seqs], ascending, or null = the end of the previous sequence (0 for the first)
  const int64_t* kv_lens = nullptr;       // [num_seqs]
  int64_t block_tokens = 128;
  int64_t num_kv_heads = 0;
  int64_t top_k = 0;                 // length of a list
  const int32_t* indices = nullptr;  // list of (token, KV head) at token * indices_token_stride + head * indices_head_stride
  int64_t indices_token_stride = 0, indices_head_stride = 0;

  int32_t* row_starts = nullptr;  // [num_kv_heads][row_starts_stride], rows + 1 of them
  int64_t row_starts_stride = 0;
  int32_t* queries = nullptr;  // [num_kv_heads][queries_stride]; queries * top_k is always enough
  int64_t queries_stride = 0;
};

// Rows of each head's matrix. InvalidArgument for sizes that are negative, or too many for int32.
absl::StatusOr<int64_t> BlockCsrRows(const BlockCsrArgs& args);

// InvalidArgument names the field, the value and the limit; a head with more pairs than queries_stride is found before `queries` is
// written.
absl::Status BuildBlockCsr(const BlockCsrArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_CSR_H_
