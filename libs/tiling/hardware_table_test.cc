#include "libs/tiling/hardware_table.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

// What kernels do with the table: a plan that doesn't fit doesn't compile.
constexpr const HardwareSpec& k910B2 = *ChipNamed("Ascend910B2");
static_assert(k910B2.ub_bytes == 192 * 1024);
static_assert(k910B2.l0a_bytes % k910B2.l0a_alignment == 0);
static_assert(k910B2.fractal_rows * k910B2.fractal_row_bytes == 512);
static_assert(ChipNamed("Ascend910B9") == nullptr);
static_assert(SourceOf(k910B2, &HardwareSpec::ub_bytes) == Source::kArch2201);
static_assert(k910B2.TakesWeightsIn(kInt4) && !k910B2.TakesWeightsIn(kFp8) && ChipNamed("Ascend950PR")->TakesWeightsIn(kFp8));

TEST(HardwareTableTest, NoKnownFigureLacksASource) {
  for (const HardwareSpec& spec : kHardware) {
    for (const SpecFigure& figure : kSpecFigures) {
      EXPECT_EQ(spec.*figure.value == kUnknown, SourceOf(spec, figure.value) == Source::kNone) << spec.name << " " << figure.name;
      EXPECT_GE(spec.*figure.value, 0) << spec.name << " " << figure.name;
    }
    EXPECT_NE(spec.formats_source, Source::kNone) << spec.name;
    EXPECT_NE(spec.weight_formats_source, Source::kNone) << spec.name;
  }
}

TEST(HardwareTableTest, EverySourceIsDescribedAndUsed) {
  std::set<Source> used = {Source::kMeasured, Source::kGiven};  // of rows that the table doesn't have
  for (const HardwareSpec& spec : kHardware) {
    used.insert(spec.sources.begin(), spec.sources.end());
    used.insert({spec.formats_source, spec.weight_formats_source});
  }
  used.erase(Source::kNone);
  for (const Source source : used) {
    ASSERT_NE(NoteOf(source), nullptr) << static_cast<int>(source);
    EXPECT_FALSE(NoteOf(source)->title.empty());
    EXPECT_FALSE(NoteOf(source)->says.empty());
  }
  for (const SourceNote& note : kSources) {
    EXPECT_TRUE(used.contains(note.source)) << note.title;
    EXPECT_EQ(std::ranges::count(kSources, note.source, &SourceNote::source), 1) << note.title;
    EXPECT_EQ(std::ranges::count(kSources, note.title, &SourceNote::title), 1) << note.title;
  }
}

TEST(HardwareTableTest, FiguresAreNamedOnce) {
  std::set<std::string_view> names;
  for (const SpecFigure& figure : kSpecFigures) {
    EXPECT_TRUE(names.insert(figure.name).second) << figure.name;
    EXPECT_FALSE(figure.meaning.empty()) << figure.name;
    EXPECT_EQ(kSpecFigures[FigureIndex(figure.value)].name, figure.name) << "two figures share a field";
  }
}

TEST(HardwareTableTest, RowsAreConsistent) {
  std::set<std::string_view> names;
  std::set<int64_t> versions;
  for (const HardwareSpec& spec : kHardware) {
    EXPECT_TRUE(names.insert(spec.name).second) << spec.name << " twice";
    const bool shares_its_number = spec.architecture == Architecture::kA5 || spec.soc_version == kUnknown;
    EXPECT_TRUE(shares_its_number || versions.insert(spec.soc_version).second) << spec.name;
    for (const int64_t bytes : {spec.ub_bytes, spec.l1_bytes, spec.l0a_bytes, spec.l0b_bytes, spec.l0c_bytes}) EXPECT_EQ(bytes % 1024, 0) << spec.name;
    const bool separate_cores = spec.architecture != Architecture::k310P && spec.architecture != Architecture::kHost;
    EXPECT_EQ(separate_cores ? spec.aiv_cores : 0, separate_cores ? 2 * spec.aic_cores : 0) << spec.name;
    EXPECT_EQ(spec.Supports(kBf16), spec.architecture != Architecture::k310P) << spec.name;
    EXPECT_EQ(spec.Supports(kFp8), spec.architecture == Architecture::kA5) << spec.name;
    // A type that the cube is faster with is narrower.
    EXPECT_LE(spec.cube_macs_per_cycle_32bit, spec.cube_macs_per_cycle_16bit) << spec.name;
    EXPECT_LE(spec.cube_macs_per_cycle_16bit, spec.cube_macs_per_cycle_8bit) << spec.name;
    if (spec.l2_bytes_per_second != kUnknown && spec.memory_bytes_per_second != kUnknown) {
      EXPECT_GT(spec.l2_bytes_per_second, spec.memory_bytes_per_second) << spec.name;
    }
  }
}

// The peaks that documents give for whole chips, against the product of what other documents give for a core.
TEST(HardwareTableTest, ProductsAgreeWithPublishedPeaks) {
  const auto tflops = [](std::string_view name) {
    const HardwareSpec& spec = *ChipNamed(name);
    return 2e-12 * static_cast<double>(spec.aic_cores * spec.cube_macs_per_cycle_16bit) * static_cast<double>(spec.clock_hz);
  };
  EXPECT_NEAR(tflops("Ascend910B2"), 353, 1) << "kMigration";
  EXPECT_NEAR(tflops("Ascend910_9381"), 614 / 0.868 / 2, 1) << "arXiv 2509.25224: 614 TFLOP/s are 86.8% of a package's";
  EXPECT_NEAR(tflops("Ascend950PR"), 426, 8) << "kMigration";
  EXPECT_NEAR(static_cast<double>(k910B2.aic_cores * k910B2.gm_read_bytes_per_cycle) * static_cast<double>(k910B2.clock_hz), 5.0e12, 0.3e12) << "kAkgRates";
}

}  // namespace
}  // namespace jumar::tiling
