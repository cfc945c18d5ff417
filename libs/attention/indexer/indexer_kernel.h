#ifndef LIBS_ATTENTION_INDEXER_INDEXER_KERNEL_H_
#define LIBS_ATTENTION_INDEXER_INDEXER_KERNEL_H_

#include <algorithm>
#include <cstdint>

#include "libs/attention/indexer/lightning_indexer.h"
#include "libs/attention/indexer/top_k.h"

namespace jumar::attention::internal {

inline constexpr int64_t kTileTokens = 8;  // queries for which a key is read once

// Some neighbouring queries of a sequence.
struct TokenTile {
  int64_t seq = 0;
  int64_t first_token = 0, num_tokens = 0;  // of all tokens
  int64_t first_position = 0;               // the first one's place in the sequence's context, in tokens; negative = before it
  int64_t kv_begin = 0, num_entries = 0;    // contiguous: where the sequence's entries begin
};

// How many entries query `i` of the tile sees.
inline int64_t VisibleEntries(const LightningIndexerArgs& args, const TokenTile& tile, int64_t i) {
  if (!args.causal) return tile.num_entries;
  return std::clamp<int64_t>((tile.first_position + i + 1) / args.cmp_ratio, 0, tile.num_entries);
}

// Pushes the entries [begin, end) that each query sees into its top[i].
void ScoreEntries(const LightningIndexerArgs& args, const TokenTile& tile, int64_t begin, int64_t end, TopK* top);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_INDEXER_INDEXER_KERNEL_H_
