// The vectorised conversions against format.h's, bit by bit: all 65,536 numbers of bf16 and fp16, all codes, fp32 around every boundary and at
// random, every tail, on every instruction set.
#include "libs/quant/format/array.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

struct Case {
  std::string simd;
  Format format;
};

class ArrayTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam().simd).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  Format format() const { return GetParam().format; }

  uint8_t CodeAt(const std::vector<uint8_t>& codes, size_t i) const {
    return Bits(format()) == 8 ? codes[i] : i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
  }

  // `in`: `count` numbers of the type.
  void ExpectEncodes(DType type, const void* in, int64_t count) {
    for (const Overflow overflow : {Overflow::kSaturate, Overflow::kToNanOrInf}) {
      std::vector<uint8_t> codes(static_cast<size_t>(CodeBytes(format(), count)), 0xA5);
      ASSERT_TRUE(EncodeArray(format(), overflow, type, in, count, codes.data(), tiling::InlineExecutor()).ok());
      int wrong = 0;
      for (int64_t i = 0; i < count && wrong < 5; ++i) {
        const auto value = static_cast<float>(LoadScalar(type, in, i));
        const uint8_t got = CodeAt(codes, static_cast<size_t>(i)), want = Encode(format(), value, overflow);
        if (std::isnan(value) && Traits(format()).has_nan && std::isnan(Decode(format(), got))) continue;  // LoadScalar drops the sign
        EXPECT_EQ(int{got}, int{want}) << value << ", element " << i << ", overflow " << static_cast<int>(overflow);
        wrong += got != want;
      }
    }
  }
};

TEST_P(ArrayTest, EncodesAll16BitNumbers) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  ExpectEncodes(DType::kBF16, all.data(), 65536);
  if (format() != Format::kE2M1) ExpectEncodes(DType::kF16, all.data(), 65536);
  // E2M1's code of a NaN depends on its sign; of fp16, which LoadScalar loses, the numbers alone.
  std::erase_if(all, [](uint16_t bits) { return (bits & 0x7FFF) > 0x7C00; });
  ExpectEncodes(DType::kF16, all.data(), static_cast<int64_t>(all.size()));
}

TEST_P(ArrayTest, EncodesFloatsAroundEveryBoundary) {
  std::vector<float> numbers;
  std::vector<float> values(Decoded(format()).f32.begin(), Decoded(format()).f32.end());
  std::erase_if(values, [](float v) { return !std::isfinite(v); });
  std::sort(values.begin(), values.end());
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const auto middle = static_cast<float>((double{values[i]} + values[i + 1]) / 2);
    for (const float x : {values[i], middle}) {
      for (const float n : {x, std::nextafter(x, -INFINITY), std::nextafter(x, INFINITY)}) numbers.push_back(n);
    }
  }
  std::mt19937 random(5);
  for (int i = 0; i < 200000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    numbers.push_back(std::bit_cast<float>(bits));
    numbers.push_back(std::ldexp(static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f, static_cast<int>(random() % 40) - 23));
  }
  ExpectEncodes(DType::kF32, numbers.data(), static_cast<int64_t>(numbers.size()));
}

TEST_P(ArrayTest, DecodesEveryCodeInEveryTail) {
  std::vector<uint8_t> codes(512);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto size = static_cast<size_t>(SizeOf(type));
    for (int64_t count = 0; count <= 400; count += count < 140 ? 1 : 37) {
      std::vector<uint8_t> out(size * static_cast<size_t>(count + 1), 0xA5);
      ASSERT_TRUE(DecodeArray(format(), codes.data(), count, type, out.data(), tiling::InlineExecutor()).ok());
      for (int64_t i = 0; i < count; ++i) {
        const double want = Decode(format(), CodeAt(codes, static_cast<size_t>(i)));
        uint8_t rounded[4];
        StoreScalar(type, want, rounded, 0);
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(LoadScalar(type, out.data(), i))) << i;
        } else {
          ASSERT_EQ(std::memcmp(rounded, out.data() + static_cast<size_t>(i) * size, size), 0) << want << ", element " << i << " of " << count;
        }
      }
      for (size_t b = 0; b < size; ++b) ASSERT_EQ(out[static_cast<size_t>(count) * size + b], 0xA5) << "behind the end";
    }
  }
}

TEST_P(ArrayTest, EncodesEveryTailAndNothingBehindIt) {
  std::mt19937 random(6);
  std::vector<float> numbers(300);
  for (float& n : numbers) n = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-24f;
  for (int64_t count = 0; count <= 300; count += count < 140 ? 1 : 37) {
    std::vector<uint8_t> codes(static_cast<size_t>(CodeBytes(format(), count)) + 1, 0xA5);
    ASSERT_TRUE(EncodeArray(format(), Overflow::kSaturate, DType::kF32, numbers.data(), count, codes.data(), tiling::InlineExecutor()).ok());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      ASSERT_EQ(CodeAt(codes, i), Encode(format(), numbers[i], Overflow::kSaturate)) << i << " of " << count;
    }
    if (Bits(format()) == 4 && count % 2) {
      ASSERT_EQ(codes[static_cast<size_t>(count / 2)] >> 4, 0);
    }
    ASSERT_EQ(codes.back(), 0xA5);
  }
}

// Large enough to be written past the caches, from addresses that aren't a vector's.
TEST_P(ArrayTest, LargeSkewedArraysOnTwoThreads) {
  if (format() != Format::kE4M3 && format() != Format::kE2M1) GTEST_SKIP() << "one format of each width is enough";
  tiling::ThreadPool pool(2);
  const int64_t count = (int64_t{8} << 20) + 77;
  std::vector<uint16_t> in(static_cast<size_t>(count) + 1);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(0x3C00 + i * 7919 % 0x800 + (i % 2) * 0x8000);
  std::vector<uint8_t> codes(static_cast<size_t>(CodeBytes(format(), count)) + 3, 0xA5);
  ASSERT_TRUE(EncodeArray(format(), Overflow::kSaturate, DType::kBF16, in.data() + 1, count, codes.data() + 1, pool).ok());
  std::vector<uint16_t> back(static_cast<size_t>(count) + 2, 0xA5A5);
  ASSERT_TRUE(DecodeArray(format(), codes.data() + 1, count, DType::kBF16, back.data() + 1, pool).ok());
  for (size_t i = 1; i <= static_cast<size_t>(count); ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
    ASSERT_EQ(back[i], Decoded(format()).bf16[Encode(format(), value, Overflow::kSaturate)]) << i;
  }
  EXPECT_EQ(back[0], 0xA5A5);
  EXPECT_EQ(back.back(), 0xA5A5);
  EXPECT_EQ(codes[0], 0xA5);
  EXPECT_EQ(codes.back(), 0xA5);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& simd : tiling::SimdTargets()) {
    for (const Format format : kFormats) cases.push_back({simd, format});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, ArrayTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.simd + "_" + Name(info.param.format); });

TEST(ArrayTest, ErrorsNameTheArgument) {
  uint8_t code = 0;
  EXPECT_EQ(EncodeArray(Format::kE4M3, Overflow::kSaturate, DType::kF32, nullptr, 1, &code, tiling::InlineExecutor()).message(),
            "encode: an array is null");
  EXPECT_EQ(DecodeArray(Format::kE4M3, &code, -1, DType::kF32, nullptr, tiling::InlineExecutor()).message(),
            "decode: count -1 is negative");
}

}  // namespace
}  // namespace jumar::quant
