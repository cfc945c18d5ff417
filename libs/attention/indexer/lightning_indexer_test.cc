#include "libs/attention/indexer/lightning_indexer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/attention/indexer/reference.h"
#include "libs/attention/indexer/test_problem.h"
#include "libs/attention/indexer/top_k.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

std::vector<IndexerCase> Cases() {
  std::vector<IndexerCase> cases;
#define JUMAR_INDEXER_CASE(name, sequences, ...) cases.push_back({#name, sequences, __VA_ARGS__});
#include "libs/attention/indexer/cases.inc"
  return cases;
}

// A row may differ from the reference's only by scores that are equal within the bounds.
void ExpectRowMatches(const IndexerProblem& p, int64_t seq, int64_t query, const std::string& where) {
  const LightningIndexerArgs& args = p.args;
  const IndexerReferenceRow want = IndexerReference(args, seq, query);
  const int64_t token = (seq == 0 ? 0 : p.query_ends[seq - 1]) + query, visible = static_cast<int64_t>(want.scores.size());
  const int32_t* indices = args.indices + token * args.indices_token_stride;
  const float* scores = args.scores + token * args.scores_token_stride;
  ASSERT_EQ(indices[args.top_k], -99) << where;
  const int64_t count = std::min(args.top_k, visible);
  std::vector<bool> chosen(visible, false);
  double worst = HUGE_VAL;  // no chosen entry is certainly worse
  for (int64_t i = 0; i < count; ++i) {
    const int32_t s = indices[i];
    ASSERT_TRUE(s >= 0 && s < visible && !chosen[s]) << where << " place " << i << ": " << s << " of " << visible;
    chosen[s] = true;
    ASSERT_LE(std::fabs(scores[i] - want.scores[s]), want.bounds[s]) << where << " entry " << s;
    if (i > 0) {
      ASSERT_TRUE(scores[i - 1] > scores[i] || (scores[i - 1] == scores[i] && indices[i - 1] < s)) << where << " place " << i;
    }
    worst = std::min(worst, want.scores[s] + want.bounds[s]);
  }
  for (int64_t s = 0; s < visible && count > 0; ++s) {
    ASSERT_TRUE(chosen[s] || want.scores[s] - want.bounds[s] <= worst) << where << ": entry " << s << " is missing";
  }
  for (int64_t i = count; i < args.top_k; ++i) {
    ASSERT_EQ(indices[i], -1) << where;
    ASSERT_EQ(scores[i], -INFINITY) << where;
  }
}

class LightningIndexerTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(LightningIndexerTest, MatchesFloat64InEveryCase) {
  uint32_t seed = 1;
  for (const IndexerCase& c : Cases()) {
    for (Keys keys : kAllKeys) {
      IndexerProblem p(c, keys, seed++);
      const absl::Status status = LightningIndexer(p.args, pool_);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      for (size_t s = 0; s < c.sequences.size(); ++s) {
        for (int64_t i = 0; i < c.sequences[s].queries; ++i) {
          ASSERT_NO_FATAL_FAILURE(ExpectRowMatches(p, s, i, absl::StrCat(c.name, " ", Name(keys), " ", GetParam(), " sequence ", s, " query ", i)));
        }
      }
    }
  }
}

// Scores that are exact and often equal: the indices are those of a stable sort, one by one.
TEST_P(LightningIndexerTest, TiesGoToTheSmallerIndex) {
  uint32_t seed = 1;
  for (const IndexerCase& c : Cases()) {
    for (Keys keys : kAllKeys) {
      IndexerProblem p(c, keys, seed++, /*small_integers=*/true);
      ASSERT_TRUE(LightningIndexer(p.args, pool_).ok());
      for (size_t s = 0; s < c.sequences.size(); ++s) {
        for (int64_t i = 0; i < c.sequences[s].queries; ++i) {
          const int64_t token = (s == 0 ? 0 : p.query_ends[s - 1]) + i;
          const int32_t* row = p.args.indices + token * p.args.indices_token_stride;
          const std::vector<int32_t> want = ReferenceIndices(IndexerReference(p.args, s, i), c.top_k);
          ASSERT_EQ(std::vector<int32_t>(row, row + c.top_k), want) << c.name << " " << Name(keys) << " " << GetParam() << " token " << token;
        }
      }
    }
  }
}

TEST_P(LightningIndexerTest, ARowIsBitEqualInDecodeChunkedAndWholePrefillWithAnyThreads) {
  std::mt19937 rng(5);
  for (const IndexerCase& c : Cases()) {
    if (!c.causal) continue;  // only then does a query not see the entries of later chunks
    for (Keys keys : kAllKeys) {
      IndexerProblem whole(c, keys, 77, rng() % 2 == 0);
      ASSERT_TRUE(LightningIndexer(whole.args, pool_).ok());
      for (size_t s = 0; s < c.sequences.size(); ++s) {
        const int64_t begin = s == 0 ? 0 : whole.query_ends[s - 1];
        for (int64_t first = 0; first < c.sequences[s].queries;) {
          const int64_t left = c.sequences[s].queries - first, count = std::min<int64_t>(left, first % 3 == 0 ? 1 : 1 + rng() % 12);
          const int64_t end = begin + first + count, start = begin + first;
          const int64_t kv_len = c.sequences[s].tokens - c.sequences[s].queries + first + count;
          if (kv_len >= 0) {
            LightningIndexerArgs args = whole.args;
            std::vector<int32_t> indices(whole.indices.size(), -5);
            std::vector<float> scores(whole.scores.size(), -5);
            int64_t kv_start = 0;
            for (size_t b = 0; b < s; ++b) kv_start += c.sequences[b].tokens / c.cmp_ratio;
            args.num_seqs = 1, args.query_starts = &start, args.query_ends = &end, args.kv_lens = &kv_len;
            if (args.block_table != nullptr) {
              args.block_table += s * args.block_table_stride;
            } else {
              args.kv_starts = &kv_start;
            }
            args.indices = indices.data(), args.scores = scores.data();
            tiling::ThreadPool pool(1 + rng() % 4);
            ASSERT_TRUE(LightningIndexer(args, pool).ok());
            for (int64_t t = start; t < end; ++t) {
              const int64_t at = t * args.indices_token_stride;
              ASSERT_EQ(std::memcmp(&indices[at], &whole.indices[at], c.top_k * 4), 0) << c.name << " " << Name(keys) << " token " << t;
              ASSERT_EQ(std::memcmp(&scores[at], &whole.scores[at], c.top_k * 4), 0) << c.name << " " << Name(keys) << " token " << t;
            }
          }
          first += count;
        }
      }
    }
  }
}

TEST_P(LightningIndexerTest, LongContextIsTheSameHoweverItIsSplit) {
  const IndexerCase c = {"long", {{1, 131072}, {2, 5000}}, 2, 64, 512, 128, 1, true};
  for (Keys keys : {Keys::kBF16, Keys::kI8}) {
    IndexerProblem p(c, keys, 3, /*small_integers=*/true);
    ASSERT_TRUE(LightningIndexer(p.args, tiling::InlineExecutor()).ok());
    const std::vector<int32_t> want = ReferenceIndices(IndexerReference(p.args, 0, 0), c.top_k);
    ASSERT_EQ(std::vector<int32_t>(p.indices.begin(), p.indices.begin() + c.top_k), want);
    const std::vector<int32_t> alone = p.indices;
    for (int workers : {2, 7}) {
      tiling::ThreadPool pool(workers);
      std::fill(p.indices.begin(), p.indices.end(), -99);
      ASSERT_TRUE(LightningIndexer(p.args, pool).ok());
      EXPECT_EQ(p.indices, alone) << workers << " workers";
    }
  }
}

// Entries whose score is NaN come last, in ascending order, and never instead of a number.
TEST_P(LightningIndexerTest, NanRanksBelowEveryNumber) {
  for (Keys keys : {Keys::kF32, Keys::kF16, Keys::kBF16, Keys::kE4M3}) {
    for (int64_t k : {8, 45}) {
      const IndexerCase c = {"nan", {{1, 40}}, 3, 64, k, 16, 1, true};
      IndexerProblem p(c, keys, 9);
      for (int64_t e : {3, 21, 39}) p.SetKey(0, e, 5, NAN);
      ASSERT_TRUE(LightningIndexer(p.args, pool_).ok());
      const std::vector<int32_t> row(p.indices.begin(), p.indices.begin() + k);
      if (k == 8) {
        EXPECT_THAT(row, testing::Each(testing::AllOf(testing::Ne(3), testing::Ne(21), testing::Ne(39)))) << Name(keys);
      } else {
        EXPECT_EQ(std::vector<int32_t>(row.begin() + 37, row.end()), (std::vector<int32_t>{3, 21, 39, -1, -1, -1, -1, -1})) << Name(keys);
        EXPECT_TRUE(std::isnan(p.scores[37]) && std::isnan(p.scores[39])) << Name(keys);
      }
    }
  }
}

TEST_P(LightningIndexerTest, ALimitRoundsDownAtEveryBorderOfTheRatio) {
  for (int64_t ratio : {1, 3, 4, 128}) {
    for (int64_t context = 0; context < 2 * ratio + 3; ++context) {
      const int64_t queries = std::min<int64_t>(context + 2, 6);
      IndexerProblem p({"border", {{queries, context}}, 1, 16, 4, 16, ratio, true}, Keys::kF32, 1);
      ASSERT_TRUE(LightningIndexer(p.args, pool_).ok());
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t seen = context - queries + i + 1, want = std::min<int64_t>(4, seen < 0 ? 0 : seen / ratio);
        const int32_t* row = p.args.indices + i * p.args.indices_token_stride;
        EXPECT_EQ(std::count_if(row, row + 4, [](int32_t s) { return s >= 0; }), want) << ratio << " " << context << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LightningIndexerTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(TopKTest, OrderedScoresAreInOrder) {
  const float ascending[] = {NAN, -INFINITY, -3e38f, -1, -1e-45f, 0, 1e-45f, 1, 3e38f, INFINITY};
  for (size_t i = 0; i < std::size(ascending); ++i) {
    const uint32_t ordered = internal::OrderedScore(ascending[i]);
    if (i > 0) {
      EXPECT_LT(internal::OrderedScore(ascending[i - 1]), ordered) << ascending[i];
      EXPECT_EQ(internal::ScoreOfOrdered(ordered), ascending[i]);
    }
  }
  EXPECT_EQ(internal::OrderedScore(-0.0f), internal::OrderedScore(0.0f));
}

TEST(TopKTest, KeepsTheBestOfAnyStream) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t k = 1 + rng() % (round % 3 == 0 ? 3 : 1200), n = rng() % 4000;
    const int shape = rng() % 3;  // random, ascending (the worst case), few values
    std::vector<internal::Candidate> memory(internal::TopK::Capacity(k)), all;
    internal::TopK top = {memory.data(), k};
    for (int64_t i = 0; i < n; ++i) {
      if (i % internal::TopK::kBatch == 0) top.MakeRoom();
      const uint32_t score = shape == 0 ? rng() : shape == 1 ? i : rng() % 4;
      all.push_back(internal::MakeCandidate(score, i));
      top.Push(score, i);
    }
    top.size = internal::CutToBest(top.candidates, top.size, k);
    std::vector<internal::Candidate> scratch(top.size);
    const internal::Candidate* best = internal::SortBestFirst(memory.data(), top.size, scratch.data());
    const std::vector<internal::Candidate> got(best, best + top.size);
    std::sort(all.begin(), all.end(), std::greater<>());
    all.resize(std::min<size_t>(k, all.size()));
    ASSERT_EQ(got, all) << k << " of " << n;
  }
}

TEST(LightningIndexerArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const auto message = [](Keys keys, const std::function<void(IndexerProblem&)>& spoil) {
    IndexerProblem p({"error", {{2, 40}}, 2, 32, 4, 16, 1, true}, keys, 1);
    spoil(p);
    return std::string(LightningIndexer(p.args, tiling::InlineExecutor()).message());
  };
  const auto expect = [&](const std::string& part, const std::function<void(IndexerProblem&)>& spoil, Keys keys = Keys::kI8) {
    EXPECT_THAT(message(keys, spoil), testing::HasSubstr(part));
  };
  expect("num_heads = 0 is not in [1, 1024]", [](auto& p) { p.args.num_heads = 0; });
  expect("head_dim = 24 is not a multiple of 16", [](auto& p) { p.args.head_dim = 24; });
  expect("top_k = 0 is not in", [](auto& p) { p.args.top_k = 0; });
  expect("cmp_ratio = 0 is not positive", [](auto& p) { p.args.cmp_ratio = 0; });
  expect("format = ", [](auto& p) { p.args.format = quant::Format::kE5M2; });
  expect("scales_type is bfloat16", [](auto& p) { p.args.scales_type = DType::kBF16; });
  expect("but format is not set", [](auto& p) { p.args.format = {}; });
  expect("k_scales of quantised keys is null", [](auto& p) { p.args.k_scales = nullptr; });
  expect("kv_lens[0] = -1 is negative", [](auto& p) { p.kv_lens[0] = -1; });
  expect("query_ends[0] = -2 lies before", [](auto& p) { p.query_ends[0] = -2; });
  expect("needs 3 blocks of 16, but block_table has 2 entries", [](auto& p) { p.args.block_table_stride = 2; });
  expect("block_table[0][1] = 6 is not in [0, num_blocks = 6)", [](auto& p) { p.block_table[1] = 6; });
  expect("block_table[0][2] = -1", [](auto& p) { p.block_table[2] = -1; });
  expect("indices is null", [](auto& p) { p.args.indices = nullptr; });
  expect("q, k or weights is null", [](auto& p) { p.args.weights = nullptr; });
}

}  // namespace
}  // namespace jumar::attention
