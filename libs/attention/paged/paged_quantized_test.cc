// Paged attention over a quantised cache: int8, E4M3 and E5M2, with every kind of scales.

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/attention/paged/test_checks.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

using quant::Format;

const Format kFormats[] = {Format::kI8, Format::kE4M3, Format::kE5M2};
const DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

struct Scales {
  TestScales k, v;
};
const Scales kScales[] = {{TestScales::kSlot, TestScales::kSlot},         {TestScales::kTensor, TestScales::kTensor},
                          {TestScales::kChannel, TestScales::kChannel},   {TestScales::kHead, TestScales::kHead},
                          {TestScales::kChannel, TestScales::kPosition},  {TestScales::kPosition, TestScales::kStridedChannel},
                          {TestScales::kStridedChannel, TestScales::kSlot}, {TestScales::kNone, TestScales::kNone}};

class PagedQuantizedTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

std::string Where(const Case& c, Format format, const Scales& scales) {
  return c.name + " " + quant::Name(format) + " scales " + std::to_string(static_cast<int>(scales.k)) + " " + std::to_string(static_cast<int>(scales.v));
}

// Kinds of scales, formats and types take turns, so that every pair is met in some case.
TEST_P(PagedQuantizedTest, MatchesFloat64OfTheDequantisedNumbersInEveryCase) {
  uint32_t turn = 0;
  for (const Case& c : Cases()) {
    for (Format format : kFormats) {
      const Scales& scales = kScales[turn++ % std::size(kScales)];
      AttentionProblem problem = Make(c, kTypes[turn / 3 % 3], turn);
      problem.Quantize(format, scales.k, scales.v, turn);
      const absl::Status status = PagedAttention(problem.args, pool_);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, Where(c, format, scales)));
    }
  }
}

TEST_P(PagedQuantizedTest, ARowIsBitEqualInDecodeChunkedAndWholePrefill) {
  tiling::ThreadPool two(2);
  std::mt19937 rng(5);
  uint32_t turn = 0;
  for (const Case& c : Cases()) {
    if (c.window_right != 0) continue;
    for (Format format : kFormats) {
      const Scales& scales = kScales[turn++ % std::size(kScales)];
      AttentionProblem whole = Make(c, DType::kBF16, 77);
      whole.Quantize(format, scales.k, scales.v, 3);
      ASSERT_TRUE(PagedAttention(whole.args, pool_).ok());
      for (size_t s = 0; s < c.sequences.size(); ++s) {
        const int64_t queries = c.sequences[s].queries;
        if (queries > c.sequences[s].keys) continue;
        for (int64_t first = 0; first < queries;) {
          const int64_t count = std::min<int64_t>(queries - first, first % 3 == 0 ? 1 : 1 + rng() % 24);
          tiling::Executor& executor = count % 2 ? tiling::InlineExecutor() : static_cast<tiling::Executor&>(two);
          ASSERT_NO_FATAL_FAILURE(ExpectChunkIsBitEqual(whole, s, first, count, executor, Where(c, format, scales)));
          first += count;
        }
      }
    }
  }
}

TEST_P(PagedQuantizedTest, LongContextIsBitEqualHoweverItIsSplit) {
  const Case c = {"long", {{1, 5000}, {1, 40}, {6, 3000}}, 6, 2, 64, 64, 128, -1, 0};
  for (Format format : kFormats) {
    const auto make = [&] {
      AttentionProblem problem = Make(c, DType::kBF16, 3);
      problem.Quantize(format, TestScales::kSlot, TestScales::kSlot, 4);
      return problem;
    };
    AttentionProblem alone = make();
    ASSERT_TRUE(PagedAttention(alone.args, tiling::InlineExecutor()).ok());
    for (int workers : {2, 7}) {
      tiling::ThreadPool pool(workers);
      AttentionProblem parallel = make();
      ASSERT_TRUE(PagedAttention(parallel.args, pool).ok());
      EXPECT_EQ(parallel.out, alone.out) << workers << " workers";
    }
  }
}

// All codes, in every lane and in what is left over behind whole vectors: one key, so that `out` is its value times its scale.
TEST_P(PagedQuantizedTest, EveryCodeIsDecodedExactly) {
  for (Format format : kFormats) {
    for (int64_t dim : {256, 61}) {
      for (int shift = 0; shift < 256; shift += dim == 256 ? 256 : 51) {
        AttentionProblem problem(DType::kF32, {{1, 1}}, 1, 1, dim, dim, 16, -1, 0, 1);
        problem.Quantize(format, TestScales::kNone, TestScales::kNone, 1);
        for (int64_t d = 0; d < dim; ++d) static_cast<uint8_t*>(problem.V(0, 0, 0))[d] = static_cast<uint8_t>(d + shift);
        ASSERT_TRUE(PagedAttention(problem.args, tiling::InlineExecutor()).ok());
        for (int64_t d = 0; d < dim; ++d) {
          const float want = quant::Decode(format, static_cast<uint8_t>(d + shift));
          const float got = static_cast<float>(quant::LoadScalar(DType::kF32, problem.Out(0, 0), d));
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(got)) << quant::Name(format) << " code " << d + shift << " gives " << got;
          } else {
            EXPECT_EQ(got, want) << quant::Name(format) << " code " << (d + shift) % 256;
          }
        }
      }
    }
  }
}

// The same for keys: the score of one key is the LSE.
TEST_P(PagedQuantizedTest, EveryCodeOfAKeyIsDecodedExactly) {
  for (Format format : kFormats) {
    for (int code = 0; code < 256; ++code) {
      const float want = quant::Decode(format, static_cast<uint8_t>(code));
      for (int64_t place : {0, 1, 2, 3, 31, 32, 33}) {  // in whole vectors, of each byte of four, and behind them
        AttentionProblem problem(DType::kF32, {{1, 1}}, 1, 1, 35, 35, 16, -1, 0, 1);
        problem.Quantize(format, TestScales::kNone, TestScales::kNone, 1);
        problem.args.scale = 1;
        std::memset(problem.K(0, 0, 0), 0, 35);
        static_cast<uint8_t*>(problem.K(0, 0, 0))[place] = static_cast<uint8_t>(code);
        for (int64_t d = 0; d < 35; ++d) quant::StoreScalar(DType::kF32, d == place, problem.q.data(), d);
        ASSERT_TRUE(PagedAttention(problem.args, tiling::InlineExecutor()).ok());
        if (std::isfinite(want)) {
          EXPECT_EQ(problem.lse[0], want) << quant::Name(format) << " code " << code << " at " << place;
        } else {
          EXPECT_FALSE(std::isfinite(problem.lse[0])) << quant::Name(format) << " code " << code << " at " << place;
        }
      }
    }
  }
}

TEST_P(PagedQuantizedTest, ScalesOfHiddenKeysMayBeNan) {
  for (TestScales kind : {TestScales::kSlot, TestScales::kPosition}) {
    AttentionProblem problem(DType::kBF16, {{20, 70}, {1, 300}}, 4, 2, 64, 64, 16, 31, 0, 9);
    problem.Quantize(Format::kI8, kind, kind, 2);
    std::vector<uint8_t> mask(20 * 300, 0);
    for (int64_t i = 0; i < 20; ++i) std::memset(&mask[i * 300 + 45], 1, 5);
    for (int64_t j = 45; j < 50; ++j) {
      for (int64_t s = 0; s < 2; ++s) {
        for (int64_t h = 0; h < 2; ++h) {
          const KvScales& scales = problem.args.k_scales;
          const int64_t token = kind == TestScales::kPosition
                                    ? s * scales.seq_stride + j
                                    : problem.block_table[s * problem.args.block_table_stride + j / 16] * scales.block_stride + j % 16;
          problem.k_scales[token + h * scales.head_stride] = problem.v_scales[token + h * scales.head_stride] = NAN;
        }
      }
    }
    problem.args.mask = mask.data();
    problem.args.mask_query_stride = 300;
    ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
    ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, "NaN scales"));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, PagedQuantizedTest, testing::ValuesIn(tiling::SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(PagedQuantizedArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  AttentionProblem problem(DType::kF32, {{2, 40}}, 4, 2, 64, 64, 16, -1, 0, 1);
  const float one = 1;
  problem.args.k_scales.data = &one;
  EXPECT_EQ(PagedAttention(problem.args, tiling::InlineExecutor()).message(),
            "paged attention: there are k_scales or v_scales, but kv_format is not set");
  problem.args.kv_format = Format::kHiF8;
  EXPECT_EQ(PagedAttention(problem.args, tiling::InlineExecutor()).message(),
            "paged attention: kv_format = hif8; a cache is int8, e4m3 or e5m2, or not quantised");
}

}  // namespace
}  // namespace jumar::attention
