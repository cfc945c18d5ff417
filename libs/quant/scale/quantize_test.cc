// Quantize against its own definition, element by element, from format.h and scale_rule.h: every rule, format, type and granularity, every
// tail, with NaN around the matrix and NaN-poisoned rows within it, on every instruction set and on two threads.
#include "libs/quant/scale/quantize.h"

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

constexpr Format kQuantized[] = {Format::kE4M3, Format::kE5M2, Format::kE2M1, Format::kHiF8, Format::kI8, Format::kI4};

struct Matrix {
  int64_t rows, cols, stride;
  DType type;
  std::vector<uint8_t> bytes;

  Matrix(int64_t r, int64_t c, DType t) : rows(r), cols(c), stride(c + 3), type(t), bytes(static_cast<size_t>(r * (c + 3) * SizeOf(t))) {
    for (int64_t i = 0; i < r * stride; ++i) StoreScalar(t, NAN, bytes.data(), i);
  }
  float at(int64_t r, int64_t c) const { return static_cast<float>(LoadScalar(type, bytes.data(), r * stride + c)); }
  void set(int64_t r, int64_t c, double v) { StoreScalar(type, v, bytes.data(), r * stride + c); }
};

Matrix RandomMatrix(int64_t rows, int64_t cols, DType type, uint32_t seed) {
  Matrix m(rows, cols, type);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t r = 0; r < rows; ++r) {
    const double size = std::ldexp(1.0, static_cast<int>(random() % 12) - 6);
    for (int64_t c = 0; c < cols; ++c) m.set(r, c, normal(random) * size);
  }
  if (rows > 2) {
    for (int64_t c = 0; c < cols; ++c) m.set(1, c, 0);                // a zero row
    for (int64_t c = 0; c < cols; ++c) m.set(2, c, c % 3 ? NAN : 1);  // padding
  }
  return m;
}

struct Result {
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets;
  std::vector<uint8_t> e8m0;
  int64_t ldc, lds;
};

uint8_t CodeAt(const Result& result, Format format, int64_t r, int64_t c) {
  const uint8_t* row = result.codes.data() + r * result.ldc;
  return Bits(format) == 8 ? row[c] : c % 2 ? row[c / 2] >> 4 : row[c / 2] & 15;
}

QuantizeArgs ArgsOf(Rule rule, Format format, Granularity g, Matrix& m, Result& result, bool e8m0) {
  const ScaleShape shape = ScalesOf(g, m.rows, m.cols);
  result.ldc = m.cols + 2, result.lds = shape.cols + 1;
  result.codes.assign(static_cast<size_t>(m.rows * result.ldc), 0xA5);
  result.scales.assign(static_cast<size_t>(shape.rows * result.lds), -1.0f);
  result.offsets = result.scales;
  result.e8m0.assign(result.scales.size(), 0xA5);
  return {.rule = rule, .format = format, .granularity = g, .rows = m.rows, .cols = m.cols, .type = m.type, .in = m.bytes.data(),
          .ldi = m.stride, .codes = result.codes.data(), .ldc = result.ldc, .scales = e8m0 ? nullptr : result.scales.data(),
          .e8m0_scales = e8m0 ? result.e8m0.data() : nullptr, .lds = result.lds};
}

void ExpectSymmetric(Rule rule, Format format, Granularity g, const Matrix& m, const Result& result, bool e8m0) {
  const int64_t br = g.rows ? g.rows : m.rows, bc = g.cols ? g.cols : m.cols;
  for (int64_t r0 = 0; r0 < m.rows; r0 += br) {
    for (int64_t c0 = 0; c0 < m.cols; c0 += bc) {
      const int64_t r1 = std::min(m.rows, r0 + br), c1 = std::min(m.cols, c0 + bc);
      float absmax = 0;
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) absmax = std::isnan(m.at(r, c)) || std::isnan(absmax) ? NAN : std::max(absmax, std::fabs(m.at(r, c)));
      }
      const float scale = ScaleOf(RuleOf(rule), format, absmax);
      const auto at = static_cast<size_t>(r0 / br * result.lds + c0 / bc);
      const float got = e8m0 ? Decode(Format::kE8M0, result.e8m0[at]) : result.scales[at];
      if (std::isnan(scale)) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(got, scale) << RuleOf(rule).name << " block " << r0 << ", " << c0;
      }
      for (int64_t r = r0; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) {
          const float quotient = std::isnan(scale) ? (Traits(format).has_nan ? scale : 0) : scale == 0 ? 0 : m.at(r, c) / scale;
          ASSERT_EQ(int{CodeAt(result, format, r, c)}, int{Encode(format, quotient, Overflow::kSaturate)})
              << RuleOf(rule).name << " " << Name(format) << " " << Name(m.type) << " element " << r << ", " << c << " = " << m.at(r, c);
        }
      }
    }
  }
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t b = Bits(format) == 4 ? (m.cols + 1) / 2 : m.cols; b < result.ldc; ++b) {
      ASSERT_EQ(result.codes[static_cast<size_t>(r * result.ldc + b)], 0xA5) << "a byte behind row " << r;
    }
  }
}

class QuantizeTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
};

TEST_P(QuantizeTest, EveryRuleFormatAndGranularity) {
  tiling::ThreadPool pool(2);
  uint32_t seed = 1;
  for (const ScaleRule& rule : kScaleRules) {
    for (const Format format : kQuantized) {
      for (const Granularity g : {PerTensor(), PerRow(), PerColumn(), PerGroup(32), PerGroup(64), PerGroup(128), PerBlock(4, 16)}) {
        const DType type = static_cast<DType>(seed % 3);
        Matrix m = RandomMatrix(9, 141, type, seed++);
        for (const bool e8m0 : {false, true}) {
          if (e8m0 && !IsPowerOfTwo(rule)) continue;
          Result result, again;
          ASSERT_TRUE(Quantize(ArgsOf(rule.rule, format, g, m, result, e8m0), tiling::InlineExecutor()).ok());
          ExpectSymmetric(rule.rule, format, g, m, result, e8m0);
          ASSERT_TRUE(Quantize(ArgsOf(rule.rule, format, g, m, again, e8m0), pool).ok());
          ASSERT_EQ(result.codes, again.codes);
        }
      }
    }
  }
}

TEST_P(QuantizeTest, EveryTail) {
  for (const Format format : kQuantized) {
    for (int64_t cols = 1; cols <= 140; ++cols) {
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        Matrix m = RandomMatrix(2, cols, type, static_cast<uint32_t>(cols));
        Result result;
        ASSERT_TRUE(Quantize(ArgsOf(Rule::kCannDynamic, format, PerRow(), m, result, false), tiling::InlineExecutor()).ok());
        ExpectSymmetric(Rule::kCannDynamic, format, PerRow(), m, result, false);
      }
    }
  }
}

TEST_P(QuantizeTest, DequantizesWhatItQuantized) {
  for (const Format format : kQuantized) {
    for (const Granularity g : {PerTensor(), PerRow(), PerColumn(), PerGroup(32), PerBlock(3, 64)}) {
      for (const bool e8m0 : {false, true}) {
        Matrix m = RandomMatrix(5, 133, DType::kF32, 77);
        if (g.rows != 1) {
          for (int64_t c = 0; c < m.cols; ++c) m.set(2, c, 1);  // without NaN
        }
        Result result;
        QuantizeArgs q = ArgsOf(e8m0 ? Rule::kMxCeil : Rule::kDeepSeek, format, g, m, result, e8m0);
        ASSERT_TRUE(Quantize(q, tiling::InlineExecutor()).ok());
        for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
          Matrix out(5, 133, type);
          ASSERT_TRUE(Dequantize({.format = format, .granularity = g, .rows = 5, .cols = 133, .codes = q.codes, .ldc = q.ldc,
                                  .scales = q.scales, .e8m0_scales = q.e8m0_scales, .lds = q.lds, .type = type, .out = out.bytes.data(),
                                  .ldo = out.stride}, tiling::InlineExecutor()).ok());
          for (int64_t r = 0; r < 5; ++r) {
            for (int64_t c = 0; c < 133; ++c) {
              const auto at = static_cast<size_t>(r / (g.rows ? g.rows : 5) * result.lds + c / (g.cols ? g.cols : 133));
              const float scale = e8m0 ? Decode(Format::kE8M0, result.e8m0[at]) : result.scales[at];
              uint8_t want[4];
              StoreScalar(type, Decode(format, CodeAt(result, format, r, c)) * scale, want, 0);
              const auto expected = static_cast<float>(LoadScalar(type, want, 0));
              if (std::isnan(expected)) {
                ASSERT_TRUE(std::isnan(out.at(r, c)));
              } else {
                ASSERT_EQ(out.at(r, c), expected) << r << ", " << c;
              }
            }
            ASSERT_TRUE(std::isnan(out.at(r, 133))) << "behind the row";
          }
        }
      }
    }
  }
}

TEST_P(QuantizeTest, AsymmetricByBothRules) {
  for (const AsymmetricRule rule : {AsymmetricRule::kCann, AsymmetricRule::kCompressedTensors}) {
    for (const Format format : {Format::kI8, Format::kI4}) {
      for (const Granularity g : {PerRow(), PerGroup(32)}) {
        for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
          Matrix m = RandomMatrix(6, 93, type, 3);
          for (int64_t c = 0; c < m.cols; ++c) m.set(4, c, 5 + m.at(4, c) / 64);  // all positive
          Result result;
          const QuantizeArgs args = ArgsOf(Rule::kCannDynamic, format, g, m, result, false);
          ASSERT_TRUE(QuantizeAsymmetric(rule, args, result.offsets.data(), tiling::InlineExecutor()).ok());
          const int64_t bc = g.cols ? g.cols : m.cols;
          const float high = Max(format), low = -high - 1;
          for (int64_t r = 0; r < m.rows; ++r) {
            for (int64_t c0 = 0; c0 < m.cols; c0 += bc) {
              double least = m.at(r, c0), most = least;
              bool nan = false;
              for (int64_t c = c0; c < std::min(m.cols, c0 + bc); ++c) {
                nan |= std::isnan(m.at(r, c));
                least = std::min<double>(least, m.at(r, c)), most = std::max<double>(most, m.at(r, c));
              }
              if (rule == AsymmetricRule::kCompressedTensors) least = std::min(least, 0.0), most = std::max(most, 0.0);
              const auto at = static_cast<size_t>(r * result.lds + c0 / bc);
              const float scale = result.scales[at], offset = result.offsets[at];
              if (nan) {
                ASSERT_TRUE(std::isnan(scale) && std::isnan(offset));
                ASSERT_EQ(CodeAt(result, format, r, c0), 0);
                continue;
              }
              if (least == most) {  // the zero row
                ASSERT_EQ(scale, rule == AsymmetricRule::kCann ? 0.0f : 0x1p-23f);
              } else {
                // A difference and a quotient, each half an ulp of fp32.
                ASSERT_NEAR(scale, (most - least) / (high - low), 3e-7 * (most - least));
              }
              for (int64_t c = c0; c < std::min(m.cols, c0 + bc); ++c) {
                const float quotient = scale == 0 ? 0 : m.at(r, c) / scale;
                const uint8_t code = CodeAt(result, format, r, c);
                ASSERT_EQ(code, Encode(format, quotient + offset, Overflow::kSaturate)) << r << ", " << c;
                // Back within half a step; a whole one where the offset was rounded and the end cut.
                const double back = (double{Decode(format, code)} - offset) * scale;
                ASSERT_NEAR(back, m.at(r, c), scale * (rule == AsymmetricRule::kCann ? 0.501 : 1.01));
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(QuantizeTest, BrokenPaddingStaysInItsRow) {
  Matrix clean = RandomMatrix(2, 256, DType::kBF16, 9), dirty(5, 256, DType::kBF16);
  for (int64_t c = 0; c < 256; ++c) {
    dirty.set(0, c, NAN), dirty.set(1, c, clean.at(0, c)), dirty.set(2, c, c == 200 ? INFINITY : 3), dirty.set(3, c, clean.at(1, c));
  }
  for (const Format format : kQuantized) {
    Result a, b;
    ASSERT_TRUE(Quantize(ArgsOf(Rule::kVllmGroup, format, PerGroup(128), clean, a, false), tiling::InlineExecutor()).ok());
    ASSERT_TRUE(Quantize(ArgsOf(Rule::kVllmGroup, format, PerGroup(128), dirty, b, false), tiling::InlineExecutor()).ok());
    for (const int64_t row : {0, 1}) {
      const auto from = a.codes.begin() + row * a.ldc, to = b.codes.begin() + (2 * row + 1) * b.ldc;
      EXPECT_TRUE(std::equal(from, from + a.ldc, to));
    }
    EXPECT_TRUE(std::isnan(b.scales[static_cast<size_t>(2 * b.lds + 1)]));  // infinity's group
    EXPECT_FALSE(std::isnan(b.scales[static_cast<size_t>(2 * b.lds)]));     // its neighbour
  }
}

TEST(QuantizeTest, ErrorsNameTheArgument) {
  Matrix m = RandomMatrix(2, 8, DType::kF32, 1);
  Result result;
  const QuantizeArgs good = ArgsOf(Rule::kVllmGroup, Format::kE4M3, PerRow(), m, result, false);
  const auto message = [](const QuantizeArgs& args) { return std::string(Quantize(args, tiling::InlineExecutor()).message()); };
  QuantizeArgs bad = good;
  bad.format = Format::kE8M0;
  EXPECT_EQ(message(bad), "quantize: E8M0 has no zero and no sign; it is for scales");
  bad = good, bad.ldi = 7;
  EXPECT_EQ(message(bad), "quantize: the matrix' row stride is 7; it must be at least cols");
  bad = good, bad.format = Format::kI4, bad.granularity = PerGroup(3);
  EXPECT_EQ(message(bad), "quantize: granularity.cols is 3; it must be even for a 4-bit format, whose codes share bytes");
  bad = good, bad.scales = nullptr, bad.e8m0_scales = result.e8m0.data();
  EXPECT_EQ(message(bad), "quantize: rule vllm_group gives scales that aren't powers of two; E8M0 can't hold them");
  bad = good, bad.rows = -1;
  EXPECT_EQ(message(bad), "quantize: rows is -1; it must be in [0, 2^40]");
}

}  // namespace
}  // namespace jumar::quant
