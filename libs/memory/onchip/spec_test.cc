#include "libs/memory/onchip/spec.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace jumar::memory::onchip {
namespace {

using ::testing::HasSubstr;

TEST(SpecTest, ReadsBytes) {
  EXPECT_EQ(*ParseBytes("500"), 500);
  EXPECT_EQ(*ParseBytes("500B"), 500);
  EXPECT_EQ(*ParseBytes("32KiB"), 32 * 1024);
  EXPECT_EQ(*ParseBytes("32k"), 32 * 1024);
  EXPECT_EQ(*ParseBytes("2MiB"), 2 * 1024 * 1024);
  EXPECT_EQ(*ParseBytes("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", "KiB", "-1", "1.5KiB", "3GB", "9223372036854775808", "9007199254740992KiB", "1 KiB"}) {
    EXPECT_THAT(std::string(ParseBytes(bad).status().message()), HasSubstr("write bytes as 500, 500B, 32KiB or 2MiB")) << bad;
  }
}

TEST(SpecTest, ReadsABuffer) {
  const auto b = ParseBuffer("scores:ub:32KiB:MTE2>V:double:align=512:0-3:at=1KiB:alias=other");
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_STREQ(b->name.text, "scores");
  EXPECT_EQ(b->space, Space::kUb);
  EXPECT_EQ(b->bytes, 32 * 1024);
  EXPECT_EQ(b->policy, Policy::kDouble);
  EXPECT_EQ(b->lifetime.first, 0);
  EXPECT_EQ(b->lifetime.last, 3);
  EXPECT_EQ(b->handover.producer, Pipe::kMte2);
  EXPECT_EQ(b->handover.consumer, Pipe::kVector);
  EXPECT_EQ(b->alignment, 512);
  EXPECT_EQ(b->pinned_offset, 1024);
  EXPECT_STREQ(b->alias_of.text, "other");

  EXPECT_EQ(ParseBuffer("q:L0A:1:2x2")->policy, Policy::k2x2) << "not step 2";
  EXPECT_EQ(ParseBuffer("q:L0A:1:4-end")->lifetime.last, Lifetime::kEnd);
  EXPECT_EQ(ParseBuffer("q:L0A:1:4")->lifetime.last, 4);
}

TEST(SpecTest, SaysWhatIsAllowed) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"scores", "write NAME:SPACE:BYTES"},
      {"a:UC:1", "space \"UC\": known are UB, L1, L0A, L0B, L0C, FB, BT"},
      {"a:UB:x", "size \"x\""},
      {"a:UB:1:twice", "policy \"twice\": known are single, double, triple, quad, 2x2"},
      {"a:UB:1:", "policy \"\""},
      {"a:UB:1:0-3-4", "steps \"0-3-4\""},
      {"a:UB:1:3-x", "step \"x\""},
      {"a:UB:1:3-99999999999", "step \"99999999999\""},
      {"a:UB:1:MTE2>W", "pipe \"W\": known are S, V, M, MTE1, MTE2, MTE3, FIX"},
      {"a:UB:1:>V", "pipe \"\""},
      {"a:UB:1:size=3", "unknown setting \"size\": known are align, at, alias"},
      {"a:UB:1:at=-32", "size \"-32\""},
  };
  for (const auto& c : cases) EXPECT_THAT(std::string(ParseBuffer(c.text).status().message()), HasSubstr(c.message)) << c.text;
}

TEST(SpecTest, ReadsCapacities) {
  Capacities capacities = {.l1 = 7};
  ASSERT_TRUE(ParseCapacities("UB=192KiB,l0c=128KiB,FB=2KiB,BT=1KiB,L0A=1,L0B=2", capacities).ok());
  EXPECT_EQ(capacities.ub, 192 * 1024);
  EXPECT_EQ(capacities.l0c, 128 * 1024);
  EXPECT_EQ(capacities.fb, 2048);
  EXPECT_EQ(capacities.bt, 1024);
  EXPECT_EQ(capacities.l0a, 1);
  EXPECT_EQ(capacities.l0b, 2);
  EXPECT_EQ(capacities.l1, 7);
  EXPECT_THAT(std::string(ParseCapacities("UB", capacities).message()), HasSubstr("write SPACE=BYTES, as UB=192KiB"));
  EXPECT_THAT(std::string(ParseCapacities("", capacities).message()), HasSubstr("write SPACE=BYTES"));
}

}  // namespace
}  // namespace jumar::memory::onchip
