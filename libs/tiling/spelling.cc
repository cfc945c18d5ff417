#include "libs/tiling/spelling.h"

#include <algorithm>
#include <utility>

namespace jumar::tiling {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row[b.size()];
}

std::vector<std::string> NearNames(std::string_view wanted, std::span<const std::string_view> names) {
  std::vector<std::string> near;
  for (const std::string_view name : names) {
    if (EditDistance(wanted, name) <= 2) near.emplace_back(name);
  }
  return near;
}

}  // namespace jumar::tiling
