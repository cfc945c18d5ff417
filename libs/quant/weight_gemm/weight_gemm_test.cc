#include "libs/quant/weight_gemm/weight_gemm.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/quant/weight_gemm/weight_gemm_reference.h"
#include "libs/quant/weight_gemm/weight_problem.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

using Spec = WeightProblemSpec;

const Format kWeights[] = {Format::kI8, Format::kI4, Format::kE4M3, Format::kE5M2, Format::kHiF8, Format::kE2M1};
const CodeLayout kLayouts[] = {CodeLayout::kNK, CodeLayout::kKN, CodeLayout::kFractalNz};
bool Fits(Format format, CodeLayout layout) { return Bits(format) == 8 || layout != CodeLayout::kFractalNz; }

class WeightGemmTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }

  void ExpectMatchesReference(const Spec& spec) {
    WeightProblem problem(spec);
    const absl::Status status = WeightGemm(problem.args, pool_);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(problem.MarginsAreUntouched()) << problem.Name();
    const WeightGemmResult want = WeightGemmReference(problem.args);
    const int64_t width = spec.epilogue == Epilogue::kSwiGlu ? spec.n / 2 : spec.n;
    for (int64_t i = 0; i < spec.m; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        const size_t e = static_cast<size_t>(i * width + j);
        if (spec.out == DType::kF16 && std::fabs(want.value[e]) + want.bound[e] >= 65504) continue;  // it may be infinity
        ASSERT_LE(std::fabs(problem.Out(i, j) - want.value[e]), want.bound[e])
            << problem.Name() << " on " << GetParam() << " at " << i << ", " << j << ": got " << problem.Out(i, j) << ", want " << want.value[e];
      }
    }
  }

  tiling::ThreadPool pool_{3};
};

TEST_P(WeightGemmTest, MatchesFloat64OnEveryTailOfEveryDimension) {
  uint32_t seed = 1;
  for (Format format : kWeights) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (CodeLayout layout : kLayouts) {
        if (!Fits(format, layout) || (type != DType::kBF16 && layout != CodeLayout::kNK)) continue;
        Spec spec = {.activations = type, .format = format, .layout = layout, .bias = true, .out = type};
        const auto check = [&](int64_t m, int64_t n, int64_t k) {
          spec.m = m, spec.n = n, spec.k = k, spec.seed = seed++;
          ExpectMatchesReference(spec);
        };
        for (int64_t m : {1, 2, 3, 4, 5, 7, 13}) check(m, 21, 150);
        for (int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 33}) {
          check(1, n, 65);
          check(4, n, 40);
        }
        for (int64_t k : {0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 96, 127, 128, 129, 255, 257, 1023, 1160}) {
          check(1, 3, k);
          check(6, 6, k);
        }
      }
    }
  }
}

TEST_P(WeightGemmTest, MatchesFloat64WithEverySharingOfScales) {
  uint32_t seed = 1;
  for (Format format : kWeights) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (ScaleType scale_type : {ScaleType::kF32, ScaleType::kF16, ScaleType::kBF16, ScaleType::kE8M0}) {
        for (int64_t rows : {0, 1, 128}) {
          for (int64_t depth : {0, 16, 32, 48, 64, 96, 128, 256}) {
            const bool first = seed % 2;
            Spec spec = {.m = seed % 5 == 0 ? 5 : 1 + seed % 2, .n = 9, .k = 330, .activations = type, .format = format,
                         .scale = {.type = scale_type, .rows = rows, .depth = depth, .rows_first = first}, .seed = seed};
            if (rows == 128) spec.n = 131, spec.m = 1 + 3 * (seed % 2), spec.k = 70 + depth;
            if (seed % 3 == 0) spec.offset = {.type = scale_type == ScaleType::kE8M0 ? ScaleType::kI32 : scale_type, .rows = rows, .depth = depth, .rows_first = first};
            ++seed;
            ExpectMatchesReference(spec);
          }
        }
      }
    }
  }
}

TEST_P(WeightGemmTest, MatchesFloat64WithQuantisedActivations) {
  uint32_t seed = 1;
  struct Pair {
    Format a, w;
  };
  for (const Pair& pair : {Pair{Format::kE4M3, Format::kE4M3}, {Format::kE5M2, Format::kE4M3}, {Format::kHiF8, Format::kHiF8}, {Format::kE2M1, Format::kE2M1},
                           {Format::kE4M3, Format::kE2M1}, {Format::kI8, Format::kI4}, {Format::kI4, Format::kI4}, {Format::kI8, Format::kI8}}) {
    for (int64_t m : {1, 2, 7}) {
      for (int64_t k : {33, 256, 300, 1184}) {
        Spec spec = {.m = m, .n = 21, .k = k, .activations = pair.a, .format = pair.w, .bias = seed % 2 == 0, .out = DType::kBF16, .seed = seed++};
        spec.a_scale = {};  // per token by per channel
        ExpectMatchesReference(spec);
        spec.a_scale = {.rows = 0};
        spec.scale.rows = 0;
        ExpectMatchesReference(spec);
        spec.a_scale = {.depth = 128};  // DeepSeek's
        spec.scale = {.rows = 128, .depth = 128};
        ExpectMatchesReference(spec);
        spec.a_scale = {.type = ScaleType::kE8M0, .depth = 32, .rows_first = true};  // MX
        spec.scale = {.type = ScaleType::kE8M0, .depth = 32};
        ExpectMatchesReference(spec);
        spec.scale.run = 2;
        ExpectMatchesReference(spec);
        spec.scale = {};  // blocks of activations only
        ExpectMatchesReference(spec);
      }
    }
  }
}

TEST_P(WeightGemmTest, MatchesFloat64OnModelShapes) {
  for (Format format : kWeights) {
    Spec spec = {.m = 1, .n = 96, .k = 1536, .format = format, .scale = {.type = ScaleType::kBF16, .depth = 128}, .out = DType::kBF16, .seed = 3};
    ExpectMatchesReference(spec);
    spec.m = 130;  // more rows than a block of them
    spec.n = 40;
    spec.k = 2304;
    ExpectMatchesReference(spec);
  }
}

TEST_P(WeightGemmTest, SwiGluMatchesFloat64) {
  for (CodeLayout layout : kLayouts) {
    for (Format format : {Format::kI4, Format::kE4M3}) {
      if (!Fits(format, layout)) continue;
      for (int64_t n : {4, 36, 72}) {
        Spec spec = {.m = 3, .n = n, .k = 64, .format = format, .layout = layout, .scale = {.type = ScaleType::kBF16, .depth = 32}, .bias = true,
                     .out = DType::kBF16, .epilogue = Epilogue::kSwiGlu, .seed = static_cast<uint32_t>(n)};
        ExpectMatchesReference(spec);
      }
    }
  }
}

// The property on which cached = uncached, chunked = whole and graph = eager rest.
TEST_P(WeightGemmTest, ARowIsBitEqualInEveryBatchLayoutAndThreadCount) {
  tiling::ThreadPool two(2);
  for (Format format : kWeights) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (int64_t depth : {0, 32, 128}) {
        Spec spec = {.m = 150, .n = 36, .k = 1100, .activations = type, .format = format, .scale = {.type = ScaleType::kBF16, .depth = depth},
                     .bias = true, .out = type, .seed = 11};
        WeightProblem whole(spec);
        ASSERT_TRUE(WeightGemm(whole.args, pool_).ok());
        for (CodeLayout layout : kLayouts) {
          if (!Fits(format, layout)) continue;
          spec.layout = layout;
          WeightProblem part(spec);
          for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {149, 1}, {5, 2}, {8, 3}, {100, 4}, {31, 5}, {17, 6}, {40, 8}, {3, 33}}) {
            WeightGemmArgs args = part.args;
            args.m = count;
            args.a = static_cast<const char*>(args.a) + first * args.lda;
            args.out = static_cast<char*>(args.out) + first * args.ldo;
            ASSERT_TRUE(WeightGemm(args, count % 2 ? tiling::InlineExecutor() : static_cast<tiling::Executor&>(two)).ok());
            for (int64_t i = first; i < first + count; ++i) {
              ASSERT_EQ(part.OutBytes(i), whole.OutBytes(i)) << part.Name() << ": row " << i << " differs in a batch of " << count;
            }
          }
        }
      }
    }
  }
}

TEST_P(WeightGemmTest, WholeNumbersAreExact) {
  // Sums of products below 2^24 with scales that are powers of two.
  for (Format a : {Format::kE4M3, Format::kI8, Format::kE2M1}) {
    for (Format w : {Format::kI8, Format::kI4, Format::kE2M1}) {
      for (int64_t m : {1, 4}) {
        WeightProblem problem({.m = m, .n = 17, .k = 333, .activations = a, .format = w, .scale = {.type = ScaleType::kE8M0, .rows = 0}, .seed = 5});
        ASSERT_TRUE(WeightGemm(problem.args, pool_).ok());
        const WeightGemmResult want = WeightGemmReference(problem.args);
        for (int64_t e = 0; e < m * 17; ++e) ASSERT_EQ(problem.Out(e / 17, e % 17), want.value[static_cast<size_t>(e)]) << problem.Name();
      }
    }
  }
}

// Each of a format's codes on its own, at every place of a chunk: 1 * code.
TEST_P(WeightGemmTest, DecodesEveryCodeExactly) {
  for (Format format : kWeights) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      const int64_t codes = int64_t{1} << Bits(format), k = 128;
      WeightProblem problem({.m = 1, .n = codes, .k = k, .activations = type, .format = format, .scale = {.present = false}});
      for (int64_t j = 0; j < codes; ++j) {
        for (int64_t i = 0; i < k; ++i) problem.SetCode(j, i, 0);
        problem.SetCode(j, j * 37 % k, static_cast<uint8_t>(j));
      }
      for (int64_t i = 0; i < k; ++i) problem.SetActivation(0, i, 1);
      ASSERT_TRUE(WeightGemm(problem.args, pool_).ok());
      for (int64_t j = 0; j < codes; ++j) {
        const double want = Decode(format, static_cast<uint8_t>(j));
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(problem.Out(0, j))) << Name(format) << " code " << j << " on " << GetParam();
        } else {
          EXPECT_EQ(problem.Out(0, j), want) << Name(format) << " code " << j << " on " << GetParam();
        }
      }
    }
  }
}

TEST_P(WeightGemmTest, EveryScaleCodeIsDecoded) {
  for (int64_t depth : {0, 32, 128}) {
    WeightProblem problem({.m = 1, .n = 256, .k = 128, .activations = DType::kF32, .format = Format::kE4M3});
    std::vector<uint8_t> codes(256 * 4);
    const int64_t groups = depth == 32 ? 4 : 1;
    for (int64_t j = 0; j < 256 * groups; ++j) codes[static_cast<size_t>(j)] = static_cast<uint8_t>(j / groups);
    problem.args.w_scale = {.data = codes.data(), .type = ScaleType::kE8M0, .depth = depth, .row_stride = groups};
    for (int64_t j = 0; j < 256; ++j) {
      for (int64_t i = 0; i < 128; ++i) problem.SetCode(j, i, i == 100 ? 0x38 : 0);  // 1
    }
    problem.SetActivation(0, 100, 1);
    ASSERT_TRUE(WeightGemm(problem.args, pool_).ok());
    for (int64_t j = 0; j < 255; ++j) EXPECT_EQ(problem.Out(0, j), Decode(Format::kE8M0, static_cast<uint8_t>(j))) << j;
    EXPECT_TRUE(std::isnan(problem.Out(0, 255)));
  }
}

TEST_P(WeightGemmTest, NanStaysInItsRowAndColumn) {
  struct Code {
    Format format;
    uint8_t nan;
  };
  for (const Code& code : {Code{Format::kE4M3, 0x7F}, {Format::kE4M3, 0xFF}, {Format::kE5M2, 0x7D}, {Format::kE5M2, 0xFF}, {Format::kHiF8, 0x80}}) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      for (int64_t m : {2, 6}) {
        WeightProblem problem({.m = m, .n = 20, .k = 90, .activations = type, .format = code.format, .seed = 5});
        problem.SetCode(6, 0, code.nan);
        problem.SetCode(19, 89, code.nan);
        problem.SetActivation(1, 77, NAN);
        ASSERT_TRUE(WeightGemm(problem.args, pool_).ok());
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < 20; ++j) EXPECT_EQ(std::isnan(problem.Out(i, j)), i == 1 || j == 6 || j == 19) << problem.Name() << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(WeightGemmTest, GroupsAreProductsWithTheirExperts) {
  const int64_t n = 20, k = 96, experts = 4;
  for (Format format : {Format::kI4, Format::kE4M3}) {
    // Four weights, stacked along n.
    WeightProblem all({.m = 12, .n = experts * n, .k = k, .format = format, .scale = {.type = ScaleType::kBF16, .depth = 32}, .bias = true, .seed = 9});
    WeightGemmArgs args = all.args;
    args.n = n;
    const ExpertStack stack = {.w = n * args.ldw, .w_scale = n * args.w_scale.row_stride * 2, .bias = n * 2};
    const std::vector<RowGroup> groups = {{2, 0, 3}, {0, 3, 3}, {3, 3, 4}, {0, 5, 12}};  // row 4 has none
    ASSERT_TRUE(GroupedWeightGemm(args, stack, groups, pool_).ok());
    std::vector<std::string> got;
    for (int64_t i = 0; i < 12; ++i) got.push_back(all.OutBytes(i).substr(0, n * 4));
    EXPECT_EQ(got[4], std::string(n * 4, '\xFF')) << "a row without a group is written";
    ASSERT_TRUE(WeightGemm(all.args, pool_).ok());
    for (const RowGroup& g : groups) {
      for (int64_t i = g.begin; i < g.end; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], all.OutBytes(i).substr(static_cast<size_t>(g.expert * n * 4), n * 4)) << i;
    }
  }
}

TEST_P(WeightGemmTest, ZeroSizesTouchNothing) {
  WeightProblem no_rows({.m = 0, .n = 5, .k = 5}), no_columns({.m = 5, .n = 0, .k = 5});
  EXPECT_TRUE(WeightGemm(no_rows.args, pool_).ok());
  EXPECT_TRUE(WeightGemm(no_columns.args, pool_).ok());
  EXPECT_TRUE(no_rows.MarginsAreUntouched() && no_columns.MarginsAreUntouched());
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, WeightGemmTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(WeightGemmArgsTest, WhatIsWrongIsNamed) {
  WeightProblem good({.m = 2, .n = 4, .k = 32});
  const auto message = [](const WeightGemmArgs& args) { return std::string(WeightGemm(args, tiling::InlineExecutor()).message()); };
  const auto expect = [&](auto change, const char* what) {
    WeightGemmArgs args = good.args;
    change(args);
    EXPECT_NE(message(args).find(what), std::string::npos) << message(args) << "; expected " << what;
  };
  expect([](auto& a) { a.m = -1; }, "-1");
  expect([](auto& a) { a.m = INT64_MAX / 2; }, "too large");
  expect([](auto& a) { a.lda = 63; }, "lda = 63 is less than the 64 bytes");
  expect([](auto& a) { a.ldo = 3; }, "ldo = 3 is less than the 16 bytes");
  expect([](auto& a) { a.ldw = 31; }, "ldw = 31 is less than the 32 bytes");
  expect([](auto& a) { a.w = nullptr; }, "w is null");
  expect([](auto& a) { a.a = nullptr; }, "a is null");
  expect([](auto& a) { a.w_scale.depth = 24; }, "w_scale.depth = 24 must be 0 or a multiple of 16");
  expect([](auto& a) { a.format = Format::kE8M0; }, "e8m0");
  expect([](auto& a) { a.activations = Format::kE8M0; }, "e8m0");
  expect([](auto& a) { a.n = 3, a.epilogue = Epilogue::kSwiGlu; }, "n = 3 must be even");
  expect([](auto& a) { a.format = Format::kI4, a.layout = CodeLayout::kFractalNz; }, "FRACTAL_NZ holds formats of 8 bits");
  const RowGroup outside[] = {{0, 1, 3}};
  EXPECT_NE(std::string(GroupedWeightGemm(good.args, {}, outside, tiling::InlineExecutor()).message()).find("[0, 2)"), std::string::npos);
}

}  // namespace
}  // namespace jumar::quant
