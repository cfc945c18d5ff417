#include "libs/tiling/hardware.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "libs/tiling/hardware_table.h"

namespace jumar::tiling {
namespace {

TEST(HardwareTest, FindsByNameInAnyCaseAndWithAVariantSuffix) {
  ASSERT_TRUE(FindHardware("Ascend910B2").ok());
  EXPECT_EQ((*FindHardware("Ascend910B2"))->soc_version, 221);
  EXPECT_EQ((*FindHardware("ASCEND910B4-1"))->name, "Ascend910B4-1");
  EXPECT_EQ((*FindHardware("Ascend950PR_9599"))->name, "Ascend950PR");
  EXPECT_EQ((*FindHardware("ascend910_9392"))->architecture, Architecture::kA3);
  EXPECT_EQ((*FindHardware("host"))->soc_version, kUnknown);
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

TEST(HardwareTest, AFigureCanBeGiven) {
  HardwareSpec spec = **FindHardware("Ascend910B4-1");
  EXPECT_EQ(spec.memory_bytes_per_second, kUnknown);
  ASSERT_TRUE(OverrideFigure(spec, "memory_bytes_per_second", 1'600'000'000'000).ok());
  EXPECT_EQ(spec.memory_bytes_per_second, 1'600'000'000'000);
  EXPECT_EQ(SourceOf(spec, &HardwareSpec::memory_bytes_per_second), Source::kGiven);
  EXPECT_EQ(SourceOf(spec, &HardwareSpec::memory_bytes), Source::kHami) << "the others keep theirs";

  EXPECT_EQ(OverrideFigure(spec, "ub_byte", 1).message(), "unknown figure \"ub_byte\"; did you mean ub_bytes?");
  EXPECT_EQ(OverrideFigure(spec, "", 1).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(OverrideFigure(spec, "ub_bytes", 0).message(), "ub_bytes=0 is not positive");
  EXPECT_EQ(OverrideFigure(spec, "ub_bytes", INT64_MIN).code(), absl::StatusCode::kInvalidArgument);
}

TEST(HardwareTest, ShowsTheTable) {
  EXPECT_EQ(AllHardware().size(), kHardware.size());
  for (const HardwareSpec& spec : AllHardware()) EXPECT_EQ(*FindHardware(spec.name), &spec);
  for (const SpecFigure& figure : kSpecFigures) EXPECT_EQ(*FindFigure(figure.name), &figure);
}

TEST(HardwareTest, NamesFormats) {
  EXPECT_EQ(FormatNames(kFp32 | kBf16 | kMxFp4), "fp32 bf16 mxfp4");
  EXPECT_EQ(FormatNames(0), "");
  EXPECT_EQ(ArchitectureName(Architecture::k310P), "310P");
}

}  // namespace
}  // namespace jumar::tiling
