#include "libs/tiling/balance.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kMaxCost = int64_t{1} << 40;
constexpr int64_t kMaxHeads = int64_t{1} << 40;
constexpr int64_t kMaxCores = 65536;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("balance: ", parts...));
}

absl::Status CheckBalance(const BalanceProblem& p) {
  if (p.query_lens.size() != p.kv_lens.size()) {
    return Invalid("query_lens has ", p.query_lens.size(), " sequences and kv_lens ", p.kv_lens.size());
  }
  if (p.heads < 1 || p.heads > kMaxHeads) return Invalid("heads = ", p.heads, " is not in [1, ", kMaxHeads, "]");
  if (p.cores < 1 || p.cores > kMaxCores) return Invalid("cores = ", p.cores, " is not in [1, ", kMaxCores, "]");
  const struct {
    const char* name;
    int64_t value, least;
  } costs[] = {{"per_row", p.cost.per_row, 1},
               {"per_block", p.cost.per_block, 0},
               {"per_block_query", p.cost.per_block_query, 0},
               {"per_unit", p.cost.per_unit, 0},
               {"per_unit_query", p.cost.per_unit_query, 0},
               {"per_split_piece", p.cost.per_split_piece, 0},
               {"barrier", p.cost.barrier, 0}};
  for (const auto& cost : costs) {
    if (cost.value < cost.least || cost.value > kMaxCost) {
      return Invalid("cost.", cost.name, " = ", cost.value, " is not in [", cost.least, ", ", kMaxCost, "]");
    }
  }
  if (auto status = CheckView(p.query_block, p.kv_block, p.view); !status.ok()) return status;
  if (p.kv_unit < 1 || p.kv_block % p.kv_unit != 0) return Invalid("kv_unit = ", p.kv_unit, " doesn't divide kv_block = ", p.kv_block);
  // A full block's: a part of every other product.
  const auto block = Product("balance: cost of a full block", {p.query_block, std::max(p.cost.per_block_query, p.cost.per_unit_query), p.kv_block});
  if (!block.ok()) return block.status();
  return absl::OkStatus();
}

// What a KV block costs, however full, and a unit of entries.
struct BlockCost {
  int64_t block = 0, unit = 0;
};

// Sequences of equal lengths, all their heads: `units` times the same rows.
struct Group {
  RaggedRows blocks, entries;  // in KV blocks, and in kv_units
  int64_t first_rank, units;
  BlockCost full, last;  // for full query blocks, and for the last one
  int64_t unit_cost;
  int64_t start;  // cost of all groups before this one

  const BlockCost& CostOf(int64_t query_block) const { return query_block < blocks.num_full() ? full : last; }
};

// A place in the list of rows. The end is {number of groups, 0, 0, 0}.
struct Cursor {
  int64_t group, unit, query_block, kv_block;

  bool SameRow(const Cursor& o) const { return group == o.group && unit == o.unit && query_block == o.query_block; }
};

class Solver {
 public:
  explicit Solver(const BalanceProblem& problem) : p_(problem) {}

  absl::Status Prepare(std::vector<int64_t>& order) {
    const size_t batch = p_.query_lens.size();
    order.resize(batch);
    std::iota(order.begin(), order.end(), 0);
    const auto longer = [this](int64_t a, int64_t b) {
      if (p_.kv_lens[a] != p_.kv_lens[b]) return p_.kv_lens[a] > p_.kv_lens[b];
      if (p_.query_lens[a] != p_.query_lens[b]) return p_.query_lens[a] > p_.query_lens[b];
      return a < b;
    };
    if (!std::is_sorted(order.begin(), order.end(), longer)) std::sort(order.begin(), order.end(), longer);
    groups_.reserve(std::min<size_t>(batch, 256));
    for (size_t first = 0, end; first < batch; first = end) {
      const int64_t query_len = p_.query_lens[order[first]], kv_len = p_.kv_lens[order[first]];
      for (end = first + 1; end < batch && p_.query_lens[order[end]] == query_len && p_.kv_lens[order[end]] == kv_len;) ++end;
      if (auto status = AddGroup(order[first], first, end - first); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  int64_t work() const { return work_; }
  int64_t longest_row() const { return longest_row_; }
  int64_t MeanWork() const { return CeilDiv(work_, p_.cores); }

  // Each of these fills starts() with the first row of every core and, last, the end; false if the cores don't suffice.
  bool FillRows(int64_t limit) {
    Cursor at = Begin();
    for (int64_t core = 0; core < p_.cores; ++core) {
      starts_[core] = at;
      if (!IsEnd(at)) at = Locate(StartOf(at) + limit);
    }
    starts_[p_.cores] = at;
    return IsEnd(at);
  }

  void FillByFixedRule() {
    Cursor at = Begin();
    for (int64_t core = 0; core < p_.cores; ++core) {
      starts_[core] = at;
      if (IsEnd(at)) continue;
      const int64_t left = work_ - StartOf(at), limit = StartOf(at) + std::max(left / (p_.cores - core), longest_row_);
      Cursor next = core + 1 == p_.cores ? End() : Locate(limit);
      if (!IsEnd(next) && StartOf(next) + RowCost(next) - limit <= RowCost(next) / 2) next = NextRow(next);
      at = next;
    }
    starts_[p_.cores] = at;
  }

  // With `lazy`, ends a core at a row's end as soon as the cores that follow can take the rest.
  bool FillSplit(int64_t limit, bool lazy) {
    const int64_t piece = p_.cost.per_row + p_.cost.per_split_piece, waste = SplitWaste();
    Cursor at = Begin();
    for (int64_t core = 0; core < p_.cores; ++core) {
      starts_[core] = at;
      if (IsEnd(at)) continue;
      int64_t room = limit;
      if (at.kv_block > 0) {
        const int64_t rest = RowCost(at) + p_.cost.per_split_piece - at.kv_block * FullBlockCost(at);
        if (rest > room) {
          if (room < piece + FullBlockCost(at)) return false;
          at.kv_block = std::min(at.kv_block + (room - piece) / FullBlockCost(at), groups_[at.group].blocks.NumKvBlocks(at.query_block) - 1);
          continue;
        }
        room -= rest;
        at = NextRow(at);
        if (IsEnd(at) || room <= 0) continue;
      }
      const int64_t start = StartOf(at);
      at = Locate(start + room);
      if (IsEnd(at)) continue;
      const int64_t done = StartOf(at), cores_left = p_.cores - core - 1;
      if (cores_left == 0) return false;
      if (lazy && limit > waste && CeilDiv(work_ - done, limit - waste) <= cores_left) continue;
      room -= done - start;
      const int64_t block = FullBlockCost(at), blocks = groups_[at.group].blocks.NumKvBlocks(at.query_block);
      // Less than what the split itself costs isn't worth it.
      if (blocks > 1 && block > 0 && room - piece >= std::max(piece, block)) at.kv_block = std::min((room - piece) / block, blocks - 1);
    }
    starts_[p_.cores] = at;
    return IsEnd(at);
  }

  // No more than this much of a core's limit is lost to splitting, so that MeanWork() + SplitWaste() always suffices: a piece at either
  // end, a split that didn't pay, and the last block.
  int64_t SplitWaste() const { return 3 * (p_.cost.per_row + p_.cost.per_split_piece) + dearest_block_; }

  int64_t CoreCost(int64_t core) const {
    const Cursor &begin = starts_[core], &end = starts_[core + 1];
    const int64_t piece = p_.cost.per_row + p_.cost.per_split_piece;
    if (begin.SameRow(end)) return end.kv_block == begin.kv_block ? 0 : piece + (end.kv_block - begin.kv_block) * FullBlockCost(begin);
    int64_t cost = StartOf(end) - StartOf(begin);
    if (begin.kv_block > 0) cost += p_.cost.per_split_piece - begin.kv_block * FullBlockCost(begin);
    if (end.kv_block > 0) cost += piece + end.kv_block * FullBlockCost(end);
    return cost;
  }

  int64_t MaxCost() const {
    int64_t most = 0;
    for (int64_t core = 0; core < p_.cores; ++core) most = std::max(most, CoreCost(core));
    return most;
  }

  int64_t Makespan() const {
    const bool split = std::any_of(starts_.begin(), starts_.end(), [](const Cursor& at) { return at.kv_block > 0; });
    return MaxCost() + (split ? p_.cost.barrier : 0);
  }

  std::vector<Cursor>& starts() { return starts_; }

  void Describe(BalanceResult& result) const {
    result.work = work_;
    result.max_cost = MaxCost();
    result.makespan = Makespan();
    result.shares.resize(p_.cores);
    for (int64_t core = 0; core < p_.cores; ++core) {
      CoreShare& share = result.shares[core];
      const Cursor &begin = starts_[core], &end = starts_[core + 1];
      share.begin = ToPosition(begin);
      share.end = ToPosition(end);
      share.cost = CoreCost(core);
      if (begin.kv_block > 0) {
        share.head_partial = result.num_partials++;
        ++result.merges.back().num_pieces;
      }
      if (end.kv_block == 0 || (begin.SameRow(end) && begin.kv_block > 0)) continue;
      (begin.SameRow(end) ? share.head_partial : share.tail_partial) = result.num_partials;
      result.merges.push_back({result.order[share.end.rank], share.end.head, share.end.query_block, core, 1, result.num_partials++});
    }
  }

 private:
  absl::Status AddGroup(int64_t sequence, int64_t first_rank, int64_t count) {
    const int64_t query_len = p_.query_lens[sequence], kv_len = p_.kv_lens[sequence];
    if (auto status = CheckSequence(sequence, query_len, kv_len, p_.query_block, p_.kv_block, p_.view); !status.ok()) return status;
    Group group = {RaggedRows(query_len, kv_len, p_.query_block, p_.kv_block, p_.view),
                   RaggedRows(query_len, kv_len, p_.query_block, p_.kv_unit, p_.view), first_rank, 0, {}, {}, 0, work_};
    const int64_t rows = group.blocks.num_query_blocks(), full = group.blocks.num_full(), last = group.blocks.tail();
    if (rows == 0) return absl::OkStatus();
    group.full = {p_.cost.per_block + p_.cost.per_block_query * p_.query_block, p_.cost.per_unit + p_.cost.per_unit_query * p_.query_block};
    group.last = {p_.cost.per_block + p_.cost.per_block_query * last, p_.cost.per_unit + p_.cost.per_unit_query * last};
    bool overflow = __builtin_mul_overflow(count, p_.heads, &group.units);
    const auto add = [&](int64_t number, int64_t cost) {
      int64_t product = 0;
      overflow = overflow || __builtin_mul_overflow(number, cost, &product) || __builtin_add_overflow(group.unit_cost, product, &group.unit_cost);
    };
    add(rows, p_.cost.per_row);
    add(group.blocks.KvBlocksBefore(full), group.full.block);
    if (group.full.unit > 0) add(group.entries.KvBlocksBefore(full), group.full.unit);
    if (last > 0) add(group.blocks.NumKvBlocks(full), group.last.block);
    if (last > 0 && group.last.unit > 0) add(group.entries.NumKvBlocks(full), group.last.unit);
    int64_t group_cost = 0;
    overflow = overflow || __builtin_mul_overflow(group.unit_cost, group.units, &group_cost) || __builtin_add_overflow(work_, group_cost, &work_);
    if (overflow || work_ > kMaxWork) {
      return Invalid("sequence ", sequence, " (", query_len, " queries, ", kv_len, " keys, ", p_.heads, " heads) brings the work above ",
                     kMaxWork, "; take larger blocks or a larger unit of time");
    }
    const BlockCost& dearest = full > 0 ? group.full : group.last;
    dearest_block_ = std::max(dearest_block_, dearest.block + dearest.unit * (p_.kv_block / p_.kv_unit));
    groups_.push_back(group);
    // The longest is one of the last two: the last may have fewer queries.
    for (int64_t row = std::max<int64_t>(0, rows - 2); row < rows; ++row) {
      longest_row_ = std::max(longest_row_, RowCost({static_cast<int64_t>(groups_.size()) - 1, 0, row, 0}));
    }
    return absl::OkStatus();
  }

  Cursor Begin() const { return {0, 0, 0, 0}; }
  Cursor End() const { return {static_cast<int64_t>(groups_.size()), 0, 0, 0}; }
  bool IsEnd(const Cursor& at) const { return at.group == static_cast<int64_t>(groups_.size()); }

  Position ToPosition(const Cursor& at) const {
    if (IsEnd(at)) return {static_cast<int64_t>(p_.query_lens.size()), 0, 0, 0};
    return {groups_[at.group].first_rank + at.unit / p_.heads, at.unit % p_.heads, at.query_block, at.kv_block};
  }

  int64_t RowCost(const Cursor& at) const {
    const Group& group = groups_[at.group];
    const BlockCost& cost = group.CostOf(at.query_block);
    return p_.cost.per_row + group.blocks.NumKvBlocks(at.query_block) * cost.block +
           (cost.unit > 0 ? group.entries.NumKvBlocks(at.query_block) * cost.unit : 0);
  }

  // Of any KV block of the row but the last.
  int64_t FullBlockCost(const Cursor& at) const {
    const BlockCost& cost = groups_[at.group].CostOf(at.query_block);
    return cost.block + cost.unit * (p_.kv_block / p_.kv_unit);
  }

  // Cost of the first rows of one unit.
  int64_t CostBefore(const Group& group, int64_t query_block) const {
    if (query_block == 0) return 0;
    if (query_block == group.blocks.num_query_blocks()) return group.unit_cost;
    return query_block * p_.cost.per_row + group.blocks.KvBlocksBefore(query_block) * group.full.block +
           (group.full.unit > 0 ? group.entries.KvBlocksBefore(query_block) * group.full.unit : 0);
  }

  // Cost of all rows before the cursor's, its own pieces not counted.
  int64_t StartOf(const Cursor& at) const {
    if (IsEnd(at)) return work_;
    const Group& group = groups_[at.group];
    return group.start + at.unit * group.unit_cost + CostBefore(group, at.query_block);
  }

  Cursor NextRow(Cursor at) const {
    at.kv_block = 0;
    if (++at.query_block < groups_[at.group].blocks.num_query_blocks()) return at;
    at.query_block = 0;
    if (++at.unit < groups_[at.group].units) return at;
    return {at.group + 1, 0, 0, 0};
  }

  // The last row that starts at `cost` or before; the end if that is all.
  Cursor Locate(int64_t cost) const {
    if (cost >= work_) return End();
    const auto after = std::upper_bound(groups_.begin(), groups_.end(), cost, [](int64_t c, const Group& group) { return c < group.start; });
    const Group& group = *(after - 1);
    const int64_t unit = (cost - group.start) / group.unit_cost, rest = cost - group.start - unit * group.unit_cost;
    int64_t low = 0, high = group.blocks.num_query_blocks();  // the row starts in [low, high)
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (CostBefore(group, middle) <= rest ? low : high) = middle;
    }
    return {after - groups_.begin() - 1, unit, low, 0};
  }

  const BalanceProblem& p_;
  std::vector<Group> groups_;
  std::vector<Cursor> starts_ = std::vector<Cursor>(p_.cores + 1);
  int64_t work_ = 0, longest_row_ = 0, dearest_block_ = 0;
};

// The least limit that `fill` can keep, within 1/1024, between `low` and `high`, which it can; leaves the starts of the best.
template <typename Fill>
int64_t Bisect(int64_t low, int64_t high, Fill fill) {
  while (high - low > low / 1024) {
    const int64_t middle = low + (high - low) / 2;
    if (fill(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace

absl::StatusOr<int64_t> BalanceWork(const BalanceProblem& problem) {
  if (auto status = CheckBalance(problem); !status.ok()) return status;
  std::vector<int64_t> order;
  Solver solver(problem);
  if (auto status = solver.Prepare(order); !status.ok()) return status;
  return solver.work();
}

absl::StatusOr<BalanceResult> BalanceByFixedRule(const BalanceProblem& problem) {
  if (auto status = CheckBalance(problem); !status.ok()) return status;
  BalanceResult result;
  Solver solver(problem);
  if (auto status = solver.Prepare(result.order); !status.ok()) return status;
  solver.FillByFixedRule();
  solver.Describe(result);
  return result;
}

absl::StatusOr<BalanceResult> Balance(const BalanceProblem& problem) {
  if (auto status = CheckBalance(problem); !status.ok()) return status;
  BalanceResult result;
  Solver solver(problem);
  if (auto status = solver.Prepare(result.order); !status.ok()) return status;

  // Whole rows: the fixed rule, and where that leaves something to gain, the least limit.
  const int64_t mean = solver.MeanWork(), least = std::max(mean, solver.longest_row());
  solver.FillByFixedRule();
  std::vector<Cursor> best = solver.starts();
  int64_t best_makespan = solver.Makespan();
  const auto keep_if_better = [&] {
    const int64_t makespan = solver.Makespan();
    if (makespan >= best_makespan) return;
    best_makespan = makespan;
    best = solver.starts();
  };
  if (best_makespan - least > least / 256) {
    const int64_t limit = Bisect(least, best_makespan, [&](int64_t limit) { return solver.FillRows(limit); });
    if (limit < best_makespan && solver.FillRows(limit)) keep_if_better();
  }
  // Split rows need the barrier, so they can't win where whole rows come nearer to the mean than that.
  if (best_makespan - mean > problem.cost.barrier + mean / 256) {
    const int64_t limit = Bisect(mean, mean + solver.SplitWaste(), [&](int64_t limit) { return solver.FillSplit(limit, /*lazy=*/false); });
    if (solver.FillSplit(limit, /*lazy=*/true)) keep_if_better();
    if (solver.FillSplit(limit, /*lazy=*/false)) keep_if_better();
  }
  solver.starts() = std::move(best);
  solver.Describe(result);
  return result;
}

Range MergeSlice(const Merge& merge, int64_t core, int64_t num_units) {
  const int64_t piece = core - merge.first_core;
  const auto at = [&](int64_t i) { return num_units / merge.num_pieces * i + num_units % merge.num_pieces * i / merge.num_pieces; };
  return {at(piece), at(piece + 1)};
}

}  // namespace jumar::tiling
