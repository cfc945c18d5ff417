#include "libs/memory/kv/runs.h"

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {
namespace {

template <class Slot>
absl::StatusOr<std::vector<CopyRun>> Merge(std::span<const Slot> slots, const RunLimits& limits) {
  if (auto status = CheckLimits(limits); !status.ok()) return status;
  std::vector<CopyRun> runs;
  auto status = ForEachRun(slots, 0, static_cast<int64_t>(slots.size()), limits, [&](const CopyRun& run) { runs.push_back(run); });
  if (!status.ok()) return status;
  return runs;
}

// The first value that occurs twice, or -1. Values are not negative.
int64_t FirstTwice(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  const auto twice = std::adjacent_find(values.begin(), values.end());
  return twice == values.end() ? -1 : *twice;
}

}  // namespace

absl::Status CheckLimits(const RunLimits& l) {
  if (l.num_slots >= 0 && l.block_size >= 0 && l.max_length >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("runs of slots: num_slots = ", l.num_slots, ", block_size = ", l.block_size,
                                                 ", max_length = ", l.max_length, "; none may be negative"));
}

absl::Status SlotOutside(int64_t index, int64_t slot, int64_t num_slots) {
  return absl::InvalidArgumentError(absl::StrCat("slot_mapping[", index, "] is ", slot, "; the cache has ", num_slots, " slots"));
}

absl::StatusOr<std::vector<CopyRun>> MergeSlots(std::span<const int64_t> slots, const RunLimits& limits) { return Merge(slots, limits); }
absl::StatusOr<std::vector<CopyRun>> MergeSlots(std::span<const int32_t> slots, const RunLimits& limits) { return Merge(slots, limits); }

absl::StatusOr<std::vector<CopyRun>> MergeBlocks(std::span<const BlockPair> pairs, const BlockLimits& limits) {
  std::vector<CopyRun> runs;
  std::vector<int64_t> written;
  bool rising = true;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [src, dst] = pairs[i];
    if (src < 0 || src >= limits.src_blocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("pairs[", i, "] copies from block ", src, "; the source has ", limits.src_blocks, " blocks"));
    }
    if (dst < 0 || dst >= limits.dst_blocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("pairs[", i, "] copies to block ", dst, "; the destination has ", limits.dst_blocks, " blocks"));
    }
    rising = rising && (i == 0 || dst > pairs[i - 1].dst);
    if (!runs.empty() && src == runs.back().src + runs.back().length && dst == runs.back().dst + runs.back().length) {
      ++runs.back().length;
    } else {
      runs.push_back({src, dst, 1});
    }
  }
  if (rising) return runs;
  written.reserve(pairs.size());
  for (const BlockPair& pair : pairs) written.push_back(pair.dst);
  if (const int64_t twice = FirstTwice(std::move(written)); twice >= 0) {
    return absl::InvalidArgumentError(absl::StrCat("block ", twice, " is the destination of two pairs"));
  }
  return runs;
}

}  // namespace jumar::memory::kv
