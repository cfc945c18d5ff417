#include "libs/memory/onchip/verify.h"

#include <functional>

#include "gtest/gtest.h"
#include "libs/memory/onchip/plan.h"

namespace jumar::memory::onchip {
namespace {

// Sound, with something of everything.
Map Sound() {
  const Buffer buffers[] = {
      {.name = "in", .bytes = 100, .policy = Policy::kDouble, .lifetime = {0, 3}, .handover = {Pipe::kMte2, Pipe::kVector}},
      {.name = "mask", .bytes = 64, .policy = Policy::kDouble, .lifetime = {2, 5}, .handover = {Pipe::kMte2, Pipe::kVector}},
      {.name = "fixed", .bytes = 64, .pinned_offset = 1024},
      {.name = "late", .bytes = 200, .lifetime = {6, 7}, .alias_of = "in"},
      {.name = "k", .space = Space::kL0a, .bytes = 100, .policy = Policy::kDouble},
  };
  return Plan({.ub = 2048, .l0a = 2048}, buffers, 5);
}

struct Damage {
  const char* what;
  std::function<void(Map&)> damage;
  ErrorKind kind;
};

TEST(VerifyTest, FindsWhatIsWrong) {
  ASSERT_TRUE(Sound().ok());
  ASSERT_TRUE(Verify(Sound().view()).ok());
  const Damage damages[] = {
      {"a buffer without bytes", [](Map& m) { m.buffers[0].bytes = 0; }, ErrorKind::kBadSize},
      {"not placed", [](Map& m) { m.placements[1].offset = -1; }, ErrorKind::kNotPlaced},
      {"a copy is missing", [](Map& m) { m.placements[0].copies = 1; }, ErrorKind::kNotPlaced},
      {"away from its pin", [](Map& m) { m.placements[2].offset += 32; }, ErrorKind::kNotPlaced},
      {"away from its alias", [](Map& m) { m.placements[3].offset += 1200; }, ErrorKind::kMisaligned},
      {"away from its alias, aligned", [](Map& m) { m.placements[3].offset += 1216; }, ErrorKind::kNotPlaced},
      {"misaligned", [](Map& m) { m.placements[4].offset += 256; }, ErrorKind::kMisaligned},
      {"copies overlap", [](Map& m) { m.placements[4].stride = 64; }, ErrorKind::kWrongStride},
      {"beyond the space", [](Map& m) { m.placements[4].offset = 1536; }, ErrorKind::kOverCapacity},
      {"far beyond", [](Map& m) { m.placements[4].offset = INT64_MAX - 511; }, ErrorKind::kSizeOverflow},
      {"on a live one", [](Map& m) { m.placements[1].offset = m.placements[0].Offset(1); }, ErrorKind::kReusesLiveBuffer},
      {"event missing", [](Map& m) { m.placements[0].forward[1] = -1; }, ErrorKind::kEventsWrong},
      {"event beyond", [](Map& m) { m.placements[0].backward[0] = 8; }, ErrorKind::kEventsWrong},
      {"event of a live one", [](Map& m) { m.placements[0].forward[1] = m.placements[1].forward[0]; }, ErrorKind::kEventShared},
      {"event twice", [](Map& m) { m.placements[0].backward[1] = m.placements[0].backward[0]; }, ErrorKind::kEventShared},
  };
  for (const Damage& d : damages) {
    Map map = Sound();
    d.damage(map);
    EXPECT_EQ(static_cast<int>(Verify(map.view()).kind), static_cast<int>(d.kind)) << d.what;
  }
}

TEST(VerifyTest, AcceptsWhatDoesNotLiveTogether) {
  Map map = Sound();
  map.buffers[1].lifetime = {4, 5};
  map.placements[1].offset = map.placements[0].offset;
  map.placements[1].forward[0] = map.placements[0].forward[0];
  map.placements[1].forward[1] = map.placements[0].forward[1];
  EXPECT_TRUE(Verify(map.view()).ok());
}

}  // namespace
}  // namespace jumar::memory::onchip
