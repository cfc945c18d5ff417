#include "libs/tiling/hardware.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

TEST(HardwareTest, FindsByNameInAnyCaseAndWithAVariantSuffix) {
  ASSERT_TRUE(FindHardware("Ascend910B2").ok());
  EXPECT_EQ((*FindHardware("Ascend910B2"))->soc_version, 221);
  EXPECT_EQ((*FindHardware("ASCEND910B4-1"))->name, "Ascend910B4-1");
  EXPECT_EQ((*FindHardware("Ascend950PR_9599"))->name, "Ascend950PR");
  EXPECT_EQ((*FindHardware("ascend910_9392"))->architecture, Architecture::kA3);
  EXPECT_EQ((*FindHardware("host"))->soc_version, -1);
}

TEST(HardwareTest, AnUnknownNameIsAnsweredWithNearOnesOrAll) {
  const auto message = [](std::string_view name) { return std::string(FindHardware(name).status().message()); };
  EXPECT_EQ(message("Ascend910B9"),
            "unknown hardware \"Ascend910B9\"; did you mean Ascend910B1, Ascend910B2, Ascend910B2C, Ascend910B3, Ascend910B4?");
  EXPECT_EQ(message("910b3"), "unknown hardware \"910b3\"; did you mean Ascend910B3?");
  EXPECT_NE(message("H100").find("known are Ascend910B1, "), std::string::npos);
  EXPECT_NE(message("").find("known are "), std::string::npos);
  EXPECT_FALSE(FindHardware("Ascend910B2x").ok());
}

TEST(HardwareTest, RowsAreConsistent) {
  std::set<std::string_view> names;
  for (const HardwareSpec& spec : AllHardware()) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";
    for (int64_t figure : {spec.aic_cores, spec.aiv_cores, spec.ub_bytes, spec.l1_bytes, spec.l0a_bytes, spec.l0b_bytes, spec.l0c_bytes, spec.l2_bytes,
                           spec.memory_bytes, spec.memory_bytes_per_second}) {
      EXPECT_GE(figure, 0) << spec.name;
    }
    for (int64_t bytes : {spec.ub_bytes, spec.l1_bytes, spec.l0a_bytes, spec.l0b_bytes, spec.l0c_bytes}) EXPECT_EQ(bytes % 1024, 0) << spec.name;
    const bool separate_cores = spec.architecture == Architecture::kA2 || spec.architecture == Architecture::kA3;
    EXPECT_EQ(separate_cores ? spec.aiv_cores : 0, separate_cores ? 2 * spec.aic_cores : 0) << spec.name;
    EXPECT_EQ(spec.Supports(kBf16), spec.architecture != Architecture::k310P) << spec.name;
    EXPECT_EQ(spec.Supports(kFp8), spec.architecture == Architecture::kA5) << spec.name;
  }
}

TEST(HardwareTest, NamesFormats) {
  EXPECT_EQ(FormatNames(kFp32 | kBf16 | kMxFp4), "fp32 bf16 mxfp4");
  EXPECT_EQ(FormatNames(0), "");
  EXPECT_EQ(ArchitectureName(Architecture::k310P), "310P");
}

}  // namespace
}  // namespace jumar::tiling
