#ifndef LIBS_TILING_CHECKED_H_
#define LIBS_TILING_CHECKED_H_

// Integer arithmetic on sizes that a user gave: what could overflow is an error that names the quantity. A solver checks its largest
// products once, at its entrance; what it computes from then on is smaller, and plain.

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "absl/status/statusor.h"

namespace jumar::tiling {

// The largest work or traffic that solvers accept: a few such sums still fit int64. (256 sequences of 1M tokens, 128 heads of 576, four
// bytes each are 2^46.)
inline constexpr int64_t kMaxWork = int64_t{1} << 60;

// Of sizes that are not negative, b > 0, a + b within int64.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// The product or sum of sizes; InvalidArgument names `what` if a size is negative or the result exceeds kMaxWork.
absl::StatusOr<int64_t> Product(std::string_view what, std::initializer_list<int64_t> factors);
absl::StatusOr<int64_t> Sum(std::string_view what, std::initializer_list<int64_t> terms);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_CHECKED_H_
