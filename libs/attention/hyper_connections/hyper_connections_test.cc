#include "libs/attention/hyper_connections/hyper_connections.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/attention/hyper_connections/reference.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

class HyperConnectionsTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{2};
};

std::vector<float> Normal(uint32_t seed, int64_t count, double mean = 0, double deviation = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(normal(rng));
  return numbers;
}

std::vector<char> As(DType type, const std::vector<float>& numbers) {
  std::vector<char> bytes(numbers.size() * static_cast<size_t>(quant::SizeOf(type)));
  for (size_t i = 0; i < numbers.size(); ++i) quant::StoreScalar(type, numbers[i], bytes.data(), static_cast<int64_t>(i));
  return bytes;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Pre {
  Pre(DType type, int64_t tokens, int64_t n, int64_t dim, bool with_res, bool with_gamma)
      : rows(2 * n + (with_res ? n * n : 0)), x(As(type, Normal(1, tokens * n * dim))), phi(Normal(2, rows * n * dim, 0, 1 / std::sqrt(n * dim))),
        gamma(Normal(3, n * dim, 1, 0.2)), alpha(Normal(4, 3)), bias(Normal(5, rows)), in(tokens * dim * quant::SizeOf(type), char{-1}),
        post(tokens * n, kNan), res(tokens * n * n, kNan), rms(tokens, kNan), mix(tokens * rows, kNan), pre(tokens * n, kNan) {
    args = {.type = type, .tokens = tokens, .streams = n, .dim = dim, .x = x.data(), .phi = phi.data(), .gamma = with_gamma ? gamma.data() : nullptr,
            .alpha = alpha.data(), .bias = bias.data(), .norm_epsilon = 1e-5f, .epsilon = 1e-3f, .in = in.data(), .post = post.data(),
            .res = with_res ? res.data() : nullptr, .inverse_rms = rms.data(), .mix = mix.data(), .pre = pre.data()};
  }
  int64_t rows;
  std::vector<char> x;
  std::vector<float> phi, gamma, alpha, bias;
  std::vector<char> in;
  std::vector<float> post, res, rms, mix, pre;
  HyperConnectionPreArgs args;
};

void ExpectRow(const std::vector<float>& got, int64_t token, const Bounded& want) {
  for (size_t i = 0; i < want.value.size(); ++i) {
    ASSERT_NEAR(got[static_cast<size_t>(token) * want.value.size() + i], want.value[i], want.bound[i]) << "token " << token << ", " << i;
  }
}

TEST_P(HyperConnectionsTest, PreMatchesFloat64) {
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const auto& [tokens, n, dim] : {std::tuple{3, 4, 64}, {1, 4, 100}, {35, 2, 7}, {2, 8, 33}, {5, 1, 16}, {2, 6, 512}}) {
      for (bool with_res : {true, false}) {
        Pre pre(type, tokens, n, dim, with_res, /*with_gamma=*/with_res);
        ASSERT_TRUE(HyperConnectionPre(pre.args, pool_).ok());
        for (int64_t token = 0; token < tokens; ++token) {
          const PreReference want = HyperConnectionPreReference(pre.args, token);
          ExpectRow(pre.post, token, want.post), ExpectRow(pre.res, token, want.res), ExpectRow(pre.rms, token, want.inverse_rms);
          ExpectRow(pre.mix, token, want.mix), ExpectRow(pre.pre, token, want.pre);
          for (int64_t d = 0; d < dim; ++d) {
            const double got = quant::LoadScalar(type, pre.in.data(), token * dim + d);
            ASSERT_NEAR(got, want.in.value[static_cast<size_t>(d)], want.in.bound[static_cast<size_t>(d)]) << token << ", " << d;
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(HyperConnectionsTest, SinkhornMatchesFloat64AndSumsToOne) {
  for (int64_t n : {1, 2, 4, 6, 8}) {
    for (int64_t iterations : {1, 2, 20, 100}) {
      for (double spread : {0.1, 3.0, 30.0}) {
        const int64_t tokens = 19;
        const std::vector<float> logits = Normal(static_cast<uint32_t>(n * iterations), tokens * n * n, 0, spread);
        std::vector<float> out(logits.size(), kNan);
        const SinkhornArgs args = {.tokens = tokens, .streams = n, .iterations = iterations, .epsilon = 1e-6f, .logits = logits.data(), .out = out.data()};
        ASSERT_TRUE(Sinkhorn(args, pool_).ok());
        for (int64_t token = 0; token < tokens; ++token) {
          ExpectRow(out, token, SinkhornReference(args, token));
          for (int64_t j = 0; j < n && iterations >= 20 && spread < 10; ++j) {  // epsilon takes the more, the smaller a sum was
            double sum = 0;
            for (int64_t i = 0; i < n; ++i) sum += out[static_cast<size_t>((token * n + i) * n + j)];
            ASSERT_NEAR(sum, 1, 1e-5) << "column " << j;
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

struct Post {
  Post(DType type, int64_t tokens, int64_t n, int64_t dim, bool with_mix)
      : x(As(type, Normal(1, tokens * n * dim))), out(As(type, Normal(2, tokens * dim))), mix(Normal(3, tokens * n * n)), post(Normal(4, tokens * n)),
        y(x.size(), char{-1}) {
    args = {.type = type, .tokens = tokens, .streams = n, .dim = dim, .x = x.data(), .mix = with_mix ? mix.data() : nullptr, .out = out.data(),
            .post = post.data(), .y = y.data()};
  }
  std::vector<char> x, out;
  std::vector<float> mix, post;
  std::vector<char> y;
  HyperConnectionPostArgs args;
};

TEST_P(HyperConnectionsTest, PostMatchesFloat64) {
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const auto& [tokens, n, dim] : {std::tuple{3, 4, 64}, {1, 8, 100}, {35, 2, 7}, {5, 1, 16}}) {
      for (bool with_mix : {true, false}) {
        Post post(type, tokens, n, dim, with_mix);
        ASSERT_TRUE(HyperConnectionPost(post.args, pool_).ok());
        for (int64_t token = 0; token < tokens; ++token) {
          const Bounded want = HyperConnectionPostReference(post.args, token);
          for (int64_t i = 0; i < n * dim; ++i) {
            ASSERT_NEAR(quant::LoadScalar(type, post.y.data(), token * n * dim + i), want.value[static_cast<size_t>(i)], want.bound[static_cast<size_t>(i)]) << token << ", " << i;
          }
        }
      }
    }
  }
}

// A token alone, and among others with any number of threads: the same bits.
TEST_P(HyperConnectionsTest, ATokenDependsOnItselfAlone) {
  const int64_t tokens = 70, n = 4, dim = 50;
  Pre all(DType::kBF16, tokens, n, dim, true, true);
  ASSERT_TRUE(HyperConnectionPre(all.args, pool_).ok());
  std::vector<float> mixed(all.res.size());
  ASSERT_TRUE(Sinkhorn({.tokens = tokens, .streams = n, .logits = all.res.data(), .out = mixed.data()}, pool_).ok());
  for (int64_t token = 0; token < tokens; token += 3) {
    Pre one(DType::kBF16, tokens, n, dim, true, true);
    one.args.tokens = 1;
    one.args.x = one.x.data() + token * n * dim * 2;
    ASSERT_TRUE(HyperConnectionPre(one.args, tiling::InlineExecutor()).ok());
    EXPECT_TRUE(std::equal(one.in.begin(), one.in.begin() + dim * 2, all.in.begin() + token * dim * 2));
    EXPECT_TRUE(std::equal(one.res.begin(), one.res.begin() + n * n, all.res.begin() + token * n * n));
    EXPECT_TRUE(std::equal(one.post.begin(), one.post.begin() + n, all.post.begin() + token * n));
    float own[16];
    ASSERT_TRUE(Sinkhorn({.tokens = 1, .streams = n, .logits = one.res.data(), .out = own}, tiling::InlineExecutor()).ok());
    EXPECT_TRUE(std::equal(own, own + n * n, mixed.begin() + token * n * n));
  }
}

TEST(HyperConnectionsErrorsTest, NameFieldValueAndLimit) {
  tiling::Executor& here = tiling::InlineExecutor();
  Pre pre(DType::kF32, 2, 4, 8, true, true);
  const auto refuses = [&](const char* what, const auto& change) {
    HyperConnectionPreArgs args = pre.args;
    change(args);
    EXPECT_EQ(HyperConnectionPre(args, here).message(), std::string("hyper-connections: ") + what);
  };
  refuses("streams = 9 is not in [1, 8]", [](auto& a) { a.streams = 9; });
  refuses("tokens = -1 is not in [0, 4294967296]", [](auto& a) { a.tokens = -1; });
  refuses("dim = 0 is not in [1, 65536]", [](auto& a) { a.dim = 0; });
  refuses("x, phi, alpha, bias, in or post is null", [](auto& a) { a.phi = nullptr; });
  refuses("inverse_rms, mix and pre belong together", [](auto& a) { a.pre = nullptr; });
  EXPECT_EQ(Sinkhorn({.tokens = 1, .iterations = 101}, here).message(), "hyper-connections: iterations = 101 is not in [1, 100]");
  EXPECT_EQ(Sinkhorn({.tokens = 1, .epsilon = kNan}, here).message(), "hyper-connections: epsilon = nan is not zero or more");
  EXPECT_EQ(Sinkhorn({.tokens = 1}, here).message(), "hyper-connections: logits or out is null");
  EXPECT_EQ(HyperConnectionPost({.tokens = 1, .dim = 4}, here).message(), "hyper-connections: x, out, post or y is null");
  EXPECT_TRUE(HyperConnectionPost({.tokens = 0, .dim = 4}, here).ok());
}

INSTANTIATE_TEST_SUITE_P(Simd, HyperConnectionsTest, testing::ValuesIn(tiling::SimdTargets()));

}  // namespace
}  // namespace jumar::attention
