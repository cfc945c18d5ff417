#include "libs/attention/paged/paged_attention.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "libs/attention/paged/test_checks.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

const DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

class PagedAttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(PagedAttentionTest, MatchesFloat64InEveryCase) {
  uint32_t seed = 1;
  for (const Case& c : Cases()) {
    for (DType type : kTypes) {
      AttentionProblem problem = Make(c, type, seed++);
      const absl::Status status = PagedAttention(problem.args, pool_);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, c.name));
    }
  }
}

// cached = uncached and chunked = whole, bit for bit: a query's result does not depend on which chunk computed it.
TEST_P(PagedAttentionTest, ARowIsBitEqualInDecodeChunkedAndWholePrefill) {
  tiling::ThreadPool two(2);
  std::mt19937 rng(5);
  for (const Case& c : Cases()) {
    if (c.window_right != 0) continue;  // only then does a query not see the keys of later chunks
    for (DType type : kTypes) {
      AttentionProblem whole = Make(c, type, 77);
      ASSERT_TRUE(PagedAttention(whole.args, pool_).ok());
      for (size_t s = 0; s < c.sequences.size(); ++s) {
        const int64_t queries = c.sequences[s].queries;
        if (queries > c.sequences[s].keys) continue;
        for (int64_t first = 0; first < queries;) {
          const int64_t count = std::min<int64_t>(queries - first, first % 3 == 0 ? 1 : 1 + rng() % 24);
          tiling::Executor& executor = count % 2 ? tiling::InlineExecutor() : static_cast<tiling::Executor&>(two);
          ASSERT_NO_FATAL_FAILURE(ExpectChunkIsBitEqual(whole, s, first, count, executor, c.name));
          first += count;
        }
        if (queries == 0) continue;
        ASSERT_NO_FATAL_FAILURE(ExpectChunkIsBitEqual(whole, s, 0, queries, tiling::InlineExecutor(), c.name));
      }
    }
  }
}

TEST_P(PagedAttentionTest, LongContextIsBitEqualHoweverItIsSplit) {
  const Case c = {"long", {{1, 5000}, {1, 40}, {6, 3000}}, 6, 2, 64, 64, 128, -1, 0};
  for (DType type : kTypes) {
    AttentionProblem inline_run = Make(c, type, 3);
    ASSERT_TRUE(PagedAttention(inline_run.args, tiling::InlineExecutor()).ok());
    for (int workers : {2, 3, 7}) {
      tiling::ThreadPool pool(workers);
      AttentionProblem parallel = Make(c, type, 3);
      ASSERT_TRUE(PagedAttention(parallel.args, pool).ok());
      EXPECT_EQ(parallel.out, inline_run.out) << workers << " workers";
      EXPECT_TRUE(SameBits(parallel.lse, inline_run.lse));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(inline_run, c.name));
  }
}

// A score is one chain of products, wherever its operands lie; bf16 is multiplied in pairs, if both parts have whole ones (UsesPairs).
TEST_P(PagedAttentionTest, KeysInTwoPartsGiveTheSameBits) {
  for (const Case& c : Cases()) {
    for (DType type : kTypes) {
      AttentionProblem whole = Make(c, type, 11);
      ASSERT_TRUE(PagedAttention(whole.args, pool_).ok());
      for (int64_t rope : {int64_t{1}, c.head_dim / 3, c.head_dim / 2, c.head_dim - 1}) {
        if (rope < 1 || rope >= c.head_dim) continue;
        AttentionProblem parts = Make(c, type, 11);
        parts.SplitRope(rope);
        const absl::Status status = PagedAttention(parts.args, pool_);
        ASSERT_TRUE(status.ok()) << status;
        const bool same = type != DType::kBF16 || c.head_dim % 8 != 0 || rope % 8 == 0;
        if (same) {
          ASSERT_EQ(parts.out, whole.out) << c.name << " " << quant::Name(type) << ", " << rope << " of " << c.head_dim;
          ASSERT_TRUE(SameBits(parts.lse, whole.lse));
        }
        if (rope == c.head_dim / 3 || !same) {
          ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(parts, c.name));
        }
      }
    }
  }
}

// The same keys, one by one, as the block table gives them: the same bits, scales of a quantised cache included.
TEST_P(PagedAttentionTest, SlotsGiveTheSameBitsAsTheirBlockTable) {
  for (const Case& c : Cases()) {
    if (c.block_size == 0) continue;
    for (bool quantized : {false, true}) {
      AttentionProblem paged = Make(c, DType::kBF16, 31);
      if (quantized) paged.Quantize(quant::Format::kE4M3, TestScales::kSlot, TestScales::kSlot, 4);
      ASSERT_TRUE(PagedAttention(paged.args, pool_).ok());
      const std::vector<char> out = paged.out;
      const std::vector<float> lse = paged.lse;
      const int64_t stride = paged.args.block_table_stride * c.block_size;
      std::vector<int32_t> slots(paged.args.num_seqs * stride + 1, -1);
      for (int64_t s = 0; s < paged.args.num_seqs; ++s) {
        for (int64_t j = 0; j < paged.kv_lens[s]; ++j) {
          slots[s * stride + j] = paged.block_table[s * paged.args.block_table_stride + j / c.block_size] * c.block_size + j % c.block_size;
        }
      }
      paged.args.block_table = nullptr, paged.args.slots = slots.data(), paged.args.slots_stride = stride;
      paged.PoisonOutput();
      const absl::Status status = PagedAttention(paged.args, pool_);
      ASSERT_TRUE(status.ok()) << c.name << ": " << status;
      ASSERT_EQ(paged.out, out) << c.name;
      ASSERT_TRUE(SameBits(paged.lse, lse)) << c.name;
    }
  }
}

// Caps below, at and far above the scores; sinks below and above every score, and none; in every case of the registry.
TEST_P(PagedAttentionTest, SoftCapAndSinksMatchFloat64) {
  uint32_t seed = 500;
  for (const Case& c : Cases()) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> sinks(c.heads);
    for (size_t h = 0; h < sinks.size(); ++h) sinks[h] = h % 5 == 0 ? -INFINITY : h % 5 == 1 ? 120.0f : h % 5 == 2 ? -90.0f : normal(rng);
    for (DType type : kTypes) {
      for (float cap : {0.0f, 0.5f, 30.0f, 1e6f}) {
        AttentionProblem problem = Make(c, type, seed++);
        problem.args.scale *= 4;
        problem.args.soft_cap = cap;
        if (cap != 0.5f) problem.args.sinks = sinks.data();
        const absl::Status status = PagedAttention(problem.args, pool_);
        ASSERT_TRUE(status.ok()) << c.name << ": " << status;
        ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, absl::StrCat(c.name, " cap ", cap)));
      }
    }
  }
}

// A sink is one more key whose value is zero: softmax over it gives the same row.
TEST_P(PagedAttentionTest, ASinkIsOneMoreKeyWithoutAValue) {
  AttentionProblem with_key(DType::kF32, {{5, 300}, {1, 33}}, 4, 2, 64, 64, 16, -1, -1, 21);
  std::vector<float> sinks(4, 1.25f);
  for (int64_t s = 0; s < 2; ++s) {
    const int64_t last = (s == 0 ? 300 : 33) - 1;
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t d = 0; d < 64; ++d) {
        quant::StoreScalar(DType::kF32, 0.0f, with_key.V(s, last, h), d);
        quant::StoreScalar(DType::kF32, d == 0 ? 1.0f : 0.0f, with_key.K(s, last, h), d);
      }
    }
  }
  with_key.args.scale = 1.0f;
  auto* q = reinterpret_cast<float*>(with_key.q.data());
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t h = 0; h < 4; ++h) q[t * with_key.args.q_token_stride + h * with_key.args.q_head_stride] = 1.25f;
  }
  ASSERT_TRUE(PagedAttention(with_key.args, pool_).ok());
  AttentionProblem with_sink = with_key;
  with_sink.args.q = with_sink.q.data(), with_sink.args.out = with_sink.out.data(), with_sink.args.lse = with_sink.lse.data();
  const std::vector<int64_t> lens = {299, 32};
  with_sink.args.kv_lens = lens.data();
  with_sink.args.sinks = sinks.data();
  with_sink.PoisonOutput();
  ASSERT_TRUE(PagedAttention(with_sink.args, pool_).ok());
  for (int64_t t = 0; t < 6; ++t) {
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t d = 0; d < 64; ++d) {
        ASSERT_NEAR(quant::LoadScalar(DType::kF32, with_sink.Out(t, h), d), quant::LoadScalar(DType::kF32, with_key.Out(t, h), d), 1e-6);
      }
      ASSERT_NEAR(with_sink.lse[t * 4 + h], with_key.lse[t * 4 + h], 2e-6);
    }
  }
}

TEST_P(PagedAttentionTest, ExplicitMaskHidesKeysEvenIfTheyAreNan) {
  for (DType type : kTypes) {
    for (int64_t window_right : {-1, 0}) {
      AttentionProblem problem(type, {{20, 70}, {1, 300}}, 4, 2, 64, 64, 16, -1, window_right, 9);
      // Per sequence and query: random holes; the keys 40 to 49 of sequence 0 are hidden from all and NaN; query 3 sees nothing.
      const int64_t columns = 300;
      std::vector<uint8_t> mask(2 * 20 * columns, 0);
      std::mt19937 rng(1);
      for (int64_t s = 0; s < 2; ++s) {
        for (int64_t i = 0; i < 20; ++i) {
          for (int64_t j = 0; j < columns; ++j) {
            const bool poisoned = s == 0 && j >= 40 && j < 50;
            mask[(s * 20 + i) * columns + j] = poisoned || (s == 0 && i == 3) || (i % 2 ? rng() % 3 == 0 : j > 30 + i) ? 1 + rng() % 255 : 0;
          }
        }
      }
      for (int64_t j = 40; j < 50; ++j) {
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t d = 0; d < 64; ++d) {
            quant::StoreScalar(type, NAN, problem.K(0, j, h), d);
            quant::StoreScalar(type, NAN, problem.V(0, j, h), d);
          }
        }
      }
      problem.args.mask = mask.data();
      problem.args.mask_seq_stride = 20 * columns;
      problem.args.mask_query_stride = columns;
      ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, "mask"));
      EXPECT_EQ(problem.lse[3 * 4], INFINITY);
    }
  }
}

TEST_P(PagedAttentionTest, ARowWithoutKeysIsZeroWhateverTheScratchHeldBefore) {
  for (DType type : kTypes) {
    AttentionProblem problem(type, {{1, 70}, {2, 600}}, 4, 2, 64, 64, 16, -1, 0, 9);
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t j = 0; j < (s == 0 ? 70 : 600); ++j) {
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t d = 0; d < 64; ++d) quant::StoreScalar(type, NAN, problem.V(s, j, h), d);
        }
      }
    }
    // On the caller's thread alone, so that both calls use the same scratch memory.
    ASSERT_TRUE(PagedAttention(problem.args, tiling::InlineExecutor()).ok());
    const std::vector<uint8_t> hidden(2 * 600, 1);
    problem.args.mask = hidden.data();
    problem.args.mask_query_stride = 600;
    ASSERT_TRUE(PagedAttention(problem.args, tiling::InlineExecutor()).ok());
    for (int64_t token = 0; token < 3; ++token) {
      for (int64_t head = 0; head < 4; ++head) {
        for (int64_t d = 0; d < 64; ++d) {
          ASSERT_EQ(quant::LoadScalar(type, problem.Out(token, head), d), 0.0) << "token " << token << " head " << head << " element " << d;
        }
      }
    }
  }
}

TEST_P(PagedAttentionTest, MaskPerHead) {
  AttentionProblem problem(DType::kF32, {{5, 40}}, 4, 2, 64, 64, 16, -1, -1, 9);
  std::vector<uint8_t> mask(4 * 5 * 40);
  for (size_t e = 0; e < mask.size(); ++e) mask[e] = e * 7 % 5 == 0;
  problem.args.mask = mask.data();
  problem.args.mask_head_stride = 5 * 40;
  problem.args.mask_query_stride = 40;
  ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, "mask per head"));
}

TEST_P(PagedAttentionTest, ANanKeyReachesOnlyTheQueriesThatSeeIt) {
  for (DType type : kTypes) {
    AttentionProblem problem(type, {{40, 90}}, 4, 2, 64, 64, 16, -1, 0, 2);
    for (int64_t d = 0; d < 64; ++d) quant::StoreScalar(type, NAN, problem.V(0, 70, 0), d);  // query 20 is at position 70
    ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t h = 0; h < 4; ++h) {
        EXPECT_EQ(std::isnan(quant::LoadScalar(type, problem.Out(i, h), 5)), i >= 20 && h < 2) << "query " << i << " head " << h;
      }
    }
  }
}

TEST_P(PagedAttentionTest, PermutingBatchAndBlocksChangesNothing) {
  const std::vector<SequenceShape> shapes = {{1, 100}, {7, 50}, {1, 270}};
  AttentionProblem problem(DType::kBF16, shapes, 4, 2, 64, 64, 16, -1, 0, 4);
  ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
  // Sequence order reversed through query_starts: the same tokens in the same places.
  const std::vector<int64_t> starts = {8, 1, 0}, ends = {9, 8, 1}, lens = {270, 50, 100};
  std::vector<int32_t> table;
  for (int64_t s : {2, 1, 0}) {
    table.insert(table.end(), problem.block_table.begin() + s * problem.args.block_table_stride,
                 problem.block_table.begin() + (s + 1) * problem.args.block_table_stride);
  }
  PagedAttentionArgs args = problem.args;
  args.query_starts = starts.data();
  args.query_ends = ends.data();
  args.kv_lens = lens.data();
  args.block_table = table.data();
  const std::vector<char> want = problem.out;
  problem.PoisonOutput();
  ASSERT_TRUE(PagedAttention(args, pool_).ok());
  EXPECT_EQ(problem.out, want);
}

TEST_P(PagedAttentionTest, HugeScoresDoNotOverflow) {
  AttentionProblem problem(DType::kF32, {{3, 300}}, 2, 1, 64, 64, 16, -1, 0, 8);
  problem.args.scale = 40;  // scores of several hundred: exp overflows without the maximum
  ASSERT_TRUE(PagedAttention(problem.args, pool_).ok());
  ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(problem, "huge scores"));
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, PagedAttentionTest, testing::ValuesIn(tiling::SimdTargets()),
                         [](const auto& info) { return info.param; });

TEST(PagedAttentionArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  AttentionProblem problem(DType::kF32, {{2, 40}, {1, 20}}, 4, 2, 64, 64, 16, -1, 0, 1);
  const auto message = [&](const std::function<void(PagedAttentionArgs&)>& spoil) {
    PagedAttentionArgs args = problem.args;
    spoil(args);
    const absl::Status status = PagedAttention(args, tiling::InlineExecutor());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
  };
  EXPECT_TRUE(has(message([](auto& a) { a.num_heads = 5; }), "num_heads = 5 is not a positive multiple of num_kv_heads = 2"));
  EXPECT_TRUE(has(message([](auto& a) { a.head_dim = 0; }), "head_dim = 0"));
  EXPECT_TRUE(has(message([](auto& a) { a.value_head_dim = 2000; }), "value_head_dim = 2000"));
  EXPECT_TRUE(has(message([](auto& a) { a.rope_dim = 1000; }), "rope_dim = 1000 is not in [0, 1024 - head_dim]"));
  EXPECT_TRUE(has(message([](auto& a) { a.rope_dim = 8; }), "q_rope is null"));
  EXPECT_TRUE(has(message([](auto& a) { a.rope_dim = 8, a.q_rope = a.q; }), "k_rope is null"));
  EXPECT_TRUE(has(message([](auto& a) { a.rope_dim = 8, a.kv_format = quant::Format::kI8; }), "a quantised cache has no part of rope_dim = 8"));
  EXPECT_TRUE(has(message([](auto& a) { a.scale = NAN; }), "scale"));
  const std::vector<int32_t> slots(80, 5);
  EXPECT_TRUE(has(message([&](auto& a) { a.slots = slots.data(); }), "there are slots and a block_table"));
  EXPECT_TRUE(has(message([&](auto& a) { a.block_table = nullptr, a.slots = slots.data(), a.slots_stride = 39; }), "kv_lens[0] = 40, but slots has 39 entries a row"));
  EXPECT_TRUE(has(message([&](auto& a) { a.block_table = nullptr, a.slots = slots.data(), a.slots_stride = 40, a.num_blocks = 0; }),
                  "slots[0][0] = 5 is not in the 0 blocks of 16"));
  EXPECT_TRUE(has(message([](auto& a) { a.soft_cap = -1; }), "soft_cap = -1 is not a finite number from 0 on"));
  EXPECT_TRUE(has(message([](auto& a) { a.soft_cap = INFINITY; }), "soft_cap = inf"));
  EXPECT_TRUE(has(message([](auto& a) { a.block_size = 0; }), "block_size = 0"));
  EXPECT_TRUE(has(message([](auto& a) { a.num_blocks = 1; }), "is not in [0, num_blocks = 1)"));
  EXPECT_TRUE(has(message([](auto& a) { a.block_table_stride = 2; }), "kv_lens[0] = 40 needs 3 blocks of 16, but block_table has 2"));
  EXPECT_TRUE(has(message([](auto& a) { a.k = nullptr; }), "k or v is null"));
  EXPECT_TRUE(has(message([](auto& a) { a.q = nullptr; }), "q or out is null"));
  const int64_t ends[2] = {2, 1}, lens[2] = {40, -3};
  EXPECT_TRUE(has(message([&](auto& a) { a.query_ends = ends; }), "query_ends[1] = 1 lies before the sequence's first query 2"));
  EXPECT_TRUE(has(message([&](auto& a) { a.kv_lens = lens; }), "kv_lens[1] = -3 is negative"));
}

TEST(PagedAttentionArgsTest, BlocksLeftOfTheWindowMayBeFreed) {
  AttentionProblem problem(DType::kF32, {{1, 100}}, 2, 1, 64, 64, 16, 10, 0, 1);
  ASSERT_TRUE(PagedAttention(problem.args, tiling::InlineExecutor()).ok());
  const std::vector<char> want = problem.out;
  for (int i = 0; i < 5; ++i) problem.block_table[i] = -1;  // the window starts at key 89, in block 5
  problem.PoisonOutput();
  const absl::Status status = PagedAttention(problem.args, tiling::InlineExecutor());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(problem.out, want);
}

}  // namespace
}  // namespace jumar::attention
