#include "libs/attention/rows/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

using quant::HalfUlp;
using quant::LoadScalar;
using quant::SizeOf;
using quant::StoreScalar;

constexpr double kU = 0x1p-24;
const DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
const int64_t kSizes[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 576, 1000};

// [rows, cols] with a gap of 3 elements behind each row; misaligned; gap and margins are NaN.
struct Buffer {
  Buffer(DType type, int64_t rows, int64_t cols) : type(type), rows(rows), cols(cols), stride(cols + 3), bytes((rows * stride + 2) * SizeOf(type), char{-1}) {}
  Buffer& Random(uint32_t seed, double scale = 1) {
    std::mt19937 rng(seed);
    std::normal_distribution<double> normal(0, scale);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) Set(r, c, normal(rng));
    }
    return *this;
  }
  void* data() { return bytes.data() + SizeOf(type); }
  double Get(int64_t r, int64_t c) { return LoadScalar(type, data(), r * stride + c); }
  void Set(int64_t r, int64_t c, double value) { StoreScalar(type, value, data(), r * stride + c); }
  bool GapsAreUntouched() const {
    for (size_t b = 0; b < bytes.size(); ++b) {
      const int64_t e = static_cast<int64_t>(b) / SizeOf(type) - 1;
      if ((e < 0 || e >= rows * stride || e % stride >= cols) && bytes[b] != char{-1}) return false;
    }
    return true;
  }
  DType type;
  int64_t rows, cols, stride;
  std::vector<char> bytes;
};

class RowsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{2};
};

// The mean of n squares, all positive, errs by n u relative, rstd by half of that and three roundings; two products follow.
double RmsNormBound(DType type, int64_t cols, double want) {
  const double error = std::fabs(want) * (cols / 2.0 + 8) * kU;
  return error + HalfUlp(type, std::fabs(want) + error);
}

TEST_P(RowsTest, RmsNormMatchesFloat64) {
  uint32_t seed = 1;
  for (DType type : kTypes) {
    for (int64_t cols : kSizes) {
      for (int variant = 0; variant < 4; ++variant) {  // 0: no weight, 1: weight of x's type, 2: fp32 weight, 3: with a residual
        Buffer x(type, 3, cols), residual(type, 3, cols), out(type, 3, cols), sum(type, 3, cols);
        Buffer weight(variant == 2 ? DType::kF32 : type, 1, cols);
        x.Random(seed++), residual.Random(seed++), weight.Random(seed++);
        std::vector<float> rstd(3, NAN);
        RmsNormArgs args = {.type = type, .rows = 3, .cols = cols, .x = x.data(), .x_stride = x.stride, .weight_type = weight.type,
                            .weight = variant == 0 ? nullptr : weight.data(), .epsilon = 1e-5f, .out = out.data(), .out_stride = out.stride, .rstd = rstd.data()};
        if (variant == 3) {
          args.residual = residual.data();
          args.residual_stride = residual.stride;
          args.sum_out = sum.data();
          args.sum_out_stride = sum.stride;
        }
        ASSERT_TRUE(RmsNorm(args, pool_).ok());
        ASSERT_TRUE(out.GapsAreUntouched() && sum.GapsAreUntouched());
        for (int64_t r = 0; r < 3; ++r) {
          std::vector<double> value(cols);
          double squares = 0;
          for (int64_t c = 0; c < cols; ++c) {
            value[c] = x.Get(r, c);
            if (variant == 3) {
              float rounded_sum[1];
              StoreScalar(type, static_cast<float>(x.Get(r, c) + residual.Get(r, c)), rounded_sum, 0);
              value[c] = LoadScalar(type, rounded_sum, 0);
              ASSERT_EQ(sum.Get(r, c), value[c]);  // exact: one fp32 addition, one rounding
            }
            squares += value[c] * value[c];
          }
          const double r_want = 1 / std::sqrt(squares / cols + args.epsilon);
          ASSERT_NEAR(rstd[r], r_want, r_want * (cols / 2.0 + 4) * kU);
          for (int64_t c = 0; c < cols; ++c) {
            const double want = value[c] * r_want * (variant == 0 ? 1 : weight.Get(0, c));
            ASSERT_NEAR(out.Get(r, c), want, RmsNormBound(type, cols, want)) << quant::Name(type) << " " << cols << " variant " << variant;
          }
        }
      }
    }
  }
}

TEST_P(RowsTest, RmsNormInPlaceAndBatchedIsBitEqual) {
  for (DType type : kTypes) {
    Buffer x(type, 50, 577), out(type, 50, 577), one(type, 1, 577);
    x.Random(3);
    RmsNormArgs args = {.type = type, .rows = 50, .cols = 577, .x = x.data(), .x_stride = x.stride, .out = out.data(), .out_stride = out.stride};
    ASSERT_TRUE(RmsNorm(args, pool_).ok());
    RmsNormArgs single = args;
    single.rows = 1;
    single.x = static_cast<char*>(x.data()) + 31 * x.stride * SizeOf(type);
    single.out = one.data();
    ASSERT_TRUE(RmsNorm(single, tiling::InlineExecutor()).ok());
    args.out = x.data();
    ASSERT_TRUE(RmsNorm(args, pool_).ok());
    for (int64_t c = 0; c < 577; ++c) ASSERT_EQ(one.Get(0, c), out.Get(31, c));
    for (int64_t r = 0; r < 50; ++r) {
      for (int64_t c = 0; c < 577; ++c) ASSERT_EQ(x.Get(r, c), out.Get(r, c));
    }
  }
}

TEST_P(RowsTest, RopeMatchesFloat64InEveryForm) {
  uint32_t seed = 1;
  for (DType type : kTypes) {
    for (int64_t rotary : {0, 2, 4, 6, 16, 34, 64}) {
      for (int form = 0; form < 32; ++form) {
        const bool interleaved = form & 1, compact = form & 2, wide = form & 4, in_place = form & 8, inverse = form & 16;
        const int64_t tokens = 4, heads = 3, dim = rotary + (form % 3) * 5 + 1, entries = compact ? rotary / 2 : rotary;
        Buffer x(type, tokens * heads, dim), out(type, tokens * heads, dim);
        Buffer cos(wide ? DType::kF32 : type, 9, entries), sin(wide ? DType::kF32 : type, 9, entries);
        x.Random(seed++), cos.Random(seed++), sin.Random(seed++);
        const Buffer input = x;
        const int64_t positions[4] = {3, 8, 0, 8};
        Buffer& result = in_place ? x : out;
        RopeArgs args = {.type = type, .tokens = tokens, .heads = heads, .head_dim = dim, .rotary_dim = rotary, .interleaved = interleaved,
                         .inverse = inverse, .x = x.data(), .x_token_stride = heads * x.stride, .x_head_stride = x.stride, .table_type = cos.type, .cos = cos.data(),
                         .sin = sin.data(), .table_stride = cos.stride, .compact_table = compact, .positions = positions, .table_rows = 9,
                         .out = result.data(), .out_token_stride = heads * out.stride, .out_head_stride = out.stride};
        ASSERT_TRUE(Rope(args, pool_).ok());
        ASSERT_TRUE(result.GapsAreUntouched());
        Buffer in = input;
        for (int64_t row = 0; row < tokens * heads; ++row) {
          const int64_t p = positions[row / heads];
          for (int64_t d = 0; d < dim; ++d) {
            double want = in.Get(row, d), magnitude = 0;
            if (d < rotary) {
              const int64_t pair = interleaved ? d / 2 : d % (rotary / 2);
              const bool second = interleaved ? d % 2 : d >= rotary / 2;
              const int64_t partner = interleaved ? d ^ 1 : second ? d - rotary / 2 : d + rotary / 2;
              const int64_t entry = compact ? pair : d;
              const double a = in.Get(row, d) * cos.Get(p, entry), b = in.Get(row, partner) * sin.Get(p, entry) * (inverse ? -1 : 1);
              want = second ? a + b : a - b;
              magnitude = 2 * kU * (std::fabs(a) + std::fabs(b));  // a product, a multiply-add
              magnitude += HalfUlp(type, std::fabs(want) + magnitude);
            }
            ASSERT_NEAR(result.Get(row, d), want, magnitude) << quant::Name(type) << " rotary " << rotary << " form " << form << " at " << row << ", " << d;
          }
        }
      }
    }
  }
}

TEST_P(RowsTest, SwiGluMatchesFloat64) {
  uint32_t seed = 1;
  for (DType type : kTypes) {
    for (int64_t cols : kSizes) {
      Buffer gate(type, 3, cols), up(type, 3, cols), out(type, 3, cols);
      gate.Random(seed++, 4), up.Random(seed++);
      const std::vector<double> extremes = {0, -0.0, 80, -80, 87.5, -87.5, 200, -200, 1e-6, -1e-6, 10000, -10000};
      for (size_t i = 0; i < extremes.size() && static_cast<int64_t>(i) < cols; ++i) gate.Set(1, i, extremes[i]);
      SwiGluArgs args = {.type = type, .rows = 3, .cols = cols, .gate = gate.data(), .gate_stride = gate.stride, .up = up.data(),
                         .up_stride = up.stride, .out = out.data(), .out_stride = out.stride};
      ASSERT_TRUE(SwiGlu(args, pool_).ok());
      ASSERT_TRUE(out.GapsAreUntouched());
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const double g = gate.Get(r, c), want = g / (1 + std::exp(-g)) * up.Get(r, c);
          // exp errs by 2^-22 relative, and is 0 where it would be subnormal; a sum, a quotient and two products follow.
          const double error = std::fabs(want) * (0x1p-22 + 5 * kU) + std::fabs(g * up.Get(r, c)) * 0x1p-125;
          ASSERT_NEAR(out.Get(r, c), want, error + HalfUlp(type, std::fabs(want) + error)) << quant::Name(type) << " of " << g;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, RowsTest, testing::ValuesIn(tiling::SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(RowsArgsTest, ErrorsNameTheValueAndTheLimit) {
  float x[8] = {};
  const auto text = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  tiling::Executor& executor = tiling::InlineExecutor();
  RmsNormArgs norm = {.rows = 1, .cols = 4, .x = x, .out = x};
  norm.residual = x;
  EXPECT_NE(text(RmsNorm(norm, executor)).find("residual and sum_out"), std::string::npos);
  norm.sum_out = x;
  EXPECT_NE(text(RmsNorm(norm, executor)).find("same memory"), std::string::npos);
  norm = {.rows = 1, .cols = 4, .x = x, .weight_type = DType::kF16, .weight = x, .out = x};
  EXPECT_NE(text(RmsNorm(norm, executor)).find("weight of float16 with x of float32"), std::string::npos);
  const int64_t positions[1] = {5};
  RopeArgs rope = {.tokens = 1, .heads = 1, .head_dim = 4, .rotary_dim = 4, .x = x, .cos = x, .sin = x, .positions = positions, .table_rows = 5, .out = x};
  EXPECT_NE(text(Rope(rope, executor)).find("positions[0] = 5 is not in [0, table_rows = 5)"), std::string::npos);
  rope.rotary_dim = 3;
  EXPECT_NE(text(Rope(rope, executor)).find("rotary_dim = 3"), std::string::npos);
  SwiGluArgs swiglu = {.rows = -1};
  EXPECT_NE(text(SwiGlu(swiglu, executor)).find("[-1, 0]"), std::string::npos);
}

}  // namespace
}  // namespace jumar::attention
