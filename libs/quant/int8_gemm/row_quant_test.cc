#include "libs/quant/int8_gemm/row_quant.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/quant/int8_gemm/int8_reference.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr int64_t kCols[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 129, 576};

RowsIn::Type TypeOfRows(DType type) {
  return type == DType::kF32 ? RowsIn::Type::kF32 : type == DType::kF16 ? RowsIn::Type::kF16 : RowsIn::Type::kBF16;
}

// [rows, cols], NaN in the gaps behind the rows.
struct Floats {
  Floats(DType type, int64_t rows, int64_t cols, std::mt19937& rng, double low = -3, double high = 3)
      : type(type), ld(cols + 5), bytes((rows * ld + 16) * SizeOf(type), char{-1}) {
    std::uniform_real_distribution<double> value(low, high);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) Set(r, c, value(rng));
    }
  }
  void Set(int64_t r, int64_t c, double value) { StoreScalar(type, value, bytes.data(), r * ld + c); }
  float Get(int64_t r, int64_t c) const { return static_cast<float>(LoadScalar(type, bytes.data(), r * ld + c)); }
  RowsIn In() const { return {.type = TypeOfRows(type), .data = bytes.data(), .ld = ld}; }
  Numbers Vector() const { return {bytes.data(), type}; }
  DType type;
  int64_t ld;
  std::vector<char> bytes;
};

// int8 rows with a gap that must stay, and their scales.
struct Codes {
  Codes(int64_t rows, int64_t cols) : ld(cols + 3), codes(rows * ld, 0x55), scale(rows + 1, -1) {}
  Int8Rows To() { return {.out = codes.data(), .ldo = ld, .scale = scale.data()}; }
  int8_t At(int64_t r, int64_t c) const { return codes[r * ld + c]; }
  void ExpectGaps(int64_t rows, int64_t cols) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = cols; c < ld; ++c) ASSERT_EQ(At(r, c), 0x55);
    }
    ASSERT_EQ(scale[rows], -1);
  }
  int64_t ld;
  std::vector<int8_t> codes;
  std::vector<float> scale;
};

int8_t ToInt8(float value) { return std::isnan(value) ? 0 : static_cast<int8_t>(std::clamp(std::nearbyint(value), -128.0f, 127.0f)); }

class RowQuantTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
  std::mt19937 rng_{7};
};

TEST_P(RowQuantTest, DynamicRowsAreTheFormulaBitForBit) {
  for (DType type : kTypes) {
    for (int64_t cols : kCols) {
      const int64_t rows = 5;
      Floats x(type, rows, cols, rng_), smooth(type, 1, cols, rng_, 0.5, 2);
      for (int64_t c = 0; c < cols; ++c) x.Set(1, c, 0);
      x.Set(2, 0, NAN);
      x.Set(3, cols - 1, -INFINITY);
      for (bool smoothed : {false, true}) {
        Codes got(rows, cols);
        Int8Rows to = got.To();
        if (smoothed) to.factor = smooth.Vector();
        ASSERT_TRUE(QuantizeRows(rows, cols, x.In(), to, pool_).ok());
        for (int64_t r = 0; r < rows; ++r) {
          float top = 0;
          for (int64_t c = 0; c < cols; ++c) {
            const float v = std::fabs(x.Get(r, c) * (smoothed ? smooth.Get(0, c) : 1));
            top = std::isnan(v) || v > top ? v : top;
          }
          const float scale = std::isfinite(top) ? top / 127.0f : NAN;
          if (std::isnan(scale)) {
            ASSERT_TRUE(std::isnan(got.scale[r]));
          } else {
            ASSERT_EQ(got.scale[r], scale);
          }
          for (int64_t c = 0; c < cols; ++c) ASSERT_EQ(got.At(r, c), ToInt8(x.Get(r, c) * (smoothed ? smooth.Get(0, c) : 1) / scale)) << cols << " " << r << " " << c;
        }
        got.ExpectGaps(rows, cols);
      }
    }
  }
}

TEST_P(RowQuantTest, StaticRowsMultiplyOrDivideAndSaturate) {
  for (DType type : kTypes) {
    for (int64_t cols : kCols) {
      const int64_t rows = 3;
      Floats x(type, rows, cols, rng_), scale(DType::kF32, 1, cols, rng_, 20, 90), offset(type, 1, cols, rng_, -9, 9);
      for (auto kind : {Int8Rows::Kind::kMultiply, Int8Rows::Kind::kDivide}) {
        for (int64_t step : {0, 1}) {
          Codes got(rows, cols);
          Int8Rows to = got.To();
          to.kind = kind, to.scale = nullptr;
          to.factor = scale.Vector(), to.factor.step = step;
          to.offset = offset.Vector();
          ASSERT_TRUE(QuantizeRows(rows, cols, x.In(), to, pool_).ok());
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) {
              const float s = scale.Get(0, c * step), v = x.Get(r, c);
              ASSERT_EQ(got.At(r, c), ToInt8((kind == Int8Rows::Kind::kMultiply ? v * s : v / s) + offset.Get(0, c)));
            }
          }
          got.ExpectGaps(rows, cols);
        }
      }
    }
  }
}

// |code - value / scale| <= 1/2 and what fp32 adds: values to 127 with a relative error of a few 2^-23 (`ulps`).
void ExpectNear(const Codes& got, int64_t r, const std::vector<double>& value, double ulps) {
  double top = 0;
  for (double v : value) top = std::max(top, std::fabs(v));
  ASSERT_NEAR(got.scale[r], top / 127, ulps * 0x1p-23 * top / 127);
  for (size_t c = 0; c < value.size(); ++c) {
    ASSERT_LE(std::fabs(got.At(r, static_cast<int64_t>(c)) - value[c] / (top / 127)), 0.5 + 2 * ulps * 0x1p-23 * 127) << r << " " << c;
  }
}

TEST_P(RowQuantTest, NormThenOneOrTwoQuantisations) {
  for (DType type : kTypes) {
    for (int64_t cols : kCols) {
      const int64_t rows = 4;
      Floats x(type, rows, cols, rng_), residual(type, rows, cols, rng_), gamma(type, 1, cols, rng_, 0.5, 2), beta(type, 1, cols, rng_);
      Floats smooth(type, 1, cols, rng_, 0.5, 2), sum(type, rows, cols, rng_);
      Codes dynamic(rows, cols), fixed(rows, cols);
      const float by = 17;
      Int8Rows to[] = {dynamic.To(), fixed.To()};
      to[0].factor = smooth.Vector();
      to[1].kind = Int8Rows::Kind::kMultiply, to[1].factor = {&by, DType::kF32, 0}, to[1].scale = nullptr;
      const NormQuantArgs args = {.rows = rows, .cols = cols, .type = type, .x = x.bytes.data(), .ldx = x.ld, .residual = residual.bytes.data(),
                                  .ldr = residual.ld, .sum = sum.bytes.data(), .lds = sum.ld, .gamma = gamma.Vector(), .beta = beta.Vector(), .to = to};
      ASSERT_TRUE(NormQuantizeRows(args, pool_).ok());
      for (int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        std::vector<double> value;
        for (int64_t c = 0; c < cols; ++c) {
          const float s = x.Get(r, c) + residual.Get(r, c);
          Floats rounded(type, 1, 1, rng_);
          rounded.Set(0, 0, s);
          ASSERT_EQ(sum.Get(r, c), rounded.Get(0, 0));
          squares += double{s} * s;
          value.push_back(s);
        }
        double magnitude = 0, top = 0;  // beta may cancel the norm: errors are relative to what is added
        for (int64_t c = 0; c < cols; ++c) {
          const double normed = value[c] / std::sqrt(squares / cols + args.epsilon) * gamma.Get(0, c);
          const double v = normed + beta.Get(0, c);
          ASSERT_LE(std::fabs(fixed.At(r, c) - std::clamp(v * by, -128.0, 127.0)), 0.5 + 64 * 0x1p-23 * (std::fabs(normed) + 3) * by);
          magnitude = std::max(magnitude, (std::fabs(normed) + 3) * smooth.Get(0, c));
          value[c] = v * smooth.Get(0, c);
          top = std::max(top, std::fabs(value[c]));
        }
        ExpectNear(dynamic, r, value, 64 * magnitude / top);
      }
      dynamic.ExpectGaps(rows, cols);
    }
  }
}

TEST_P(RowQuantTest, SwigluOfFloatsAndOfSumsByGroups) {
  for (int64_t cols : kCols) {
    const int64_t rows = 7;
    Floats scale(DType::kF32, 2, 2 * cols, rng_, 1e-3, 2e-3), smooth(DType::kF32, 2, cols, rng_, 0.5, 2), token(DType::kF32, 1, rows, rng_, 0.5, 1.5);
    std::vector<int32_t> sums(rows * 2 * cols);
    for (int32_t& s : sums) s = static_cast<int32_t>(rng_() % 4001) - 2000;
    const auto vector = [](const Floats& f, int64_t row) { return Numbers{f.bytes.data() + row * f.ld * 4, DType::kF32}; };
    const SwigluQuantArgs::Group groups[] = {{0, 3, vector(scale, 0), vector(smooth, 0)}, {3, 3, {}, {}}, {4, 7, vector(scale, 1), vector(smooth, 1)}};
    for (bool right : {false, true}) {
      Codes got(rows, cols);
      const SwigluQuantArgs args = {.rows = rows, .cols = cols,
                                    .in = {.type = RowsIn::Type::kI32, .data = sums.data(), .ld = 2 * cols, .token_scale = token.Vector()},
                                    .gate_right = right, .to = got.To(), .groups = groups};
      ASSERT_TRUE(SwigluQuantizeRows(args, pool_).ok());
      for (int64_t r = 0; r < rows; ++r) {
        if (r == 3) {
          ASSERT_EQ(got.scale[r], -1) << "a row of no group is left alone";
          continue;
        }
        const int64_t e = r < 3 ? 0 : 1;
        std::vector<double> value;
        for (int64_t c = 0; c < cols; ++c) {
          const auto half = [&](int64_t at) { return double{scale.Get(e, at)} * sums[r * 2 * cols + at] * token.Get(0, r); };
          const double g = half(right ? c + cols : c), u = half(right ? c : c + cols);
          value.push_back(g / (1 + std::exp(-g)) * u * smooth.Get(e, c));
        }
        ExpectNear(got, r, value, 16);
      }
      got.ExpectGaps(rows, cols);
    }
  }
}

TEST_P(RowQuantTest, ProductThenSwigluIsTheTwoInTurn) {
  const int64_t m = 23, n = 70, k = 50, experts = 3;
  std::vector<int8_t> a(m * k), w(experts * n * k);
  for (int8_t& code : a) code = static_cast<int8_t>(rng_());
  for (int8_t& code : w) code = static_cast<int8_t>(rng_());
  Floats scale(DType::kBF16, experts, n, rng_, 1e-4, 1e-3), token(DType::kF32, 1, m, rng_, 0.1, 0.2), smooth(DType::kF32, experts, n / 2, rng_, 0.5, 2);
  const int64_t ends[] = {10, 10, 21};
  std::vector<Int8Group> groups;
  std::vector<Numbers> factors;
  for (int64_t e = 0; e < experts; ++e) {
    groups.push_back({.begin = e == 0 ? 0 : ends[e - 1], .end = ends[e], .w = w.data() + e * n * k, .scale = {scale.bytes.data() + e * scale.ld * 2, DType::kBF16}});
    factors.push_back({smooth.bytes.data() + e * smooth.ld * 4, DType::kF32});
  }
  std::vector<float> product(m * n, 0);
  Int8GemmArgs args = {.m = m, .n = n, .k = k, .a = a.data(), .lda = k, .ldw = k, .token_scale = token.Vector(), .out = product.data(), .ldo = n};
  Codes got(m, n / 2), want(m, n / 2);
  ASSERT_TRUE(GroupedInt8GemmSwigluQuant(args, groups, {.out = got.codes.data(), .ldo = got.ld, .scale = got.scale.data(), .factor = factors}, pool_).ok());
  Int8GemmReference(args, groups, product.data());
  std::vector<SwigluQuantArgs::Group> rows;
  for (int64_t e = 0; e < experts; ++e) rows.push_back({groups[e].begin, groups[e].end, {}, factors[e]});
  ASSERT_TRUE(SwigluQuantizeRows({.rows = m, .cols = n / 2, .in = {.data = product.data(), .ld = n}, .to = want.To(), .groups = rows}, pool_).ok());
  EXPECT_EQ(got.codes, want.codes);
  EXPECT_EQ(got.scale, want.scale);
  EXPECT_EQ(got.scale[21], -1) << "rows behind the last group are left alone";
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, RowQuantTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(RowQuantArgsTest, ErrorsNameWhatIsWrong) {
  float x[8] = {}, scale[2];
  int8_t out[8];
  const RowsIn in = {.data = x, .ld = 4};
  const Int8Rows to = {.out = out, .ldo = 4, .scale = scale};
  const auto message = [&](int64_t cols, RowsIn from, Int8Rows rows) {
    return std::string(QuantizeRows(2, cols, from, rows, tiling::InlineExecutor()).message());
  };
  EXPECT_EQ(message(4, in, to), "");
  EXPECT_NE(message(-1, in, to).find("2, -1 must not be negative"), std::string::npos);
  EXPECT_NE(message(5, in, to).find("leading dimension 4 of in is less than its 5"), std::string::npos);
  EXPECT_NE(message(4, in, {.out = out, .ldo = 4}).find("scale to write is null"), std::string::npos);
  EXPECT_NE(message(4, {.type = RowsIn::Type::kI32, .data = x, .ld = 4}, to).find("int32 rows need it"), std::string::npos);
  const auto odd = GroupedInt8GemmSwigluQuant({.m = 1, .n = 3}, {}, {}, tiling::InlineExecutor());
  EXPECT_NE(odd.message().find("n = 3 is odd"), std::string::npos) << odd;
}

}  // namespace
}  // namespace jumar::quant
