#include "libs/attention/selected/selected_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/attention/block_sparse/block_csr.h"
#include "libs/attention/block_sparse/test_problem.h"
#include "libs/attention/paged/reference.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

const BlockCase kCases[] = {
    {{{1, 1}}, 2, 1, 16, 16, 16, 4},
    {{{1, 1500}, {1, 129}, {3, 128}}, 8, 2, 128, 128, 128, 4},
    {{{40, 40}, {17, 271}, {0, 20}, {3, 3}}, 6, 3, 64, 16, 32, 3},
    {{{20, 7}, {3, 0}, {2, 90}}, 4, 2, 64, 16, 16, 2},
    {{}, 2, 1, 16, 16, 16, 2},
};

// The list of (token, KV head) as a set of blocks.
std::set<int32_t> ListOf(const BlockProblem& p, int64_t token, int64_t kv_head) {
  const int32_t* list = p.indices.data() + token * p.attention.indices_token_stride + kv_head * p.attention.indices_head_stride;
  return std::set<int32_t>(list, list + p.attention.top_k);
}

// Dense attention with all but the listed blocks masked, in float64.
void ExpectMatchesReference(BlockProblem& p) {
  const PagedAttentionArgs& dense = p.attention.dense;
  int64_t most = 1;
  for (int64_t keys : p.kv_lens) most = std::max(most, keys);
  std::vector<uint8_t> mask(most);
  PagedAttentionArgs masked = dense;
  masked.value_head_dim = dense.head_dim, masked.mask = mask.data(), masked.window_right = 0;
  for (int64_t s = 0; s < dense.num_seqs; ++s) {
    const int64_t begin = s == 0 ? 0 : p.query_ends[s - 1];
    for (int64_t i = 0; i < p.query_ends[s] - begin; ++i) {
      for (int64_t h = 0; h < dense.num_heads; ++h) {
        const std::set<int32_t> list = ListOf(p, begin + i, h / (dense.num_heads / dense.num_kv_heads));
        for (int64_t j = 0; j < most; ++j) mask[j] = list.count(static_cast<int32_t>(j / p.attention.selected_tokens)) == 0;
        const AttentionReferenceRow want = AttentionReference(masked, s, i, h);
        for (int64_t d = 0; d < dense.head_dim; ++d) {
          const double got = quant::LoadScalar(dense.type, p.out.data(), ((begin + i) * dense.num_heads + h) * dense.head_dim + d);
          ASSERT_LE(std::fabs(got - want.out[d]), AttentionErrorBound(masked, want, d)) << "token " << begin + i << " head " << h << " element " << d;
        }
        const float lse = p.lse[(begin + i) * dense.num_heads + h];
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse, INFINITY);
        } else {
          ASSERT_LE(std::fabs(lse - want.lse), LseErrorBound(masked, want));
        }
      }
    }
  }
}

class BlockSparseTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(BlockSparseTest, MatchesMaskedDenseAttentionInFloat64) {
  uint32_t seed = 1;
  for (const BlockCase& c : kCases) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (bool quantized : {false, true}) {
        for (bool random : {false, true}) {
          BlockProblem p(c, type, seed++);
          std::vector<float> sinks(static_cast<size_t>(c.heads));
          for (size_t h = 0; h < sinks.size(); ++h) sinks[h] = static_cast<float>(h) - 2.0f;
          if (random) p.attention.dense.sinks = sinks.data();
          if (quantized) p.UseE4M3Cache(seed);
          if (random) {
            p.RandomLists(seed);
          } else {
            ASSERT_TRUE(SelectBlocks(p.select, pool_).ok());
          }
          const absl::Status status = SelectedAttention(p.attention, pool_);
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(p));
        }
      }
    }
  }
}

// Neither the order of a list nor what isn't in it matters, nor the batch and the threads.
TEST_P(BlockSparseTest, OnlyTheSetOfBlocksMatters) {
  std::mt19937 rng(3);
  for (const BlockCase& c : kCases) {
    BlockProblem p(c, DType::kBF16, 7);
    p.RandomLists(8);
    ASSERT_TRUE(SelectedAttention(p.attention, pool_).ok());
    const std::vector<char> want = p.out;
    for (int64_t row = 0; row < p.tokens * c.kv_heads; ++row) std::shuffle(&p.indices[row * c.top_k], &p.indices[(row + 1) * c.top_k], rng);
    // Keys of blocks that are in no list of the sequence become NaN.
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        std::set<int32_t> all;
        for (int64_t t = s == 0 ? 0 : p.query_ends[s - 1]; t < p.query_ends[s]; ++t) all.merge(ListOf(p, t, h));
        for (int64_t j = 0; j < p.kv_lens[s]; ++j) {
          if (all.count(static_cast<int32_t>(j / c.block_tokens)) != 0) continue;
          std::memset(p.Row(p.k, s, j, h), 0xFF, c.head_dim * 2);
          std::memset(p.Row(p.v, s, j, h), 0xFF, c.head_dim * 2);
        }
      }
    }
    for (int workers : {1, 2, 5}) {
      tiling::ThreadPool pool(workers);
      std::fill(p.out.begin(), p.out.end(), char{-1});
      ASSERT_TRUE(SelectedAttention(p.attention, pool).ok());
      ASSERT_EQ(p.out, want) << workers;
    }
    for (size_t s = 0; s < c.sequences.size(); ++s) {  // each query alone, as in decode
      const int64_t begin = s == 0 ? 0 : p.query_ends[s - 1], queries = p.query_ends[s] - begin;
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t start = begin + i, end = start + 1, keys = p.kv_lens[s] - queries + i + 1;
        if (keys < 0) continue;
        SelectedAttentionArgs one = p.attention;
        one.dense.num_seqs = 1, one.dense.query_starts = &start, one.dense.query_ends = &end, one.dense.kv_lens = &keys;
        one.dense.block_table += s * one.dense.block_table_stride;
        std::memset(p.out.data() + start * c.heads * c.head_dim * 2, 0xFF, c.heads * c.head_dim * 2);
        ASSERT_TRUE(SelectedAttention(one, tiling::InlineExecutor()).ok());
        ASSERT_EQ(p.out, want) << s << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockSparseTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

BlockCsrArgs CsrOf(const BlockProblem& p, std::vector<int32_t>& starts, std::vector<int32_t>& queries) {
  BlockCsrArgs args = {.num_seqs = p.select.num_seqs, .query_ends = p.query_ends.data(), .kv_lens = p.kv_lens.data(), .block_tokens = p.shape.block_tokens,
                       .num_kv_heads = p.shape.kv_heads, .top_k = p.shape.top_k, .indices = p.indices.data(),
                       .indices_token_stride = p.attention.indices_token_stride, .indices_head_stride = p.attention.indices_head_stride};
  args.row_starts_stride = *BlockCsrRows(args) + 1, args.queries_stride = p.tokens * p.shape.top_k;
  starts.assign(args.num_kv_heads * args.row_starts_stride + 1, -5);
  queries.assign(args.num_kv_heads * args.queries_stride + 1, -5);
  args.row_starts = starts.data(), args.queries = queries.data();
  return args;
}

// The pairs of the matrix are those of the lists, each once; rows ascend; blocks of no query are empty rows.
TEST(BlockCsrTest, HoldsEachPairOnceInAscendingRows) {
  tiling::ThreadPool pool(3);
  for (const BlockCase& c : kCases) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      BlockProblem p(c, DType::kBF16, seed);
      p.RandomLists(seed);
      std::vector<int32_t> starts, queries;
      const BlockCsrArgs args = CsrOf(p, starts, queries);
      ASSERT_TRUE(BuildBlockCsr(args, pool).ok());
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        std::set<std::pair<int64_t, int64_t>> want, got;  // row, token
        int64_t first_row = 0;
        for (size_t s = 0; s < c.sequences.size(); ++s) {
          const int64_t begin = s == 0 ? 0 : p.query_ends[s - 1], end = p.query_ends[s];
          for (int64_t t = begin; t < end; ++t) {
            const int64_t position = p.kv_lens[s] - (end - t);
            for (int32_t b : ListOf(p, t, h)) {
              if (b >= 0 && b * c.block_tokens <= position) want.insert({first_row + b, t});
            }
          }
          first_row += (p.kv_lens[s] + c.block_tokens - 1) / c.block_tokens;
        }
        const int32_t* row = starts.data() + h * args.row_starts_stride;
        ASSERT_EQ(row[0], 0);
        for (int64_t r = 0; r < first_row; ++r) {
          for (int32_t i = row[r]; i < row[r + 1]; ++i) {
            const int32_t token = queries[h * args.queries_stride + i];
            ASSERT_TRUE(i == row[r] || queries[h * args.queries_stride + i - 1] < token);
            ASSERT_TRUE(got.insert({r, token}).second);
          }
        }
        ASSERT_EQ(got, want);
      }
      ASSERT_EQ(starts.back(), -5);
    }
  }
}

TEST(BlockCsrTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const auto expect = [](const std::string& part, void (*spoil)(BlockCsrArgs&)) {
    BlockProblem p({{{4, 40}}, 2, 2, 32, 16, 16, 4}, DType::kBF16, 1);
    std::fill(p.indices.begin(), p.indices.end(), 0);
    std::vector<int32_t> starts, queries;
    BlockCsrArgs args = CsrOf(p, starts, queries);
    spoil(args);
    EXPECT_THAT(std::string(BuildBlockCsr(args, tiling::InlineExecutor()).message()), testing::HasSubstr(part));
    EXPECT_EQ(queries[0], -5);
  };
  expect("row_starts_stride = 3 is less than the rows and one, 4", [](BlockCsrArgs& a) { a.row_starts_stride = 3; });
  expect("queries_stride = 3 is less than the 4 pairs of head 0", [](BlockCsrArgs& a) { a.queries_stride = 3; });
  expect("block_tokens = 0 is not positive", [](BlockCsrArgs& a) { a.block_tokens = 0; });
  expect("indices is null", [](BlockCsrArgs& a) { a.indices = nullptr; });
}

}  // namespace
}  // namespace jumar::attention
