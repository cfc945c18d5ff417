#ifndef LIBS_MEMORY_KV_RUNS_H_
#define LIBS_MEMORY_KV_RUNS_H_

// Tokens whose slots follow each other become one copy: [5, 6, 7, -1, 2] is (src 0, dst 5, 3 tokens), (src 4, dst 2, 1 token).

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/kv/slots.h"

namespace jumar::memory::kv {

struct CopyRun {
  int64_t src = 0, dst = 0, length = 0;  // first token, first slot, tokens
  friend bool operator==(const CopyRun&, const CopyRun&) = default;
};

struct RunLimits {
  int64_t num_slots = 0;   // slots lie in [0, num_slots)
  int64_t block_size = 0;  // > 0: a run never crosses a multiple of it, for caches with a gap between blocks or chunks within them
  int64_t max_length = 0;  // > 0: longer runs are cut, as a copy through a buffer needs
};

// InvalidArgument unless a limit is negative.
absl::Status CheckLimits(const RunLimits& limits);
absl::Status SlotOutside(int64_t index, int64_t slot, int64_t num_slots);

// Calls fn(CopyRun) for slots[begin, end) in order, skipping kPadSlot. Of a slot that is outside, `fn` has seen the runs before when the
// error comes.
template <class Slot, class Fn>
absl::Status ForEachRun(std::span<const Slot> slots, int64_t begin, int64_t end, const RunLimits& limits, const Fn& fn) {
  for (int64_t i = begin; i < end;) {
    const int64_t slot = slots[static_cast<size_t>(i)];
    if (slot == kPadSlot) {
      ++i;
      continue;
    }
    if (slot < 0 || slot >= limits.num_slots) return SlotOutside(i, slot, limits.num_slots);
    int64_t most = std::min(end - i, limits.num_slots - slot), n = 1;
    if (most > 1 && slots[static_cast<size_t>(i) + 1] == slot + 1) {  // no division for the lonely slots of a decode step
      if (limits.block_size > 0) most = std::min(most, limits.block_size - slot % limits.block_size);
      if (limits.max_length > 0) most = std::min(most, limits.max_length);
      while (n < most && slots[static_cast<size_t>(i + n)] == slot + n) ++n;
    }
    fn(CopyRun{i, slot, n});
    i += n;
  }
  return absl::OkStatus();
}

// All runs of a slot mapping. InvalidArgument names the slot that is neither kPadSlot nor in [0, num_slots).
absl::StatusOr<std::vector<CopyRun>> MergeSlots(std::span<const int64_t> slots, const RunLimits& limits);
absl::StatusOr<std::vector<CopyRun>> MergeSlots(std::span<const int32_t> slots, const RunLimits& limits);

// Copies of whole blocks, within a cache or between two.
struct BlockPair {
  int64_t src = 0, dst = 0;
};
struct BlockLimits {
  int64_t src_blocks = 0, dst_blocks = 0;
};
// Pairs whose sources and destinations both follow each other, as one run. InvalidArgument names a pair that is outside, or a
// destination that is written twice (its contents would depend on the order).
absl::StatusOr<std::vector<CopyRun>> MergeBlocks(std::span<const BlockPair> pairs, const BlockLimits& limits);

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_RUNS_H_
