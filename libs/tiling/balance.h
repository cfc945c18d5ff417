#ifndef LIBS_TILING_BALANCE_H_
#define LIBS_TILING_BALANCE_H_

// Splits the attention of a ragged batch over cores.
//
// The work is a list of rows (sequence, head, query block), each row a run of KV blocks (ragged_rows.h). Every core gets one contiguous
// stretch of that list, so that a core stays with a head's KV while it can; a stretch may begin and end inside a row. Where it does, the
// row is split along the KV length (flash-decode): its pieces lie on consecutive cores, each writes a partial output and its
// log-sum-exp, and after a barrier the same cores merge them.
//
//   const int64_t queries[] = {1, 1, 512}, keys[] = {100'000, 37, 4'096};
//   BalanceProblem problem = {.query_lens = queries, .kv_lens = keys, .heads = 8, .query_block = 16, .kv_block = 512, .cores = 24};
//   auto balance = Balance(problem);
//   ForEachPiece(problem, *balance, /*core=*/3, [&](const Piece& piece) { ... });
//
// Sequences are taken by KV length, longest first, whatever their order in the batch: a permutation of the batch permutes the answer.
// O(batch * log(batch) + cores * log^2(length)), whatever the lengths.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/ragged_rows.h"

namespace jumar::tiling {

// Any unit of time, such as cycles.
struct BalanceCost {
  int64_t per_row = 1;          // a row, or a piece of one: queries in, output out; at least 1
  int64_t per_block = 1;        // a KV block of a row, however full
  int64_t per_block_query = 0;  // and for each query of the row's block besides: the last block may have fewer
  int64_t per_unit = 0;         // kv_unit entries of a row: a row's last KV block may have fewer of them
  int64_t per_unit_query = 0;   // and for each query besides
  int64_t per_split_piece = 1;  // a piece of a split row besides: the partial out, back in, and its share of the merge
  int64_t barrier = 0;          // once, if any row is split
};

struct BalanceProblem {
  std::span<const int64_t> query_lens = {};  // [batch] tokens; 0 = nothing to do for it
  std::span<const int64_t> kv_lens = {};     // [batch] tokens; 0 = rows without keys, which somebody must fill with zeros
  int64_t heads = 1;                    // KV heads, or whatever else repeats a sequence's rows
  int64_t query_block = 1;              // queries
  int64_t kv_block = 128;               // entries
  int64_t kv_unit = 16;                 // entries; divides kv_block
  KvView view = {};
  BalanceCost cost = {};
  int64_t cores = 1;
};

// A place in the list of rows: KV block `kv_block` of the row's own, counted from the first that it sees.
struct Position {
  int64_t rank, head, query_block, kv_block;  // rank: the sequence is order[rank]

  friend bool operator==(const Position&, const Position&) = default;
};

struct CoreShare {
  Position begin, end;   // half open; empty if equal
  int64_t cost = 0;
  int64_t head_partial = -1;  // where the piece at `begin` is to be written, if it isn't a whole row; else -1
  int64_t tail_partial = -1;  // the same for the piece before `end`, if it is another piece
};

// A split row: pieces on the cores first_core .. first_core + num_pieces - 1, in the order of the keys, with partials first_partial and so
// on. Each of these cores merges MergeSlice of the row's outputs, so that nobody waits for one core to merge everything.
struct Merge {
  int64_t batch, head, query_block;
  int64_t first_core, num_pieces;
  int64_t first_partial;
};

struct BalanceResult {
  std::vector<int64_t> order;     // [batch] sequence of each rank
  std::vector<CoreShare> shares;  // [cores]
  std::vector<Merge> merges;      // by first_core
  int64_t num_partials = 0;
  int64_t work = 0;       // cost of all rows, unsplit
  int64_t max_cost = 0;   // of a core
  int64_t makespan = 0;   // max_cost, and the barrier if there is a merge
};

// InvalidArgument: cores outside [1, 65536], heads outside [1, 2^40], a cost below 0 (per_row: below 1) or above 2^40, lists of different
// lengths, a kv_unit that doesn't divide kv_block, what CheckView and CheckSequence refuse, and work above 2^60.
absl::StatusOr<BalanceResult> Balance(const BalanceProblem& problem);

// Only the total: the cost of all rows, unsplit, and so cores * (the mean that no balance beats). The same errors.
absl::StatusOr<int64_t> BalanceWork(const BalanceProblem& problem);

// The rule that fixed planners use, for comparison: rows are never split; core after core takes rows up to max(work left / cores left,
// the longest row), and one more if that exceeds the limit by at most half of that row. Balance is never worse.
absl::StatusOr<BalanceResult> BalanceByFixedRule(const BalanceProblem& problem);

// KV blocks [kv_begin, kv_end) of a row, counted from the first entry that it sees; equal for a row without keys.
struct Piece {
  int64_t batch, head, query_block;
  int64_t kv_begin, kv_end;
  int64_t partial;  // -1 = the whole row: write the output itself
};

// Units (outputs of a row: queries, or queries x heads of the group) that core `core` of the merge finishes: [first, second) of num_units.
struct Range {
  int64_t begin, end;
};
Range MergeSlice(const Merge& merge, int64_t core, int64_t num_units);

// The pieces of one core, in order. `problem` is the one that gave `balance`.
template <typename Fn>
void ForEachPiece(const BalanceProblem& problem, const BalanceResult& balance, int64_t core, Fn&& fn) {
  const CoreShare& share = balance.shares[core];
  Position at = share.begin;
  while (at != share.end) {
    const int64_t batch = balance.order[at.rank];
    const RaggedRows rows(problem.query_lens[batch], problem.kv_lens[batch], problem.query_block, problem.kv_block, problem.view);
    if (at.query_block == rows.num_query_blocks()) {
      const bool next_head = at.query_block > 0 && at.head + 1 < problem.heads;
      at = next_head ? Position{at.rank, at.head + 1, 0, 0} : Position{at.rank + 1, 0, 0, 0};
      continue;
    }
    const bool last = at.rank == share.end.rank && at.head == share.end.head && at.query_block == share.end.query_block;
    const int64_t kv_end = last ? share.end.kv_block : rows.NumKvBlocks(at.query_block);
    const int64_t partial = at == share.begin ? share.head_partial : last ? share.tail_partial : -1;
    fn(Piece{batch, at.head, at.query_block, at.kv_block, kv_end, partial});
    if (last) break;
    at = {at.rank, at.head, at.query_block + 1, 0};
  }
}

// How much lies between two positions, in O(sequences): rows and pieces of rows, KV blocks, and kv_units of entries, by the queries of a
// row's block.
struct RowCount {
  int64_t queries = 0;
  int64_t rows = 0, blocks = 0, units = 0;
};

// Calls fn(RowCount) for the full query blocks and for the last ones, sequence by sequence, where there are any.
template <typename Fn>
void ForEachRowCount(const BalanceProblem& problem, const BalanceResult& balance, const Position& begin, const Position& end, Fn&& fn) {
  const int64_t ranks = std::min<int64_t>(end.rank + 1, balance.order.size());
  for (int64_t rank = begin.rank, next; rank < ranks; rank = next) {
    next = rank + 1;
    const int64_t batch = balance.order[rank], query_len = problem.query_lens[batch], kv_len = problem.kv_lens[batch];
    const RaggedRows blocks(query_len, kv_len, problem.query_block, problem.kv_block, problem.view);
    const RaggedRows units(query_len, kv_len, problem.query_block, problem.kv_unit, problem.view);
    const int64_t num_full = blocks.num_full(), num_rows = blocks.num_query_blocks();
    // From the sequence's begin to a position: full query blocks, then last ones.
    const auto until = [&](const Position& at, RowCount& full, RowCount& last) {
      const int64_t in_head = std::min(at.query_block, num_full), heads_last = at.head + (at.query_block > num_full);
      full = {problem.query_block, at.head * num_full + in_head, at.head * blocks.KvBlocksBefore(num_full) + blocks.KvBlocksBefore(in_head),
              at.head * units.KvBlocksBefore(num_full) + units.KvBlocksBefore(in_head)};
      last = {blocks.tail()};
      if (blocks.tail() > 0) last = {blocks.tail(), heads_last, heads_last * blocks.NumKvBlocks(num_full), heads_last * units.NumKvBlocks(num_full)};
      if (at.kv_block == 0) return;
      RowCount& row = at.query_block < num_full ? full : last;
      row = {row.queries, row.rows + 1, row.blocks + at.kv_block, row.units + at.kv_block * (problem.kv_block / problem.kv_unit)};
    };
    RowCount full, last, full_before, last_before;
    until(rank == end.rank ? end : Position{rank, problem.heads - 1, num_rows, 0}, full, last);
    until(rank == begin.rank ? begin : Position{rank, 0, 0, 0}, full_before, last_before);
    if (rank == begin.rank && begin.kv_block > 0) --(begin.query_block < num_full ? full_before : last_before).rows;  // its rest is a piece
    if (rank > begin.rank) {  // equal sequences follow each other
      while (next < end.rank && problem.query_lens[balance.order[next]] == query_len && problem.kv_lens[balance.order[next]] == kv_len) ++next;
      if (rank == end.rank) next = rank + 1;
    }
    const int64_t times = next - rank;
    const auto emit = [&](const RowCount& a, const RowCount& b) {
      if (a.rows > b.rows || a.blocks > b.blocks) fn(RowCount{a.queries, (a.rows - b.rows) * times, (a.blocks - b.blocks) * times, (a.units - b.units) * times});
    };
    emit(full, full_before);
    emit(last, last_before);
  }
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_BALANCE_H_
