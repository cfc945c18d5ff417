#include "tools/build/selftest/sum.h"

// Returns 0 and writes the sum to *out, or returns 1.
extern "C" int jumar_selftest_sum(const int* values, int count, int* out) {
  const auto sum = jumar::selftest::Sum(absl::MakeConstSpan(values, count));
  if (!sum.ok()) return 1;
  *out = *sum;
  return 0;
}
