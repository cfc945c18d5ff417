#include "libs/attention/block_sparse/block_select.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/attention/block_sparse/test_problem.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

const BlockCase kCases[] = {
    {{{1, 1}}, 2, 1, 16, 16, 16, 4},
    {{{1, 5000}, {1, 129}, {3, 128}}, 16, 4, 128, 128, 128, 16},   // MiniMax-M3's sizes
    {{{40, 40}, {17, 271}, {0, 20}, {3, 3}}, 12, 3, 64, 16, 32, 3},
    {{{100, 700}}, 5, 5, 32, 64, 64, 4},
    {{{20, 7}, {3, 0}, {2, 90}}, 4, 2, 64, 48, 24, 2},             // queries before the context; a block is half a page
    {{}, 2, 1, 16, 16, 16, 2},
};

double Load(const BlockSelectArgs& args, const void* data, int64_t i) {
  return args.format ? quant::Decode(*args.format, static_cast<const uint8_t*>(data)[i]) : quant::LoadScalar(args.type, data, i);
}

struct Scores {
  std::vector<double> score, bound;
};

// block_select.h in float64; a product of D elements errs by (D + 2) u of its magnitude.
Scores Reference(const BlockSelectArgs& args, int64_t seq, int64_t token, int64_t head, int64_t position) {
  Scores all;
  for (int64_t b = 0; position >= 0 && b <= position / args.block_tokens; ++b) {
    double max = -HUGE_VAL, bound = 0;
    for (int64_t j = b * args.block_tokens; j < std::min((b + 1) * args.block_tokens, position + 1); ++j) {
      const int64_t page = args.block_table[seq * args.block_table_stride + j / args.page_size];
      const int64_t key = page * args.k_page_stride + j % args.page_size * args.k_token_stride + head / (args.num_heads / args.num_key_heads) * args.k_head_stride;
      double product = 0, magnitude = 0;
      for (int64_t d = 0; d < args.head_dim; ++d) {
        const double term = Load(args, args.q, token * args.q_token_stride + head * args.q_head_stride + d) * Load(args, args.k, key + d);
        product += term, magnitude += std::fabs(term);
      }
      if (std::isnan(product)) continue;
      max = std::max(max, product), bound = std::max(bound, (args.head_dim + 2) * 0x1p-24 * magnitude + 0x1p-100);
    }
    all.score.push_back(max), all.bound.push_back(bound);
  }
  return all;
}

// The list by sorting: init and local ones first.
std::vector<int32_t> Want(const BlockSelectArgs& args, const std::vector<double>& scores) {
  const int64_t blocks = static_cast<int64_t>(scores.size());
  std::vector<int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int32_t b) { return b >= blocks - args.local_blocks ? 1 : b < args.init_blocks ? 2 : 0; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : rank(a) == 0 && scores[a] > scores[b];
  });
  order.resize(args.top_k, -1);
  return order;
}

template <class Fn>
void ForEachRow(const BlockProblem& p, const Fn& fn) {
  for (size_t s = 0; s < p.kv_lens.size(); ++s) {
    const int64_t begin = s == 0 ? 0 : p.query_ends[s - 1], queries = p.query_ends[s] - begin;
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t h = 0; h < p.select.num_heads; ++h) fn(s, begin + i, h, p.kv_lens[s] - queries + i);
    }
  }
}

std::vector<int32_t> Row(const BlockProblem& p, int64_t token, int64_t head) {
  const int32_t* row = p.indices.data() + token * p.select.indices_token_stride + head * p.select.indices_head_stride;
  return std::vector<int32_t>(row, row + p.select.top_k);
}

class BlockSelectTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(BlockSelectTest, MatchesFloat64) {
  uint32_t seed = 1;
  for (const BlockCase& c : kCases) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (bool codes : {false, true}) {
        BlockProblem p(c, type, seed++);
        if (codes) p.UseE4M3Keys(seed);
        const absl::Status status = SelectBlocks(p.select, pool_);
        ASSERT_TRUE(status.ok()) << status;
        ForEachRow(p, [&](int64_t s, int64_t token, int64_t h, int64_t position) {
          const Scores want = Reference(p.select, s, token, h, position);
          const std::vector<int32_t> row = Row(p, token, h);
          const int64_t blocks = static_cast<int64_t>(want.score.size()), count = std::min(c.top_k, blocks);
          std::vector<bool> chosen(blocks, false);
          for (int64_t i = 0; i < c.top_k; ++i) {
            if (i >= count) {
              ASSERT_EQ(row[i], -1);
              continue;
            }
            ASSERT_TRUE(row[i] >= 0 && row[i] < blocks && !chosen[row[i]]) << token << ": " << row[i];
            chosen[row[i]] = true;
            ASSERT_TRUE(i == 0 || want.score[row[i]] - want.bound[row[i]] <= want.score[row[i - 1]] + want.bound[row[i - 1]]) << token;
          }
          for (int64_t b = 0; b < blocks && count > 0; ++b) {
            ASSERT_TRUE(chosen[b] || want.score[b] - want.bound[b] <= want.score[row[count - 1]] + want.bound[row[count - 1]]) << token << ": " << b;
          }
        });
      }
    }
  }
}

// Exact scores that are often equal: the list is the sorted one, with any number of first and last blocks.
TEST_P(BlockSelectTest, InitAndLocalBlocksComeFirstAndTiesGoToTheSmallerIndex) {
  uint32_t seed = 1;
  for (const BlockCase& c : kCases) {
    for (DType type : {DType::kF32, DType::kBF16}) {
      BlockProblem p(c, type, seed++, /*small_integers=*/true);
      std::vector<Scores> scores;  // of the rows
      ForEachRow(p, [&](int64_t s, int64_t token, int64_t h, int64_t position) { scores.push_back(Reference(p.select, s, token, h, position)); });
      for (int64_t init : {0, 1, 3}) {
        for (int64_t local : {0, 1, 2}) {
          p.select.init_blocks = init, p.select.local_blocks = local;
          ASSERT_TRUE(SelectBlocks(p.select, pool_).ok());
          auto row = scores.begin();
          ForEachRow(p, [&](int64_t, int64_t token, int64_t h, int64_t) {
            ASSERT_EQ(Row(p, token, h), Want(p.select, (row++)->score)) << init << local << " token " << token;
          });
        }
      }
    }
  }
}

TEST_P(BlockSelectTest, NanRanksLastButBeforeNothing) {
  BlockProblem p({{{1, 100}}, 1, 1, 32, 16, 16, 8}, DType::kF32, 3);
  for (int64_t block : {1, 4}) {  // one NaN key in block 1, all of block 4
    for (int64_t j = block * 16; j < (block == 4 ? 80 : 17); ++j) {
      const int64_t row = p.block_table[j / 16] * p.select.k_page_stride + j % 16 * p.select.k_token_stride;
      for (int64_t d = 0; d < 32; ++d) quant::StoreScalar(DType::kF32, NAN, p.index_k.data(), row + d);
    }
  }
  ASSERT_TRUE(SelectBlocks(p.select, pool_).ok());
  const std::vector<int32_t> row = Row(p, 0, 0);
  EXPECT_EQ(row[6], 4);
  EXPECT_EQ(row[7], -1);
  EXPECT_EQ(row, Want(p.select, Reference(p.select, 0, 0, 0, 99).score));
}

TEST_P(BlockSelectTest, ARowIsTheSameInAnyBatchChunkAndNumberOfThreads) {
  std::mt19937 rng(2);
  for (const BlockCase& c : kCases) {
    BlockProblem whole(c, DType::kBF16, 5);
    ASSERT_TRUE(SelectBlocks(whole.select, pool_).ok());
    const std::vector<int32_t> want = whole.indices;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t begin = s == 0 ? 0 : whole.query_ends[s - 1];
      for (int64_t first = 0; first < c.sequences[s].queries;) {
        const int64_t count = std::min<int64_t>(c.sequences[s].queries - first, 1 + rng() % 9);
        const int64_t start = begin + first, end = start + count, keys = c.sequences[s].keys - c.sequences[s].queries + first + count;
        first += count;
        if (keys < 0) continue;
        BlockSelectArgs args = whole.select;
        args.num_seqs = 1, args.query_starts = &start, args.query_ends = &end, args.kv_lens = &keys;
        args.block_table += s * args.block_table_stride;
        tiling::ThreadPool pool(1 + rng() % 4);
        for (int64_t t = start; t < end; ++t) {
          for (int64_t h = 0; h < args.num_heads; ++h) std::fill_n(args.indices + t * args.indices_token_stride + h * args.indices_head_stride, c.top_k, -9);
        }
        ASSERT_TRUE(SelectBlocks(args, pool).ok());
        ASSERT_EQ(whole.indices, want) << s << " " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockSelectTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(BlockSelectArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const auto expect = [](const std::string& part, void (*spoil)(BlockProblem&)) {
    BlockProblem p({{{2, 40}}, 2, 2, 32, 16, 16, 4}, DType::kBF16, 1);
    spoil(p);
    EXPECT_THAT(std::string(SelectBlocks(p.select, tiling::InlineExecutor()).message()), testing::HasSubstr(part));
  };
  expect("num_heads = 2 is not a positive multiple of num_key_heads = 3", [](BlockProblem& p) { p.select.num_key_heads = 3; });
  expect("head_dim = 8 is not a multiple of 16", [](BlockProblem& p) { p.select.head_dim = 8; });
  expect("format = ", [](BlockProblem& p) { p.select.format = quant::Format::kI8; });
  expect("block_tokens = 0 is not positive", [](BlockProblem& p) { p.select.block_tokens = 0; });
  expect("top_k = 0 is not positive", [](BlockProblem& p) { p.select.top_k = 0; });
  expect("local_blocks = -1 is negative", [](BlockProblem& p) { p.select.local_blocks = -1; });
  expect("needs 3 pages of 16, but block_table has 2", [](BlockProblem& p) { p.select.block_table_stride = 2; });
  expect("block_table[0][2] = -1 is not in [0, num_pages = 5)", [](BlockProblem& p) { p.block_table[2] = -1; });
}

}  // namespace
}  // namespace jumar::attention
