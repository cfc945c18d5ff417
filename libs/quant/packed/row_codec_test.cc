#include "libs/quant/packed/row_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "libs/memory/kv/layouts.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

namespace kv = memory::kv;

struct Case {
  const char* name;
  kv::PageLayout layout;
  Rule rule;
  int64_t token_bytes;
};

std::vector<Case> Cases() {
  return {{"p656", kv::Packed656(16), Rule::kDeepSeek, 656},
          {"p656_flash_mla", kv::Packed656(16, kv::RowOrder::kScalesThenRope), Rule::kDeepSeek, 656},
          {"p640", kv::Packed640(16), Rule::kDeepSeekUe8m0, 583},
          {"p584", kv::PageSplit584(16), Rule::kDeepSeekUe8m0, 583},
          {"i132", kv::IndexerKeys(16), Rule::kVllmGroup, 132},
          {"i130", kv::IndexerKeys(16, kv::Element::kInt8, kv::Element::kFloat16), Rule::kCannDynamic, 130}};
}

class RowCodecTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { codec_ = *MakeRowCodec(GetParam().layout, GetParam().rule); }
  size_t page_bytes() const { return static_cast<size_t>(codec_.layout.page_bytes[0]); }
  size_t dims() const { return static_cast<size_t>(codec_.dims); }
  size_t rope_dims() const { return static_cast<size_t>(codec_.rope_dims); }
  RowCodec codec_;
};

TEST_P(RowCodecTest, TakesItsGeometryFromTheLayout) {
  EXPECT_EQ(codec_.layout.token_bytes(), GetParam().token_bytes);
  EXPECT_EQ(codec_.dims % codec_.groups, 0);
}

// Any codes, any scale from which no value leaves fp32's normal range, any rope: through values and scales, and back to the same bytes.
TEST_P(RowCodecTest, RoundTripIsByteExact) {
  std::mt19937 random(3);
  for (const std::string& simd : tiling::SimdTargets()) {
    ASSERT_TRUE(tiling::UseSimdTarget(simd).ok());
    std::vector<std::byte> page(page_bytes());
    for (std::byte& b : page) b = static_cast<std::byte>(random());
    for (int64_t t = 0; t < codec_.layout.block_size; ++t) {
      std::byte* scales = page.data() + RowCodec::Offset(codec_.scales, t);
      for (int64_t g = 0; g < codec_.groups; ++g) {
        const float scale = std::ldexp(1 + static_cast<float>(random() % (1 << 23)) * 0x1p-23f, static_cast<int>(random() % 200) - 100);
        switch (codec_.scales.element) {
          case kv::Element::kE8M0: scales[g] = static_cast<std::byte>(random() % 246); break;  // 448 * 2^118 is a number, 2^-9 * 2^-127, too
          case kv::Element::kFloat16: {
            const auto half = static_cast<uint16_t>(1 + random() % 0x7BFF);
            std::memcpy(scales + 2 * g, &half, 2);
            break;
          }
          default: std::memcpy(scales + 4 * g, &scale, 4);
        }
      }
    }
    std::vector<std::byte> again = page;  // its padding stays
    std::vector<float> values(dims()), scales(static_cast<size_t>(codec_.groups));
    std::vector<uint16_t> rope(rope_dims() + 1);
    for (int64_t t = 0; t < codec_.layout.block_size; ++t) {
      DecodeToken(codec_, page.data(), t, DType::kF32, values.data(), scales.data(), rope.data());
      for (const kv::Part* part : {&codec_.values, &codec_.scales, &codec_.rope}) {
        std::memset(again.data() + RowCodec::Offset(*part, t), 0x5A, static_cast<size_t>(part->rows.row_bytes));
      }
      EncodeTokenWithScales(codec_, DType::kF32, values.data(), scales.data(), rope.data(), again.data(), t);
    }
    EXPECT_EQ(page, again) << simd;
  }
  ASSERT_TRUE(tiling::UseSimdTarget("").ok());
}

// The bytes against format.h and scale_rule.h; nothing else in the page changes.
TEST_P(RowCodecTest, WritesByTheRule) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(dims());
  for (size_t i = 0; i < dims(); ++i) values[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(i / 64) - 3);
  std::fill_n(values.begin(), codec_.group(), 0.0f);
  std::vector<uint16_t> rope(rope_dims() + 1);
  for (uint16_t& r : rope) r = static_cast<uint16_t>(random());
  std::vector<std::byte> page(page_bytes(), std::byte{0xA5}), want = page;
  EncodeToken(codec_, DType::kF32, values.data(), rope.data(), page.data(), 5);

  for (int64_t g = 0; g < codec_.groups; ++g) {
    float absmax = 0;
    for (int64_t i = g * codec_.group(); i < (g + 1) * codec_.group(); ++i) absmax = std::max(absmax, std::fabs(values[static_cast<size_t>(i)]));
    float scale = ScaleOf(RuleOf(codec_.rule), codec_.format, absmax);
    std::byte* at = want.data() + RowCodec::Offset(codec_.scales, 5);
    if (codec_.scales.element == kv::Element::kE8M0) {
      at[g] = static_cast<std::byte>(Encode(Format::kE8M0, scale, Overflow::kSaturate));
    } else if (codec_.scales.element == kv::Element::kFloat32) {
      std::memcpy(at + 4 * g, &scale, 4);
    } else {
      std::memcpy(at + 2 * g, page.data() + RowCodec::Offset(codec_.scales, 5) + 2 * g, 2);
      float read;
      DecodeToken(codec_, page.data(), 5, DType::kF32, std::vector<float>(dims()).data(), &read, nullptr);
      EXPECT_NEAR(read, scale, scale * 0x1p-11f);
      scale = read;
    }
    for (int64_t i = g * codec_.group(); i < (g + 1) * codec_.group(); ++i) {
      const float quotient = scale == 0 ? 0 : values[static_cast<size_t>(i)] / scale;
      want[static_cast<size_t>(RowCodec::Offset(codec_.values, 5) + i)] =
          static_cast<std::byte>(Encode(codec_.format, quotient, Overflow::kSaturate));
    }
  }
  if (rope_dims() > 0) std::memcpy(want.data() + RowCodec::Offset(codec_.rope, 5), rope.data(), 2 * rope_dims());
  EXPECT_EQ(page, want);
}

TEST_P(RowCodecTest, SlotsAndThreadsAndBrokenRows) {
  tiling::ThreadPool pool(2);
  const int64_t blocks = 5, n = 70;
  std::vector<int64_t> slots(n);
  for (int64_t i = 0; i < n; ++i) slots[static_cast<size_t>(i)] = i % 7 == 3 ? -1 : (i * 37) % (blocks * 16);
  std::vector<uint16_t> values(static_cast<size_t>(n) * dims()), rope(static_cast<size_t>(n) * rope_dims() + 1);
  std::mt19937 random(5);
  for (uint16_t& v : values) v = static_cast<uint16_t>(0x3F00 + random() % 0x100);
  for (uint16_t& v : rope) v = static_cast<uint16_t>(random());
  std::fill_n(values.begin() + static_cast<ptrdiff_t>(20 * dims()), dims(), uint16_t{0x7FC0});  // a NaN row
  std::vector<std::byte> cache(static_cast<size_t>(blocks) * (page_bytes() + 64), std::byte{0});
  const kv::MutableBlocks pages = {cache, blocks, codec_.layout.page_bytes[0], codec_.layout.page_bytes[0] + 64};
  const TokenRows rows = {DType::kBF16, values.data(), codec_.dims, rope_dims() ? rope.data() : nullptr, codec_.rope_dims};
  ASSERT_TRUE(WriteRows(codec_, rows, slots, pages, pool).ok());

  std::vector<float> back(static_cast<size_t>(n) * dims(), -7.0f);
  std::vector<uint16_t> rope_back(rope.size());
  ASSERT_TRUE(ReadRows(codec_, pages, slots,
                       {DType::kF32, back.data(), codec_.dims, rope_dims() ? rope_back.data() : nullptr, codec_.rope_dims}, pool).ok());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t d = 0; d < codec_.dims; ++d) {
      const auto at = static_cast<size_t>(i * codec_.dims + d);
      const float value = std::bit_cast<float>(static_cast<uint32_t>(values[at]) << 16);
      if (slots[static_cast<size_t>(i)] < 0) {
        ASSERT_EQ(back[at], -7.0f);
      } else if (i == 20) {
        ASSERT_TRUE(std::isnan(back[at]));
      } else {
        ASSERT_NEAR(back[at], value, value / 16 * 1.001) << i;  // half a step of 3 bits of mantissa
      }
    }
    for (size_t d = 0; d < rope_dims() && slots[static_cast<size_t>(i)] >= 0; ++d) {
      ASSERT_EQ(rope_back[static_cast<size_t>(i) * rope_dims() + d], rope[static_cast<size_t>(i) * rope_dims() + d]);
    }
  }
  slots[1] = blocks * 16;
  EXPECT_NE(WriteRows(codec_, rows, slots, pages, pool).message().find("slot 80 of row 1 is outside"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, RowCodecTest, testing::ValuesIn(Cases()), [](const auto& info) { return info.param.name; });

TEST(RowCodecTest, RefusesWhatIsNoPackedRow) {
  EXPECT_EQ(MakeRowCodec(kv::Packed640(16), Rule::kDeepSeek).status().message(),
            "packed rows of layout packed640: scales are E8M0; rule deepseek gives other than powers of two");
  EXPECT_EQ(MakeRowCodec(kv::SharedKv(16), Rule::kDeepSeek).status().message(),
            "packed rows of layout shared: it needs a part values (or latent) and scales");
}

}  // namespace
}  // namespace jumar::quant
