#include "libs/tiling/checked.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace jumar::tiling {
namespace {

absl::Status TooLarge(std::string_view what, std::initializer_list<int64_t> sizes, const char* sign) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(what), " = ", absl::StrJoin(sizes, sign), " is beyond 2^60, the largest that solvers count"));
}

absl::Status Negative(std::string_view what, std::initializer_list<int64_t> sizes) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": a size is negative (", absl::StrJoin(sizes, ", "), ")"));
}

bool AnyNegative(std::initializer_list<int64_t> sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; });
}

}  // namespace

absl::StatusOr<int64_t> Product(std::string_view what, std::initializer_list<int64_t> factors) {
  if (AnyNegative(factors)) return Negative(what, factors);
  if (std::find(factors.begin(), factors.end(), 0) != factors.end()) return 0;
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product) || product > kMaxWork) return TooLarge(what, factors, " * ");
  }
  return product;
}

absl::StatusOr<int64_t> Sum(std::string_view what, std::initializer_list<int64_t> terms) {
  if (AnyNegative(terms)) return Negative(what, terms);
  int64_t sum = 0;
  for (const int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum) || sum > kMaxWork) return TooLarge(what, terms, " + ");
  }
  return sum;
}

}  // namespace jumar::tiling
