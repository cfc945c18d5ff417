#include "libs/tiling/buffer_map.h"

#include "gtest/gtest.h"
#include "libs/tiling/hardware_table.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

TEST(BufferMapTest, TheSolversDefaultsLieWhereTheyDontTouch) {
  const HardwareSpec& chip = *ChipNamed("Ascend910B2");
  for (const Solver& solver : Solvers()) {
    SCOPED_TRACE(solver.name);
    const auto values = ParseArguments(solver, {});
    ASSERT_TRUE(values.ok());
    const auto solution = solver.solve(*values, chip);
    ASSERT_TRUE(solution.ok()) << solution.status();
    const auto map = PlanBuffers(solution->buffers, chip);
    EXPECT_TRUE(map.ok()) << static_cast<int>(map.error.kind);
    ASSERT_EQ(map.count, static_cast<int>(solution->buffers.size()));
    for (int i = 0; i < map.count; ++i) {
      const Buffer& a = solution->buffers[i];
      const int64_t begin = map.placements[i].offset, end = map.placements[i].Offset(static_cast<int>(a.copies) - 1) + a.bytes;
      EXPECT_LE(end, Capacity(chip, a.memory)) << a.name;
      for (int j = 0; j < i; ++j) {
        const Buffer& b = solution->buffers[j];
        const bool together = a.memory == b.memory && a.first <= b.last && b.first <= a.last;
        const int64_t other = map.placements[j].offset, other_end = map.placements[j].Offset(static_cast<int>(b.copies) - 1) + b.bytes;
        EXPECT_TRUE(!together || end <= other || other_end <= begin) << a.name << " and " << b.name;
      }
    }
  }
}

TEST(BufferMapTest, SaysWhatDoesNotFit) {
  const std::vector<Buffer> buffers = {{.name = "tile", .memory = Memory::kUb, .bytes = 100 * 1024, .copies = 2}};
  const auto map = PlanBuffers(buffers, *ChipNamed("Ascend910B2"));
  EXPECT_EQ(map.error.kind, memory::onchip::ErrorKind::kOverCapacity);
  EXPECT_EQ(map.error.limit, 192 * 1024);
}

TEST(BufferMapTest, ARingIsOneBuffer) {
  const std::vector<Buffer> buffers = {{.name = "ring", .memory = Memory::kUb, .bytes = 33, .copies = 6}};
  const auto map = PlanBuffers(buffers, *ChipNamed("Ascend910B2"));
  EXPECT_TRUE(map.ok());
  EXPECT_EQ(map.Used(memory::onchip::Space::kUb), 6 * 64);
}

}  // namespace
}  // namespace jumar::tiling
