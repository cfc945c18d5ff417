#include "libs/attention/selected/selected_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "libs/attention/paged/reference.h"
#include "libs/attention/paged/test_problem.h"
#include "libs/memory/kv/layouts.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

struct Case {
  std::vector<SequenceShape> sequences;
  int64_t heads, kv_heads, head_dim, value_head_dim, block_size, selected_tokens, top_k;  // block_size 0: contiguous
};

const Case kCases[] = {
    {{{1, 1}}, 2, 1, 64, 64, 16, 1, 4},
    {{{1, 900}, {3, 70}, {1, 3}}, 16, 1, 576, 512, 128, 1, 64},
    {{{20, 20}, {7, 271}, {0, 20}, {3, 3}}, 6, 3, 64, 64, 16, 1, 40},
    {{{5, 300}}, 4, 2, 40, 24, 1, 1, 300},
    {{{12, 7}, {3, 0}, {2, 90}}, 4, 2, 64, 64, 5, 4, 6},
    {{{30, 200}, {1, 65}}, 4, 2, 128, 128, 16, 64, 3},
    {{{9, 130}, {4, 33}}, 4, 2, 64, 64, 0, 1, 50},
    {{{9, 130}, {4, 33}}, 3, 1, 64, 64, 0, 8, 5},
    {{}, 2, 1, 64, 64, 16, 1, 2},
};

// An attention and lists with repetitions, -1 in between, and entries behind the query.
struct Problem {
  Problem(const Case& c, DType type, bool causal, uint32_t seed)
      : shape(c), dense(type, c.sequences, c.heads, c.kv_heads, c.head_dim, c.value_head_dim, c.block_size, -1, causal ? 0 : -1, seed) {
    tokens = dense.query_ends.empty() ? 0 : dense.query_ends.back();
    indices.assign(static_cast<size_t>(c.kv_heads * tokens * c.top_k + 1), -77);
    std::mt19937 rng(seed);
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t begin = s == 0 ? 0 : dense.query_ends[s - 1], entries = c.sequences[s].keys / c.selected_tokens + 2;
      for (int64_t t = begin; t < dense.query_ends[s]; ++t) {
        for (int64_t h = 0; h < c.kv_heads; ++h) {
          for (int64_t i = 0; i < c.top_k; ++i) List(t, h)[i] = rng() % 7 == 0 ? -1 : static_cast<int32_t>(rng() % entries);
          if (t % 11 == 10) std::fill_n(List(t, h), c.top_k, -1);
        }
      }
    }
  }

  int32_t* List(int64_t token, int64_t kv_head) { return indices.data() + (kv_head * tokens + token) * shape.top_k; }
  bool Lists(int64_t token, int64_t kv_head, int64_t key) {
    const int32_t* list = List(token, kv_head);
    return std::find(list, list + shape.top_k, key / shape.selected_tokens) != list + shape.top_k;
  }
  SelectedAttentionArgs Args() const {
    return {.dense = dense.args, .selected_tokens = shape.selected_tokens, .top_k = shape.top_k, .indices = indices.data(),
            .indices_token_stride = shape.top_k, .indices_head_stride = tokens * shape.top_k};
  }

  Case shape;
  AttentionProblem dense;
  int64_t tokens = 0;
  std::vector<int32_t> indices;
};

// Dense attention in float64 with all but the listed keys masked.
void ExpectMatchesReference(Problem& p, const std::string& name) {
  PagedAttentionArgs masked = p.dense.args;
  const int64_t most = p.dense.kv_lens.empty() ? 1 : *std::max_element(p.dense.kv_lens.begin(), p.dense.kv_lens.end());
  std::vector<uint8_t> mask(static_cast<size_t>(most + 1));
  masked.mask = mask.data();
  for (int64_t s = 0; s < masked.num_seqs; ++s) {
    const int64_t begin = s == 0 ? 0 : p.dense.query_ends[s - 1];
    for (int64_t i = 0; i < p.dense.query_ends[s] - begin; ++i) {
      for (int64_t h = 0; h < masked.num_heads; ++h) {
        const int64_t kv_head = h / (masked.num_heads / masked.num_kv_heads);
        for (int64_t j = 0; j < most; ++j) mask[j] = !p.Lists(begin + i, kv_head, j);
        const AttentionReferenceRow want = AttentionReference(masked, s, i, h);
        const std::string where = absl::StrCat(name, " ", quant::Name(masked.type), " ", tiling::SimdTarget(), " sequence ", s, " query ", i, " head ", h);
        for (int64_t d = 0; d < masked.value_head_dim; ++d) {
          const double got = quant::LoadScalar(masked.type, p.dense.Out(begin + i, h), d);
          ASSERT_LE(std::fabs(got - want.out[d]), AttentionErrorBound(masked, want, d)) << where << " element " << d;
        }
        const float lse = p.dense.lse[(begin + i) * masked.num_heads + h];
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse, INFINITY) << where;
        } else {
          ASSERT_LE(std::fabs(lse - want.lse), LseErrorBound(masked, want)) << where;
        }
      }
    }
  }
}

class SelectedAttentionTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{3};
};

TEST_P(SelectedAttentionTest, MatchesFloat64InEveryCase) {
  uint32_t seed = 1;
  for (size_t c = 0; c < std::size(kCases); ++c) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (bool causal : {true, false}) {
        for (const char* kind : {"plain", "rope", "quantised", "sinks"}) {
          Problem p(kCases[c], type, causal, seed++);
          std::vector<float> sinks(static_cast<size_t>(kCases[c].heads), 0.5f);
          if (kind == std::string("rope")) p.dense.SplitRope(kCases[c].head_dim / 4);
          if (kind == std::string("quantised")) p.dense.Quantize(quant::Format::kE4M3, TestScales::kSlot, TestScales::kSlot, seed);
          if (kind == std::string("sinks")) p.dense.args.sinks = sinks.data();
          const absl::Status status = SelectedAttention(p.Args(), pool_);
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(p, absl::StrCat("case ", c, " ", kind, causal ? " causal" : "")));
        }
      }
    }
  }
}

// Every key selected is dense attention, bit for bit.
TEST_P(SelectedAttentionTest, AllKeysAreDenseAttention) {
  for (Case c : kCases) {
    c.selected_tokens = 1, c.top_k = 1000;
    for (bool causal : {true, false}) {
      Problem p(c, DType::kBF16, causal, 5);
      std::mt19937 rng(3);
      for (int64_t row = 0; row < p.tokens * c.kv_heads; ++row) {
        std::iota(&p.indices[row * c.top_k], &p.indices[(row + 1) * c.top_k], 0);
        std::shuffle(&p.indices[row * c.top_k], &p.indices[(row + 1) * c.top_k], rng);
      }
      ASSERT_TRUE(PagedAttention(p.dense.args, pool_).ok());
      const std::vector<char> out = p.dense.out;
      const std::vector<float> lse = p.dense.lse;
      p.dense.PoisonOutput();
      ASSERT_TRUE(SelectedAttention(p.Args(), pool_).ok());
      ASSERT_EQ(p.dense.out, out);
      ASSERT_TRUE(SameBits(p.dense.lse, lse));
    }
  }
}

// Keys of several tokens: each query is one over the first (position + 1) / ratio of them, selected ones or all.
TEST_P(SelectedAttentionTest, KeysOfSeveralTokensRoundDown) {
  for (int64_t ratio : {2, 4, 128}) {
    for (bool all : {true, false}) {
      for (int64_t block_size : {16, 0}) {
        // The cache has a key for each `ratio` of the tokens, and the rest of a group has none yet.
        Problem p({{{5, 60}, {9, 17}, {3, 3}}, 4, 2, 64, 64, block_size, 1, 30}, DType::kBF16, true, 13);
        std::vector<int64_t> tokens;
        for (size_t s = 0; s < 3; ++s) tokens.push_back(p.dense.kv_lens[s] * ratio + static_cast<int64_t>(s) % ratio);
        SelectedAttentionArgs args = p.Args();
        args.ratio = ratio, args.dense.kv_lens = tokens.data();
        if (all) args.all = true, args.top_k = 0, args.indices = nullptr;
        ASSERT_TRUE(SelectedAttention(args, pool_).ok());
        const std::vector<char> got = p.dense.out;
        p.dense.PoisonOutput();
        int64_t token = 0, kv_start = 0;
        for (int64_t s = 0; s < 3; ++s) {
          const int64_t queries = p.shape.sequences[static_cast<size_t>(s)].queries;
          for (int64_t i = 0; i < queries; ++i, ++token) {
            const int64_t start = token, end = token + 1, keys = (tokens[static_cast<size_t>(s)] - queries + i + 1) / ratio;
            SelectedAttentionArgs one = p.Args();
            one.dense.num_seqs = 1, one.dense.query_starts = &start, one.dense.query_ends = &end, one.dense.kv_lens = &keys, one.dense.window_right = -1;
            if (block_size > 0) one.dense.block_table += s * one.dense.block_table_stride;
            if (block_size == 0) one.dense.kv_starts = &kv_start;
            ASSERT_TRUE((all ? PagedAttention(one.dense, pool_) : SelectedAttention(one, pool_)).ok());
          }
          kv_start += p.dense.kv_lens[static_cast<size_t>(s)];
        }
        ASSERT_EQ(p.dense.out, got) << "ratio " << ratio << (all ? " all" : " selected");
      }
    }
  }
}

// Neither the order of a list matters, nor keys that aren't in it, nor the batch and the threads.
TEST_P(SelectedAttentionTest, OnlyTheSetMatters) {
  std::mt19937 rng(3);
  for (const Case& c : kCases) {
    Problem p(c, DType::kBF16, true, 7);
    ASSERT_TRUE(SelectedAttention(p.Args(), pool_).ok());
    const std::vector<char> want = p.dense.out;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t begin = s == 0 ? 0 : p.dense.query_ends[s - 1];
      for (int64_t h = 0; h < c.kv_heads; ++h) {
        for (int64_t j = 0; j < c.sequences[s].keys; ++j) {
          bool listed = false;
          for (int64_t t = begin; t < p.dense.query_ends[s] && !listed; ++t) listed = p.Lists(t, h, j);
          if (listed) continue;
          std::memset(p.dense.K(s, j, h), 0xFF, c.head_dim * 2);
          std::memset(p.dense.V(s, j, h), 0xFF, c.value_head_dim * 2);
        }
      }
    }
    for (int64_t row = 0; row < p.tokens * c.kv_heads; ++row) std::shuffle(&p.indices[row * c.top_k], &p.indices[(row + 1) * c.top_k], rng);
    for (int workers : {1, 2, 5}) {
      tiling::ThreadPool pool(workers);
      p.dense.PoisonOutput();
      ASSERT_TRUE(SelectedAttention(p.Args(), pool).ok());
      ASSERT_EQ(p.dense.out, want) << workers;
    }
    for (size_t s = 0; s < c.sequences.size(); ++s) {  // each query alone, as in decode
      const int64_t begin = s == 0 ? 0 : p.dense.query_ends[s - 1], queries = p.dense.query_ends[s] - begin;
      const int64_t kv_start = std::accumulate(p.dense.kv_lens.begin(), p.dense.kv_lens.begin() + static_cast<int64_t>(s), int64_t{0});
      for (int64_t i = 0; i < queries; ++i) {
        const int64_t start = begin + i, end = start + 1, keys = p.dense.kv_lens[s] - queries + i + 1;
        if (keys < 0) continue;
        SelectedAttentionArgs one = p.Args();
        one.dense.num_seqs = 1, one.dense.query_starts = &start, one.dense.query_ends = &end, one.dense.kv_lens = &keys;
        if (one.dense.block_table != nullptr) {
          one.dense.block_table += static_cast<int64_t>(s) * one.dense.block_table_stride;
        } else {
          one.dense.kv_starts = &kv_start;
        }
        std::memset(p.dense.Out(start, 0), 0xFF, c.value_head_dim * 2);
        ASSERT_TRUE(SelectedAttention(one, tiling::InlineExecutor()).ok());
        ASSERT_EQ(p.dense.out, want) << s << " " << i;
      }
    }
  }
}

// 131,072 tokens, more queries than one call of paged attention takes: what the same keys give when they are gathered.
TEST_P(SelectedAttentionTest, LongContextIsAttentionToTheGatheredKeys) {
  const Case c = {{{600, 131072}}, 2, 1, 16, 16, 128, 1, 2048};
  Problem p(c, DType::kBF16, true, 9);
  ASSERT_TRUE(SelectedAttention(p.Args(), pool_).ok());
  for (int64_t t : {int64_t{0}, int64_t{1}, int64_t{511}, int64_t{512}, int64_t{599}}) {
    std::vector<int32_t> list(p.List(t, 0), p.List(t, 0) + c.top_k);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    std::vector<char> k, v, out(2 * 16 * 2);
    for (int32_t j : list) {
      if (j < 0 || j > 131072 - 600 + t) continue;
      k.insert(k.end(), static_cast<char*>(p.dense.K(0, j, 0)), static_cast<char*>(p.dense.K(0, j, 0)) + 32);
      v.insert(v.end(), static_cast<char*>(p.dense.V(0, j, 0)), static_cast<char*>(p.dense.V(0, j, 0)) + 32);
    }
    PagedAttentionArgs gathered = p.dense.args;
    const int64_t start = t, end = t + 1, keys = static_cast<int64_t>(k.size()) / 32;
    gathered.block_table = nullptr, gathered.query_starts = &start, gathered.query_ends = &end, gathered.kv_lens = &keys;
    gathered.k = k.data(), gathered.v = v.data(), gathered.k_token_stride = gathered.v_token_stride = 16;
    const std::vector<char> want(p.dense.Out(t, 0), p.dense.Out(t, 1) + 32);
    ASSERT_TRUE(PagedAttention(gathered, pool_).ok());
    ASSERT_EQ(std::vector<char>(p.dense.Out(t, 0), p.dense.Out(t, 1) + 32), want) << "query " << t;
  }
}

// Packed rows are attention to the rows that they stand for: each number is code * scale, rounded to bf16.
TEST_P(SelectedAttentionTest, PackedRowsAreTheNumbersTheyStandFor) {
  const memory::kv::PageLayout layouts[] = {memory::kv::Packed656(16), memory::kv::Packed656(16, memory::kv::RowOrder::kScalesThenRope),
                                            memory::kv::Packed640(16), memory::kv::PageSplit584(16)};
  for (const memory::kv::PageLayout& layout : layouts) {
    const auto codec = quant::MakeRowCodec(layout, layout.name == std::string("packed656") ? quant::Rule::kDeepSeek : quant::Rule::kDeepSeekUe8m0);
    ASSERT_TRUE(codec.ok()) << codec.status();
    const int64_t dims = codec->dims, width = dims + codec->rope_dims;
    Problem p({{{1, 90}, {40, 300}}, 8, 1, width, dims, 16, 1, 100}, DType::kBF16, true, 11);
    p.dense.SplitRope(codec->rope_dims);
    const PagedAttentionArgs& a = p.dense.args;
    const int64_t page_bytes = layout.page_bytes[0];
    std::vector<std::byte> pages(static_cast<size_t>(a.num_blocks * page_bytes), std::byte{0xFF});  // NaN codes
    // The bf16 rows become packed ones, and what those stand for.
    for (int64_t s = 0; s < a.num_seqs; ++s) {
      for (int64_t j = 0; j < p.dense.kv_lens[s]; ++j) {
        const int64_t page = p.dense.block_table[s * a.block_table_stride + j / 16], token = j % 16, slot = page * 16 + token;
        std::byte* to = pages.data() + page * page_bytes;
        auto* rope = reinterpret_cast<uint16_t*>(p.dense.k_rope.data()) + slot * a.k_rope_token_stride;
        auto* row = static_cast<uint16_t*>(p.dense.K(s, j, 0));
        quant::EncodeToken(*codec, DType::kBF16, row, rope, to, token);
        std::vector<float> scales(static_cast<size_t>(codec->groups));
        std::vector<uint16_t> values(static_cast<size_t>(dims));
        quant::DecodeToken(*codec, to, token, DType::kBF16, values.data(), scales.data(), nullptr);
        for (int64_t d = 0; d < dims; ++d) {
          const auto code = static_cast<uint8_t>(to[quant::RowCodec::Offset(codec->values, token) + d]);
          quant::StoreScalar(DType::kBF16, static_cast<float>(quant::Decode(codec->format, code)) * scales[d / codec->group()], row, d);
          ASSERT_EQ(row[d], values[d]);
          quant::StoreScalar(DType::kBF16, quant::LoadScalar(DType::kBF16, row, d), p.dense.V(s, j, 0), d);
        }
      }
    }
    ASSERT_TRUE(SelectedAttention(p.Args(), pool_).ok());
    const std::vector<char> want = p.dense.out;
    ASSERT_NO_FATAL_FAILURE(ExpectMatchesReference(p, "packed"));
    SelectedAttentionArgs packed = p.Args();
    packed.dense.k = packed.dense.v = packed.dense.k_rope = nullptr;
    packed.codec = &*codec;
    packed.pages = {.bytes = pages, .num_blocks = a.num_blocks, .page_bytes = page_bytes, .block_stride = page_bytes};
    p.dense.PoisonOutput();
    const absl::Status status = SelectedAttention(packed, pool_);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(p.dense.out, want);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, SelectedAttentionTest, testing::ValuesIn(tiling::SimdTargets()), [](const auto& info) { return info.param; });

TEST(SelectedAttentionArgsTest, ErrorsNameTheFieldTheValueAndTheLimit) {
  const auto expect = [](const std::string& part, const std::function<void(SelectedAttentionArgs&)>& spoil) {
    Problem p({{{2, 40}}, 2, 1, 64, 64, 16, 1, 60}, DType::kBF16, true, 1);
    std::iota(p.indices.begin(), p.indices.end(), 0);
    SelectedAttentionArgs args = p.Args();
    spoil(args);
    const absl::Status status = SelectedAttention(args, tiling::InlineExecutor());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  };
  const std::vector<int32_t> table(9, 77);
  const int64_t starts[] = {INT32_MAX};
  const quant::RowCodec codec = *quant::MakeRowCodec(memory::kv::Packed656(16), quant::Rule::kDeepSeek);
  expect("selected_tokens = 0 is not positive", [](auto& a) { a.selected_tokens = 0; });
  expect("ratio = 0 is not positive", [](auto& a) { a.ratio = 0; });
  expect("all keys are selected, but top_k = 60", [](auto& a) { a.all = true; });
  expect("top_k = -1 is not in", [](auto& a) { a.top_k = -1; });
  expect("top_k = 60 is not in [0, 21", [](auto& a) { a.selected_tokens = 100'000'000; });
  expect("there is a window", [](auto& a) { a.dense.window_left = 3; });
  expect("there is a mask", [](auto& a) { a.dense.mask = reinterpret_cast<const uint8_t*>("x"); });
  expect("there are slots", [&](auto& a) { a.dense.slots = table.data(); });
  expect("indices is null", [](auto& a) { a.indices = nullptr; });
  expect("num_heads = 3 is not a positive multiple of num_kv_heads = 2", [](auto& a) { a.dense.num_heads = 3, a.dense.num_kv_heads = 2; });
  expect("needs 3 blocks of 16, but block_table has 2", [](auto& a) { a.dense.block_table_stride = 2; });
  expect("block_table[0][0] = 77 is not in [0, num_blocks = 6)", [&](auto& a) { a.dense.block_table = table.data(); });
  expect("num_blocks = 1000000000 is not in [0, 134217727]", [](auto& a) { a.dense.num_blocks = 1'000'000'000; });
  expect("kv_starts[0] = 2147483647 is not in", [&](auto& a) { a.dense.block_table = nullptr, a.dense.kv_starts = starts; });
  expect("there are packed rows, and k, v or kv_format", [&](auto& a) { a.codec = &codec; });
  expect("packed rows are for bfloat16 or float16 and one KV head, not float32 and 1", [&](auto& a) { a.codec = &codec, a.dense.k = a.dense.v = nullptr, a.dense.type = DType::kF32; });
  expect("packed rows have 512, 64 and 512", [&](auto& a) { a.codec = &codec, a.dense.k = a.dense.v = nullptr; });
}

}  // namespace
}  // namespace jumar::attention
