#include "libs/attention/compressor/compressor.h"

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/attention/compressor/reference.h"
#include "libs/attention/compressor/test_problem.h"
#include "libs/quant/scalar.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::attention {
namespace {

using Shape = CompressorProblem::Shape;

class CompressorTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(tiling::UseSimdTarget(GetParam()).ok()); }
  void TearDown() override { ASSERT_TRUE(tiling::UseSimdTarget("").ok()); }
  tiling::ThreadPool pool_{2};
};

std::vector<Chunk> WholeSequences(const CompressorProblem& problem) {
  std::vector<Chunk> chunks;
  for (size_t s = 0; s < problem.lengths.size(); ++s) chunks.push_back({static_cast<int64_t>(s), 0, problem.lengths[s]});
  return chunks;
}

// The sequences in random chunks, several of them in a call or not; `after_call` sees the chunks of each.
template <typename AfterCall>
void RunInChunks(CompressorProblem& problem, uint32_t seed, int64_t longest, tiling::Executor& executor, std::vector<std::vector<char>>& entries,
                 const AfterCall& after_call) {
  std::mt19937 rng(seed);
  std::vector<int64_t> done(problem.lengths.size());
  entries.assign(problem.lengths.size(), {});
  for (bool more = true; more;) {
    more = false;
    std::vector<Chunk> chunks;
    for (size_t s = 0; s < done.size(); ++s) {
      const int64_t left = problem.lengths[s] - done[s];
      const int64_t tokens = std::min<int64_t>(left, static_cast<int64_t>(rng() % static_cast<uint32_t>(longest + 1)));
      if (left > 0) more = true;
      if (left > 0 && rng() % 4 != 0) chunks.push_back({static_cast<int64_t>(s), done[s], tokens});
    }
    std::shuffle(chunks.begin(), chunks.end(), rng);
    std::vector<char> out;
    const auto status = problem.Run(chunks, executor, out);
    ASSERT_TRUE(status.ok()) << status;
    size_t at = 0;
    for (const Chunk& chunk : chunks) {
      const size_t bytes = static_cast<size_t>(CompletedGroups(chunk.start, chunk.tokens, problem.shape.ratio) * problem.out_bytes());
      entries[static_cast<size_t>(chunk.seq)].insert(entries[static_cast<size_t>(chunk.seq)].end(), out.begin() + at, out.begin() + at + bytes);
      at += bytes;
      done[static_cast<size_t>(chunk.seq)] += chunk.tokens;
    }
    ASSERT_EQ(at, out.size());
    after_call(chunks);
  }
}

std::vector<char> Joined(const std::vector<std::vector<char>>& parts) {
  std::vector<char> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Case {
  const char* name;
  Shape shape;
  std::vector<int64_t> lengths;
};

std::vector<Case> Cases(DType type) {
  std::vector<Case> cases;
#define JUMAR_COMPRESSOR_CASE(name, head_dim, ratio, overlap, rope_dim, state_block_size, ...) \
  cases.push_back({#name, {type, head_dim, ratio, overlap, rope_dim, state_block_size}, {__VA_ARGS__}});
#include "libs/attention/compressor/cases.inc"
  return cases;
}

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

TEST_P(CompressorTest, MatchesFloat64) {
  for (DType type : kTypes) {
    for (const Case& c : Cases(type)) {
      SCOPED_TRACE(std::string(c.name) + " " + quant::Name(type));
      CompressorProblem problem(c.shape, c.lengths, 1);
      std::vector<char> entries;
      const auto status = problem.Run(WholeSequences(problem), pool_, entries);
      ASSERT_TRUE(status.ok()) << status;
      int64_t row = 0;
      for (size_t s = 0; s < c.lengths.size(); ++s) {
        for (int64_t g = 0; g < c.lengths[s] / c.shape.ratio; ++g, ++row) {
          const CompressedReference want = CompressorReference(problem.args, problem.kv[s].data(), problem.gate[s].data(), g);
          for (int64_t d = 0; d < c.shape.head_dim; ++d) {
            const double got = quant::LoadScalar(type, entries.data(), row * c.shape.head_dim + d);
            ASSERT_NEAR(got, want.out[d], want.bound[d]) << "sequence " << s << ", group " << g << ", feature " << d;
          }
        }
      }
      EXPECT_EQ(entries.size(), static_cast<size_t>(row * problem.out_bytes()));
    }
  }
}

// Chunks of any length, one token too, borders within a window, in any order of the batch and with any number of threads: the same bits. And
// no more than the window before a chunk is ever read: the rest of the state was given up.
TEST_P(CompressorTest, ChunkedEqualsWhole) {
  for (DType type : {DType::kBF16, DType::kF32}) {
    for (const Case& c : Cases(type)) {
      for (int64_t longest : {int64_t{1}, int64_t{5}, 2 * c.shape.ratio + 3}) {
        SCOPED_TRACE(std::string(c.name) + ", chunks to " + std::to_string(longest));
        CompressorProblem problem(c.shape, c.lengths, 2);
        std::vector<char> whole;
        ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, whole).ok());
        problem.ForgetState();
        std::vector<std::vector<char>> entries;
        RunInChunks(problem, 7, longest, longest == 5 ? static_cast<tiling::Executor&>(pool_) : tiling::InlineExecutor(), entries, [&](const std::vector<Chunk>& chunks) {
          for (const Chunk& chunk : chunks) {
            const int64_t window = (chunk.start + chunk.tokens) / c.shape.ratio * c.shape.ratio - (c.shape.overlap ? c.shape.ratio : 0);
            for (int64_t p = 0; (p / c.shape.state_block_size + 1) * c.shape.state_block_size <= window; p += c.shape.state_block_size) problem.FreeState(chunk.seq, p);
          }
        });
        if (HasFatalFailure()) return;
        ASSERT_TRUE(Joined(entries) == whole);
      }
    }
  }
}

// Blocks that lie elsewhere, a batch in another order: the same entries.
TEST_P(CompressorTest, BlocksAndBatchMayBePermuted) {
  const Shape shape = {DType::kBF16, 64, 4, true, 32, 8};
  const std::vector<int64_t> lengths = {13, 4, 29, 0, 3};
  CompressorProblem problem(shape, lengths, 3);
  std::vector<char> first;
  ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, first).ok());
  for (int32_t& block : problem.block_table) {
    if (block >= 0) block = static_cast<int32_t>(problem.args.num_state_blocks) - 1 - block;
  }
  problem.ForgetState();
  std::vector<char> second;
  ASSERT_TRUE(problem.Run(WholeSequences(problem), tiling::InlineExecutor(), second).ok());
  EXPECT_TRUE(first == second);
  std::vector<char> part, backwards;
  for (int64_t seq : {4, 3, 2, 1, 0}) {
    ASSERT_TRUE(problem.Run(std::vector<Chunk>{{seq, 0, lengths[static_cast<size_t>(seq)]}}, pool_, part).ok());
    backwards.insert(backwards.begin(), part.begin(), part.end());
  }
  EXPECT_TRUE(first == backwards);
}

// The state of a token is kv and gate + ape in fp32, and nothing else is written.
TEST_P(CompressorTest, StateIsWhatItsLayoutSays) {
  const Shape shape = {DType::kF16, 20, 4, true, 4, 5};
  CompressorProblem problem(shape, {7}, 4);
  std::vector<char> entries;
  ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, entries).ok());
  const int64_t width = problem.width();
  std::vector<float> want(problem.state.size(), NAN);
  for (int64_t p = 0; p < 7; ++p) {
    float* row = want.data() + problem.block_table[static_cast<size_t>(p / 5)] * problem.args.state_block_stride + p % 5 * 2 * width;
    for (int64_t d = 0; d < width; ++d) {
      row[d] = static_cast<float>(quant::LoadScalar(DType::kF16, problem.kv[0].data(), p * width + d));
      row[width + d] = static_cast<float>(quant::LoadScalar(DType::kF16, problem.gate[0].data(), p * width + d)) + problem.args.ape[p % 4 * width + d];
    }
  }
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(want[i] == problem.state[i] || (std::isnan(want[i]) && std::isnan(problem.state[i]))) << i;
  }
}

TEST_P(CompressorTest, EqualScoresGiveTheMean) {
  const Shape shape = {DType::kF32, 16, 4, false, 0, 4};
  CompressorProblem problem(shape, {4}, 5);
  float* kv = reinterpret_cast<float*>(problem.kv[0].data());
  float* gate = reinterpret_cast<float*>(problem.gate[0].data());
  for (int64_t i = 0; i < 64; ++i) gate[i] = 2.0f - problem.args.ape[i], kv[i] = static_cast<float>(i / 16 + 1);
  std::vector<float> ones(16, 1.0f);
  problem.args.norm_weight = ones.data();
  problem.args.epsilon = 0;
  std::vector<char> entries;
  ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, entries).ok());
  for (int64_t d = 0; d < 16; ++d) EXPECT_NEAR(reinterpret_cast<const float*>(entries.data())[d], 1.0f, 1e-6f);
}

TEST(CompletedGroupsTest, CountsBordersThatAChunkPasses) {
  for (int64_t ratio : {1, 4, 128}) {
    for (int64_t start = 0; start < 2 * ratio + 2; ++start) {
      int64_t passed = 0;
      for (int64_t tokens = 0; tokens < 2 * ratio + 2; ++tokens) {
        EXPECT_EQ(CompletedGroups(start, tokens, ratio), passed);
        if ((start + tokens + 1) % ratio == 0) ++passed;
      }
    }
  }
}

TEST(CompressorErrorsTest, NameFieldValueAndLimit) {
  tiling::Executor& here = tiling::InlineExecutor();
  const auto refuses = [&](const char* what, const auto& change, std::vector<Chunk> chunks = {{0, 0, 9}}) {
    CompressorProblem problem({DType::kF32, 16, 4, true, 4, 4}, {9, 9}, 6);
    change(problem);
    std::vector<char> out;
    const auto status = problem.Run(chunks, here, out);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(what), std::string::npos) << status;
    EXPECT_TRUE(std::isnan(problem.state[0]));
  };
  refuses("head_dim = 0 is not in [1, 1024]", [](auto& p) { p.args.head_dim = 0; });
  refuses("ratio = 2000 is not in [1, 1024]", [](auto& p) { p.args.ratio = 2000; });
  refuses("rope_dim = 3 is odd", [](auto& p) { p.args.rope_dim = 3; });
  refuses("rope_dim = 18 is odd, or not in [0, head_dim = 16]", [](auto& p) { p.args.rope_dim = 18; });
  refuses("epsilon = nan", [](auto& p) { p.args.epsilon = NAN; });
  refuses("state_block_size = 0", [](auto& p) { p.args.state_block_size = 0; });
  refuses("state_block_stride = 255", [](auto& p) { p.args.state_block_stride = 255; });
  refuses("state_block_table[0][1] = 99 is not in [0, num_state_blocks = 8)", [](auto& p) { p.block_table[1] = 99; });
  refuses("state_block_table[0][0] = -1 is not in [0, num_state_blocks = 8), but the state of earlier tokens is needed",
          [](auto& p) { p.block_table[0] = -1; }, {{0, 5, 4}});
  refuses("needs block 2 of its state, but state_block_table has 2 entries", [](auto& p) { p.args.state_table_stride = 2; });
  refuses("position 4 of an entry of sequence 0 is not in the tables of table_rows = 4", [](auto& p) { p.args.table_rows = 4; });
}

TEST(CompressorErrorsTest, NameTheSequence) {
  const float row[8] = {};
  float state[64];
  const int32_t table[2] = {0, 0};
  int64_t ends[2] = {2, 0}, starts[2] = {0, 0};
  const CompressorArgs args = {.num_seqs = 2, .head_dim = 4, .query_ends = ends, .starts = starts, .kv = row, .kv_stride = 4, .gate = row, .gate_stride = 4,
                               .ape = row, .state = state, .state_block_stride = 64, .state_block_size = 8, .num_state_blocks = 1,
                               .state_block_table = table, .state_table_stride = 1};
  EXPECT_EQ(Compress(args, tiling::InlineExecutor()).message(), "compressor: query_ends[1] = 0 is less than the one before, 2");
  ends[1] = 2, starts[0] = -1;
  EXPECT_EQ(Compress(args, tiling::InlineExecutor()).message(), "compressor: starts[0] = -1 with 2 tokens is not in [0, 1099511627776]");
  starts[0] = INT64_MAX;
  EXPECT_NE(Compress(args, tiling::InlineExecutor()).message().find("starts[0] = 9223372036854775807"), std::string::npos);
}

// A token whose block isn't there is compressed all the same, as long as no later call needs its state.
TEST_P(CompressorTest, StateNeedNotBeKept) {
  CompressorProblem problem({DType::kBF16, 16, 4, true, 4, 4}, {12}, 8);
  std::vector<char> kept, not_kept;
  ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, kept).ok());
  problem.ForgetState();
  for (int64_t p = 0; p < 12; ++p) problem.FreeState(0, p);
  ASSERT_TRUE(problem.Run(WholeSequences(problem), pool_, not_kept).ok());
  EXPECT_TRUE(kept == not_kept);
  for (float number : problem.state) EXPECT_TRUE(std::isnan(number));
}

INSTANTIATE_TEST_SUITE_P(Simd, CompressorTest, testing::ValuesIn(tiling::SimdTargets()));

}  // namespace
}  // namespace jumar::attention
