#include "libs/quant/int8_gemm/int8_gemm.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/int8_gemm/int8_reference.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

const Int8Layout kLayouts[] = {Int8Layout::kNK, Int8Layout::kKN, Int8Layout::kFractalNK, Int8Layout::kFractalKN};
const Int8GemmOut kOutputs[] = {Int8GemmOut::kI32, Int8GemmOut::kI8, Int8GemmOut::kF32, Int8GemmOut::kF16, Int8GemmOut::kBF16};

int64_t SizeOf(Int8GemmOut type) {
  return type == Int8GemmOut::kI8 ? 1 : type == Int8GemmOut::kI32 || type == Int8GemmOut::kF32 ? 4 : 2;
}

enum class Fill { kRandom, kLowest, kExtremes };

// A problem with everything that its kind of output takes. Gaps, padding and the ends of the buffers hold 0x7B, or NaN.
struct Problem {
  Problem(int64_t m, int64_t n, int64_t k, Int8Layout layout, Int8GemmOut out_type, uint32_t seed, Fill fill = Fill::kRandom, int64_t experts = 1)
      : rng(seed), fill(fill), seed(seed) {
    args = {.m = m, .n = n, .k = k, .lda = k + 3, .ldw = (layout == Int8Layout::kKN ? n : k) + 5, .layout = layout, .out_type = out_type, .ldo = n + 7};
    a.assign(m * args.lda + 1, 0x7B);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t kk = 0; kk < k; ++kk) a[1 + i * args.lda + kk] = Code();
    }
    args.a = a.data() + 1;  // not aligned
    const bool floats = out_type != Int8GemmOut::kI32;
    token.assign(m + 1, NAN);
    for (int64_t i = 0; i < m; ++i) token[i] = Uniform(0.5f, 1.5f);
    if (floats) args.token_scale = {token.data()};
    for (int64_t e = 0; e < experts; ++e) {
      auto& x = expert.emplace_back();
      x.w.assign(WeightBytes(layout, args.ldw, n, k) + 1, 0x7B);
      x.int_bias.assign(n, 0);
      x.scale.assign(n + 16, NAN), x.bias.assign(n + 16, NAN), x.offset.assign(n + 16, NAN);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t kk = 0; kk < k; ++kk) WeightAt(x.w.data() + 1, layout, args.ldw, n, k, j, kk) = Code();
        x.int_bias[j] = static_cast<int32_t>(rng());
        if (floats) x.int_bias[j] >>= 12;
        x.scale[j] = Uniform(1e-5f, 2e-3f);
        x.bias[j] = Uniform(-3, 3);
        x.offset[j] = std::nearbyint(Uniform(-20, 20));
      }
    }
    for (int64_t e = 0; e < experts; ++e) groups.push_back(GroupOf(e, m * e / experts, m * (e + 1) / experts));
    args.w = groups[0].w, args.scale = groups[0].scale, args.int_bias = groups[0].int_bias, args.bias = groups[0].bias, args.offset = groups[0].offset;
    out.assign((m * args.ldo + 1) * SizeOf(out_type), char{0x5A});
    args.out = out.data() + SizeOf(out_type);
  }

  Int8Group GroupOf(int64_t e, int64_t begin, int64_t end) const {
    const auto& x = expert[e];
    Int8Group group = {.begin = begin, .end = end, .w = x.w.data() + 1, .int_bias = x.int_bias.data()};
    if (args.out_type != Int8GemmOut::kI32) group.scale = {x.scale.data()}, group.bias = {x.bias.data()};
    if (args.out_type == Int8GemmOut::kI8) group.offset = {x.offset.data()};
    return group;
  }

  int8_t Code() {
    if (fill == Fill::kLowest) return -128;
    if (fill == Fill::kExtremes) return rng() % 2 ? -128 : 127;
    return static_cast<int8_t>(rng());
  }
  float Uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(rng); }

  std::string Name() const {
    return absl::StrCat("m=", args.m, " n=", args.n, " k=", args.k, " layout ", static_cast<int>(args.layout), " out ", static_cast<int>(args.out_type),
                        " ", tiling::SimdTarget(), " seed ", seed);
  }

  std::mt19937 rng;
  Fill fill;
  uint32_t seed;
  std::vector<int8_t> a;
  std::vector<float> token;
  struct Expert {
    std::vector<int8_t> w;
    std::vector<int32_t> int_bias;
    std::vector<float> scale, bias, offset;
  };
  std::vector<Expert> expert;
  std::vector<Int8Group> groups;
  std::vector<char> out;
  Int8GemmArgs args;
};

// Every byte of out, gaps included.
void ExpectEqualsReference(Problem& p, tiling::Executor& executor) {
  std::vector<char> want = p.out;
  const absl::Status status = p.groups.size() == 1 ? Int8Gemm(p.args, executor) : GroupedInt8Gemm(p.args, p.groups, executor);
  ASSERT_TRUE(status.ok()) << status;
  Int8GemmReference(p.args, p.groups, want.data() + SizeOf(p.args.out_type));
  ASSERT_EQ(std::memcmp(p.out.data(), want.data(), want.size()), 0) << p.Name();
}

// The instruction set that only this kernel is compiled for.
const char kOwnTarget[] = "AVX3_DL";
std::vector<std::string> Targets() {
  std::vector<std::string> targets = tiling::SimdTargets();
  hwy::SetSupportedTargetsForTest(0);
  if (HWY_ARCH_X86 && (hwy::SupportedTargets() & HWY_AVX3_DL) != 0) targets.push_back(kOwnTarget);
  return targets;
}

class Int8GemmTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(tiling::UseSimdTarget(GetParam() == kOwnTarget ? "" : GetParam()).ok());
    if (GetParam() == kOwnTarget) hwy::SetSupportedTargetsForTest(HWY_AVX3_DL);
  }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(Int8GemmTest, IsExactOnEveryTailOfEveryDimension) {
  uint32_t seed = 1;
  const auto check = [&](int64_t m, int64_t n, int64_t k, Int8Layout layout) {
    Problem problem(m, n, k, layout, kOutputs[seed % std::size(kOutputs)], seed);
    ++seed;
    ExpectEqualsReference(problem, pool_);
  };
  for (Int8Layout layout : kLayouts) {
    for (int64_t m = 1; m <= 27; ++m) check(m, 37, 70, layout);
    for (int64_t n : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100}) {
      check(1, n, 65, layout);
      check(5, n, 34, layout);
    }
    for (int64_t k : {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 96, 255, 257, 511, 512, 513, 1029}) {
      check(1, 18, k, layout);
      check(7, 40, k, layout);
    }
  }
}

TEST_P(Int8GemmTest, EveryKindOfOutputInEveryLayout) {
  for (Int8Layout layout : kLayouts) {
    for (Int8GemmOut out : kOutputs) {
      Problem decode(1, 96, 576, layout, out, 7), prefill(70, 50, 300, layout, out, 8);
      ExpectEqualsReference(decode, pool_);
      ExpectEqualsReference(prefill, pool_);
    }
  }
}

TEST_P(Int8GemmTest, TheLowestAndTheHighestNumbersDoNotSaturate) {
  for (Int8Layout layout : kLayouts) {
    for (Fill fill : {Fill::kLowest, Fill::kExtremes}) {
      for (int64_t m : {1, 13}) {
        Problem problem(m, 35, 1030, layout, Int8GemmOut::kI32, 3, fill);
        ExpectEqualsReference(problem, pool_);
      }
    }
  }
}

TEST_P(Int8GemmTest, TheDeepestSumFitsAndADeeperOneIsRefused) {
  Problem deepest(1, 1, kMaxInt8Depth, Int8Layout::kNK, Int8GemmOut::kI32, 1, Fill::kLowest);
  deepest.args.int_bias = nullptr;
  ASSERT_TRUE(Int8Gemm(deepest.args, pool_).ok());
  EXPECT_EQ(*static_cast<int32_t*>(deepest.args.out), 131071 * 128 * 128);
  deepest.args.k = kMaxInt8Depth + 1;
  const absl::Status status = Int8Gemm(deepest.args, pool_);
  EXPECT_NE(status.message().find("k = 131072 is more than 131071"), std::string::npos) << status;
}

TEST_P(Int8GemmTest, GroupsOfRowsEachWithTheirWeight) {
  uint32_t seed = 20;
  for (Int8Layout layout : kLayouts) {
    for (Int8GemmOut out : kOutputs) {
      Problem problem(60, 45, 100, layout, out, seed++, Fill::kRandom, 5);
      // Empty groups, one row, more rows than a tile; rows 3 and 58, 59 are of no group, and expert 4 comes before expert 3.
      const std::pair<int64_t, int64_t> spans[] = {{0, 0}, {0, 1}, {1, 3}, {40, 58}, {4, 40}};
      for (int64_t e = 0; e < 5; ++e) problem.groups[e] = problem.GroupOf(e, spans[e].first, spans[e].second);
      ExpectEqualsReference(problem, pool_);
    }
  }
  Problem many(9, 33, 65, Int8Layout::kFractalKN, Int8GemmOut::kBF16, 5, Fill::kRandom, 64);
  ExpectEqualsReference(many, pool_);
}

TEST_P(Int8GemmTest, NumbersMayBeOneOrStridedOrHalves) {
  Problem problem(6, 40, 50, Int8Layout::kNK, Int8GemmOut::kF32, 4);
  const float one = 0.25f;
  std::vector<uint64_t> words(40);
  for (int j = 0; j < 40; ++j) {
    uint32_t bits;
    std::memcpy(&bits, &problem.expert[0].scale[j], sizeof(bits));
    words[j] = bits | uint64_t{0x5A5A} << 40;
  }
  std::vector<uint16_t> halves(40);
  for (int j = 0; j < 40; ++j) halves[j] = static_cast<uint16_t>(0x3800 + j);
  problem.groups[0].scale = problem.args.scale = {words.data(), DType::kF32, 2};
  problem.args.token_scale = {&one, DType::kF32, 0};
  for (DType type : {DType::kF16, DType::kBF16}) {
    problem.groups[0].bias = problem.args.bias = {halves.data(), type};
    ExpectEqualsReference(problem, pool_);
  }
  problem.args.token_scale = {};
  problem.groups[0].bias = problem.args.bias = {};
  problem.groups[0].int_bias = problem.args.int_bias = nullptr;
  ExpectEqualsReference(problem, pool_);
}

TEST_P(Int8GemmTest, Int8OutputSaturatesAndNanIsZero) {
  Problem problem(2, 4, 1, Int8Layout::kNK, Int8GemmOut::kI8, 4);
  problem.a.assign(problem.a.size(), 1);
  problem.expert[0].w.assign(problem.expert[0].w.size(), 1);
  problem.args.int_bias = problem.groups[0].int_bias = nullptr;
  const float scale[] = {1000, -INFINITY, NAN, 2.5f};
  problem.args.token_scale = {};
  problem.args.bias = problem.groups[0].bias = {};
  problem.args.offset = problem.groups[0].offset = {};
  problem.args.scale = problem.groups[0].scale = {scale};
  ASSERT_TRUE(Int8Gemm(problem.args, pool_).ok());
  const int8_t want[] = {127, -128, 0, 2};
  EXPECT_EQ(std::memcmp(problem.args.out, want, 4), 0);
}

TEST_P(Int8GemmTest, ARowIsTheSameInEveryBatchAndThreadCount) {
  tiling::ThreadPool two(2);
  for (Int8Layout layout : kLayouts) {
    Problem whole(600, 70, 600, layout, Int8GemmOut::kBF16, 11);
    ASSERT_TRUE(Int8Gemm(whole.args, pool_).ok());
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {599, 1}, {5, 2}, {100, 4}, {17, 12}, {40, 13}, {3, 33}, {0, 600}}) {
      Int8GemmArgs args = whole.args;
      args.m = count;
      args.a += first * args.lda;
      args.token_scale.data = whole.token.data() + first;
      std::vector<uint16_t> out(count * args.n);
      args.out = out.data();
      args.ldo = args.n;
      ASSERT_TRUE(Int8Gemm(args, count % 2 ? tiling::InlineExecutor() : static_cast<tiling::Executor&>(two)).ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::memcmp(out.data() + i * args.n, static_cast<const uint16_t*>(whole.args.out) + (first + i) * whole.args.ldo, args.n * 2), 0)
            << whole.Name() << ": row " << first + i << " differs in a batch of " << count;
      }
    }
  }
}

TEST_P(Int8GemmTest, FractalLayoutsAreThoseOfFractalNz) {
  const int64_t m = 3, n = 45, k = 70;
  Problem plain(m, n, k, Int8Layout::kNK, Int8GemmOut::kI32, 9);
  ASSERT_TRUE(Int8Gemm(plain.args, pool_).ok());
  std::vector<int8_t> transposed(k * n), nz(std::max(*FractalNzBytes(n, k, 1), *FractalNzBytes(k, n, 1)));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t kk = 0; kk < k; ++kk) transposed[kk * n + j] = plain.args.w[j * plain.args.ldw + kk];
  }
  for (Int8Layout layout : {Int8Layout::kFractalNK, Int8Layout::kFractalKN}) {
    const bool nk = layout == Int8Layout::kFractalNK;
    ASSERT_TRUE((nk ? PackFractalNz(n, k, 1, plain.args.w, plain.args.ldw, nz.data()) : PackFractalNz(k, n, 1, transposed.data(), n, nz.data())).ok());
    Int8GemmArgs args = plain.args;
    args.layout = layout;
    args.w = nz.data();
    args.ldw = 0;
    std::vector<int32_t> out(m * args.ldo, 0x5A5A5A5A);
    args.out = out.data();
    ASSERT_TRUE(Int8Gemm(args, pool_).ok());
    EXPECT_EQ(std::memcmp(out.data(), plain.args.out, out.size() * 4), 0) << static_cast<int>(layout);
  }
}

TEST_P(Int8GemmTest, ZeroSizesTouchNothing) {
  for (Int8Layout layout : kLayouts) {
    Problem no_rows(0, 5, 5, layout, Int8GemmOut::kF32, 1), no_columns(5, 0, 5, layout, Int8GemmOut::kF32, 1);
    ExpectEqualsReference(no_rows, pool_);
    ExpectEqualsReference(no_columns, pool_);
    EXPECT_TRUE(GroupedInt8Gemm(no_rows.args, {}, pool_).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Int8GemmTest, testing::ValuesIn(Targets()), [](const auto& info) { return info.param; });

TEST(Int8GemmArgsTest, ErrorsNameTheFieldAndTheLimit) {
  Problem good(2, 3, 4, Int8Layout::kNK, Int8GemmOut::kF32, 1);
  const auto message = [](const Int8GemmArgs& args) { return std::string(Int8Gemm(args, tiling::InlineExecutor()).message()); };
  const auto expect = [&](auto change, const char* text) {
    Int8GemmArgs args = good.args;
    change(args);
    EXPECT_NE(message(args).find(text), std::string::npos) << message(args);
  };
  expect([](Int8GemmArgs& args) { args.k = -1; }, "2, 3, -1 must not be negative");
  expect([](Int8GemmArgs& args) { args.lda = 3; }, "lda = 3 is less than the 4");
  expect([](Int8GemmArgs& args) { args.ldo = 2; }, "ldo = 2 is less than the 3");
  expect([](Int8GemmArgs& args) { args.w = nullptr; }, "w is null");
  expect([](Int8GemmArgs& args) { args.layout = Int8Layout::kKN, args.ldw = 2; }, "ldw = 2 is less than the 3");
  expect([](Int8GemmArgs& args) { args.scale = {}; }, "scale is absent");
  expect([](Int8GemmArgs& args) { args.offset = args.bias; }, "offset is given");
  expect([](Int8GemmArgs& args) { args.out_type = Int8GemmOut::kI32; }, "scale is given");
  expect([](Int8GemmArgs& args) { args.m = INT64_MAX / 8; }, "too large");
  expect([](Int8GemmArgs& args) { args.layout = static_cast<Int8Layout>(9); }, "unknown weight layout 9");
  Int8Group groups[] = {good.GroupOf(0, 0, 2), good.GroupOf(0, 1, 2)};
  std::string text(GroupedInt8Gemm(good.args, groups, tiling::InlineExecutor()).message());
  EXPECT_NE(text.find("two groups have row 1"), std::string::npos) << text;
  groups[1].end = 3;
  text = GroupedInt8Gemm(good.args, groups, tiling::InlineExecutor()).message();
  EXPECT_NE(text.find("[1, 3); they must lie in [0, 2)"), std::string::npos) << text;
}

}  // namespace
}  // namespace jumar::quant
