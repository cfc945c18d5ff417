#include "libs/quant/convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

class ConvertTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{2};
};

std::vector<uint16_t> AllCodes() {
  std::vector<uint16_t> codes(65536);
  for (int i = 0; i < 65536; ++i) codes[i] = i;
  return codes;
}

TEST_P(ConvertTest, WidensEveryCodeExactly) {
  const std::vector<uint16_t> codes = AllCodes();
  for (DType type : {DType::kF16, DType::kBF16}) {
    std::vector<float> wide(65536, -1);
    ASSERT_TRUE(Convert(type, codes.data(), DType::kF32, wide.data(), 65536, pool_).ok());
    for (int i = 0; i < 65536; ++i) {
      const double want = LoadScalar(type, codes.data(), i);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[i])) << Name(type) << " code " << i;
      } else {
        ASSERT_EQ(wide[i], want) << Name(type) << " code " << i;
        ASSERT_EQ(std::signbit(wide[i]), std::signbit(want)) << Name(type) << " code " << i;
      }
    }
  }
}

TEST_P(ConvertTest, NarrowsToNearestEvenAroundEveryMidpoint) {
  for (DType type : {DType::kF16, DType::kBF16}) {
    const std::vector<uint16_t> codes = AllCodes();
    std::vector<float> inputs = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, -NAN, std::bit_cast<float>(0x7F800001u), 65504, 65519.996f, 65520, 3.4e38f, 1e-45f, -1e-45f};
    for (int i = 0; i + 1 < 65536; ++i) {
      const double a = LoadScalar(type, codes.data(), i), b = LoadScalar(type, codes.data(), i + 1);
      if (!std::isfinite(a) || !std::isfinite(b)) continue;
      const float middle = static_cast<float>((a + b) / 2);  // exact: one bit more than the type
      for (float x : {static_cast<float>(a), std::nextafterf(middle, -INFINITY), middle, std::nextafterf(middle, INFINITY)}) {
        inputs.push_back(x);
      }
    }
    std::vector<uint16_t> got(inputs.size(), 0x1234), want(inputs.size());
    ASSERT_TRUE(Convert(DType::kF32, inputs.data(), type, got.data(), inputs.size(), pool_).ok());
    for (size_t i = 0; i < inputs.size(); ++i) {
      StoreScalar(type, inputs[i], want.data(), i);
      if (std::isnan(inputs[i])) {
        ASSERT_TRUE(std::isnan(LoadScalar(type, got.data(), i))) << Name(type);
      } else {
        ASSERT_EQ(got[i], want[i]) << Name(type) << " of " << std::hexfloat << inputs[i];
      }
    }
  }
}

TEST_P(ConvertTest, TailsAndMisalignedPointersWriteNothingElse) {
  std::mt19937 rng(1);
  for (DType in_type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType out_type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (int64_t count : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 70000}) {
        std::vector<char> in((count + 1) * 4), out((count + 9) * 4, char{-1});
        char* in_data = in.data() + SizeOf(in_type);
        char* out_data = out.data() + SizeOf(out_type);
        for (int64_t i = 0; i < count; ++i) StoreScalar(in_type, static_cast<int>(rng() % 200) - 100, in_data, i);
        ASSERT_TRUE(Convert(in_type, in_data, out_type, out_data, count, pool_).ok());
        for (int64_t i = 0; i < count; ++i) ASSERT_EQ(LoadScalar(out_type, out_data, i), LoadScalar(in_type, in_data, i));
        for (int64_t b = 0; b < SizeOf(out_type); ++b) ASSERT_EQ(out[b], char{-1});
        for (size_t b = SizeOf(out_type) * (count + 1); b < out.size(); ++b) ASSERT_EQ(out[b], char{-1}) << count;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, ConvertTest, testing::ValuesIn(tiling::SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(ConvertArgsTest, RejectsANegativeCountAndNull) {
  float x = 1;
  EXPECT_FALSE(Convert(DType::kF32, &x, DType::kF16, &x, -1, tiling::InlineExecutor()).ok());
  EXPECT_FALSE(Convert(DType::kF32, nullptr, DType::kF16, &x, 1, tiling::InlineExecutor()).ok());
}

}  // namespace
}  // namespace jumar::quant
