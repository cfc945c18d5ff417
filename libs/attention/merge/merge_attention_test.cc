#include "libs/attention/merge/merge_attention.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/attention/paged/paged_attention.h"
#include "libs/attention/paged/reference.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

class MergeAttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

// Attention over runs of the keys, in fp32, merged: attention over all keys. Runs may be empty, or of no query's window.
TEST_P(MergeAttentionTest, AnyDivisionOfTheKeysGivesOneSoftmax) {
  std::mt19937 rng(1);
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int round = 0; round < 12; ++round) {
      const int64_t keys = 1 + static_cast<int64_t>(rng() % 300), queries = 1 + static_cast<int64_t>(rng() % 5), heads = 4, dim = round % 2 ? 64 : 43;
      AttentionProblem p(type, {{queries, keys}}, heads, 2, 64, dim, 0, -1, -1, 100 + round);
      const std::vector<float> sinks = {0.5f, -INFINITY, 9.0f, -2.0f};
      const bool with_sinks = round % 3 == 0;
      const size_t count = 1 + rng() % 6;
      std::vector<std::vector<float>> outs(count), lses(count);
      std::vector<AttentionPart> parts;
      int64_t begin = 0;
      for (size_t i = 0; i < count; ++i) {
        const int64_t end = i + 1 == count ? keys : begin + static_cast<int64_t>(rng() % static_cast<uint64_t>(keys - begin + 1));
        outs[i].assign(static_cast<size_t>(queries * heads * dim), NAN), lses[i].assign(static_cast<size_t>(queries * heads), NAN);
        PagedAttentionArgs args = p.args;
        const int64_t length = end - begin;
        args.kv_lens = &length, args.kv_starts = &begin;
        args.out_type = DType::kF32;
        args.out = outs[i].data(), args.out_token_stride = heads * dim, args.out_head_stride = dim;
        args.lse = lses[i].data(), args.lse_token_stride = heads;
        ASSERT_TRUE(PagedAttention(args, pool_).ok());
        if (length == 0) std::fill(outs[i].begin(), outs[i].end(), NAN);  // not read
        parts.push_back({outs[i].data(), heads * dim, dim, lses[i].data(), heads, 1});
        begin = end;
      }
      MergeAttentionArgs merge = {.out_type = type, .num_tokens = queries, .num_heads = heads, .head_dim = dim, .parts = parts};
      merge.out = p.out.data(), merge.out_token_stride = p.args.out_token_stride, merge.out_head_stride = p.args.out_head_stride;
      merge.lse = p.lse.data(), merge.lse_token_stride = heads, merge.lse_head_stride = 1;
      if (with_sinks) merge.sinks = p.args.sinks = sinks.data();
      ASSERT_TRUE(MergeAttention(merge, pool_).ok());
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t h = 0; h < heads; ++h) {
          // Twice what a single call may be off: each part is, and the weights are.
          const AttentionReferenceRow want = AttentionReference(p.args, 0, i, h);
          for (int64_t d = 0; d < dim; ++d) {
            ASSERT_LE(std::fabs(quant::LoadScalar(type, p.Out(i, h), d) - want.out[d]), 2 * AttentionErrorBound(p.args, want, d));
          }
          ASSERT_LE(std::fabs(p.lse[i * heads + h] - want.lse), 2 * LseErrorBound(p.args, want));
        }
      }
      const std::vector<char> out = p.out;
      for (int workers : {1, 2, 5}) {
        tiling::ThreadPool pool(workers);
        p.PoisonOutput();
        ASSERT_TRUE(MergeAttention(merge, pool).ok());
        ASSERT_EQ(p.out, out);
      }
    }
  }
}

TEST_P(MergeAttentionTest, ARowWithoutKeysIsZero) {
  const std::vector<float> nan(5, NAN), infinity(1, INFINITY), sinks = {1.5f};
  float out[5], lse = 0;
  const AttentionPart part = {nan.data(), 5, 5, infinity.data(), 1, 1};
  MergeAttentionArgs args = {.num_tokens = 1, .num_heads = 1, .head_dim = 5, .parts = {&part, 1}, .out = out, .lse = &lse};
  ASSERT_TRUE(MergeAttention(args, pool_).ok());
  EXPECT_EQ(lse, INFINITY);
  for (float value : out) EXPECT_EQ(value, 0.0f);
  args.sinks = sinks.data();
  ASSERT_TRUE(MergeAttention(args, pool_).ok());
  EXPECT_EQ(lse, 1.5f);
  for (float value : out) EXPECT_EQ(value, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, MergeAttentionTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(MergeAttentionArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  float number = 0;
  const AttentionPart good = {&number, 1, 1, &number, 1, 1}, bad = {&number, 1, 1, nullptr, 1, 1};
  const auto expect = [&](const std::string& part, const std::function<void(MergeAttentionArgs&)>& spoil) {
    MergeAttentionArgs args = {.num_tokens = 1, .num_heads = 1, .head_dim = 1, .parts = {&good, 1}, .out = &number};
    spoil(args);
    const absl::Status status = MergeAttention(args, tiling::InlineExecutor());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  };
  expect("num_heads = -1 is negative", [](auto& a) { a.num_heads = -1; });
  expect("is too large", [](auto& a) { a.num_tokens = INT64_MAX, a.num_heads = 2; });
  expect("out is null", [](auto& a) { a.out = nullptr; });
  expect("parts[0] has no out or no lse", [&](auto& a) { a.parts = {&bad, 1}; });
}

}  // namespace
}  // namespace jumar::attention
