#include "libs/memory/device/holders.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace jumar::memory {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(HoldersTest, NamesTheLargestFirst) {
  HolderSums sums;
  sums.Add("weights", 32 * kMiB);
  sums.Add("kv_cache", 10486 * kMiB);
  sums.Add("", 20 * kMiB);
  sums.Add("weights", 8 * kMiB);
  EXPECT_EQ(DescribeHolders(sums.Sorted()), "kv_cache 10.24 GiB in 1, weights 40.00 MiB in 2 (largest 32.00 MiB), untagged 20.00 MiB in 1");
  EXPECT_EQ(DescribeHolders({}), "");
}

TEST(HoldersTest, StaysShortWhateverIsTagged) {
  HolderSums sums;
  for (int i = 0; i < 1000; ++i) sums.Add(absl::StrCat(i, std::string(100000, 'x')), UINT64_MAX / 2000);
  const std::string text = DescribeHolders(sums.Sorted());
  EXPECT_LT(text.size(), 600u);
  EXPECT_NE(text.find(", 994 other tags "), std::string::npos) << text;
  EXPECT_NE(text.find(" in 994"), std::string::npos) << text;
}

}  // namespace
}  // namespace jumar::memory
