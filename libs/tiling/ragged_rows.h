#ifndef LIBS_TILING_RAGGED_ROWS_H_
#define LIBS_TILING_RAGGED_ROWS_H_

// Which KV blocks the query blocks of one sequence see, and how many they are together, without going through them one by one:
// a prefill of 1M tokens has 33 million (query block, KV block) pairs a head.
//
// Query i of query_len sits at position p = kv_len - query_len + i (right-down alignment, as vLLM's chunked prefill) and sees so many
// entries:
//   causal           p + 1, else kv_len
//   ratio r          of those, one for r tokens, rounded down (compressed KV)
//   max_selected     at most so many (top-k; they lie anywhere)
//   window w         the last w of them
//   leading_entries  so many besides, before those, such as the window part of shared-KV attention
// A query block of several queries sees the union. Its KV blocks are counted from the first entry that it sees.

#include <cstdint>

#include "absl/status/status.h"

namespace jumar::tiling {

struct KvView {
  bool causal = true;
  int64_t window = 0;        // entries, the query's own included; 0 = all
  int64_t ratio = 1;         // tokens per entry
  int64_t max_selected = 0;  // entries; 0 = all
  int64_t leading_entries = 0;

  friend bool operator==(const KvView&, const KvView&) = default;
};

// Tokens of a sequence, queries or entries of a block, and tokens that a KV block stands for: no more than this.
inline constexpr int64_t kMaxRaggedTokens = int64_t{1} << 40;

// InvalidArgument: a number outside its range; a window that isn't causal, or comes with a ratio or a selection.
absl::Status CheckView(int64_t query_block, int64_t kv_block, const KvView& view);

// InvalidArgument: a length that is negative or above kMaxRaggedTokens, causal with query_len > kv_len, or so many blocks that their
// number doesn't fit 60 bits. `sequence` is for the message. The view has passed CheckView.
absl::Status CheckSequence(int64_t sequence, int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view);

// Of arguments that passed both checks. All functions are O(log).
class RaggedRows {
 public:
  RaggedRows(int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view);

  int64_t num_query_blocks() const { return num_full_ + (tail_ > 0); }
  int64_t num_full() const { return num_full_; }  // query blocks of query_block queries; the last one may have fewer
  int64_t tail() const { return tail_; }          // queries of that last one, or 0

  int64_t FirstEntry(int64_t query_block) const;      // the window's begin, or 0
  int64_t NumKvBlocks(int64_t query_block) const;
  int64_t KvBlocksBefore(int64_t query_block) const;  // sum of NumKvBlocks over the query blocks before this one: 0 .. num_query_blocks()
  int64_t MostKvBlocks() const;                       // of a query block; 0 if there is none

 private:
  int64_t Cap(int64_t queries) const;  // entries that a query block may see, leading ones not counted
  int64_t BlocksOf(int64_t visible_tokens, int64_t cap) const;

  int64_t query_len_, kv_len_, query_block_, kv_block_;
  KvView view_;
  int64_t num_full_, tail_, base_;
  int64_t full_cap_blocks_;  // KV blocks that a full query block may see
  int64_t first_capped_;     // full query blocks from here on see that many
};

}  // namespace jumar::tiling

#endif  // LIBS_TILING_RAGGED_ROWS_H_
