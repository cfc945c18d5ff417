#include "libs/tiling/simd.h"

#include <string>

#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

TEST(SimdTest, EveryTargetCanBeForcedAndTheBestIsTheDefault) {
  ASSERT_FALSE(SimdTargets().empty());
  for (const std::string& name : SimdTargets()) {
    ASSERT_TRUE(UseSimdTarget(name).ok());
    EXPECT_EQ(SimdTarget(), name);
    ASSERT_FALSE(SimdTargets().empty());  // listing does not change the choice
    EXPECT_EQ(SimdTarget(), name);
  }
  ASSERT_TRUE(UseSimdTarget("").ok());
  EXPECT_EQ(SimdTarget(), SimdTargets().front());
}

TEST(SimdTest, AnUnknownTargetIsRefusedWithTheKnownNames) {
  const absl::Status status = UseSimdTarget("AVX9");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("\"AVX9\" is not among " + SimdTargets().front()), std::string::npos) << status;
  EXPECT_EQ(SimdTarget(), SimdTargets().front());
}

}  // namespace
}  // namespace jumar::tiling
