#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "libs/tiling/attention/attention_solver.h"
#include "libs/tiling/attention/lightning_indexer.h"
#include "libs/tiling/attention/mla_decode.h"
#include "libs/tiling/attention/paged_attention.h"
#include "libs/tiling/attention/selected_attention.h"
#include "libs/tiling/attention/shared_kv_attention.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

using Random = std::mt19937_64;
int64_t Below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

// One of the six kernels, with random dims, and a ragged batch for it.
struct Case {
  AttentionBatch batch;
  AttentionKernel kernel;
  std::string name;
};
template <typename Problem>
Case MakeCase(const char* name, const Problem& problem, absl::StatusOr<AttentionKernel> kernel) {
  return {problem, *kernel, name};
}
Case RandomCase(Random& random, int64_t longest) {
  const auto lens = [&](auto& problem, bool decode) {
    problem.context.clear();
    problem.queries.clear();
    const bool uniform = Below(random, 3) == 0;
    for (int64_t i = 1 + Below(random, 8); i > 0; --i) {
      problem.context.push_back(uniform && !problem.context.empty() ? problem.context[0] : 1 + Below(random, longest));
      problem.queries.push_back(1 + Below(random, decode ? std::min<int64_t>(3, problem.context.back()) : problem.context.back()));
    }
  };
  switch (Below(random, 6)) {
    case 0: {
      PagedPrefillProblem p;
      p.kv_heads = 1 + Below(random, 3);
      p.heads = p.kv_heads * (int64_t{1} << Below(random, 5));
      p.head_dim = 64 << Below(random, 3);
      p.window = Below(random, 2) * Below(random, 300);
      lens(p, false);
      return MakeCase("paged_prefill", p, PagedPrefillKernel(p));
    }
    case 1: {
      PagedDecodeProblem p;
      p.kv_heads = 1 + Below(random, 8);
      p.heads = p.kv_heads * (1 + Below(random, 12));
      lens(p, true);
      return MakeCase("paged_decode", p, PagedDecodeKernel(p));
    }
    case 2: {
      MlaDecodeProblem p;
      p.heads = int64_t{1} << Below(random, 8);
      lens(p, true);
      return MakeCase("mla_decode", p, MlaDecodeKernel(p));
    }
    case 3: {
      LightningIndexerProblem p;
      p.heads = int64_t{1} << Below(random, 7);
      p.ratio = Below(random, 2) == 0 ? 1 : 4;
      lens(p, Below(random, 2) == 0);
      return MakeCase("lightning_indexer", p, LightningIndexerKernel(p));
    }
    case 4: {
      SelectedAttentionProblem p;
      p.heads = int64_t{1} << Below(random, 8);
      p.top_k = 1 + Below(random, 2048);
      p.block = int64_t{1} << Below(random, 5);
      lens(p, Below(random, 2) == 0);
      return MakeCase("selected_attention", p, SelectedAttentionKernel(p));
    }
    default: {
      SharedKvAttentionProblem p;
      p.ratio = Below(random, 3) == 0 ? 0 : Below(random, 2) == 0 ? 4 : 128;
      p.top_k = p.ratio == 4 ? 512 : 0;
      lens(p, Below(random, 2) == 0);
      return MakeCase("shared_kv_attention", p, SharedKvAttentionKernel(p));
    }
  }
}

HardwareSpec RandomSpec(Random& random) {
  HardwareSpec spec = Below(random, 4) == 0 ? SyntheticUnifiedSpec() : SyntheticSpec();
  spec.formats |= kBf16;
  if (Below(random, 4) == 0) spec.architecture = Architecture::kA5;
  if (Below(random, 3) == 0) {
    spec.aic_cores = 1 + Below(random, 40);
    spec.aiv_cores = spec.aic_cores * (1 + Below(random, 2));
  }
  return spec;
}

std::vector<FlashTile> LegalTiles(const FlashWork& work, const Machine& machine) {
  std::vector<FlashTile> tiles;
  for (const int64_t queries : {1, 2, 3, 8, 64})
    for (int64_t heads = 1; heads <= work.group; ++heads)
      for (const int64_t entries : {16, 48, 128, 512, 2048})
        for (const bool keep_kv : {false, true})
          for (const bool in_ub : {false, true}) {
            if (keep_kv && !work.shared_kv) continue;
            const FlashTile tile = {queries, heads, entries, keep_kv, in_ub};
            if (Layout(work, tile, machine).ok()) tiles.push_back(tile);
          }
  return tiles;
}

TEST(AttentionTest, NoLegalTilingBeatsTheBound) {
  Random random(1);
  int64_t tilings = 0;
  for (int i = 0; i < 150; ++i) {
    const Case c = RandomCase(random, 1 + Below(random, 3) * Below(random, 1500));
    const HardwareSpec spec = RandomSpec(random);
    const auto solved = SolveAttention(c.batch, c.kernel, spec);
    ASSERT_TRUE(solved.ok()) << solved.status() << c.name;
    const Machine machine = *MakeMachine(spec, FlashNeeds(c.kernel.work.type));
    const FlashSums sums = SumsOf(solved->work);
    const double bound = solved->bound.Seconds();
    ASSERT_GE(solved->plan.prediction.seconds, bound * (1 - 1e-9)) << c.name;
    std::vector<FlashTile> tiles = LegalTiles(solved->work, machine);
    std::shuffle(tiles.begin(), tiles.end(), random);
    for (const FlashTile& tile : std::span(tiles).first(std::min<size_t>(tiles.size(), 40))) {
      for (const Split split : {Split::kBalance, Split::kFixedRule}) {
        const auto plan = EvaluateFlash(solved->work, sums, tile, machine, split);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const auto show = [&] {
          return testing::Message() << c.name << " case " << i << " on " << spec.aic_cores << " cores of " << spec.name << ": tile " << tile.queries << " x " << tile.heads << " x "
                                    << tile.entries << ", keep " << tile.keep_kv << ", bound by " << solved->bound.Limit();
        };
        ASSERT_GE(plan->prediction.seconds, bound * (1 - 1e-9)) << show();
        ASSERT_GE(plan->prediction.seconds, LeastSeconds(solved->work, sums, tile, plan->layout, machine) * (1 - 1e-9)) << show();
        ++tilings;
      }
    }
  }
  EXPECT_GT(tilings, 5000);
}

TEST(AttentionTest, BuffersOfLegalTilesFitAndAreAligned) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const Case c = RandomCase(random, 2000);
    const HardwareSpec spec = RandomSpec(random);
    const Machine machine = *MakeMachine(spec, FlashNeeds(c.kernel.work.type));
    for (const FlashTile& tile : LegalTiles(c.kernel.work, machine)) {
      const FlashLayout layout = *Layout(c.kernel.work, tile, machine);
      const std::vector<Buffer> buffers = FlashBuffers(c.kernel.work, tile, layout, machine);
      ASSERT_TRUE(CheckBuffers(buffers, spec).ok()) << CheckBuffers(buffers, spec) << c.name << " tile " << tile.queries << " x " << tile.heads << " x " << tile.entries;
      for (const Buffer& buffer : buffers) ASSERT_GT(buffer.bytes, 0) << buffer.name;
      EXPECT_EQ(layout.k0 % FractalK(c.kernel.work.type), 0);
      EXPECT_EQ(layout.n0 % kFractal, 0);
      EXPECT_EQ(layout.l1_entries % kFractal, 0);
    }
  }
}

TEST(AttentionTest, TheSearchIsNeverWorseThanTheFixedRuleAndNearTheBestTile) {
  Random random(3);
  for (int i = 0; i < 150; ++i) {
    const Case c = RandomCase(random, 6000);
    const HardwareSpec spec = SyntheticSpec();
    const auto solved = SolveAttention(c.batch, c.kernel, spec);
    ASSERT_TRUE(solved.ok()) << solved.status();
    const double seconds = solved->plan.prediction.seconds;
    const auto fixed = PredictFixedRule(c.batch, c.kernel, spec);
    EXPECT_TRUE(!fixed.ok() || seconds <= fixed->seconds * (1 + 1e-9)) << c.name;
    const Machine machine = *MakeMachine(spec, FlashNeeds(c.kernel.work.type));
    std::vector<FlashTile> tiles = LegalTiles(solved->work, machine);
    std::shuffle(tiles.begin(), tiles.end(), random);
    for (const FlashTile& tile : std::span(tiles).first(std::min<size_t>(tiles.size(), 30))) {
      const auto plan = EvaluateFlash(solved->work, SumsOf(solved->work), tile, machine, Split::kBalance);
      EXPECT_LE(seconds, plan->prediction.seconds * 1.35) << c.name << ": tile " << tile.queries << " x " << tile.heads << " x " << tile.entries;
    }
  }
}

TEST(AttentionTest, MoreCapacityNeverRaisesTheBoundNorMuchThePrediction) {
  Random random(4);
  for (int i = 0; i < 100; ++i) {
    const Case c = RandomCase(random, 4000);
    HardwareSpec spec = SyntheticSpec();
    const auto small = SolveAttention(c.batch, c.kernel, spec);
    spec.ub_bytes *= 2, spec.l1_bytes *= 2, spec.l0a_bytes *= 2, spec.l0b_bytes *= 2, spec.l0c_bytes *= 2;
    const auto large = SolveAttention(c.batch, c.kernel, spec);
    ASSERT_TRUE(small.ok() && large.ok());
    EXPECT_LE(large->bound.Seconds(), small->bound.Seconds() * (1 + 1e-9));
    EXPECT_LE(large->plan.prediction.seconds, small->plan.prediction.seconds * 1.25) << c.name;  // tiles are ranked by a guess
  }
}

TEST(AttentionTest, OrderOfTheBatchChangesNothing) {
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    const Case c = RandomCase(random, 4000);
    AttentionBatch other;
    std::vector<size_t> order(c.batch.context.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    other.context.clear();
    other.queries.clear();
    for (const size_t sequence : order) {
      other.context.push_back(c.batch.context[sequence]);
      other.queries.push_back(c.batch.queries[sequence]);
    }
    const auto a = SolveAttention(c.batch, c.kernel, SyntheticSpec()), b = SolveAttention(other, c.kernel, SyntheticSpec());
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->plan.tile, b->plan.tile);
    EXPECT_NEAR(a->plan.prediction.seconds, b->plan.prediction.seconds, 1e-9 * a->plan.prediction.seconds);
    EXPECT_NEAR(a->bound.Seconds(), b->bound.Seconds(), 1e-9 * a->bound.Seconds());
  }
}

TEST(AttentionTest, SharesCoverTheBlocksOnce) {
  Random random(6);
  for (int i = 0; i < 60; ++i) {
    const Case c = RandomCase(random, 4000);
    const auto solved = SolveAttention(c.batch, c.kernel, SyntheticSpec());
    ASSERT_TRUE(solved.ok());
    const Solution solution = *DescribeAttention(solved, SyntheticSpec(), c.name);
    int64_t at = 0, blocks = 0;
    for (const Share& share : solution.shares) {
      EXPECT_EQ(share.range[0][0], at);
      at = share.range[0][1];
    }
    EXPECT_EQ(at, solution.axes[0].extent);
    for (int64_t core = 0; core < solved->plan.balance_problem.cores; ++core) {
      ForEachPiece(solved->plan.balance_problem, solved->plan.balance, core, [&](const Piece& piece) { blocks += piece.kv_end - piece.kv_begin; });
    }
    EXPECT_EQ(blocks, at);
  }
}

TEST(AttentionTest, OneLongSequenceIsSplitAndReadOnce) {
  MlaDecodeProblem problem;
  problem.context = {1 << 20};
  const auto solved = SolveMlaDecode(problem, SyntheticSpec());
  ASSERT_TRUE(solved.ok());
  EXPECT_FALSE(solved->plan.balance.merges.empty());
  // K = V: 576 elements of 2 bytes for each token, once, for all 128 heads; Q beside that is small.
  const int64_t kv = (int64_t{1} << 20) * 576 * 2;
  EXPECT_GE(solved->plan.traffic.hbm_read, kv);
  EXPECT_LE(solved->plan.traffic.hbm_read, kv + 128 * 576 * 2);
  EXPECT_LE(solved->plan.prediction.seconds, 1.15 * solved->bound.Seconds());
  EXPECT_GE(PredictFixedRule(problem, *MlaDecodeKernel(problem), SyntheticSpec())->seconds, 10 * solved->plan.prediction.seconds);
}

TEST(AttentionTest, AWindowBoundsWhatIsRead) {
  PagedDecodeProblem problem;
  problem.context = {1 << 20};
  problem.window = 4096;
  const auto solved = SolvePagedDecode(problem, SyntheticSpec());
  ASSERT_TRUE(solved.ok());
  EXPECT_LE(solved->plan.traffic.hbm_read, 4096 * problem.kv_heads * 2 * 128 * 2 + problem.heads * 128 * 2);
}

TEST(AttentionTest, ExtremesAreCountedInInt64) {
  PagedDecodeProblem decode;
  decode.batch = 256;
  decode.context = {1 << 20};
  const auto solved = SolvePagedDecode(decode, SyntheticSpec());
  ASSERT_TRUE(solved.ok()) << solved.status();
  EXPECT_GE(solved->plan.traffic.hbm_read, int64_t{256} * (1 << 20) * 8 * 512);

  PagedPrefillProblem prefill;
  prefill.batch = 256;
  prefill.context = prefill.queries = {1 << 20};
  EXPECT_TRUE(SolvePagedPrefill(prefill, SyntheticSpec()).ok()) << SolvePagedPrefill(prefill, SyntheticSpec()).status();
  prefill.context = prefill.queries = {kMaxSize};
  const auto refused = SolvePagedPrefill(prefill, SyntheticSpec()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("2^60"), std::string::npos) << refused;

  // A workspace beyond 4 GiB is what it is, where 32 bits would wrap.
  HardwareSpec many = SyntheticSpec();
  many.aic_cores = 1000;
  const FlashWork work = {.group = 128, .key_dim = 128, .value_dim = 128};
  const auto layout = Layout(work, {.queries = 4, .heads = 128, .entries = 1024, .output_in_ub = false}, *MakeMachine(many, FlashNeeds(DType::kBf16)));
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_EQ(layout->workspace_bytes, int64_t{1000} * (2 * (512 * 1024 * 6 + 512 * 128 * 4) + 512 * 128 * 4));
  EXPECT_GT(layout->workspace_bytes, int64_t{1} << 32);
}

TEST(AttentionTest, RefusesNamingValueLimitAndMend) {
  const auto message = [](auto problem, auto solve, auto change) {
    change(problem);
    return std::string(solve(problem, SyntheticSpec()).status().message());
  };
  const auto decode = [&](auto change) { return message(PagedDecodeProblem(), SolvePagedDecode, change); };
  EXPECT_EQ(decode([](auto& p) { p.heads = 7; }), "heads = 7 is not a multiple of kv_heads = 8");
  EXPECT_EQ(decode([](auto& p) { p.context = {5}, p.queries = {6}; }), "queries of sequence 0 = 6 is more than its context = 5: the context counts the new tokens too");
  EXPECT_EQ(decode([](auto& p) { p.batch = 3, p.context = {5, 6}; }), "context has 2 numbers for a batch of 3; give one, or one for each sequence");
  EXPECT_NE(decode([](auto& p) { p.head_dim = 0; }).find("head_dim = 0 is not within 1 to 1024"), std::string::npos);
  EXPECT_NE(decode([](auto& p) { p.type = DType::kHiF8; }).find("doesn't compute with hif8"), std::string::npos);
  EXPECT_NE(message(SharedKvAttentionProblem(), SolveSharedKvAttention, [](auto& p) { p.ratio = 0, p.top_k = 512; }).find("give a ratio or no top_k"), std::string::npos);
  HardwareSpec unknown = SyntheticSpec();
  unknown.l2_bytes_per_second = kUnknown;
  EXPECT_NE(SolveMlaDecode({}, unknown).status().message().find("l2_bytes_per_second"), std::string::npos);
  HardwareSpec tiny = SyntheticSpec();
  tiny.l1_bytes = 1024;
  EXPECT_EQ(SolveMlaDecode({}, tiny).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace jumar::tiling
