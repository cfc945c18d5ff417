#include "libs/quant/scale/scale_rule.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace jumar::quant {
namespace {

float E4M3(Rule rule, float absmax) { return ScaleOf(RuleOf(rule), Format::kE4M3, absmax); }

TEST(ScaleRule, TableIsInTheOrderOfTheEnum) {
  for (size_t i = 0; i < kScaleRules.size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(kScaleRules[i].rule), i);
    EXPECT_EQ(*FindRule(kScaleRules[i].name), kScaleRules[i].rule);
  }
  EXPECT_EQ(FindRule("max").status().message().substr(0, 44), "scale rule \"max\" is none of cann_dynamic, vl");
}

TEST(ScaleRule, ZeroGroups) {
  EXPECT_EQ(E4M3(Rule::kCannDynamic, 0), 0);
  EXPECT_EQ(E4M3(Rule::kVllmGroup, 0), 1e-10f / 448);
  EXPECT_EQ(E4M3(Rule::kVllmGroupUe8m0, 0), 0x1p-42f);  // 2.2e-13
  EXPECT_EQ(E4M3(Rule::kVllmToken, 0), 1.0f / 512 / 448);
  EXPECT_EQ(E4M3(Rule::kDeepSeek, 0), 1e-4f / 448);
  EXPECT_EQ(E4M3(Rule::kDeepSeekUe8m0, 0), 0x1p-22f);  // 2.2e-7
  EXPECT_EQ(E4M3(Rule::kCompressedTensors, 0), 0x1p-23f);
  for (const Rule rule : {Rule::kOcpMx, Rule::kMxCeil, Rule::kMxRound}) EXPECT_EQ(E4M3(rule, 0), 0x1p-127f);
}

TEST(ScaleRule, PowersOfTwoAreExact) {
  for (int e = -100; e <= 100; ++e) {
    const float absmax = std::ldexp(448.0f, e), power = std::ldexp(1.0f, e);
    EXPECT_EQ(E4M3(Rule::kMxCeil, absmax), power);
    EXPECT_EQ(E4M3(Rule::kMxCeil, std::nextafter(absmax, HUGE_VALF)), 2 * power);
    EXPECT_EQ(E4M3(Rule::kMxCeil, std::ldexp(1.0f, e)), std::ldexp(1.0f, e - 8));  // 1/448 lies above 2^-9
    EXPECT_EQ(E4M3(Rule::kOcpMx, std::ldexp(1.0f, e)), std::ldexp(1.0f, e - 8));
    EXPECT_EQ(E4M3(Rule::kOcpMx, std::nextafter(std::ldexp(1.0f, e), 0.0f)), std::ldexp(1.0f, e - 9));
    EXPECT_EQ(E4M3(Rule::kMxRound, std::ldexp(1.75f, e)), std::ldexp(1.0f, e - 7));
    EXPECT_EQ(E4M3(Rule::kMxRound, std::nextafter(std::ldexp(1.75f, e), 0.0f)), std::ldexp(1.0f, e - 8));
  }
  EXPECT_EQ(E4M3(Rule::kVllmGroup, 448), 1);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kCompressedTensors), Format::kI8, 127.5f), 1);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kCompressedTensors), Format::kI4, 7.5f), 1);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kOcpMx), Format::kE2M1, 4), 1);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kOcpMx), Format::kE5M2, 32768), 1);
}

// The ceiling never clamps, the floor rule loses up to an eighth: what the table claims.
TEST(ScaleRule, ClampsAsTheTableSays) {
  for (float absmax = 1; absmax < 2; absmax += 0x1p-10f) {
    EXPECT_LE(absmax / E4M3(Rule::kMxCeil, absmax), 448);
    EXPECT_LE(absmax / E4M3(Rule::kMxRound, absmax), 448);
    EXPECT_LT(absmax / E4M3(Rule::kOcpMx, absmax), 512);
    EXPECT_LT(absmax / ScaleOf(RuleOf(Rule::kMxRound), Format::kE2M1, absmax), 7);
    EXPECT_LT(absmax / ScaleOf(RuleOf(Rule::kOcpMx), Format::kE2M1, absmax), 8);
  }
}

TEST(ScaleRule, SubnormalAndLargestMaxima) {
  EXPECT_EQ(E4M3(Rule::kMxCeil, 0x1p-149f), 0x1p-127f);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kMxCeil), Format::kI8, 127 * 0x1.1p-127f), 0x1p-126f);
  EXPECT_EQ(E4M3(Rule::kOcpMx, 0x1p-130f), 0x1p-127f);
  EXPECT_EQ(E4M3(Rule::kOcpMx, 0x1p-119f), 0x1p-127f);
  EXPECT_EQ(E4M3(Rule::kOcpMx, 0x1p-118f), 0x1p-126f);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(E4M3(Rule::kOcpMx, largest), 0x1p119f);
  EXPECT_EQ(E4M3(Rule::kMxRound, largest), 0x1p120f);
  EXPECT_EQ(E4M3(Rule::kMxCeil, largest), 0x1p120f);
  EXPECT_EQ(ScaleOf(RuleOf(Rule::kMxRound), Format::kE2M1, largest), 0x1p126f);
}

TEST(ScaleRule, BrokenGroupsHaveNoScale) {
  for (const ScaleRule& rule : kScaleRules) {
    EXPECT_TRUE(std::isnan(ScaleOf(rule, Format::kE4M3, NAN)));
    EXPECT_TRUE(std::isnan(ScaleOf(rule, Format::kE4M3, INFINITY)));
  }
}

}  // namespace
}  // namespace jumar::quant
