#include "libs/tiling/spelling.h"

#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

TEST(SpellingTest, CountsSlips) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("", "ab"), 2u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("same", "same"), 0u);
}

TEST(SpellingTest, NearNamesAreAtMostTwoSlipsAway) {
  const std::vector<std::string_view> names = {"JUMAR_DEVICES", "JUMAR_SOC", "JUMAR_THREADS"};
  EXPECT_EQ(NearNames("JUMAR_DEVICE", names), std::vector<std::string>{"JUMAR_DEVICES"});
  EXPECT_EQ(NearNames("JUMAR_TREADZ", names), std::vector<std::string>{"JUMAR_THREADS"});
  EXPECT_TRUE(NearNames("JUMAR_COLOUR", names).empty());
}

}  // namespace
}  // namespace jumar::tiling
