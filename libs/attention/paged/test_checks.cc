#include "libs/attention/paged/test_checks.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "libs/attention/paged/reference.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"

namespace jumar::attention {

std::vector<Case> Cases() {
  std::vector<Case> cases;
#define JUMAR_PAGED_CASE(name, sequences, ...) cases.push_back({#name, sequences, __VA_ARGS__});
#include "libs/attention/paged/cases.inc"
  return cases;
}

AttentionProblem Make(const Case& c, DType type, uint32_t seed) {
  return AttentionProblem(type, c.sequences, c.heads, c.kv_heads, c.head_dim, c.value_head_dim, c.block_size, c.window_left, c.window_right, seed);
}

void ExpectMatchesReference(AttentionProblem& problem, const std::string& name) {
  const PagedAttentionArgs& args = problem.args;
  for (int64_t s = 0; s < args.num_seqs; ++s) {
    const int64_t begin = s == 0 ? 0 : args.query_ends[s - 1];
    for (int64_t i = 0; i < args.query_ends[s] - begin; ++i) {
      for (int64_t h = 0; h < args.num_heads; ++h) {
        const AttentionReferenceRow want = AttentionReference(args, s, i, h);
        const std::string where = absl::StrCat(name, " ", quant::Name(args.type), " ", tiling::SimdTarget(), " sequence ", s, " query ", i, " head ", h);
        for (int64_t d = 0; d < args.value_head_dim; ++d) {
          const double got = quant::LoadScalar(args.type, problem.Out(begin + i, h), d);
          ASSERT_LE(std::fabs(got - want.out[d]), AttentionErrorBound(args, want, d))
              << where << " element " << d << ": got " << got << ", want " << want.out[d];
        }
        const float lse = args.lse[(begin + i) * args.num_heads + h];
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse, INFINITY) << where;
        } else {
          ASSERT_LE(std::fabs(lse - want.lse), LseErrorBound(args, want)) << where << ": lse " << lse << ", want " << want.lse;
        }
        for (int64_t b = 0; b < 8 * quant::SizeOf(args.type); ++b) {  // the gap behind the head
          ASSERT_EQ(problem.Out(begin + i, h)[args.value_head_dim * quant::SizeOf(args.type) + b], char{-1}) << where;
        }
      }
    }
  }
}

void ExpectChunkIsBitEqual(AttentionProblem& whole, int64_t seq, int64_t first, int64_t count, tiling::Executor& executor, const std::string& name) {
  const PagedAttentionArgs& all = whole.args;
  const int64_t size = quant::SizeOf(all.type), begin = seq == 0 ? 0 : all.query_ends[seq - 1], queries = all.query_ends[seq] - begin;
  PagedAttentionArgs args = all;
  const int64_t kv_len = all.kv_lens[seq] - queries + first + count;
  const int64_t kv_start = std::accumulate(all.kv_lens, all.kv_lens + seq, int64_t{0});
  std::vector<char> out(count * all.out_token_stride * size, char{-1});
  std::vector<float> lse(count * all.num_heads, NAN);
  args.num_seqs = 1;
  args.query_ends = &count;
  args.kv_lens = &kv_len;
  args.q = whole.q.data() + (begin + first) * all.q_token_stride * size;
  args.out = out.data();
  args.lse = lse.data();
  if (all.block_table != nullptr) {
    args.block_table += seq * all.block_table_stride;
  } else {
    args.kv_starts = &kv_start;
  }
  for (KvScales* scales : {&args.k_scales, &args.v_scales}) scales->data += scales->data == nullptr ? 0 : seq * scales->seq_stride;
  ASSERT_TRUE(PagedAttention(args, executor).ok());
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t h = 0; h < all.num_heads; ++h) {
      ASSERT_EQ(std::memcmp(out.data() + (i * all.out_token_stride + h * all.out_head_stride) * size, whole.Out(begin + first + i, h),
                            all.value_head_dim * size),
                0)
          << name << " " << tiling::SimdTarget() << " sequence " << seq << ": query " << first + i << " head " << h << " differs in a chunk of " << count;
      ASSERT_EQ(std::memcmp(&lse[i * all.num_heads + h], &all.lse[(begin + first + i) * all.num_heads + h], sizeof(float)), 0) << name;
    }
  }
}

}  // namespace jumar::attention
