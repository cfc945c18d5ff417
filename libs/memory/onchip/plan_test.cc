#include "libs/memory/onchip/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "libs/memory/onchip/text.h"
#include "libs/memory/onchip/verify.h"

namespace jumar::memory::onchip {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kKiB = 1024;
constexpr Capacities kCore = {
    .ub = 192 * kKiB, .l1 = 512 * kKiB, .l0a = 64 * kKiB, .l0b = 64 * kKiB, .l0c = 128 * kKiB, .fb = 2 * kKiB, .bt = 1 * kKiB};

Map PlanAll(const std::vector<Buffer>& buffers, const Capacities& capacities = kCore) {
  return Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size()));
}

// ---- At compile time.

constexpr Buffer kAttention[] = {
    {.name = "scores", .space = Space::kUb, .bytes = 32 * kKiB, .policy = Policy::kDouble, .lifetime = {0, 3},
     .handover = {Pipe::kMte2, Pipe::kVector}},
    {.name = "sums", .space = Space::kUb, .bytes = 500, .lifetime = {2, 5}},
    {.name = "out", .space = Space::kUb, .bytes = 32 * kKiB, .policy = Policy::kDouble, .lifetime = {4, 6},
     .handover = {Pipe::kVector, Pipe::kMte3}},
    {.name = "q", .space = Space::kL0a, .bytes = 16 * kKiB, .policy = Policy::k2x2, .handover = {Pipe::kMte1, Pipe::kCube}},
};
constexpr auto kMap = Plan(kCore, kAttention);
static_assert(kMap.ok() && Verify(kMap.view()).ok());
static_assert(kMap.At("scores").offset == 0 && kMap.At("out").offset == 0, "they don't live together");
static_assert(kMap.At("scores").Offset(1) == 32 * kKiB);
static_assert(kMap.At("sums").offset == 64 * kKiB);
static_assert(kMap.Used(Space::kUb) == 64 * kKiB + 500);
static_assert(kMap.Used(Space::kL0a) == 64 * kKiB);
static_assert(kMap.Events(Pipe::kMte1, Pipe::kCube) == 4 && kMap.Events(Pipe::kCube, Pipe::kMte1) == 4);
static_assert(kMap.Find("nobody") == -1);

TEST(PlanTest, TheSameAtRunTimeAsAtCompileTime) {
  const Map map = Plan(kCore, kAttention, 4);
  ASSERT_TRUE(map.ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(map.placements[i].offset, kMap.placements[i].offset);
    EXPECT_EQ(map.placements[i].forward[1], kMap.placements[i].forward[1]);
  }
  EXPECT_EQ(map.At("nobody").offset, -1);
}

// ---- Errors.

void ExpectError(const Map& map, ErrorKind kind, const std::string& text) {
  EXPECT_EQ(static_cast<int>(map.error.kind), static_cast<int>(kind));
  EXPECT_THAT(ErrorText(map.view()), HasSubstr(text));
}

TEST(PlanTest, RefusesWhatIsTooLarge) {
  const Map map = PlanAll({{.name = "mask", .bytes = 20 * kKiB}, {.name = "tile", .bytes = 90 * kKiB, .policy = Policy::kDouble}});
  ExpectError(map, ErrorKind::kOverCapacity, "buffer \"tile\": it is the largest in UB at step 0, which needs 204800 of 196608 bytes");
  EXPECT_EQ(map.placements[1].copies, 2) << "still placed, to be drawn";
  EXPECT_THAT(ErrorText(map.view()), HasSubstr("UB: 204800 of 196608 bytes used (104%), at most 204800 alive in one step, 8192 TOO MANY"));
}

TEST(PlanTest, RefusesASpaceThatTheCoreHasNot) {
  ExpectError(PlanAll({{.name = "a", .space = Space::kL1, .bytes = 1}}, {.ub = 1}), ErrorKind::kOverCapacity, "there is no L1");
}

}  // namespace
}  // namespace jumar::memory::onchip
