#include "libs/attention/sharedkv/shared_kv_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

constexpr int64_t kDim = 96, kRotary = 32, kHeads = 6, kPositions = 700;

// Sequences of {new tokens, tokens}, the cache of their tokens and that of their entries.
struct Problem {
  Problem(DType type, std::vector<SequenceShape> shapes, int64_t window, int64_t ratio, int64_t top_k, uint32_t seed)
      : shapes(shapes),
        tokens(type, shapes, kHeads, 1, kDim, kDim, 16, window - 1, 0, seed),
        entries(type, EntryShapes(shapes, ratio), kHeads, 1, kDim, kDim, 8, -1, 0, seed + 1),
        sinks({0.5f, -INFINITY, 30.0f, -40.0f, 1.0f, 0.0f}),
        top_k(top_k) {
    std::mt19937 rng(seed);
    args.window = tokens.args;
    args.window.v = args.window.k, args.window.v_block_stride = args.window.k_block_stride, args.window.v_token_stride = args.window.k_token_stride;
    args.window.sinks = sinks.data();
    args.ratio = ratio;
    args.entries = entries.args.k, args.entries_block_stride = entries.args.k_block_stride, args.entries_token_stride = entries.args.k_token_stride;
    args.entries_block_table = entries.args.block_table, args.entries_block_table_stride = entries.args.block_table_stride;
    args.entries_block_size = 8, args.entries_num_blocks = entries.args.num_blocks;
    const int64_t count = tokens.query_ends.back();
    if (top_k > 0) {
      indices.resize(static_cast<size_t>(count * top_k));
      for (int32_t& index : indices) index = rng() % 5 == 0 ? -1 : static_cast<int32_t>(rng() % 40);
      args.indices = indices.data(), args.top_k = top_k, args.indices_token_stride = top_k;
    }
    cos.resize(kPositions * kRotary / 2), sin = cos;
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t i = 0; i < kRotary / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kRotary);
        cos[p * kRotary / 2 + i] = static_cast<float>(std::cos(angle)), sin[p * kRotary / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    for (size_t s = 0; s < shapes.size(); ++s) {
      for (int64_t i = 0; i < shapes[s].queries; ++i) positions.push_back(shapes[s].keys - shapes[s].queries + i);
    }
    args.rope = RopeArgs{.rotary_dim = kRotary, .interleaved = true, .cos = cos.data(), .sin = sin.data(), .table_stride = kRotary / 2,
                         .compact_table = true, .positions = positions.data(), .table_rows = kPositions};
  }

  static std::vector<SequenceShape> EntryShapes(const std::vector<SequenceShape>& shapes, int64_t ratio) {
    std::vector<SequenceShape> entries;
    for (const SequenceShape& shape : shapes) entries.push_back({0, ratio == 0 ? 0 : shape.keys / ratio});
    return entries;
  }

  // The query's output in float64, and its lse.
  std::vector<double> Reference(size_t s, int64_t i, int64_t token, int64_t head, double& lse) {
    const int64_t position = shapes[s].keys - shapes[s].queries + i;
    std::vector<const void*> rows;
    for (int64_t j = std::max<int64_t>(0, position - args.window.window_left); j <= position; ++j) rows.push_back(tokens.K(static_cast<int64_t>(s), j, 0));
    for (int64_t e = 0; args.ratio > 0 && e < (position + 1) / args.ratio; ++e) {
      const int32_t* list = indices.data() + token * top_k;
      if (top_k == 0 || std::find(list, list + top_k, e) != list + top_k) rows.push_back(entries.K(static_cast<int64_t>(s), e, 0));
    }
    std::vector<double> scores, out(kDim, 0.0);
    double sum = std::isinf(sinks[static_cast<size_t>(head)]) ? 0 : std::exp(static_cast<double>(sinks[static_cast<size_t>(head)]));
    const int64_t q = token * tokens.args.q_token_stride + head * tokens.args.q_head_stride;
    for (const void* row : rows) {
      double score = 0;
      for (int64_t d = 0; d < kDim; ++d) score += quant::LoadScalar(tokens.args.type, tokens.q.data(), q + d) * quant::LoadScalar(tokens.args.type, row, d);
      scores.push_back(std::exp(score * tokens.args.scale));
      sum += scores.back();
    }
    lse = std::log(sum);
    for (size_t j = 0; j < rows.size(); ++j) {
      for (int64_t d = 0; d < kDim; ++d) out[static_cast<size_t>(d)] += scores[j] / sum * quant::LoadScalar(tokens.args.type, rows[j], d);
    }
    if (!args.rope) return out;
    for (int64_t pair = 0; pair < kRotary / 2; ++pair) {  // R(-p)
      double &a = out[static_cast<size_t>(kDim - kRotary + 2 * pair)], &b = out[static_cast<size_t>(kDim - kRotary + 2 * pair + 1)];
      const double c = cos[static_cast<size_t>(position * kRotary / 2 + pair)], n = sin[static_cast<size_t>(position * kRotary / 2 + pair)];
      const double first = a * c + b * n, second = b * c - a * n;
      a = first, b = second;
    }
    return out;
  }

  std::vector<SequenceShape> shapes;
  AttentionProblem tokens, entries;
  std::vector<float> sinks, cos, sin;
  std::vector<int64_t> positions;
  std::vector<int32_t> indices;
  int64_t top_k;
  SharedKvAttentionArgs args;
};

class SharedKvAttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

const std::vector<SequenceShape> kShapes = {{1, 1}, {7, 7}, {20, 300}, {1, 513}, {1, 127}, {5, 128}};

TEST_P(SharedKvAttentionTest, MatchesFloat64) {
  uint32_t seed = 1;
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t ratio : {0, 4, 128}) {
      for (int64_t top_k : {0, 12}) {
        for (bool rope : {true, false}) {
          Problem p(type, kShapes, 24, ratio, top_k, seed++);
          if (!rope) p.args.rope.reset();
          const absl::Status status = SharedKvAttention(p.args, pool_);
          ASSERT_TRUE(status.ok()) << status;
          int64_t token = 0;
          for (size_t s = 0; s < kShapes.size(); ++s) {
            for (int64_t i = 0; i < kShapes[s].queries; ++i, ++token) {
              for (int64_t h = 0; h < kHeads; ++h) {
                double lse = 0;
                const std::vector<double> want = p.Reference(s, i, token, h, lse);
                const std::string where = absl::StrCat("ratio ", ratio, " top ", top_k, " sequence ", s, " query ", i, " head ", h, " ", quant::Name(type));
                for (int64_t d = 0; d < kDim; ++d) {
                  // Scores are below 8 and exact but for 2^-24 of the sum of up to 96 products each below 8; outputs are averages of numbers below 5.
                  const double error = 1e-4;
                  ASSERT_NEAR(quant::LoadScalar(type, p.tokens.Out(token, h), d), want[static_cast<size_t>(d)],
                              error + quant::HalfUlp(type, std::fabs(want[static_cast<size_t>(d)]) + error))
                      << where << " element " << d;
                }
                ASSERT_NEAR(p.tokens.lse[static_cast<size_t>(token * kHeads + h)], lse, 1e-4) << where;
              }
            }
          }
        }
      }
    }
  }
}

// A query's bits are the same alone, as in decode, and with any number of threads; entries that no query sees yet are not read.
TEST_P(SharedKvAttentionTest, ARowIsBitEqualInDecodeAndPrefill) {
  for (int64_t top_k : {0, 12}) {
    Problem p(DType::kBF16, {{40, 200}, {3, 90}}, 24, 4, top_k, 5);
    ASSERT_TRUE(SharedKvAttention(p.args, pool_).ok());
    const std::vector<char> want = p.tokens.out;
    p.tokens.PoisonOutput();
    ASSERT_TRUE(SharedKvAttention(p.args, tiling::InlineExecutor()).ok());
    ASSERT_EQ(p.tokens.out, want);
    int64_t token = 0;
    for (int64_t s = 0; s < 2; ++s) {
      const SequenceShape shape = p.shapes[static_cast<size_t>(s)];
      for (int64_t i = 0; i < shape.queries; ++i, ++token) {
        const int64_t one = 1, keys = shape.keys - shape.queries + i + 1;
        SharedKvAttentionArgs alone = p.args;
        PagedAttentionArgs& w = alone.window;
        w.num_seqs = 1, w.query_ends = &one, w.kv_lens = &keys;
        w.block_table += s * w.block_table_stride, alone.entries_block_table += s * alone.entries_block_table_stride;
        w.q = static_cast<const char*>(w.q) + token * w.q_token_stride * 2;
        std::vector<char> out(static_cast<size_t>(w.out_token_stride) * 2, char{-1});
        w.out = out.data(), w.lse = nullptr;
        if (top_k > 0) alone.indices += token * top_k;
        alone.rope->positions += token;
        ASSERT_TRUE(SharedKvAttention(alone, pool_).ok());
        for (int64_t h = 0; h < kHeads; ++h) {
          ASSERT_EQ(std::memcmp(out.data() + h * w.out_head_stride * 2, p.tokens.Out(token, h), kDim * 2), 0) << "token " << token << " head " << h;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, SharedKvAttentionTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(SharedKvAttentionArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const auto expect = [](const std::string& part, const std::function<void(SharedKvAttentionArgs&)>& spoil) {
    Problem p(DType::kBF16, {{2, 40}}, 8, 4, 3, 1);
    spoil(p.args);
    const absl::Status status = SharedKvAttention(p.args, tiling::InlineExecutor());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  };
  expect("keys and values must be the same rows", [](auto& a) { a.window.v = nullptr; });
  expect("window_left = -1 and window_right = 0", [](auto& a) { a.window.window_left = -1; });
  expect("soft_cap = 3", [](auto& a) { a.window.soft_cap = 3; });
  expect("out_token_stride = 1 is not num_heads", [](auto& a) { a.window.out_token_stride = 1; });
  expect("ratio = -1 is negative", [](auto& a) { a.ratio = -1; });
  expect("rope.rotary_dim = 98 is more than head_dim = 96", [](auto& a) { a.rope->rotary_dim = 98; });
  expect("entries", [](auto& a) { a.entries_block_table_stride = 0; });
  expect("is not in [0, num_blocks = 0)", [](auto& a) { a.entries_num_blocks = 0, std::fill_n(const_cast<int32_t*>(a.indices), 6, 0); });
}

}  // namespace
}  // namespace jumar::attention
