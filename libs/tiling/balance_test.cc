#include "libs/tiling/balance.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

using Random = std::mt19937_64;
int64_t Below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

struct Batch {
  std::vector<int64_t> queries, keys;
  BalanceProblem problem;

  BalanceProblem& Bind() {
    problem.query_lens = queries;
    problem.kv_lens = keys;
    return problem;
  }
};

Batch RandomBatch(Random& random) {
  Batch b;
  const int64_t batch = Below(random, 12), kind = Below(random, 4), longest = 1 + Below(random, 3) * Below(random, 3000);
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t kv = Below(random, 5) == 0 ? 1 : Below(random, longest + 1);
    b.keys.push_back(kind == 1 && i > 0 ? b.keys[0] : kv);
    b.queries.push_back(kind == 2 ? Below(random, b.keys[i] + 1) : std::min<int64_t>(b.keys[i], Below(random, 3)));
  }
  BalanceProblem& p = b.problem;
  p.heads = 1 + Below(random, 5);
  p.query_block = 1 + Below(random, 40);
  p.kv_unit = 1 + Below(random, 8);
  p.kv_block = p.kv_unit * (1 + Below(random, 8));
  if (kind == 3) {
    p.view = {.causal = Below(random, 3) > 0, .ratio = 1 + Below(random, 5), .max_selected = Below(random, 600), .leading_entries = Below(random, 200)};
  } else if (Below(random, 2) == 0) {
    p.view.window = Below(random, 900);
  }
  p.cost = {1 + Below(random, 30), Below(random, 20), Below(random, 3), Below(random, 4), Below(random, 2), Below(random, 30), Below(random, 200)};
  p.cores = 1 + Below(random, 40);
  b.Bind();
  return b;
}

std::string Show(const BalanceProblem& p) {
  std::string text = "cores " + std::to_string(p.cores) + ", heads " + std::to_string(p.heads) + ", blocks " + std::to_string(p.query_block) + " x " +
                     std::to_string(p.kv_block) + ", (queries, keys)";
  for (size_t i = 0; i < p.query_lens.size(); ++i) text += " (" + std::to_string(p.query_lens[i]) + ", " + std::to_string(p.kv_lens[i]) + ")";
  return text;
}

using Row = std::tuple<int64_t, int64_t, int64_t>;

// Walks all pieces: every KV block of every row once, in order; partials are numbered without gaps and belong to the merge that names
// them; costs are what the pieces say.
void ExpectSound(const BalanceProblem& p, const BalanceResult& balance) {
  SCOPED_TRACE(Show(p));
  ASSERT_EQ(static_cast<int64_t>(balance.shares.size()), p.cores);
  std::map<Row, std::vector<std::pair<int64_t, Piece>>> rows;  // (core, piece)
  int64_t most = 0;
  for (int64_t core = 0; core < p.cores; ++core) {
    int64_t cost = 0;
    ForEachPiece(p, balance, core, [&](const Piece& piece) {
      rows[{piece.batch, piece.head, piece.query_block}].push_back({core, piece});
      const int64_t queries = std::min(p.query_block, p.query_lens[piece.batch] - piece.query_block * p.query_block);
      ASSERT_GT(queries, 0);
      const int64_t entries = RaggedRows(p.query_lens[piece.batch], p.kv_lens[piece.batch], p.query_block, 1, p.view).NumKvBlocks(piece.query_block);
      const int64_t units = (std::min(piece.kv_end * p.kv_block, entries) - piece.kv_begin * p.kv_block + p.kv_unit - 1) / p.kv_unit;
      cost += p.cost.per_row + (piece.kv_end - piece.kv_begin) * (p.cost.per_block + p.cost.per_block_query * queries) +
              units * (p.cost.per_unit + p.cost.per_unit_query * queries) +
              (piece.partial >= 0 ? p.cost.per_split_piece : 0);
    });
    ASSERT_EQ(cost, balance.shares[core].cost) << "core " << core;
    int64_t counted = 0;
    ForEachRowCount(p, balance, balance.shares[core].begin, balance.shares[core].end, [&](const RowCount& count) {
      counted += count.rows * p.cost.per_row + count.blocks * (p.cost.per_block + p.cost.per_block_query * count.queries) +
                 count.units * (p.cost.per_unit + p.cost.per_unit_query * count.queries);
    });
    const int64_t pieces = (balance.shares[core].head_partial >= 0) + (balance.shares[core].tail_partial >= 0);
    ASSERT_EQ(counted + pieces * p.cost.per_split_piece, cost) << "core " << core;
    most = std::max(most, cost);
  }
  EXPECT_EQ(most, balance.max_cost);
  EXPECT_EQ(balance.makespan, most + (balance.merges.empty() ? 0 : p.cost.barrier));

  size_t expected_rows = 0, split_rows = 0;
  std::vector<bool> partials(balance.num_partials, false);
  for (size_t batch = 0; batch < p.query_lens.size(); ++batch) {
    const RaggedRows geometry(p.query_lens[batch], p.kv_lens[batch], p.query_block, p.kv_block, p.view);
    expected_rows += geometry.num_query_blocks() * p.heads;
    for (int64_t head = 0; head < p.heads; ++head) {
      for (int64_t row = 0; row < geometry.num_query_blocks(); ++row) {
        const auto found = rows.find({batch, head, row});
        ASSERT_NE(found, rows.end()) << "nobody has row " << batch << ", " << head << ", " << row;
        int64_t at = 0, core = found->second[0].first;
        const bool split = found->second.size() > 1;
        split_rows += split;
        for (const auto& [owner, piece] : found->second) {
          ASSERT_EQ(owner, core++) << "pieces lie on consecutive cores";
          ASSERT_EQ(piece.kv_begin, at);
          ASSERT_TRUE(!split || piece.kv_begin < piece.kv_end) << "an empty piece";
          at = piece.kv_end;
          ASSERT_EQ(piece.partial >= 0, split);
          if (!split) continue;
          ASSERT_LT(piece.partial, balance.num_partials);
          ASSERT_FALSE(partials[piece.partial]) << "partial " << piece.partial << " is written twice";
          partials[piece.partial] = true;
        }
        ASSERT_EQ(at, geometry.NumKvBlocks(row));
        if (!split) continue;
        const auto merge = std::find_if(balance.merges.begin(), balance.merges.end(), [&](const Merge& m) {
          return m.batch == static_cast<int64_t>(batch) && m.head == head && m.query_block == row;
        });
        ASSERT_NE(merge, balance.merges.end());
        EXPECT_EQ(merge->num_pieces, static_cast<int64_t>(found->second.size()));
        EXPECT_EQ(merge->first_core, found->second[0].first);
        for (size_t i = 0; i < found->second.size(); ++i) EXPECT_EQ(found->second[i].second.partial, merge->first_partial + static_cast<int64_t>(i));
      }
    }
  }
  EXPECT_EQ(rows.size(), expected_rows);
  EXPECT_EQ(balance.merges.size(), split_rows);
  EXPECT_EQ(std::count(partials.begin(), partials.end(), true), balance.num_partials);
}

TEST(BalanceTest, CoversEveryBlockOnceOnRandomRaggedBatches) {
  Random random(1);
  for (int i = 0; i < 3000 && !testing::Test::HasFailure(); ++i) {
    const Batch b = RandomBatch(random);
    const auto balance = Balance(b.problem);
    ASSERT_TRUE(balance.ok()) << balance.status() << Show(b.problem);
    ExpectSound(b.problem, *balance);
    const auto fixed = BalanceByFixedRule(b.problem);
    ASSERT_TRUE(fixed.ok());
    ExpectSound(b.problem, *fixed);
    EXPECT_TRUE(fixed->merges.empty());
    EXPECT_LE(balance->makespan, fixed->makespan) << Show(b.problem);
    EXPECT_EQ(*BalanceWork(b.problem), balance->work);
  }
}

TEST(BalanceTest, HeaviestCoreIsWithin15PercentOfTheMeanWhenThereIsWork) {
  Random random(2);
  int checked = 0;
  for (int i = 0; i < 3000; ++i) {
    Batch b = RandomBatch(random);
    BalanceProblem& p = b.problem;
    const int64_t block = p.cost.per_block + p.cost.per_block_query * p.query_block +
                          (p.cost.per_unit + p.cost.per_unit_query * p.query_block) * (p.kv_block / p.kv_unit);
    const int64_t enough = p.cores * 8 * (3 * (p.cost.per_row + p.cost.per_split_piece) + block + p.cost.barrier);
    const auto balance = Balance(p);
    ASSERT_TRUE(balance.ok());
    // Without a cost per block there is nothing that a split could move.
    if (balance->work < enough || block == 0) continue;
    ++checked;
    int64_t sum = 0;
    for (const CoreShare& share : balance->shares) sum += share.cost;
    EXPECT_LE(balance->max_cost * p.cores, 1.15 * sum) << Show(p);
  }
  EXPECT_GT(checked, 300);
}

TEST(BalanceTest, OrderOfTheBatchChangesOnlyTheOrder) {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    Batch a = RandomBatch(random), b = a;
    std::vector<int64_t> permutation(a.queries.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::shuffle(permutation.begin(), permutation.end(), random);
    for (size_t k = 0; k < permutation.size(); ++k) {
      b.queries[k] = a.queries[permutation[k]];
      b.keys[k] = a.keys[permutation[k]];
    }
    const auto one = Balance(a.Bind()), other = Balance(b.Bind());
    ASSERT_TRUE(one.ok() && other.ok());
    for (int64_t core = 0; core < a.problem.cores; ++core) {
      EXPECT_EQ(one->shares[core].begin, other->shares[core].begin);
      EXPECT_EQ(one->shares[core].end, other->shares[core].end);
      EXPECT_EQ(one->shares[core].head_partial, other->shares[core].head_partial);
      EXPECT_EQ(one->shares[core].tail_partial, other->shares[core].tail_partial);
    }
    for (size_t rank = 0; rank < permutation.size(); ++rank) {
      EXPECT_EQ(a.keys[one->order[rank]], b.keys[other->order[rank]]);
      EXPECT_EQ(a.queries[one->order[rank]], b.queries[other->order[rank]]);
    }
  }
}

TEST(BalanceTest, MoreCoresAreNeverMuchSlower) {
  Random random(4);
  for (int i = 0; i < 300; ++i) {
    Batch b = RandomBatch(random);
    const auto few = Balance(b.problem);
    b.problem.cores *= 2;
    const auto many = Balance(b.problem);
    ASSERT_TRUE(few.ok() && many.ok());
    EXPECT_LE(many->makespan, few->makespan * 1.01 + 1) << Show(b.problem);
  }
}

TEST(BalanceTest, OneMillionKeysOfOneSequenceUseAllCores) {
  Batch b = {{1}, {1 << 20}, {.heads = 1, .kv_block = 512, .cost = {50, 1000, 0, 0, 0, 200, 2000}, .cores = 24}};
  const auto balance = Balance(b.Bind());
  ASSERT_TRUE(balance.ok());
  ExpectSound(b.problem, *balance);
  ASSERT_EQ(balance->merges.size(), 1u);
  EXPECT_EQ(balance->merges[0].num_pieces, 24);
  EXPECT_LE(balance->max_cost, 1.02 * 2048 * 1000 / 24);
  EXPECT_EQ(BalanceByFixedRule(b.problem)->makespan, 50 + 2048 * 1000);  // never splits: one core does it all
}

TEST(BalanceTest, SplitsOnlyWhereItPays) {
  // 24 equal sequences on 24 cores, and one short sequence: nothing to split.
  Batch even = {std::vector<int64_t>(24, 1), std::vector<int64_t>(24, 4096), {.cost = {10, 100, 0, 0, 0, 50, 0}, .cores = 24}};
  EXPECT_TRUE(Balance(even.Bind())->merges.empty());
  Batch tiny = {{1}, {256}, {.cost = {10, 100, 0, 0, 0, 150, 0}, .cores = 24}};
  EXPECT_TRUE(Balance(tiny.Bind())->merges.empty());
  // 25 on 24: a barrier dearer than the second round isn't worth it, a cheap one is.
  Batch uneven = {std::vector<int64_t>(25, 1), std::vector<int64_t>(25, 4096), {.cost = {10, 100, 0, 0, 0, 50, 5000}, .cores = 24}};
  EXPECT_TRUE(Balance(uneven.Bind())->merges.empty());
  uneven.problem.cost.barrier = 100;
  EXPECT_FALSE(Balance(uneven.problem)->merges.empty());
}

TEST(BalanceTest, EmptyAndOneTokenSequences) {
  for (const Batch& given : {Batch{}, Batch{{0}, {0}, {}}, Batch{{0, 0}, {7, 0}, {}}, Batch{{1}, {1}, {}}, Batch{{1, 0, 1}, {1, 900, 2}, {}}}) {
    Batch b = given;
    b.problem.heads = 3;
    b.problem.cores = 5;
    const auto balance = Balance(b.Bind());
    ASSERT_TRUE(balance.ok());
    ExpectSound(b.problem, *balance);
  }
  // Rows without keys are rows still: their output is zero.
  Batch blind = {{3}, {0}, {.view = {.causal = false}, .cores = 2}};
  ExpectSound(blind.Bind(), *Balance(blind.Bind()));
  EXPECT_EQ(Balance(blind.problem)->work, 3);
}

TEST(BalanceTest, ExtremesDoNotOverflow) {
  const std::vector<int64_t> million(256, 1 << 20);
  BalanceProblem p = {.query_lens = million, .kv_lens = million, .heads = 128, .query_block = 128, .kv_block = 128, .cost = {100, 1000, 10, 0, 0, 500, 3000}, .cores = 24};
  const auto prefill = Balance(p);
  ASSERT_TRUE(prefill.ok()) << prefill.status();
  EXPECT_EQ(prefill->work, int64_t{256} * 128 * (8192 * 100 + int64_t{8192} * 8193 / 2 * 2280));
  EXPECT_LE(prefill->max_cost, prefill->work / 24 * 1.001);
  p.query_block = p.kv_block = p.kv_unit = 1;
  p.cost = {.per_row = 1, .per_block = 1 << 20};
  EXPECT_EQ(Balance(p).status().code(), absl::StatusCode::kInvalidArgument);

  const std::vector<int64_t> one(256, 1);
  p = {.query_lens = one, .kv_lens = million, .heads = 128, .kv_block = 1, .kv_unit = 1, .cost = {1, 1, 0, 0, 0, 1, 1}, .cores = 65536};
  const auto decode = Balance(p);
  ASSERT_TRUE(decode.ok());
  EXPECT_EQ(decode->work, int64_t{256} * 128 * ((1 << 20) + 1));
}

TEST(BalanceTest, RefusesNamingValueLimitAndMend) {
  const int64_t one[] = {1}, five[] = {5};
  const BalanceProblem good = {.query_lens = one, .kv_lens = five};
  ASSERT_TRUE(Balance(good).ok());
  const auto message = [&](auto change) {
    BalanceProblem p = good;
    change(p);
    EXPECT_EQ(Balance(p).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Balance(p).status(), BalanceByFixedRule(p).status());
    EXPECT_EQ(Balance(p).status(), BalanceWork(p).status());
    return std::string(Balance(p).status().message());
  };
  EXPECT_EQ(message([](auto& p) { p.kv_lens = {}; }), "balance: query_lens has 1 sequences and kv_lens 0");
  EXPECT_EQ(message([](auto& p) { p.cores = 0; }), "balance: cores = 0 is not in [1, 65536]");
  EXPECT_EQ(message([](auto& p) { p.heads = INT64_MAX; }), "balance: heads = 9223372036854775807 is not in [1, 1099511627776]");
  EXPECT_EQ(message([](auto& p) { p.cost.per_row = 0; }), "balance: cost.per_row = 0 is not in [1, 1099511627776]");
  EXPECT_EQ(message([](auto& p) { p.cost.barrier = -1; }), "balance: cost.barrier = -1 is not in [0, 1099511627776]");
  EXPECT_EQ(message([](auto& p) { p.kv_unit = 3; }), "balance: kv_unit = 3 doesn't divide kv_block = 128");
  EXPECT_NE(message([](auto& p) { p.query_block = 0; }).find("query_block = 0"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.cost.per_block_query = p.query_block = int64_t{1} << 40; }).find("cost of a full block"), std::string::npos);
  EXPECT_NE(message([](auto& p) { p.heads = p.cost.per_row = int64_t{1} << 40; }).find("brings the work above"), std::string::npos);
  EXPECT_NE(message([&](auto& p) { p.query_lens = five, p.kv_lens = one; }).find("kv_lens[0] = 1"), std::string::npos);
}

TEST(BalanceTest, MergeSlicesCoverTheRowOnce) {
  for (int64_t pieces : {1, 2, 3, 24}) {
    for (int64_t units : {0, 1, 5, 64, 100}) {
      const Merge merge = {.batch = 0, .head = 0, .query_block = 0, .first_core = 4, .num_pieces = pieces, .first_partial = 0};
      int64_t at = 0;
      for (int64_t core = 4; core < 4 + pieces; ++core) {
        const Range slice = MergeSlice(merge, core, units);
        EXPECT_EQ(slice.begin, at);
        EXPECT_LE(slice.end - slice.begin, units / pieces + 1);
        at = slice.end;
      }
      EXPECT_EQ(at, units);
    }
  }
  const Merge merge = {.batch = 0, .head = 0, .query_block = 0, .first_core = 0, .num_pieces = 65536, .first_partial = 0};
  EXPECT_EQ(MergeSlice(merge, 65535, INT64_MAX).end, INT64_MAX);
}

}  // namespace
}  // namespace jumar::tiling
