#ifndef LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SCORE_KERNEL_H_
#define LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SCORE_KERNEL_H_

#include <cstdint>

#include "libs/attention/block_sparse/block_select.h"

namespace jumar::attention::internal {

inline constexpr int64_t kScoreRows = 64;  // rows (a query and a head) for which a key is read once, or the heads of one query

// Some neighbouring queries of a sequence, all heads of one key head.
struct ScoreTile {
  int64_t seq = 0, key_head = 0;
  int64_t first_token = 0, num_tokens = 0;
  int64_t first_position = 0;  // of the first query; may be negative
  int64_t row_blocks = 0;      // floats from a row of scores to the next
  int64_t scores = 0;          // where its rows begin
};

// scores[tile.scores + row * row_blocks + b] = the score of each block b in [begin, end), -infinity if the row's query sees none of it.
void ScoreBlocks(const BlockSelectArgs& args, const ScoreTile& tile, int64_t begin, int64_t end, float* scores);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_BLOCK_SPARSE_BLOCK_SCORE_KERNEL_H_
