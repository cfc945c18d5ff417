// Book-keeping of address ranges: best fit, coalescing, no memory behind it.
//
// A RangeAllocator hands out disjoint, aligned sub-ranges of one half-open interval [base, base + bytes) and takes them back.
// It is used for the virtual window of a device (addresses) and for the file behind its physical memory (offsets).
//
//   RangeAllocator ranges(/*base=*/0, /*bytes=*/1 << 20, /*granularity=*/4096);
//   std::optional<uint64_t> at = ranges.Take(5000, 4096);   // occupies 8192 bytes
//   ranges.Give(*at);
//
// Not thread-safe; the owner locks.
#ifndef LIBS_MEMORY_DEVICE_RANGE_ALLOCATOR_H_
#define LIBS_MEMORY_DEVICE_RANGE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace jumar::memory {

class RangeAllocator {
 public:
  // `granularity` is a power of two; `base` is a multiple of it; `bytes` is rounded down to it.
  RangeAllocator(uint64_t base, uint64_t bytes, uint64_t granularity);

  // Returns the start of a free range of `bytes` (rounded up to the granularity) aligned to `alignment` (a power of two; 0 means
  // the granularity), or nothing when no free range is long enough. `bytes` is positive.
  std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment);

  // Frees the range that starts at `start` and returns its length, or 0 when no taken range starts there.
  uint64_t Give(uint64_t start);

  // The taken range that holds `address`, as (start, length).
  std::optional<std::pair<uint64_t, uint64_t>> Find(uint64_t address) const;

  const std::map<uint64_t, uint64_t>& taken() const { return taken_; }
  uint64_t taken_bytes() const { return taken_bytes_; }
  uint64_t free_bytes() const { return total_bytes_ - taken_bytes_; }
  uint64_t largest_free_bytes() const;

 private:
  void AddFree(uint64_t start, uint64_t bytes);
  void RemoveFree(uint64_t start, uint64_t bytes);

  uint64_t granularity_;
  uint64_t total_bytes_;
  uint64_t taken_bytes_ = 0;
  std::map<uint64_t, uint64_t> taken_;                 // start -> length
  std::map<uint64_t, uint64_t> free_by_start_;         // start -> length
  std::set<std::pair<uint64_t, uint64_t>> free_by_size_;  // (length, start)
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_RANGE_ALLOCATOR_H_
