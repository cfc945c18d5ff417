#include "libs/tiling/checked.h"

#include <limits>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(CheckedTest, ProductsAndSums) {
  EXPECT_EQ(*Product("x", {3, 5, 7}), 105);
  EXPECT_EQ(*Product("x", {}), 1);
  EXPECT_EQ(*Product("x", {kMax, kMax, 0}), 0);
  EXPECT_EQ(*Product("x", {kMaxWork, 1}), kMaxWork);
  EXPECT_EQ(*Sum("x", {3, 5, 7}), 15);
}

TEST(CheckedTest, WhatOverflowsIsNamed) {
  for (const auto& result :
       {Product("bytes of A", {kMaxWork, 2}), Product("bytes of A", {kMax, kMax}), Product("bytes of A", {1 << 30, 1 << 30, 2}),
        Sum("bytes of A", {kMaxWork, 1}), Sum("bytes of A", {kMax, kMax}), Product("bytes of A", {-1, 2}),
        Sum("bytes of A", {std::numeric_limits<int64_t>::min(), 2})}) {
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(result.status().message().find("bytes of A"), std::string::npos) << result.status();
  }
}

TEST(CheckedTest, CeilDivAndRoundUp) {
  EXPECT_EQ(CeilDiv(0, 16), 0);
  EXPECT_EQ(CeilDiv(1, 16), 1);
  EXPECT_EQ(CeilDiv(17, 16), 2);
  EXPECT_EQ(RoundUp(17, 16), 32);
}

}  // namespace
}  // namespace jumar::tiling
