#ifndef LIBS_ATTENTION_BLOCK_SPARSE_TEST_PROBLEM_H_
#define LIBS_ATTENTION_BLOCK_SPARSE_TEST_PROBLEM_H_

// Random problems of block-sparse attention for tests and benchmarks.

#include <cstdint>
#include <vector>

#include "libs/attention/block_sparse/block_select.h"
#include "libs/attention/selected/selected_attention.h"

namespace jumar::attention {

struct BlockSequence {
  int64_t queries, keys;
};

struct BlockCase {
  std::vector<BlockSequence> sequences;
  int64_t heads, kv_heads, head_dim, page_size, block_tokens, top_k;
};

// Owns the memory of a SelectBlocks whose index heads are the KV heads (one key head) and of an attention over what it selects. Every page
// that no sequence has, the rest of the last ones, and lists, outputs are NaN or nonsense before the calls.
struct BlockProblem {
  BlockProblem(const BlockCase& c, DType type, uint32_t seed, bool small_integers = false);
  BlockProblem(const BlockProblem&) = delete;

  void UseE4M3Keys(uint32_t seed);       // index q and k become codes
  void UseE4M3Cache(uint32_t seed);      // K and V become codes, with a scale for each slot and head
  void RandomLists(uint32_t seed);       // lists with repetitions, -1, blocks behind the query
  void* Row(std::vector<char>& cache, int64_t seq, int64_t position, int64_t kv_head);

  BlockSelectArgs select;
  SelectedAttentionArgs attention;
  BlockCase shape;
  int64_t tokens = 0;
  std::vector<char> index_q, index_k, q, k, v, out;
  std::vector<float> lse, k_scales, v_scales;
  std::vector<int32_t> block_table, indices;
  std::vector<int64_t> query_ends, kv_lens;
};

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_BLOCK_SPARSE_TEST_PROBLEM_H_
