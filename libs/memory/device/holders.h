// Who holds the memory of a device: sums by tag, and the sentence that an out-of-memory error says about them.
#ifndef LIBS_MEMORY_DEVICE_HOLDERS_H_
#define LIBS_MEMORY_DEVICE_HOLDERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace jumar::memory {

// What an allocation or chunk without a tag is counted as.
inline constexpr std::string_view kUntagged = "untagged";

// Most tags that a report names, and most characters of a tag: whatever a program tags, the report stays short.
inline constexpr size_t kMaxReported = 6;
inline constexpr size_t kMaxTagLength = 32;

struct MemoryHolder {
  std::string tag;
  uint64_t bytes = 0;  // as charged
  uint64_t count = 0;  // allocations and chunks
  uint64_t largest_bytes = 0;
};

class HolderSums {
 public:
  void Add(std::string_view tag, uint64_t bytes);
  std::vector<MemoryHolder> Sorted() const;  // most bytes first, then by tag

 private:
  std::map<std::string, MemoryHolder, std::less<>> by_tag_;
};

// "kv_cache 10.24 GiB in 1, weights 278.00 MiB in 22 (largest 32.00 MiB), untagged 24.00 MiB in 1"; "" if there are none.
std::string DescribeHolders(absl::Span<const MemoryHolder> sorted);

// "1.50 GiB", "20.00 MiB", "512 B".
std::string FormatBytes(uint64_t bytes);

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_HOLDERS_H_
