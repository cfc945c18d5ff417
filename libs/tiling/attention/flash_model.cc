#include "libs/tiling/attention/flash_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/status/status.h"
#include "libs/tiling/attention/flash_pipes.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr double kCostUnits = 1e11;   // of balance's costs in a second: 10 ps

// What a piece of a split row writes for the merge: O in fp32, maximum and sum; of an indexer, candidates with their scores.
double PartialBytes(const FlashWork& w, const FlashLayout& layout, const FlashTile& tile) {
  return static_cast<double>(layout.rows * (w.value_dim * 4 + kBlockBytes) + tile.queries * 2 * w.output_bytes);
}

int64_t Units(double seconds) { return std::clamp<int64_t>(std::llround(seconds * kCostUnits), 0, int64_t{1} << 40); }

// Seconds of the busiest pipe at a full block, and of what it is made.
struct BlockSeconds {
  double row, block, unit;
};
BlockSeconds BusiestPipe(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine, int64_t queries) {
  FlashBusy row, block, unit;
  AddBusy(w, tile, layout, machine, {.queries = queries, .rows = 1}, row);
  AddBusy(w, tile, layout, machine, {.queries = queries, .blocks = 1}, block);
  AddBusy(w, tile, layout, machine, {.queries = queries, .entries = kFractal}, unit);
  const double units = static_cast<double>(tile.entries / kFractal);
  BlockSeconds busiest = {0, -1, 0};
  for (int pipe = 0; pipe < kNumPipes; ++pipe) {
    if (block.busy[pipe] + units * unit.busy[pipe] <= busiest.block + units * busiest.unit) continue;
    busiest = {row.busy[pipe], block.busy[pipe], unit.busy[pipe]};
  }
  return busiest;
}

BalanceCost CostOf(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  const BlockSeconds one = BusiestPipe(w, tile, layout, machine, 1), full = BusiestPipe(w, tile, layout, machine, tile.queries);
  const auto slope = [&](double a, double b) { return tile.queries > 1 ? std::max(0.0, b - a) / static_cast<double>(tile.queries - 1) : 0.0; };
  const double block_slope = slope(one.block, full.block), unit_slope = slope(one.unit, full.unit);
  // A partial O out and in again, and two passes over it.
  const double partial = PartialBytes(w, layout, tile);
  const double aivs = static_cast<double>(machine.vectors_per_cube);
  const double piece = partial / aivs * (1 / machine.write_rate + 1 / machine.read_rate + 2 / machine.vector_rate) + 4 * machine.step_seconds;
  return {.per_row = std::max<int64_t>(1, Units(full.row + machine.step_seconds)),
          .per_block = Units(std::max(0.0, one.block - block_slope)),
          .per_block_query = Units(block_slope),
          .per_unit = Units(std::max(0.0, one.unit - unit_slope)),
          .per_unit_query = Units(unit_slope),
          .per_split_piece = Units(piece),
          .barrier = Units(machine.step_seconds * kBarrierCycles / kStepCycles)};
}

// The pieces of split rows are merged behind a barrier.
Prediction MergePhase(const FlashWork& w, const FlashPlan& plan, const Machine& machine) {
  std::vector<int8_t> merges(plan.balance.shares.size());
  for (const Merge& merge : plan.balance.merges) {
    for (int64_t core = merge.first_core; core < merge.first_core + merge.num_pieces; ++core) ++merges[core];
  }
  const double most = *std::max_element(merges.begin(), merges.end());
  const double partial = PartialBytes(w, plan.layout, plan.tile), aivs = static_cast<double>(machine.vectors_per_cube);
  const double output = static_cast<double>(plan.layout.rows * w.value_dim * Bytes(w.type) + plan.tile.queries * w.output_bytes);
  CoreWork work = {.steps = static_cast<int64_t>(most)};
  work.step[kVectorIn] = partial / (machine.read_rate * aivs) + machine.step_seconds;
  work.step[kVector] = 2 * partial / (machine.vector_rate * aivs) + machine.step_seconds;
  work.step[kMte3] = output / (machine.write_rate * aivs) + machine.step_seconds;
  for (int pipe = 0; pipe < kNumPipes; ++pipe) work.busy[pipe] = work.step[pipe] * most;
  Prediction merge = Predict(machine, work, 0, plan.partial_bytes);
  merge.seconds += machine.step_seconds * kBarrierCycles / kStepCycles;
  return merge;
}

double KvBytesOnce(const FlashWork& w) {
  double entries = 0;
  for (size_t i = 0; i < w.kv_lens.size(); ++i) {
    const int64_t queries = w.query_lens[i], keys = w.kv_lens[i];
    if (queries == 0) continue;
    if (w.view.window > 0) {
      entries += static_cast<double>(std::min(keys, w.view.window + queries - 1));
      continue;
    }
    int64_t seen = keys / w.view.ratio;
    if (w.view.max_selected > 0) {
      const double picked = static_cast<double>(std::min(seen, w.view.max_selected)) * static_cast<double>(queries);
      entries += std::min(static_cast<double>(seen), picked);
    } else {
      entries += static_cast<double>(seen);
    }
    if (w.view.leading_entries > 0) entries += static_cast<double>(std::min(keys, w.view.leading_entries + queries - 1));
  }
  return entries * static_cast<double>(w.kv_heads) * static_cast<double>(w.entry_bytes());
}

}  // namespace

absl::Status CheckWork(const FlashWork& w) {
  const int64_t heads = w.kv_heads * w.group, dims = w.key_dim + w.value_dim;
  if (absl::Status status = CheckView(1, kFractal, w.view); !status.ok()) return status;
  int64_t pairs = 0, tokens = 0;
  for (size_t i = 0; i < w.kv_lens.size(); ++i) {
    const int64_t sequence = static_cast<int64_t>(i);
    absl::StatusOr<int64_t> own = Product("queries * keys of a sequence", {w.query_lens[i], w.kv_lens[i] + w.view.leading_entries});
    if (!own.ok()) return own.status();
    if (absl::Status status = CheckSequence(sequence, w.query_lens[i], w.kv_lens[i], 1, 1, w.view); !status.ok()) return status;
    absl::StatusOr<int64_t> all = Sum("queries * keys of the batch", {pairs, *own});
    absl::StatusOr<int64_t> all_tokens = Sum("keys of the batch", {tokens, w.kv_lens[i] + w.query_lens[i] + w.view.leading_entries});
    if (!all.ok()) return all.status();
    if (!all_tokens.ok()) return all_tokens.status();
    pairs = *all;
    tokens = *all_tokens;
  }
  if (absl::Status status = Product("bytes of scores (queries * keys * heads * 4)", {pairs, heads, 4}).status(); !status.ok()) return status;
  // Work counts as doubles from here on, but what is reported as an integer must fit: the largest is multiply-adds, padded to fractals.
  return Product("multiply-adds (queries * keys * heads * dims) / 256", {CeilDiv(pairs, 256) + tokens, heads, dims}).status();
}

absl::StatusOr<FlashPlan> EvaluateFlash(const FlashWork& w, const FlashSums& sums, const FlashTile& tile, const Machine& machine, Split split) {
  absl::StatusOr<FlashLayout> layout = Layout(w, tile, machine);
  if (!layout.ok()) return layout.status();
  FlashPlan plan = {.tile = tile, .layout = *layout};
  plan.balance_problem = {.query_lens = w.query_lens,
                          .kv_lens = w.kv_lens,
                          .heads = w.kv_heads * (w.group / tile.heads),
                          .query_block = tile.queries,
                          .kv_block = tile.entries,
                          .kv_unit = kFractal,
                          .view = w.view,
                          .cost = CostOf(w, tile, *layout, machine),
                          .cores = machine.cube_cores};
  absl::StatusOr<BalanceResult> balance = split == Split::kBalance ? Balance(plan.balance_problem) : BalanceByFixedRule(plan.balance_problem);
  if (!balance.ok()) return balance.status();
  plan.balance = *std::move(balance);

  FlashBytes bytes;
  double slowest_seconds = -1;
  const double partial = PartialBytes(w, *layout, tile);
  for (const CoreShare& share : plan.balance.shares) {
    if (share.begin == share.end) {
      plan.core_seconds.push_back(0);
      continue;
    }
    // AddBusy is linear in all but the queries, so that what has the same number of queries is added up before.
    FlashBusy busy;
    FlashCount full = {.queries = tile.queries}, last = {};
    const auto add = [&](FlashCount& count, const RowCount& run) {
      count.rows += static_cast<double>(run.rows), count.blocks += static_cast<double>(run.blocks), count.entries += static_cast<double>(run.units * kFractal);
    };
    ForEachRowCount(plan.balance_problem, plan.balance, share.begin, share.end, [&](const RowCount& run) {
      if (run.queries == tile.queries) return add(full, run);
      if (run.queries != last.queries) {
        if (last.queries > 0) AddBusy(w, tile, *layout, machine, last, busy);
        last = {.queries = run.queries};
      }
      add(last, run);
    });
    if (full.rows > 0) AddBusy(w, tile, *layout, machine, full, busy);
    if (last.queries > 0) AddBusy(w, tile, *layout, machine, last, busy);
    bytes += busy.bytes;
    busy.busy[kMte3] += partial / (machine.write_rate * static_cast<double>(machine.vectors_per_cube)) *
                        ((share.head_partial >= 0 ? 1 : 0) + (share.tail_partial >= 0 ? 1 : 0));
    const CoreWork core = busy.Work(machine);
    plan.core_seconds.push_back(CoreSeconds(core));
    if (plan.core_seconds.back() <= slowest_seconds) continue;
    slowest_seconds = plan.core_seconds.back();
    plan.slowest = core;
  }

  plan.partial_bytes = plan.balance.num_partials * static_cast<int64_t>(partial);
  const SharedSeconds shared = SharedOf(w, sums, *layout, machine, bytes);
  const double partials = static_cast<double>(plan.partial_bytes);
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  plan.traffic = {.hbm_read = whole(shared.hbm_read),
                  .hbm_write = whole(shared.hbm_write),
                  .l2_read = whole(bytes.kv + bytes.q + bytes.workspace_read + partials),
                  .l2_write = whole(bytes.out + bytes.workspace_write + partials),
                  .l1_to_l0 = whole(bytes.l1_to_l0),
                  .l0c_out = whole(bytes.l0c_out),
                  .vector_bytes = whole(bytes.vector),
                  .cube_macs = whole(bytes.macs)};
  plan.prediction = Predict(machine, plan.slowest, plan.traffic.hbm_read + plan.traffic.hbm_write, plan.traffic.l2_read + plan.traffic.l2_write - plan.partial_bytes);
  if (!plan.balance.merges.empty()) plan.prediction = Then(plan.prediction, MergePhase(w, plan, machine));
  return plan;
}

FlashSums SumsOf(const FlashWork& w) {
  FlashSums sums;
  for (size_t i = 0; i < w.kv_lens.size(); ++i) {
    const int64_t queries = w.query_lens[i];
    if (queries == 0) continue;
    const RaggedRows fractals(queries, w.kv_lens[i], 1, kFractal, w.view);
    const RaggedRows all(queries, w.kv_lens[i], queries, kFractal, w.view);
    const double last = static_cast<double>(fractals.NumKvBlocks(queries - 1) * kFractal);
    const int64_t fractals_seen = std::max<int64_t>(1, fractals.NumKvBlocks(queries - 1));
    const int index = std::bit_width(static_cast<uint64_t>(fractals_seen - 1));
    FlashSums::Bucket& bucket = sums.buckets[static_cast<size_t>(index)];
    bucket.sequences += 1, bucket.queries += static_cast<double>(queries);
    bucket.fractals += static_cast<double>(fractals_seen), bucket.query_fractals += static_cast<double>(queries * fractals_seen);
    sums.num_buckets = std::max(sums.num_buckets, index + 1);
    sums.queries += static_cast<double>(queries);
    sums.pairs += static_cast<double>(fractals.KvBlocksBefore(queries) * kFractal);
    sums.entries += static_cast<double>(all.NumKvBlocks(0) * kFractal);
    sums.longest = std::max(sums.longest, last);
    const double first = static_cast<double>(fractals.NumKvBlocks(0) * kFractal);
    sums.shortest = sums.sequences == 0 ? last : std::min(sums.shortest, last);
    sums.fewest = sums.sequences == 0 ? first : std::min(sums.fewest, first);
    sums.most_queries = std::max(sums.most_queries, queries);
    sums.sequences += 1;
  }
  sums.kv_bytes = KvBytesOnce(w);
  return sums;
}

double LeastSeconds(const FlashWork& w, const FlashSums& sums, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  FlashBusy all;
  const double heads = static_cast<double>(w.kv_heads * (w.group / tile.heads));
  for (size_t i = 0, end; i < w.kv_lens.size(); i = end) {
    const int64_t queries = w.query_lens[i], keys = w.kv_lens[i];
    for (end = i + 1; end < w.kv_lens.size() && w.query_lens[end] == queries && w.kv_lens[end] == keys;) ++end;
    const RaggedRows blocks(queries, keys, tile.queries, tile.entries, w.view), units(queries, keys, tile.queries, kFractal, w.view);
    const int64_t full = blocks.num_full();
    const double times = heads * static_cast<double>(end - i);
    if (full > 0) {
      AddBusy(w, tile, layout, machine, {tile.queries, times * static_cast<double>(full), times * static_cast<double>(blocks.KvBlocksBefore(full)),
                                         times * static_cast<double>(units.KvBlocksBefore(full) * kFractal)}, all);
    }
    if (blocks.tail() > 0) {
      AddBusy(w, tile, layout, machine, {blocks.tail(), times, times * static_cast<double>(blocks.NumKvBlocks(full)),
                                         times * static_cast<double>(units.NumKvBlocks(full) * kFractal)}, all);
    }
  }
  const SharedSeconds shared = SharedOf(w, sums, layout, machine, all.bytes);
  return std::max({*std::max_element(all.busy.begin(), all.busy.end()) / static_cast<double>(machine.cube_cores), shared.hbm, shared.l2});
}

double GuessSeconds(const FlashWork& w, const FlashSums& sums, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  const double heads = static_cast<double>(w.kv_heads * (w.group / tile.heads)), q = static_cast<double>(tile.queries);
  const bool one_row = sums.most_queries <= tile.queries;
  const double rows = one_row ? sums.sequences : tile.queries == 1 ? sums.queries : sums.queries / q + sums.sequences / 2;
  const double entries = one_row ? sums.entries : sums.pairs / q + rows * (q - 1) / 2;
  // A row's last block is half full; where rows have several lengths, by buckets.
  double blocks = 0;
  if (one_row || tile.queries == 1) {
    const double fractals = static_cast<double>(tile.entries / kFractal);
    for (const FlashSums::Bucket& bucket : std::span(sums.buckets).first(static_cast<size_t>(sums.num_buckets))) {
      const double of = one_row ? bucket.sequences : bucket.queries;
      if (of == 0) continue;
      const double of_row = (one_row ? bucket.fractals : bucket.query_fractals) / of / fractals;
      blocks += of * (of_row <= 1 ? 1 : of == 1 || sums.shortest == sums.longest ? std::ceil(of_row) : of_row + 0.5);
    }
  } else {
    const double of_row = entries / std::max(1.0, rows) / static_cast<double>(tile.entries);
    blocks = rows * (static_cast<double>(tile.entries) >= sums.longest ? 1 : std::max(1.0, of_row + 0.5));
  }
  const FlashCount count = {.queries = std::clamp<int64_t>(std::llround(sums.queries / std::max(1.0, rows)), 1, tile.queries),
                            .rows = rows * heads,
                            .blocks = blocks * heads,
                            .entries = (entries + rows * (kFractal - 1) / 2) * heads};
  FlashBusy all_cores;
  AddBusy(w, tile, layout, machine, count, all_cores);
  const double cores = static_cast<double>(machine.cube_cores), used = std::min(cores, count.blocks);
  double steps = 0, most = 0;
  for (int pipe = 0; pipe < kNumPipes; ++pipe) {
    steps += all_cores.busy[pipe] / std::max(used, all_cores.steps[pipe]);
    most = std::max(most, all_cores.busy[pipe]);
  }
  const SharedSeconds shared = SharedOf(w, sums, layout, machine, all_cores.bytes);
  const double uneven = 0.5 * most / std::max(1.0, count.blocks);  // half a block
  return std::max({most / used + steps + uneven, shared.hbm, shared.l2});
}

}  // namespace jumar::tiling
