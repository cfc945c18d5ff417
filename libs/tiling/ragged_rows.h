#ifndef LIBS_TILING_RAGGED_ROWS_H_
#define LIBS_TILING_RAGGED_ROWS_H_

// Which KV blocks the query blocks of one sequence see, and how many they are together, without going through them one by one:
// a prefill of 1M tokens has 33 million (query block, KV block) pairs a head.
//
// Query i of query_len sits at position p = kv_len - query_len + i (right-down alignment, as vLLM's chunked prefill) and sees the
// entries [first, last):
//   causal        last = p + 1, else kv_len
//   ratio r       last / r, rounded down: entry j stands for tokens [j*r, (j+1)*r) (compressed KV)
//   max_selected  the smaller of last and this (top-k picks so many, wherever they lie; block numbers then count the picked ones)
//   window w      first = max(0, p + 1 - w), else 0
// A query block of several queries sees the union. `leading_blocks` are blocks that every query block sees before those, such as the
// window part of shared-KV attention.

#include <cstdint>

#include "absl/status/status.h"

namespace jumar::tiling {

struct KvView {
  bool causal = true;
  int64_t window = 0;        // entries, the query's own included; 0 = all
  int64_t ratio = 1;         // tokens per entry
  int64_t max_selected = 0;  // entries; 0 = all
  int64_t leading_blocks = 0;

  friend bool operator==(const KvView&, const KvView&) = default;
};

// Tokens of a sequence, queries or entries of a block, and tokens that a KV block stands for: no more than this.
inline constexpr int64_t kMaxRaggedTokens = int64_t{1} << 40;

// InvalidArgument: a block size below 1 or above kMaxRaggedTokens; a window that isn't causal, or comes with a ratio, a selection or
// leading blocks (their block numbers would mean two things).
absl::Status CheckView(int64_t query_block, int64_t kv_block, const KvView& view);

// InvalidArgument: a length that is negative or above kMaxRaggedTokens, causal with query_len > kv_len, or so many blocks that their
// number doesn't fit 61 bits. `sequence` is for the message. The view has passed CheckView.
absl::Status CheckSequence(int64_t sequence, int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view);

// Of arguments that passed both checks. All functions are O(log).
class RaggedRows {
 public:
  RaggedRows(int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view);

  int64_t num_query_blocks() const { return num_full_ + (tail_ > 0); }
  int64_t num_full() const { return num_full_; }  // query blocks of query_block queries; the last one may have fewer
  int64_t tail() const { return tail_; }          // queries of that last one, or 0

  int64_t FirstKvBlock(int64_t query_block) const;  // leading blocks not counted
  int64_t NumKvBlocks(int64_t query_block) const;   // leading ones included
  int64_t KvBlocksBefore(int64_t query_block) const;  // sum of NumKvBlocks over the query blocks before this one: 0 .. num_query_blocks()
  // The larger number of the last two query blocks (0 if there is none). No other sees more, but with a window one block more, where its
  // ends lie otherwise.
  int64_t LateKvBlocks() const;

 private:
  int64_t EndOf(int64_t visible_tokens) const;

  int64_t query_len_, kv_len_, query_block_, kv_block_;
  KvView view_;
  int64_t num_full_, tail_, base_;
  int64_t cap_blocks_;  // that a selection allows, or INT64_MAX
  int64_t first_capped_;    // full query blocks from here on see cap_blocks_
  int64_t first_windowed_;  // full query blocks from here on don't see entry 0
};

}  // namespace jumar::tiling

#endif  // LIBS_TILING_RAGGED_ROWS_H_
