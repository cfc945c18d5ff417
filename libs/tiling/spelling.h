#ifndef LIBS_TILING_SPELLING_H_
#define LIBS_TILING_SPELLING_H_

// Names that a user may have meant, for error texts.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jumar::tiling {

// Insertions, deletions and replacements of a character that make one of the other.
size_t EditDistance(std::string_view a, std::string_view b);

// Those of `names` that are at most two slips away from `wanted`.
std::vector<std::string> NearNames(std::string_view wanted, std::span<const std::string_view> names);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_SPELLING_H_
