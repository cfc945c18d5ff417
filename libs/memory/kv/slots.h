#ifndef LIBS_MEMORY_KV_SLOTS_H_
#define LIBS_MEMORY_KV_SLOTS_H_

// Slot mapping: where in the cache each token of a batch goes.
//
//   slot = block_table[request, position / block_size] * block_size + position % block_size
//
// With decode context parallelism over `size` ranks a table's block stands for block_size * size tokens, dealt out in groups of
// `interleave`:
//
//   o = position % (block_size * size),   rank = o / interleave % size
//   slot = block_table[request, position / (block_size * size)] * block_size + o / (interleave * size) * interleave + o % interleave

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/memory/kv/block_table.h"

namespace jumar::memory::kv {

inline constexpr int64_t kPadSlot = -1;

struct ContextParallel {
  int64_t size = 1, rank = 0;
  int64_t interleave = 1;  // tokens; must divide block_size
};

struct SlotMapping {
  // Token t of request r: query_start_loc[r] <= t < query_start_loc[r + 1]. Starts at 0, never falls; padded requests repeat the last.
  std::span<const int32_t> query_start_loc;  // [requests + 1], or empty for no request
  std::span<const int64_t> positions;        // [>= tokens]; -1: a token that isn't kept
  BlockTableView block_table;                // [>= requests, width]
  int64_t num_blocks = 0, block_size = 0;    // of the cache
  ContextParallel context_parallel;
  int64_t pad = kPadSlot;  // for tokens that aren't kept, that another rank keeps, and behind the batch's end. Negative.
};

// slots [>= tokens]: int32 or int64. InvalidArgument, before or after a part of `slots` is written, for a position beyond its request's row
// of the table, a block beyond the cache (kNoBlock too), starts that fall, sizes that don't fit each other, or a cache with more slots than
// Slot can count. No allocation.
absl::Status ComputeSlots(const SlotMapping& mapping, std::span<int64_t> slots);
absl::Status ComputeSlots(const SlotMapping& mapping, std::span<int32_t> slots);

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_SLOTS_H_
