#include "libs/memory/device/range_allocator.h"

#include <algorithm>
#include <iterator>

namespace jumar::memory {
namespace {

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }

}  // namespace

RangeAllocator::RangeAllocator(uint64_t base, uint64_t bytes, uint64_t granularity)
    : granularity_(granularity), total_bytes_(bytes & ~(granularity - 1)) {
  if (total_bytes_ > 0) AddFree(base, total_bytes_);
}

std::optional<uint64_t> RangeAllocator::Take(uint64_t bytes, uint64_t alignment) {
  const uint64_t need = RoundUp(bytes, granularity_);
  if (need < bytes) return std::nullopt;  // overflow: no range is that long
  const uint64_t align = std::max(alignment, granularity_);
  for (auto it = free_by_size_.lower_bound({need, 0}); it != free_by_size_.end(); ++it) {
    const auto [length, start] = *it;
    const uint64_t aligned = RoundUp(start, align);
    if (aligned - start > length || length - (aligned - start) < need) continue;
    RemoveFree(start, length);
    if (aligned > start) AddFree(start, aligned - start);
    const uint64_t tail = start + length - (aligned + need);
    if (tail > 0) AddFree(aligned + need, tail);
    taken_.emplace(aligned, need);
    taken_bytes_ += need;
    return aligned;
  }
  return std::nullopt;
}

uint64_t RangeAllocator::Give(uint64_t start) {
  const auto it = taken_.find(start);
  if (it == taken_.end()) return 0;
  const uint64_t length = it->second;
  taken_.erase(it);
  taken_bytes_ -= length;

  uint64_t from = start, to = start + length;
  const auto after = free_by_start_.lower_bound(start);
  if (after != free_by_start_.end() && after->first == to) to += after->second;
  if (after != free_by_start_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) from = before->first;
  }
  if (to > start + length) RemoveFree(start + length, to - (start + length));
  if (from < start) RemoveFree(from, start - from);
  AddFree(from, to - from);
  return length;
}

std::optional<std::pair<uint64_t, uint64_t>> RangeAllocator::Find(uint64_t address) const {
  auto it = taken_.upper_bound(address);
  if (it == taken_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second) return std::nullopt;
  return std::pair{it->first, it->second};
}

uint64_t RangeAllocator::largest_free_bytes() const {
  return free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
}

void RangeAllocator::AddFree(uint64_t start, uint64_t bytes) {
  free_by_start_.emplace(start, bytes);
  free_by_size_.emplace(bytes, start);
}

void RangeAllocator::RemoveFree(uint64_t start, uint64_t bytes) {
  free_by_start_.erase(start);
  free_by_size_.erase({bytes, start});
}

}  // namespace jumar::memory
