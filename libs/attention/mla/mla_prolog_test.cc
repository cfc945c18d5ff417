#include "libs/attention/mla/mla_prolog.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/attention/mla/reference.h"
#include "libs/attention/mla/test_problem.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

using quant::WeightLayout;

class MlaPrologTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{2};
};

struct Case {
  const char* name;
  MlaShape shape;
};
constexpr Case kCases[] = {
#define JUMAR_MLA_CASE(name, ...) {#name, {__VA_ARGS__}},
#include "libs/attention/mla/cases.inc"
};
constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
constexpr MlaForm kForms[] = {MlaForm::kFloat, MlaForm::kInt8Up, MlaForm::kInt8};

struct Outputs {
  std::vector<char> query, query_rope;
  std::vector<std::byte> kv_cache, kr_cache;
  bool operator==(const Outputs&) const = default;
};
Outputs Results(MlaProblem& problem, const MlaPrologArgs& args, tiling::Executor& executor) {
  problem.Forget();
  const auto status = MlaProlog(args, executor);
  EXPECT_TRUE(status.ok()) << status;
  return {problem.query, problem.query_rope, problem.kv_cache, problem.kr_cache};
}

void ExpectRow(const std::vector<Bounded>& want, const char* what, const auto& got) {
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got(static_cast<int64_t>(i)), want[i].value, want[i].error * 1.01) << what << " " << i;
}

// Also: what belongs to no token is left alone, and tokens of slot -1 are kept nowhere.
TEST_P(MlaPrologTest, MatchesFloat64) {
  for (const Case& c : kCases) {
    for (DType type : kTypes) {
      for (MlaForm form : kForms) {
        const bool large = c.shape.hidden > 1000;
        if (large && (type != DType::kBF16 || form == MlaForm::kInt8Up)) continue;
        SCOPED_TRACE(std::string(c.name) + " " + quant::Name(type) + " form " + std::to_string(static_cast<int>(form)));
        MlaProblem problem(c.shape, type, form, c.shape.kv_rank % 16 == 0 && c.shape.rope_dim % 16 == 0, 1);
        const MlaPrologArgs& args = problem.args;
        Results(problem, args, pool_);
        size_t kept = 0;
        for (int64_t t = 0; t < args.tokens; ++t) {
          const MlaPrologReference want = ReferenceMlaProlog(args, t);
          ExpectRow(want.query, "query", [&](int64_t i) {
            return quant::LoadScalar(type, args.query, t * args.query_token_stride + i / args.kv_rank * args.query_head_stride + i % args.kv_rank);
          });
          ExpectRow(want.query_rope, "query_rope", [&](int64_t i) {
            return quant::LoadScalar(type, args.query_rope, t * args.query_rope_token_stride + i / args.rope_dim * args.query_rope_head_stride + i % args.rope_dim);
          });
          if (args.slots[t] < 0) continue;
          ++kept;
          ExpectRow(want.latent, "latent", [&](int64_t i) { return problem.CacheValue(args.kv_cache, args.slots[t], i); });
          ExpectRow(want.key_rope, "key_rope", [&](int64_t i) { return problem.CacheValue(args.kr_cache, args.slots[t], i); });
          if (HasFatalFailure()) return;
        }
        const auto written = [](const auto& bytes) { return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](auto b) { return static_cast<uint8_t>(b) != 0xff; })); };
        const size_t size = static_cast<size_t>(quant::SizeOf(type));
        EXPECT_LE(written(problem.kv_cache), kept * static_cast<size_t>(args.kv_rank) * size);
        EXPECT_LE(written(problem.query), static_cast<size_t>(args.tokens * args.heads * args.kv_rank) * size);
      }
    }
  }
}

// A token has the same bits alone, in a batch that is cut in several pieces, and with any number of threads.
TEST_P(MlaPrologTest, BatchAndThreadsDontMatter) {
  for (MlaForm form : kForms) {
    MlaProblem problem({kMlaTokensAtOnce + 37, 48, 32, 4, 16, 32, 16, 16}, DType::kBF16, form, true, 2);
    const Outputs whole = Results(problem, problem.args, pool_);
    EXPECT_TRUE(Results(problem, problem.args, tiling::InlineExecutor()) == whole);
    problem.Forget();
    const int64_t x_size = form == MlaForm::kInt8 ? 1 : 2;
    for (int64_t t = 0; t < problem.args.tokens; ++t) {
      MlaPrologArgs one = problem.args;
      one.tokens = 1;
      one.x = static_cast<const char*>(one.x) + t * one.x_stride * x_size;
      if (one.x_scale != nullptr) one.x_scale += t;
      one.cos = static_cast<const char*>(one.cos) + t * one.table_stride * 2;
      one.sin = static_cast<const char*>(one.sin) + t * one.table_stride * 2;
      one.query = static_cast<char*>(one.query) + t * one.query_token_stride * 2;
      one.query_rope = static_cast<char*>(one.query_rope) + t * one.query_rope_token_stride * 2;
      one.slots += t;
      ASSERT_TRUE(MlaProlog(one, pool_).ok());
    }
    EXPECT_TRUE((Outputs{problem.query, problem.query_rope, problem.kv_cache, problem.kr_cache}) == whole);
  }
}

// Weights in every layout, as a model and torch_npu's format 29 keep them.
TEST_P(MlaPrologTest, LayoutOfTheWeightsDoesntMatter) {
  for (MlaForm form : kForms) {
    MlaProblem problem({3, 40, 24, 2, 16, 32, 16, 16}, DType::kBF16, form, false, 3);
    const Outputs want = Results(problem, problem.args, pool_);
    for (WeightLayout layout : {WeightLayout::kNK, WeightLayout::kFractalNz, WeightLayout::kFractalNzKN}) {
      MlaPrologArgs args = problem.args;
      std::vector<std::vector<char>> kept;
      const auto convert = [&](MlaWeight& w, int64_t k, int64_t n) {
        const int64_t size = w.scale == nullptr ? 2 : 1;
        std::vector<char> turned(static_cast<size_t>(k * n * size));
        const bool transposed = layout != WeightLayout::kFractalNzKN;
        for (int64_t i = 0; i < k * n; ++i) {
          const int64_t row = i / n, col = i % n, to = transposed ? col * k + row : i;
          std::copy_n(static_cast<const char*>(w.data) + (row * w.ld + col) * size, size, turned.data() + to * size);
        }
        const int64_t rows = transposed ? n : k, cols = transposed ? k : n;
        w.layout = layout, w.ld = layout == WeightLayout::kNK ? k : 0;
        if (layout != WeightLayout::kNK) {
          std::vector<char> packed(static_cast<size_t>(quant::FractalNzBytes(rows, cols, size).value()));
          ASSERT_TRUE(quant::PackFractalNz(rows, cols, size, turned.data(), cols, packed.data()).ok());
          turned = std::move(packed);
        }
        w.data = kept.emplace_back(std::move(turned)).data();
      };
      convert(args.w_dq, args.hidden, args.q_rank);
      convert(args.w_uq_qr, args.q_rank, args.heads * (args.nope_dim + args.rope_dim));
      convert(args.w_dkv_kr, args.hidden, args.kv_rank + args.rope_dim);
      EXPECT_TRUE(Results(problem, args, pool_) == want) << "layout " << static_cast<int>(layout);
    }
  }
}

TEST_P(MlaPrologTest, CachesMayBeAbsent) {
  MlaProblem problem({3, 40, 24, 2, 16, 32, 16, 16}, DType::kBF16, MlaForm::kFloat, false, 4);
  const Outputs with = Results(problem, problem.args, pool_);
  MlaPrologArgs args = problem.args;
  args.slots = nullptr, args.kv_cache = {}, args.kr_cache = {};
  const Outputs without = Results(problem, args, pool_);
  EXPECT_TRUE(without.query == with.query && without.query_rope == with.query_rope);
}

TEST(MlaPrologErrorsTest, NamesWhatIsWrongAndWritesNothing) {
  const MlaShape shape = {4, 40, 24, 2, 16, 32, 16, 16};
  MlaProblem problem(shape, DType::kBF16, MlaForm::kFloat, false, 5);
  const std::vector<float> ones(64, 1.0f);
  const std::vector<int64_t> outside = {0, 1, 2, 32}, negative = {0, -2, 1, 2};
  const auto refused = [&](const auto& change, const std::string& message) {
    MlaPrologArgs args = problem.args;
    change(args);
    problem.Forget();
    const auto status = MlaProlog(args, tiling::InlineExecutor());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_NE(status.message().find(message), std::string::npos) << status;
    for (const auto* bytes : {&problem.kv_cache, &problem.kr_cache}) {
      EXPECT_TRUE(std::all_of(bytes->begin(), bytes->end(), [](std::byte b) { return b == std::byte{0xff}; })) << message;
    }
  };
  refused([](auto& a) { a.tokens = -1; }, "tokens = -1");
  refused([](auto& a) { a.hidden = int64_t{1} << 40; }, "hidden = 1099511627776 is not in [1, 65536]");
  refused([](auto& a) { a.rope_dim = 15; }, "rope_dim = 15 is odd");
  refused([](auto& a) { a.x = nullptr; }, "x is null");
  refused([](auto& a) { a.query_head_stride = 31; }, "query_head_stride = 31 is less than a row, 32");
  refused([](auto& a) { a.w_dkv_kr.ld = 47; }, "w_dkv_kr.ld = 47 is less than a row, 48");
  refused([&](auto& a) { a.w_dq.scale = ones.data(); }, "int8 are all three weights, or w_uq_qr alone, or none");
  refused([&](auto& a) { a.x_scale = ones.data(); }, "x_scale is given");
  refused([&](auto& a) { a.smooth_cq = ones.data(); }, "smooth_cq is given");
  refused([&](auto& a) { a.slots = outside.data(); }, "slots[3] = 32 is neither -1 nor in [0, 32)");
  refused([&](auto& a) { a.slots = negative.data(); }, "slots[1] = -2");
  refused([](auto& a) { a.kv_cache.rows = {32, 32, 32, 32}; }, "kv_cache has rows of 32 bytes; they must have 64");
  refused([](auto& a) { a.kr_cache.num_blocks += 1; }, "kr_cache");
}

INSTANTIATE_TEST_SUITE_P(Simd, MlaPrologTest, testing::ValuesIn(tiling::SimdTargets()));

}  // namespace
}  // namespace jumar::attention
