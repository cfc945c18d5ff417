// Every code, every midpoint and its neighbours, by a reference that searches the table of values: it knows nothing of bits.
#include "libs/quant/format/format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::quant {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

static_assert(Encode(Format::kE4M3, 464.0f, Overflow::kToNanOrInf) == 0x7E);
static_assert(Encode(Format::kE4M3, 465.0f, Overflow::kToNanOrInf) == 0x7F);
static_assert(Encode(Format::kE4M3, 465.0f, Overflow::kSaturate) == 0x7E);
static_assert(kDecoded<Format::kE4M3>.f32[0x7E] == 448.0f);

// The finite values of a format with their codes, ascending; each value once (the positive zero).
std::vector<std::pair<double, uint8_t>> Values(Format format) {
  std::vector<std::pair<double, uint8_t>> values;
  for (int code = 0; code < 1 << Bits(format); ++code) {
    const float value = Decode(format, static_cast<uint8_t>(code));
    if (!std::isfinite(value) || (value == 0 && std::signbit(value))) continue;
    values.emplace_back(value, static_cast<uint8_t>(code));
  }
  std::sort(values.begin(), values.end());
  return values;
}

uint8_t LastBit(uint8_t code) { return code & 1; }

// Nearest of the finite values to a finite number within their range.
double Nearest(Format format, const std::vector<std::pair<double, uint8_t>>& values, double x) {
  const auto above = std::lower_bound(values.begin(), values.end(), std::pair<double, uint8_t>(x, 0));
  if (above == values.begin()) return above->first;
  if (above == values.end()) return values.back().first;
  const auto below = above - 1;
  const double up = above->first - x, down = x - below->first;
  if (up != down) return up < down ? above->first : below->first;
  if (format == Format::kE8M0) return above->first;
  if (format == Format::kHiF8) return x > 0 ? above->first : below->first;
  return LastBit(above->second) == 0 ? above->first : below->first;
}

class FormatTest : public testing::TestWithParam<Format> {};

TEST_P(FormatTest, EveryCodeComesBack) {
  for (int i = 0; i < 1 << Bits(GetParam()); ++i) {
    const auto code = static_cast<uint8_t>(i);
    const float value = Decode(GetParam(), code);
    for (const Overflow overflow : {Overflow::kSaturate, Overflow::kToNanOrInf}) {
      const uint8_t back = Encode(GetParam(), value, overflow);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(Decode(GetParam(), back))) << i;
      } else if (std::isinf(value) && overflow == Overflow::kSaturate) {
        EXPECT_EQ(Decode(GetParam(), back), std::copysign(Max(GetParam()), value)) << i;
      } else {
        EXPECT_EQ(back, code) << value;
      }
    }
  }
}

TEST_P(FormatTest, RoundsToTheNearestAtEveryMidpoint) {
  const auto values = Values(GetParam());
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((values[i].first + values[i + 1].first) / 2);
    if (GetParam() == Format::kE8M0 && i == 0) continue;  // SmallestPowers
    for (const float x : {middle, std::nextafter(middle, -kInf), std::nextafter(middle, kInf), static_cast<float>(values[i].first)}) {
      for (const Overflow overflow : {Overflow::kSaturate, Overflow::kToNanOrInf}) {
        EXPECT_EQ(Decode(GetParam(), Encode(GetParam(), x, overflow)), Nearest(GetParam(), values, x)) << x;
      }
    }
  }
}

TEST_P(FormatTest, TraitsAreThoseOfTheTable) {
  const auto values = Values(GetParam());
  EXPECT_EQ(values.back().first, Max(GetParam()));
  const auto positive = std::find_if(values.begin(), values.end(), [](const auto& v) { return v.first > 0; });
  EXPECT_EQ(positive->first, Traits(GetParam()).min_positive);
  EXPECT_EQ(std::ilogb(Max(GetParam())), Traits(GetParam()).emax);
  bool nan = false, inf = false;
  for (int code = 0; code < 256; ++code) {
    const float value = Decoded(GetParam()).f32[static_cast<size_t>(code)];
    nan |= std::isnan(value), inf |= std::isinf(value);
    const uint32_t wide = static_cast<uint32_t>(Decoded(GetParam()).bf16[static_cast<size_t>(code)]) << 16;
    EXPECT_EQ(wide, std::bit_cast<uint32_t>(value)) << "not a bf16 number: code " << code;
  }
  EXPECT_EQ(nan, Traits(GetParam()).has_nan);
  EXPECT_EQ(inf, Traits(GetParam()).has_inf);
}

TEST_P(FormatTest, InfinityAndWhatIsTooLarge) {
  const FormatTraits t = Traits(GetParam());
  for (const float x : {kInf, 3e38f, -kInf, -3e38f}) {
    const float saturated = Decode(GetParam(), Encode(GetParam(), x, Overflow::kSaturate));
    const float kept = Decode(GetParam(), Encode(GetParam(), x, Overflow::kToNanOrInf));
    if (GetParam() == Format::kE8M0 && x < 0) {
      EXPECT_TRUE(std::isnan(saturated) && std::isnan(kept));
      continue;
    }
    const float limit = std::copysign(t.max + (!t.is_float && x < 0 ? 1 : 0), x);
    EXPECT_EQ(saturated, limit);
    if (t.has_inf) {
      EXPECT_EQ(kept, std::copysign(kInf, x));
    } else if (t.has_nan) {
      EXPECT_TRUE(std::isnan(kept));
    } else {
      EXPECT_EQ(kept, limit);
    }
  }
}

TEST_P(FormatTest, NanStaysNanWhereThereIsOne) {
  for (const float nan : {kNan, -kNan}) {
    for (const Overflow overflow : {Overflow::kSaturate, Overflow::kToNanOrInf}) {
      const float value = Decode(GetParam(), Encode(GetParam(), nan, overflow));
      if (Traits(GetParam()).has_nan) {
        EXPECT_TRUE(std::isnan(value));
      } else {
        EXPECT_EQ(value, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FormatTest, testing::ValuesIn(kFormats), [](const auto& info) { return std::string(Name(info.param)); });

TEST(FormatTest, SignedZeros) {
  EXPECT_EQ(Encode(Format::kE4M3, -0.0f, Overflow::kSaturate), 0x80);
  EXPECT_EQ(Encode(Format::kE5M2, -0x1p-18f, Overflow::kSaturate), 0x80);
  EXPECT_EQ(Encode(Format::kE2M1, -0.0f, Overflow::kSaturate), 0x08);
  EXPECT_EQ(Encode(Format::kHiF8, -0x1p-24f, Overflow::kSaturate), 0x00);
  EXPECT_EQ(Encode(Format::kE8M0, 0.0f, Overflow::kSaturate), 0xFF);
}

TEST(FormatTest, SmallestPowers) {
  EXPECT_EQ(Encode(Format::kE8M0, 0x1p-149f, Overflow::kSaturate), 0);
  EXPECT_EQ(Encode(Format::kE8M0, 0x1p-127f, Overflow::kSaturate), 0);
  EXPECT_EQ(Encode(Format::kE8M0, std::nextafter(0x1p-127f, 1.0f), Overflow::kSaturate), 1);
}

// arXiv 2409.16626: a number of each field of the dot, by hand.
TEST(FormatTest, HiF8ByThePaper) {
  const struct {
    uint8_t code;
    float value;
  } rows[] = {{0x01, 0x1p-22f}, {0x07, 0x1p-16f}, {0x08, 1.0f},     {0x0F, 1.875f},    {0x10, 2.0f},      {0x18, 0.5f},
              {0x20, 4.0f},     {0x28, 8.0f},     {0x30, 0.25f},    {0x3F, 0.234375f}, {0x40, 16.0f},     {0x5F, 0x1.cp-7f},
              {0x60, 256.0f},   {0x6E, 32768.0f}, {0x7E, 0x1p-15f}, {0x7F, 0x1.8p-15f}, {0x89, -1.125f}};
  for (const auto& row : rows) EXPECT_EQ(Decode(Format::kHiF8, row.code), row.value) << int{row.code};
  EXPECT_EQ(Encode(Format::kHiF8, std::nextafter(40960.0f, 0.0f), Overflow::kToNanOrInf), 0x6E);
  EXPECT_EQ(Encode(Format::kHiF8, 40960.0f, Overflow::kToNanOrInf), 0x6F);
  EXPECT_EQ(Encode(Format::kHiF8, 0x1p-23f, Overflow::kToNanOrInf), 0x01);  // a tie, away from zero
}

}  // namespace
}  // namespace jumar::quant
