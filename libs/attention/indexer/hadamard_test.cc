#include "libs/attention/indexer/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/attention/indexer/indexer_keys.h"
#include "libs/memory/kv/layouts.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

std::vector<float> Rotated(const std::vector<float>& in, int64_t dim, tiling::Executor& executor) {
  std::vector<float> out(in.size(), NAN);
  const int64_t rows = static_cast<int64_t>(in.size()) / dim;
  EXPECT_TRUE(HadamardRotate({.rows = rows, .dim = dim, .in = in.data(), .in_stride = dim, .out = out.data(), .out_stride = dim}, executor).ok());
  return out;
}

class HadamardTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

// Against the matrix in float64: log2(dim) sums and a product, each rounded.
TEST_P(HadamardTest, IsTheMatrixOfParities) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (int64_t dim = 1; dim <= 512; dim *= 2) {
    std::vector<float> in(3 * dim);
    for (float& x : in) x = normal(rng);
    const std::vector<float> out = Rotated(in, dim, pool_);
    for (int64_t i = 0; i < 3 * dim; ++i) {
      double want = 0, magnitude = 0;
      for (int64_t j = 0; j < dim; ++j) {
        const double x = in[i / dim * dim + j] / std::sqrt(static_cast<double>(dim));
        want += std::popcount(static_cast<uint64_t>(i % dim & j)) % 2 ? -x : x;
        magnitude += std::fabs(x);
      }
      ASSERT_LE(std::fabs(out[i] - want), (std::log2(dim) + 2) * 0x1p-24 * magnitude) << dim << " " << i;
    }
  }
}

// With a power of four, 1 / sqrt(dim) is a power of two and small integers stay exact.
TEST_P(HadamardTest, IsItsOwnInverseExactlyWhereTheFactorIsExact) {
  std::mt19937 rng(2);
  for (int64_t dim : {1, 4, 16, 64, 256}) {
    std::vector<float> in(5 * dim);
    for (float& x : in) x = static_cast<int>(rng() % 2001) - 1000;
    EXPECT_EQ(Rotated(Rotated(in, dim, pool_), dim, pool_), in) << dim;
  }
}

TEST_P(HadamardTest, KeepsTheNormAndReturnsWithinTheRounding) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (int64_t dim : {2, 32, 128, 2048}) {
    std::vector<float> in(dim);
    for (float& x : in) x = normal(rng);
    const std::vector<float> out = Rotated(in, dim, pool_), back = Rotated(out, dim, pool_);
    double before = 0, after = 0, sum = 0;
    for (int64_t d = 0; d < dim; ++d) before += in[d] * in[d], after += out[d] * out[d], sum += std::fabs(in[d]);
    const double relative = (std::log2(dim) + 2) * 0x1p-24;
    EXPECT_NEAR(after, before, 2.1 * relative * std::sqrt(static_cast<double>(dim)) * before) << dim;
    for (int64_t d = 0; d < dim; ++d) EXPECT_NEAR(back[d], in[d], 2.1 * relative * sum) << dim;
  }
}

TEST_P(HadamardTest, TypesAreRoundedOnceAndRowsStayApart) {
  for (DType type : {DType::kF16, DType::kBF16}) {
    std::mt19937 rng(4);
    std::vector<char> in(3 * 40 * 2, char{-1}), out(3 * 48 * 2, char{5});  // rows of 32 with gaps; all bits set are NaN
    std::vector<float> wide(3 * 32);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t d = 0; d < 32; ++d) {
        quant::StoreScalar(type, r == 1 && d == 7 ? NAN : static_cast<int>(rng() % 200) / 8.0, in.data(), r * 40 + d);
        wide[r * 32 + d] = quant::LoadScalar(type, in.data(), r * 40 + d);
      }
    }
    ASSERT_TRUE(HadamardRotate({.rows = 3, .dim = 32, .type = type, .in = in.data(), .in_stride = 40, .out_type = type, .out = out.data(), .out_stride = 48}, pool_).ok());
    const std::vector<float> want = Rotated(wide, 32, tiling::InlineExecutor());
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t d = 0; d < 32; ++d) {
        char rounded[2];
        quant::StoreScalar(type, want[r * 32 + d], rounded, 0);
        if (r == 1) {
          EXPECT_TRUE(std::isnan(quant::LoadScalar(type, out.data(), r * 48 + d)));
        } else {
          EXPECT_EQ(std::memcmp(rounded, out.data() + (r * 48 + d) * 2, 2), 0) << r << " " << d;
        }
      }
      EXPECT_EQ(out[(r * 48 + 32) * 2], 5);
    }
  }
}

TEST_P(HadamardTest, CodesAreThoseOfTheRotatedRows) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> in(40 * 128);
  for (float& x : in) x = normal(rng);
  const std::vector<float> rotated = Rotated(in, 128, pool_);
  for (quant::Format format : {quant::Format::kI8, quant::Format::kE4M3}) {
    const quant::Rule rule = format == quant::Format::kI8 ? quant::Rule::kCannDynamic : quant::Rule::kDeepSeek;
    std::vector<uint8_t> codes(40 * 128), want(40 * 128);
    std::vector<float> scales(40), want_scales(40);
    ASSERT_TRUE(HadamardQuantize({.rows = 40, .dim = 128, .in = in.data(), .in_stride = 128},
                                 {.rule = rule, .format = format, .codes = codes.data(), .codes_stride = 128, .scales = scales.data()}, pool_)
                    .ok());
    ASSERT_TRUE(quant::Quantize({.rule = rule, .format = format, .granularity = quant::PerRow(), .rows = 40, .cols = 128, .in = rotated.data(), .ldi = 128,
                                 .codes = want.data(), .ldc = 128, .scales = want_scales.data(), .lds = 1},
                                pool_)
                    .ok());
    EXPECT_EQ(codes, want);
    EXPECT_EQ(scales, want_scales);
  }
}

// Written by slot and read in place, the packed pages give the scores of the rows that the codec reads back.
TEST_P(HadamardTest, IndexerReadsThePackedPagesThatItsKeysWereWrittenTo) {
  using memory::kv::Element;
  const struct { Element values, scales; quant::Rule rule; } kinds[] = {{Element::kE4M3, Element::kFloat32, quant::Rule::kDeepSeek},
                                                                       {Element::kInt8, Element::kFloat16, quant::Rule::kCannDynamic}};
  for (const auto& kind : kinds) {
    const auto codec = quant::MakeRowCodec(memory::kv::IndexerKeys(16, kind.values, kind.scales), kind.rule);
    ASSERT_TRUE(codec.ok()) << codec.status();
    const int64_t tokens = 40, blocks = 5, page = codec->layout.page_bytes[0];
    std::mt19937 rng(6);
    std::normal_distribution<float> normal;
    std::vector<float> keys(tokens * 128), q(3 * 128), weights = {1, 0.5f, -0.25f};
    for (float& x : keys) x = normal(rng);
    for (float& x : q) x = normal(rng);
    const int32_t table[] = {3, 0, 4};
    std::vector<int64_t> slots(tokens);
    for (int64_t t = 0; t < tokens; ++t) slots[t] = table[t / 16] * 16 + t % 16;
    std::vector<std::byte> bytes(blocks * page, std::byte{0xFF});
    const memory::kv::MutableBlocks pages = {bytes, blocks, page, page};
    ASSERT_TRUE(WriteIndexerKeys(*codec, {.type = DType::kF32, .values = keys.data(), .stride = 128}, true, slots, pages, pool_).ok());

    std::vector<uint8_t> codes(3 * 128);
    std::vector<float> scales(3);
    ASSERT_TRUE(HadamardQuantize({.rows = 3, .dim = 128, .in = q.data(), .in_stride = 128},
                                 {.rule = kind.rule, .format = codec->format, .codes = codes.data(), .codes_stride = 128, .scales = scales.data()}, pool_)
                    .ok());
    std::vector<char> q_scales(12);
    const DType scales_type = kind.scales == Element::kFloat32 ? DType::kF32 : DType::kF16;
    for (int h = 0; h < 3; ++h) quant::StoreScalar(scales_type, scales[h], q_scales.data(), h);
    const int64_t end = 1;
    std::vector<int32_t> indices(tokens);
    std::vector<float> scores(tokens);
    LightningIndexerArgs args = {.num_seqs = 1, .num_heads = 3, .top_k = tokens, .q = codes.data(), .q_head_stride = 128, .weights = weights.data(),
                                 .q_scales = q_scales.data(), .block_table = table, .block_table_stride = 3, .query_ends = &end, .kv_lens = &tokens,
                                 .indices = indices.data(), .scores = scores.data()};
    ASSERT_TRUE(ReadKeysFrom(*codec, pages, args).ok());
    const absl::Status status = LightningIndexer(args, pool_);
    ASSERT_TRUE(status.ok()) << status;

    std::vector<float> back(tokens * 128);
    ASSERT_TRUE(quant::ReadRows(*codec, pages, slots, {.type = DType::kF32, .values = back.data(), .stride = 128}, pool_).ok());
    for (int64_t i = 0; i < tokens; ++i) {
      double want = 0, magnitude = 0;
      for (int h = 0; h < 3; ++h) {
        double product = 0;
        for (int64_t d = 0; d < 128; ++d) {
          const double term = quant::Decode(codec->format, codes[h * 128 + d]) * quant::LoadScalar(scales_type, q_scales.data(), h) * back[indices[i] * 128 + d];
          product += term;
          magnitude += std::fabs(weights[h] * term);
        }
        want += weights[h] * std::max(0.0, product);
      }
      ASSERT_NEAR(scores[i], want, 150 * 0x1p-24 * magnitude) << i;
      ASSERT_TRUE(i == 0 || scores[i] <= scores[i - 1]) << i;
    }
    args.head_dim = 64;
    EXPECT_THAT(std::string(ReadKeysFrom(*codec, pages, args).message()), testing::HasSubstr("rows have 128 values, head_dim = 64"));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, HadamardTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(HadamardArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  float x[8] = {};
  const auto message = [&](const HadamardArgs& args) { return std::string(HadamardRotate(args, tiling::InlineExecutor()).message()); };
  EXPECT_THAT(message({.rows = 1, .dim = 12, .in = x, .out = x}), testing::HasSubstr("dim = 12 is not a power of two in [1, 65536]"));
  EXPECT_THAT(message({.rows = -1, .dim = 4, .in = x, .out = x}), testing::HasSubstr("rows = -1 is negative"));
  EXPECT_THAT(message({.rows = 2, .dim = 4, .in = x, .in_stride = 3, .out = x, .out_stride = 4}), testing::HasSubstr("in_stride = 3 is less than dim = 4"));
  EXPECT_THAT(message({.rows = 1, .dim = 4, .in = x}), testing::HasSubstr("out is null"));
}

}  // namespace
}  // namespace jumar::attention
