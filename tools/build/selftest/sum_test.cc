#include "tools/build/selftest/sum.h"

#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::selftest {
namespace {

TEST(SumTest, AddsAnyNumberOfValues) {
  for (int count : {1, 2, 3, 4, 5, 7, 8, 9, 31, 1000}) {
    std::vector<int32_t> values(count);
    std::iota(values.begin(), values.end(), 1);
    EXPECT_EQ(Sum(values).value(), count * (count + 1) / 2);
  }
}

TEST(SumTest, NamesASumThatIsTooLarge) {
  const std::vector<int32_t> values(2, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(Sum(values).status().message(), "the sum 4294967294 exceeds int32");
}

TEST(SumTest, RefusesNoValues) { EXPECT_FALSE(Sum({}).ok()); }

}  // namespace
}  // namespace jumar::selftest
