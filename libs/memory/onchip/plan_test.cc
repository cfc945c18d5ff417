#include "libs/memory/onchip/plan.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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
    {.name = "scores",
     .space = Space::kUb,
     .bytes = 32 * kKiB,
     .policy = Policy::kDouble,
     .lifetime = {0, 3},
     .handover = {Pipe::kMte2, Pipe::kVector}},
    {.name = "sums", .space = Space::kUb, .bytes = 500, .lifetime = {2, 5}},
    {.name = "out",
     .space = Space::kUb,
     .bytes = 32 * kKiB,
     .policy = Policy::kDouble,
     .lifetime = {4, 6},
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
  EXPECT_THAT(ErrorText(map.view()), HasSubstr("UB: 204800 of 196608 bytes used (104%), at most 204800 alive in one step, 8192 too many"));
}

TEST(PlanTest, RefusesASpaceThatTheCoreHasNot) {
  ExpectError(PlanAll({{.name = "a", .space = Space::kL1, .bytes = 1}}, {.ub = 1}), ErrorKind::kOverCapacity,
              "there is no L1 (capacity 0)");
}

TEST(PlanTest, AStatusSaysWhetherItIsALackOrAMistake) {
  EXPECT_TRUE(PlanStatus(PlanAll({{.name = "a", .bytes = 32}}).view()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(PlanStatus(PlanAll({{.name = "a", .bytes = 200 * kKiB}}).view())));
  const absl::Status mistake = PlanStatus(PlanAll({{.name = "a", .bytes = 0}}).view());
  EXPECT_TRUE(absl::IsInvalidArgument(mistake));
  EXPECT_THAT(std::string(mistake.message()), HasSubstr("0 bytes, must be at least 1\nbuffer "));
}

TEST(PlanTest, FitsToTheByte) {
  EXPECT_TRUE(PlanAll({{.name = "a", .bytes = 192 * kKiB}}).ok());
  EXPECT_FALSE(PlanAll({{.name = "a", .bytes = 192 * kKiB + 1}}).ok());
  EXPECT_TRUE(PlanAll({{.name = "a", .bytes = 33, .policy = Policy::kDouble}}, {.ub = 64 + 33}).ok()) << "the last copy isn't rounded up";
  EXPECT_FALSE(PlanAll({{.name = "a", .bytes = 33, .policy = Policy::kDouble}}, {.ub = 64 + 32}).ok());
}

TEST(PlanTest, RefusesBadSizes) {
  ExpectError(PlanAll({{.name = "a", .bytes = 0}}), ErrorKind::kBadSize, "buffer \"a\": 0 bytes, must be at least 1");
  ExpectError(PlanAll({{.name = "a", .bytes = INT64_MIN}}), ErrorKind::kBadSize, "-9223372036854775808 bytes");
  ExpectError(PlanAll({{.name = "a", .bytes = INT64_MAX}}), ErrorKind::kSizeOverflow, "9223372036854775807 is more than");
  ExpectError(PlanAll({{.name = "a", .bytes = kLargestBytes, .policy = Policy::kQuad}}), ErrorKind::kOverCapacity,
              "4398046511104 of 196608");
}

TEST(PlanTest, RefusesBadAlignments) {
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .alignment = 48}}), ErrorKind::kBadAlignment,
              "alignment 48 must be a power of two from 32 (of UB)");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .alignment = 16}}), ErrorKind::kBadAlignment, "alignment 16 ");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .alignment = INT64_MIN}}), ErrorKind::kBadAlignment, "alignment -9223372036854775808");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .alignment = int64_t{1} << 40}}), ErrorKind::kBadAlignment, "alignment 1099511627776");
  ExpectError(PlanAll({{.name = "a", .space = Space::kL0a, .bytes = 1, .alignment = 256}}), ErrorKind::kBadAlignment, "from 512 (of L0A)");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .pinned_offset = 48}}), ErrorKind::kMisaligned,
              "offset 48 is not a multiple of its alignment, 32");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .pinned_offset = -32}}), ErrorKind::kMisaligned, "offset -32");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .pinned_offset = INT64_MAX}}), ErrorKind::kSizeOverflow, "9223372036854775807");
}

TEST(PlanTest, RefusesBadLifetimes) {
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .lifetime = {5, 4}}}), ErrorKind::kBadLifetime, "lifetime is reversed, steps 5 to 4");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .lifetime = {-1, 4}}}), ErrorKind::kBadLifetime, "starts at step -1");
}

TEST(PlanTest, RefusesBadNames) {
  ExpectError(PlanAll({{.bytes = 1}}), ErrorKind::kBadName, "name is empty");
  ExpectError(PlanAll({{.name = "a_name_of_thirty_two_characters_", .bytes = 1}}), ErrorKind::kBadName, "name is too long, at most 31");
  EXPECT_TRUE(PlanAll({{.name = "a_name_of_thirty_one_characters", .bytes = 1}}).ok());
  ExpectError(PlanAll({{.name = "a", .bytes = 1}, {.name = "b", .bytes = 1}, {.name = "a", .bytes = 1}}), ErrorKind::kDuplicateName,
              "buffer \"a\": buffers 0 and 2 have this name");
}

TEST(PlanTest, RefusesBadHandovers) {
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .handover = {Pipe::kMte2, Pipe::kNone}}}), ErrorKind::kBadHandover, "by MTE2 to none");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .handover = {Pipe::kVector, Pipe::kVector}}}), ErrorKind::kBadHandover, "by V to V");
}

TEST(PlanTest, RefusesUnknownValues) {
  ExpectError(PlanAll({{.name = "a", .space = static_cast<Space>(7), .bytes = 1}}), ErrorKind::kUnknownValue,
              "has the value 7, the largest is 6");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .policy = static_cast<Policy>(99)}}), ErrorKind::kUnknownValue, "99");
  ExpectError(PlanAll({{.name = "a", .bytes = 1, .handover = {Pipe::kVector, static_cast<Pipe>(200)}}}), ErrorKind::kUnknownValue, "200");
}

TEST(PlanTest, RefusesBadCapacities) {
  ExpectError(PlanAll({}, {.ub = 1, .l0c = -5}), ErrorKind::kBadCapacity, "capacity of L0C is -5 bytes");
  ExpectError(PlanAll({}, {.events_per_pair = -1}), ErrorKind::kBadCapacity, "events_per_pair is -1, must be 0 to 127");
  ExpectError(PlanAll({}, {.events_per_pair = 128}), ErrorKind::kBadCapacity, "events_per_pair is 128");
}

TEST(PlanTest, RefusesMoreBuffersThanAMapHolds) {
  const std::vector<Buffer> many(kMaxBuffers + 1, {.name = "a", .bytes = 1});
  ExpectError(PlanAll(many), ErrorKind::kTooManyBuffers, "33 buffers, a map of this type holds 0 to 32");
  EXPECT_EQ(Plan(kCore, nullptr, -1).error.kind, ErrorKind::kTooManyBuffers);
  EXPECT_EQ(Plan(kCore, nullptr, INT64_MAX).error.kind, ErrorKind::kTooManyBuffers);
  EXPECT_TRUE(Plan(kCore, nullptr, 0).ok());
}

// ---- Pinned buffers and aliases.

TEST(PlanTest, PlansAroundPinnedBuffers) {
  const Map map = PlanAll({{.name = "a", .bytes = 64}, {.name = "fixed", .bytes = 64, .pinned_offset = 96}, {.name = "b", .bytes = 128}});
  ASSERT_TRUE(map.ok()) << ErrorText(map.view());
  EXPECT_EQ(map.At("fixed").offset, 96);
  EXPECT_EQ(map.At("a").offset, 0) << "in the gap";
  EXPECT_EQ(map.At("b").offset, 160);
}

TEST(PlanTest, RefusesPinnedBuffersThatReuseALiveOne) {
  std::vector<Buffer> buffers = {{.name = "a", .bytes = 64, .lifetime = {0, 3}, .pinned_offset = 0},
                                 {.name = "b", .bytes = 64, .lifetime = {3, 4}, .pinned_offset = 32}};
  ExpectError(PlanAll(buffers), ErrorKind::kReusesLiveBuffer, "buffer \"b\": takes bytes of \"a\" while that is alive");
  buffers[1].lifetime = {4, 4};
  EXPECT_TRUE(PlanAll(buffers).ok());
  buffers[1].lifetime = {3, 4};
  buffers[1].pinned_offset = 64;
  EXPECT_TRUE(PlanAll(buffers).ok());
}

TEST(PlanTest, NamesAGapWhenItIsTheGapThatOverflows) {
  const Map map = PlanAll({{.name = "a", .bytes = 64}, {.name = "fixed", .bytes = 32, .pinned_offset = 32}}, {.ub = 96});
  ExpectError(map, ErrorKind::kOverCapacity, "buffer \"a\": ends beyond UB, which needs 128 of 96 bytes for gaps between buffers");
}

TEST(PlanTest, AliasesStartAtOneOffset) {
  std::vector<Buffer> buffers = {{.name = "scores", .bytes = 64, .lifetime = {0, 2}},
                                 {.name = "weights", .bytes = 128, .lifetime = {3, 5}, .alias_of = "scores"},
                                 {.name = "other", .bytes = 32, .lifetime = {1, 4}}};
  const Map map = PlanAll(buffers);
  ASSERT_TRUE(map.ok()) << ErrorText(map.view());
  EXPECT_EQ(map.At("weights").offset, map.At("scores").offset);
  EXPECT_TRUE(Verify(map.view()).ok());

  // While the smaller one lives, the rest of the larger one's bytes is free.
  buffers[2] = {.name = "other", .bytes = 64, .lifetime = {0, 2}};
  EXPECT_EQ(PlanAll(buffers).At("other").offset, 64);

  buffers[1].lifetime = {2, 5};
  ExpectError(PlanAll(buffers), ErrorKind::kReusesLiveBuffer, "buffer \"weights\": takes bytes of \"scores\" while that is alive");
}

TEST(PlanTest, RefusesBadAliases) {
  const Buffer a = {.name = "a", .bytes = 64, .lifetime = {0, 0}};
  const std::string text = "that must be another buffer of the same space";
  ExpectError(PlanAll({a, {.name = "b", .bytes = 64, .lifetime = {1, 1}, .alias_of = "nobody"}}), ErrorKind::kBadAlias,
              "alias of \"nobody\": " + text);
  ExpectError(PlanAll({a, {.name = "b", .bytes = 64, .lifetime = {1, 1}, .alias_of = "b"}}), ErrorKind::kBadAlias, text);
  ExpectError(PlanAll({a, {.name = "b", .space = Space::kL1, .bytes = 64, .lifetime = {1, 1}, .alias_of = "a"}}), ErrorKind::kBadAlias,
              text);
  ExpectError(PlanAll({a, {.name = "b", .bytes = 64, .lifetime = {1, 1}, .pinned_offset = 0, .alias_of = "a"}}), ErrorKind::kBadAlias,
              text);
  ExpectError(PlanAll({a,
                       {.name = "b", .bytes = 64, .lifetime = {1, 1}, .alias_of = "a"},
                       {.name = "c", .bytes = 64, .lifetime = {2, 2}, .alias_of = "b"}}),
              ErrorKind::kBadAlias, "buffer \"c\"");
  ExpectError(PlanAll({{.name = "a", .bytes = 64, .lifetime = {0, 0}, .pinned_offset = 32},
                       {.name = "b", .bytes = 64, .lifetime = {1, 1}, .alignment = 64, .alias_of = "a"}}),
              ErrorKind::kMisaligned, "buffer \"b\": offset 32 is not a multiple of its alignment, 64");
}

// ---- Event ids.

TEST(PlanTest, EveryCopyHasAnIdEachWay) {
  const Handover in = {Pipe::kMte2, Pipe::kVector};
  const Map map = PlanAll({{.name = "a", .bytes = 32, .policy = Policy::kTriple, .lifetime = {0, 1}, .handover = in},
                           {.name = "b", .bytes = 32, .policy = Policy::kQuad, .lifetime = {1, 2}, .handover = in},
                           {.name = "c", .bytes = 32, .policy = Policy::kTriple, .lifetime = {2, 2}, .handover = in}});
  ASSERT_TRUE(map.ok()) << ErrorText(map.view());
  EXPECT_THAT(map.At("a").forward, ::testing::ElementsAre(0, 1, 2, -1));
  EXPECT_THAT(map.At("a").backward, ::testing::ElementsAre(0, 1, 2, -1));
  EXPECT_THAT(map.At("b").forward, ::testing::ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(map.At("c").forward, ::testing::ElementsAre(0, 1, 2, -1)) << "those of a, which is dead";
  EXPECT_EQ(map.Events(Pipe::kMte2, Pipe::kVector), 7);
  EXPECT_EQ(map.Events(Pipe::kVector, Pipe::kMte2), 7);
  EXPECT_EQ(map.Events(Pipe::kVector, Pipe::kMte3), 0);
}

TEST(PlanTest, RefusesToRunOutOfEventIds) {
  std::vector<Buffer> buffers;
  for (const char* name : {"a", "b"}) {
    buffers.push_back({.name = name, .bytes = 32, .policy = Policy::kQuad, .lifetime = {0, 4}, .handover = {Pipe::kMte2, Pipe::kVector}});
  }
  EXPECT_TRUE(PlanAll(buffers).ok()) << "eight";
  buffers.push_back({.name = "late", .bytes = 32, .lifetime = {4, 5}, .handover = {Pipe::kMte2, Pipe::kVector}});
  const Map map = PlanAll(buffers);
  ExpectError(map, ErrorKind::kOutOfEvents, "buffer \"late\": out of event ids from MTE2 to V, 9 of 8 needed at step 4");
  EXPECT_THAT(ErrorText(map.view()), HasSubstr("MTE2>V -, V>MTE2 -"));
  buffers[2].lifetime = {5, 5};
  EXPECT_TRUE(PlanAll(buffers).ok());
  // The way back of V to MTE2 is the pair MTE2 to V.
  buffers[2].lifetime = {4, 5};
  buffers[2].handover = {Pipe::kVector, Pipe::kMte2};
  EXPECT_EQ(PlanAll(buffers).error.kind, ErrorKind::kOutOfEvents);
  buffers[2].handover = {Pipe::kVector, Pipe::kMte3};
  EXPECT_TRUE(PlanAll(buffers).ok());
}

TEST(PlanTest, FewerIdsWhereSomeAreReserved) {
  Capacities core = kCore;
  core.events_per_pair = 6;
  const Buffer a = {.name = "a", .bytes = 32, .policy = Policy::kQuad, .handover = {Pipe::kMte2, Pipe::kVector}};
  const Buffer b = {.name = "b", .bytes = 32, .policy = Policy::kTriple, .handover = {Pipe::kMte2, Pipe::kVector}};
  EXPECT_TRUE(PlanAll({a, b}).ok());
  ExpectError(PlanAll({a, b}, core), ErrorKind::kOutOfEvents, "7 of 6 needed");
}

}  // namespace
}  // namespace jumar::memory::onchip
