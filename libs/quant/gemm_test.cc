#include "libs/quant/gemm.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/gemm_reference.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {
namespace {

const DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
const WeightLayout kLayouts[] = {WeightLayout::kNK, WeightLayout::kKN, WeightLayout::kFractalNz, WeightLayout::kFractalNzKN};

// A row-major matrix at an address that has only its element's alignment, with NaN in the gap behind each row and at both ends.
class Matrix {
 public:
  Matrix(DType type, int64_t rows, int64_t cols, int64_t ld)
      : type_(type), rows_(rows), cols_(cols), ld_(ld), bytes_((rows * ld + 2 * kMargin) * SizeOf(type), char{-1}) {}
  void Fill(std::mt19937& rng) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < cols_; ++j) Set(i, j, normal(rng));
    }
  }
  void Set(int64_t i, int64_t j, double value) { StoreScalar(type_, value, data(), i * ld_ + j); }
  double Get(int64_t i, int64_t j) const { return LoadScalar(type_, data(), i * ld_ + j); }
  void* data() { return bytes_.data() + kMargin * SizeOf(type_); }
  const void* data() const { return bytes_.data() + kMargin * SizeOf(type_); }
  const char* row(int64_t i) const { return static_cast<const char*>(data()) + i * ld_ * SizeOf(type_); }
  int64_t row_bytes() const { return cols_ * SizeOf(type_); }
  int64_t ld() const { return ld_; }
  bool MarginsAreUntouched() const {
    const int64_t size = SizeOf(type_), begin = kMargin, end = static_cast<int64_t>(bytes_.size()) / size - kMargin;
    for (int64_t e = 0; e < static_cast<int64_t>(bytes_.size()) / size; ++e) {
      const bool inside = e >= begin && e < end && (e - begin) % ld_ < cols_;
      for (int64_t b = 0; !inside && b < size; ++b) {
        if (bytes_[e * size + b] != char{-1}) return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kMargin = 17;  // odd: the data is not aligned
  DType type_;
  int64_t rows_, cols_, ld_;
  std::vector<char> bytes_;
};

struct Problem {
  Problem(int64_t m, int64_t n, int64_t k, DType type, WeightLayout layout, bool with_bias, uint32_t seed)
      : a(type, m, k, k + 3),
        w(type, n, k, k + 5),
        w_kn(type, k, n, n + 2),
        bias(type, 1, n, n),
        out(type, m, n, n + 4),
        seed(seed) {
    std::mt19937 rng(seed);
    a.Fill(rng);
    w.Fill(rng);
    bias.Fill(rng);
    args = {.m = m, .n = n, .k = k, .type = type, .a = a.data(), .lda = a.ld(), .w = w.data(), .ldw = w.ld(), .layout = layout,
            .bias = with_bias ? bias.data() : nullptr, .out = out.data(), .ldo = out.ld()};
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t kk = 0; kk < k; ++kk) w_kn.Set(kk, j, w.Get(j, kk));
    }
    if (layout == WeightLayout::kKN) {
      args.w = w_kn.data();
      args.ldw = w_kn.ld();
    } else if (layout != WeightLayout::kNK) {
      const bool along_k = layout == WeightLayout::kFractalNz;
      const Matrix& from = along_k ? w : w_kn;
      const int64_t rows = along_k ? n : k, cols = along_k ? k : n;
      nz.resize(*FractalNzBytes(rows, cols, SizeOf(type)) + SizeOf(type), char{-1});
      nz_data = nz.data() + SizeOf(type);  // aligned as an element, no more
      EXPECT_TRUE(PackFractalNz(rows, cols, SizeOf(type), from.data(), from.ld(), nz_data).ok());
      PoisonFractalPadding(rows, cols);
      args.w = nz_data;
      args.ldw = 0;
    }
  }

  // The padding of a fractal matrix is zero by its definition; the product must not even depend on that.
  void PoisonFractalPadding(int64_t rows, int64_t cols) {
    const int64_t padded_rows = (rows + 15) / 16 * 16, padded_cols = (cols + 15) / 16 * 16;
    for (int64_t r = 0; r < padded_rows; ++r) {
      for (int64_t c = 0; c < padded_cols; ++c) {
        if (r < rows && c < cols) continue;
        StoreScalar(args.type, NAN, nz_data, ((c / 16 * (padded_rows / 16) + r / 16) * 16 + r % 16) * 16 + c % 16);
      }
    }
  }

  std::string Name() const {
    return absl::StrCat("m=", args.m, " n=", args.n, " k=", args.k, " ", quant::Name(args.type), " layout ",
                        static_cast<int>(args.layout), args.bias ? " bias" : "", " ", tiling::SimdTarget(), " seed ", seed);
  }

  Matrix a, w, w_kn, bias, out;
  std::vector<char> nz;
  char* nz_data = nullptr;
  GemmArgs args;
  uint32_t seed;
};

void ExpectMatchesReference(Problem& problem, tiling::Executor& executor) {
  const GemmArgs& args = problem.args;
  const absl::Status status = Gemm(args, executor);  // before the reference: recycled memory cannot hold the answer
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(problem.out.MarginsAreUntouched()) << problem.Name();
  const GemmReferenceResult want = GemmReference(args);
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      const double product = want.product[i * args.n + j];
      const double bound = GemmErrorBound(args.type, args.k, product, want.magnitude[i * args.n + j]);
      ASSERT_LE(std::fabs(problem.out.Get(i, j) - product), bound)
          << problem.Name() << " at " << i << ", " << j << ": got " << problem.out.Get(i, j) << ", want " << product;
    }
  }
}

class GemmTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(GemmTest, MatchesFloat64OnEveryTailOfEveryDimension) {
  uint32_t seed = 1;
  for (DType type : kTypes) {
    for (WeightLayout layout : kLayouts) {
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 13, 17, 22}) ExpectMatchesReference(*std::make_unique<Problem>(m, 21, 37, type, layout, true, seed++), pool_);
      for (int64_t n : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 48}) {
        ExpectMatchesReference(*std::make_unique<Problem>(3, n, 65, type, layout, n % 2, seed++), pool_);
        ExpectMatchesReference(*std::make_unique<Problem>(1, n, 40, type, layout, n % 2, seed++), pool_);
      }
      for (int64_t k : {0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 96, 255, 257, 511, 513, 1100}) {
        ExpectMatchesReference(*std::make_unique<Problem>(7, 18, k, type, layout, k % 2, seed++), pool_);
        ExpectMatchesReference(*std::make_unique<Problem>(1, 16, k, type, layout, k % 2, seed++), pool_);
      }
    }
  }
}

TEST_P(GemmTest, MatchesFloat64OnModelShapes) {
  for (DType type : kTypes) {
    Problem decode(1, 960, 576, type, WeightLayout::kFractalNz, false, 7);
    ExpectMatchesReference(decode, pool_);
    Problem prefill(70, 144, 1536, type, WeightLayout::kFractalNz, true, 8);  // more rows than a block of them
    ExpectMatchesReference(prefill, pool_);
  }
}

TEST_P(GemmTest, ZeroSizesTouchNothing) {
  for (DType type : kTypes) {
    for (WeightLayout layout : kLayouts) {
      Problem no_rows(0, 5, 5, type, layout, true, 1), no_columns(5, 0, 5, type, layout, true, 1);
      EXPECT_TRUE(Gemm(no_rows.args, pool_).ok());
      EXPECT_TRUE(Gemm(no_columns.args, pool_).ok());
      EXPECT_TRUE(no_rows.out.MarginsAreUntouched() && no_columns.out.MarginsAreUntouched());
    }
  }
}

// The property on which cached = uncached, chunked = whole and graph = eager rest.
TEST_P(GemmTest, ARowIsBitEqualInEveryBatchLayoutAndThreadCount) {
  tiling::ThreadPool two(2);
  for (DType type : kTypes) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{35, 64}, {150, 576}, {35, 1100}, {35, 1536}}) {
      const int64_t m = 300;
      Problem whole(m, n, k, type, WeightLayout::kFractalNz, true, 11);
      ASSERT_TRUE(Gemm(whole.args, pool_).ok());
      for (WeightLayout layout : kLayouts) {
        Problem part(m, n, k, type, layout, true, 11);
        for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {299, 1}, {5, 2}, {8, 3}, {100, 4},
                                                                                  {31, 5}, {17, 6}, {9, 7}, {40, 8}, {2, 16}, {60, 17}, {3, 33}, {0, 300}}) {
          GemmArgs args = part.args;
          args.m = count;
          args.a = part.a.row(first);
          Matrix out(type, count, n, n);
          args.out = out.data();
          args.ldo = n;
          ASSERT_TRUE(Gemm(args, count % 2 ? tiling::InlineExecutor() : static_cast<tiling::Executor&>(two)).ok());
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(std::memcmp(out.row(i), whole.out.row(first + i), out.row_bytes()), 0)
                << part.Name() << ": row " << first + i << " differs in a batch of " << count;
          }
        }
      }
    }
  }
}

// Groups of every size, among them none, with gaps between them and a weight each; rows of no group stay as they were.
TEST_P(GemmTest, ARowOfAGroupIsBitEqualToItsOwnProduct) {
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 1}, {1, 0}, {1, 2}, {5, 17}, {22, 1}, {25, 140}, {165, 0}, {165, 6}};
  for (DType type : kTypes) {
    for (WeightLayout layout : kLayouts) {
      const int64_t m = 175, n = 37, k = 70;
      Problem shared(m, n, k, type, layout, false, 20);
      std::vector<std::unique_ptr<Problem>> experts;
      std::vector<GemmGroup> groups;
      for (const auto& [first, count] : ranges) {
        experts.push_back(std::make_unique<Problem>(count, n, k, type, layout, groups.size() % 2, 30 + groups.size()));
        groups.push_back({first, count, experts.back()->args.w, experts.back()->args.bias});
      }
      Matrix want = shared.out;
      for (const GemmGroup& group : groups) {
        GemmArgs args = shared.args;
        args.m = group.num_rows;
        args.a = shared.a.row(group.first_row);
        args.w = group.w;
        args.bias = group.bias;
        args.out = static_cast<char*>(want.data()) + group.first_row * want.ld() * SizeOf(type);
        ASSERT_TRUE(Gemm(args, pool_).ok());
      }
      ASSERT_TRUE(GroupedGemm(shared.args, groups, pool_).ok());
      for (int64_t i = 0; i < m; ++i) {
        ASSERT_EQ(std::memcmp(shared.out.row(i), want.row(i), want.row_bytes()), 0) << shared.Name() << " row " << i;
      }
      ASSERT_TRUE(shared.out.MarginsAreUntouched());
    }
  }
}

TEST_P(GemmTest, SmallIntegersAreExact) {
  for (DType type : kTypes) {
    Problem problem(9, 33, 100, type, WeightLayout::kFractalNz, false, 3);
    for (int64_t i = 0; i < 9; ++i) {
      for (int64_t kk = 0; kk < 100; ++kk) problem.a.Set(i, kk, (i + kk) % 3 - 1);
    }
    for (int64_t j = 0; j < 33; ++j) {
      for (int64_t kk = 0; kk < 100; ++kk) problem.w.Set(j, kk, (j * 7 + kk) % 2);
    }
    ASSERT_TRUE(PackFractalNz(33, 100, SizeOf(type), problem.w.data(), problem.w.ld(), problem.nz_data).ok());
    ASSERT_TRUE(Gemm(problem.args, pool_).ok());
    const GemmReferenceResult want = GemmReference(problem.args);
    for (int64_t e = 0; e < 9 * 33; ++e) ASSERT_EQ(problem.out.Get(e / 33, e % 33), want.product[e]) << problem.Name();
  }
}

TEST_P(GemmTest, InfinityAndNanStayInTheirRowAndColumn) {
  for (DType type : kTypes) {
    Problem problem(8, 20, 50, type, WeightLayout::kFractalNz, false, 5);
    problem.a.Set(3, 49, NAN);
    problem.w.Set(6, 0, INFINITY);
    ASSERT_TRUE(PackFractalNz(20, 50, SizeOf(type), problem.w.data(), problem.w.ld(), problem.nz_data).ok());
    ASSERT_TRUE(Gemm(problem.args, pool_).ok());
    for (int64_t i = 0; i < 8; ++i) {
      for (int64_t j = 0; j < 20; ++j) {
        if (i == 3) {
          EXPECT_TRUE(std::isnan(problem.out.Get(i, j))) << problem.Name();
        } else if (j == 6) {
          EXPECT_TRUE(std::isinf(problem.out.Get(i, j))) << problem.Name();
        } else {
          EXPECT_TRUE(std::isfinite(problem.out.Get(i, j))) << problem.Name() << " at " << i << ", " << j;
        }
      }
    }
  }
}

TEST_P(GemmTest, RoundsToTheTypeOnceAndToNearestEven) {
  // 1 * 1 + 1 * x with x = half an ulp of 1: a tie, to even = 1; with a further 2^-20 above the tie: up.
  for (DType type : {DType::kF16, DType::kBF16}) {
    const double ulp = type == DType::kF16 ? 0x1p-10 : 0x1p-7;
    for (const auto& [extra, want] : std::vector<std::pair<double, double>>{{0, 1}, {0x1p-20, 1 + ulp}}) {
      Problem problem(1, 1, 3, type, WeightLayout::kNK, false, 1);
      const double terms[3] = {1, ulp / 2, extra};
      for (int kk = 0; kk < 3; ++kk) {
        problem.a.Set(0, kk, 1);
        problem.w.Set(0, kk, terms[kk]);
      }
      ASSERT_TRUE(Gemm(problem.args, pool_).ok());
      EXPECT_EQ(problem.out.Get(0, 0), want) << problem.Name();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, GemmTest, testing::ValuesIn(tiling::SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(GemmArgsTest, ErrorsNameTheFieldAndTheLimit) {
  Problem good(2, 3, 4, DType::kF32, WeightLayout::kNK, false, 1);
  const auto message = [](GemmArgs args) { return std::string(Gemm(args, tiling::InlineExecutor()).message()); };
  GemmArgs args = good.args;
  args.k = -1;
  EXPECT_NE(message(args).find("2, 3, -1 must not be negative"), std::string::npos) << message(args);
  args = good.args;
  args.lda = 3;
  EXPECT_NE(message(args).find("lda = 3 is less than the 4"), std::string::npos) << message(args);
  args = good.args;
  args.ldw = 3;
  EXPECT_NE(message(args).find("ldw = 3 is less than the 4"), std::string::npos) << message(args);
  args.layout = WeightLayout::kKN;
  args.ldw = 2;
  EXPECT_NE(message(args).find("ldw = 2 is less than the 3"), std::string::npos) << message(args);
  const auto grouped = [&](std::vector<GemmGroup> groups) {
    for (GemmGroup& group : groups) group.w = good.args.w;
    return std::string(GroupedGemm(good.args, groups, tiling::InlineExecutor()).message());
  };
  EXPECT_NE(grouped({{.first_row = 1, .num_rows = 2}}).find("group 0 has 2 rows from 1; they must lie in [0, 2]"), std::string::npos);
  EXPECT_NE(grouped({{.num_rows = 2}, {.first_row = 1, .num_rows = 1}}).find("group 1 has 1 rows from 1; they must lie in [2, 2]"), std::string::npos);
  EXPECT_NE(grouped({{.first_row = INT64_MAX, .num_rows = INT64_MAX}}).find("group 0"), std::string::npos);
  args = good.args;
  args.w = nullptr;
  EXPECT_NE(message(args).find("w is null"), std::string::npos) << message(args);
  args = good.args;
  args.m = INT64_MAX / 8;
  args.n = 0;
  EXPECT_NE(message(args).find("too large"), std::string::npos) << message(args);
}

}  // namespace
}  // namespace jumar::quant
