#ifndef LIBS_ATTENTION_SELECTED_SELECTED_BLOCKS_H_
#define LIBS_ATTENTION_SELECTED_SELECTED_BLOCKS_H_

// A query's list of blocks as everything of this folder reads it: a set. Order and repetitions don't matter; -1, and any block that begins
// behind the last key that the query sees, are left out.

#include <algorithm>
#include <cstdint>

namespace jumar::attention::internal {

// out [count] := the blocks of `list` of which one of the first `visible_keys` keys is seen, ascending; returns how many.
inline int64_t VisibleBlocks(const int32_t* list, int64_t count, int64_t visible_keys, int64_t block_size, int32_t* out) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (list[i] >= 0 && list[i] < (visible_keys + block_size - 1) / block_size) out[kept++] = list[i];
  }
  std::sort(out, out + kept);
  return std::unique(out, out + kept) - out;
}

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_SELECTED_SELECTED_BLOCKS_H_
