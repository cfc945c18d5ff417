#include "libs/memory/device/holders.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::memory {

void HolderSums::Add(std::string_view tag, uint64_t bytes) {
  tag = tag.empty() ? kUntagged : tag.substr(0, kMaxTagLength);
  auto it = by_tag_.find(tag);
  if (it == by_tag_.end()) it = by_tag_.emplace(tag, MemoryHolder{.tag = std::string(tag)}).first;
  MemoryHolder& holder = it->second;
  holder.bytes += bytes;
  ++holder.count;
  holder.largest_bytes = std::max(holder.largest_bytes, bytes);
}

std::vector<MemoryHolder> HolderSums::Sorted() const {
  std::vector<MemoryHolder> holders;
  for (const auto& [tag, holder] : by_tag_) holders.push_back(holder);
  std::stable_sort(holders.begin(), holders.end(), [](const MemoryHolder& a, const MemoryHolder& b) { return a.bytes > b.bytes; });
  return holders;
}

std::string DescribeHolders(absl::Span<const MemoryHolder> sorted) {
  std::string text;
  for (const MemoryHolder& holder : sorted.subspan(0, kMaxReported)) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", holder.tag, " ", FormatBytes(holder.bytes), " in ", holder.count);
    if (holder.count > 1) absl::StrAppend(&text, " (largest ", FormatBytes(holder.largest_bytes), ")");
  }
  if (sorted.size() > kMaxReported) {
    MemoryHolder rest;
    for (const MemoryHolder& holder : sorted.subspan(kMaxReported)) {
      rest.bytes += holder.bytes;
      rest.count += holder.count;
    }
    absl::StrAppend(&text, ", ", sorted.size() - kMaxReported, " other tags ", FormatBytes(rest.bytes), " in ", rest.count);
  }
  return text;
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

}  // namespace jumar::memory
