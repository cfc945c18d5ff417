#include "libs/tiling/attention/flash_model.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/attention/flash_pipes.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr double kCostUnits = 1e11;   // of balance's costs in a second: 10 ps
constexpr int64_t kProbabilityEntries = 128;
constexpr int64_t kStatBytes = 96;    // of a row in UB: maximum, sum and factor, a block each

absl::Status Exhausted(std::string_view memory, int64_t has, const FlashWork& w, const FlashTile& tile) {
  return absl::ResourceExhaustedError(absl::StrCat("attention tile of ", tile.queries, " queries x ", tile.heads, " heads, ", tile.entries, " entries, dims ",
                                                   w.key_dim, " and ", w.value_dim, " doesn't fit ", std::string(memory), " of ", has, " bytes; take a smaller one"));
}

int64_t UbBytesPerRow(const FlashWork& w, const FlashTile& tile) {
  const int64_t scores = 2 * tile.entries * 4, output = 2 * w.value_dim * 4;
  if (w.value_dim == 0) return scores + 2 * tile.entries * 4;
  return scores + 2 * tile.entries * Bytes(w.type) + (tile.output_in_ub ? output : 2 * output);
}

int64_t UbBytesFixed(const FlashWork& w, const FlashTile& tile, int64_t rows_of_aiv) {
  return rows_of_aiv * (kStatBytes + (tile.output_in_ub ? RoundUp(w.value_dim * 4, kBlockBytes) : 0)) + 4 * RoundUp(w.output_bytes, kBlockBytes);
}

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
  PipeSeconds row = {}, block = {}, unit = {};
  AddBusy(w, tile, layout, machine, {.queries = queries, .rows = 1}, row);
  AddBusy(w, tile, layout, machine, {.queries = queries, .blocks = 1}, block);
  AddBusy(w, tile, layout, machine, {.queries = queries, .entries = kFractal}, unit);
  const double units = static_cast<double>(tile.entries / kFractal);
  BlockSeconds busiest = {0, -1, 0};
  for (int pipe = 0; pipe < kNumPipes; ++pipe) {
    if (block[pipe] + units * unit[pipe] > busiest.block + units * busiest.unit) busiest = {row[pipe], block[pipe], unit[pipe]};
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

}  // namespace

absl::Status CheckWork(const FlashWork& w) {
  const int64_t heads = w.kv_heads * w.group, dims = w.key_dim + w.value_dim;
  if (absl::Status status = CheckView(1, kFractal, w.view); !status.ok()) return status;
  int64_t pairs = 0, tokens = 0;
  for (size_t i = 0; i < w.kv_lens.size(); ++i) {
    const int64_t sequence = static_cast<int64_t>(i);
    if (absl::Status status = CheckSequence(sequence, w.query_lens[i], w.kv_lens[i], 1, 1, w.view); !status.ok()) return status;
    absl::StatusOr<int64_t> own = Product("queries * keys of a sequence", {w.query_lens[i], w.kv_lens[i] + w.view.leading_entries});
    if (!own.ok()) return own.status();
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

absl::StatusOr<FlashLayout> Layout(const FlashWork& w, const FlashTile& tile, const Machine& machine) {
  if (tile.queries < 1 || tile.heads < 1 || w.group % tile.heads != 0 || (w.whole_group && tile.heads != w.group)) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: ", tile.queries, " queries x ", tile.heads, " heads don't tile a group of ", w.group, " heads"));
  }
  if (tile.queries > kMaxTileRows / tile.heads) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: ", tile.queries, " queries x ", tile.heads, " heads are more than ", kMaxTileRows, " rows"));
  }
  if (tile.entries < kFractal || tile.entries > kMaxTileEntries || tile.entries % kFractal != 0) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: entries = ", tile.entries, " is not a multiple of 16 up to ", kMaxTileEntries));
  }
  if (w.view.max_selected > 0 && tile.queries > 1) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: queries = ", tile.queries, ", but each query selects its own entries: take 1"));
  }
  FlashLayout layout = {.rows = tile.queries * tile.heads};
  const int64_t size = Bytes(w.type), m16 = RoundUp(layout.rows, kFractal), fractal_k = FractalK(w.type);
  layout.m0 = std::min(m16, kMaxM0);
  layout.n0 = std::min({tile.entries, kMaxN0, machine.l0c / (2 * 4 * layout.m0) / kFractal * kFractal});
  if (layout.n0 < kFractal) return Exhausted("L0C", machine.l0c, w, tile);
  layout.k0 = std::min(machine.l0a / (2 * size * layout.m0), machine.l0b / (2 * size * layout.n0)) / fractal_k * fractal_k;
  if (layout.k0 < fractal_k) return Exhausted("L0A or L0B", std::min(machine.l0a, machine.l0b), w, tile);

  const int64_t q = m16 * w.key_dim * size, widest = std::max(w.key_dim, w.value_dim) * size;
  const int64_t probability = w.value_dim > 0 ? 2 * m16 * size : 0;  // of an entry
  if (tile.keep_kv) {
    layout.l1_entries = tile.entries;
    if (q + kStages * tile.entries * w.entry_bytes() + probability * std::min(tile.entries, kProbabilityEntries) > machine.l1) return Exhausted("L1", machine.l1, w, tile);
  } else {
    for (layout.l1_entries = tile.entries;; layout.l1_entries = RoundUp(layout.l1_entries / 2, kFractal)) {
      if (q + 2 * layout.l1_entries * widest + probability * std::min(layout.l1_entries, kProbabilityEntries) <= machine.l1) break;
      if (layout.l1_entries == kFractal) return Exhausted("L1", machine.l1, w, tile);
    }
  }

  const int64_t of_aiv = CeilDiv(m16, machine.vectors_per_cube), room = machine.ub - UbBytesFixed(w, tile, of_aiv);
  layout.vector_rows = std::min(of_aiv, room / UbBytesPerRow(w, tile));
  if (layout.vector_rows < 1) return Exhausted("UB", machine.ub, w, tile);

  const int64_t scores = m16 * tile.entries, output = m16 * w.value_dim * 4;
  if (!HasDirectWay(machine)) layout.workspace_bytes = kStages * (scores * 4 + (w.value_dim > 0 ? scores * size + output : 0));
  if (!tile.output_in_ub) layout.workspace_bytes += output;
  layout.workspace_bytes *= machine.cube_cores;
  return layout;
}

std::vector<Buffer> FlashBuffers(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  const int64_t size = Bytes(w.type), m16 = RoundUp(layout.rows, kFractal), of_aiv = CeilDiv(m16, machine.vectors_per_cube);
  const bool pv = w.value_dim > 0;
  std::vector<Buffer> buffers = {{.name = "Q", .memory = Memory::kL1, .bytes = m16 * w.key_dim * size}};
  buffers.push_back({.name = tile.keep_kv ? "KV" : "K or V",
                     .memory = Memory::kL1,
                     .bytes = layout.l1_entries * (tile.keep_kv ? w.entry_bytes() : std::max(w.key_dim, w.value_dim) * size),
                     .copies = 2});
  if (pv) buffers.push_back({.name = "P", .memory = Memory::kL1, .bytes = m16 * std::min(layout.l1_entries, kProbabilityEntries) * size, .copies = 2});
  buffers.push_back({.name = "Q or P", .memory = Memory::kL0A, .bytes = layout.m0 * layout.k0 * size, .copies = 2});
  buffers.push_back({.name = "K or V", .memory = Memory::kL0B, .bytes = layout.n0 * layout.k0 * size, .copies = 2});
  buffers.push_back({.name = pv ? "S or O'" : "S", .memory = Memory::kL0C, .bytes = layout.m0 * layout.n0 * 4, .copies = 2});
  buffers.push_back({.name = "S", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * 4, .copies = 2});
  if (!pv) {
    buffers.push_back({.name = "score", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * 4, .copies = 2});
  } else {
    buffers.push_back({.name = "P", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * size, .copies = 2});
    buffers.push_back({.name = "O'", .memory = Memory::kUb, .bytes = layout.vector_rows * w.value_dim * 4, .copies = 2});
    buffers.push_back({.name = "O", .memory = Memory::kUb, .bytes = (tile.output_in_ub ? of_aiv : layout.vector_rows) * w.value_dim * 4,
                       .copies = tile.output_in_ub ? 1 : 2});
  }
  buffers.push_back({.name = "maximum, sum, factor", .memory = Memory::kUb, .bytes = of_aiv * kStatBytes});
  if (w.output_bytes > 0) buffers.push_back({.name = "selected", .memory = Memory::kUb, .bytes = w.output_bytes, .copies = 4});
  return buffers;
}

double KvBytesOnce(const FlashWork& w, bool distinct) {
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
      const double picked = static_cast<double>(std::min(seen, w.view.max_selected)) * (distinct ? static_cast<double>(queries) : 1);
      entries += std::min(static_cast<double>(seen), picked);
    } else {
      entries += static_cast<double>(seen);
    }
    if (w.view.leading_entries > 0) entries += static_cast<double>(std::min(keys, w.view.leading_entries + queries - 1));
  }
  return entries * static_cast<double>(w.kv_heads) * static_cast<double>(w.entry_bytes());
}

absl::StatusOr<FlashPlan> EvaluateFlash(const FlashWork& w, const FlashTile& tile, const Machine& machine, Split split) {
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
    CoreWork core;
    double blocks = 0;
    ForEachRowCount(plan.balance_problem, plan.balance, share.begin, share.end, [&](const RowCount& run) {
      const FlashCount count = {run.queries, static_cast<double>(run.rows), static_cast<double>(run.blocks), static_cast<double>(run.units * kFractal)};
      AddBusy(w, tile, *layout, machine, count, core.busy);
      bytes += BytesOf(w, tile, *layout, machine, count);
      blocks += count.blocks;
      core.steps += run.blocks;
    });
    if (share.begin == share.end) {
      plan.core_seconds.push_back(0);
      continue;
    }
    core.busy[kMte3] += partial / (machine.write_rate * static_cast<double>(machine.vectors_per_cube)) *
                        ((share.head_partial >= 0 ? 1 : 0) + (share.tail_partial >= 0 ? 1 : 0));
    if (machine.unified()) core.TakeTurns(kMte2, kVectorIn);
    for (int pipe = 0; pipe < kNumPipes; ++pipe) core.step[pipe] = core.busy[pipe] / std::max(1.0, blocks);
    plan.core_seconds.push_back(CoreSeconds(core));
    if (plan.core_seconds.back() <= slowest_seconds) continue;
    slowest_seconds = plan.core_seconds.back();
    plan.slowest = core;
  }

  plan.partial_bytes = plan.balance.num_partials * static_cast<int64_t>(partial);
  // KV of the heads that are worked on at the same time comes from HBM once if half of L2 holds it.
  const double once = KvBytesOnce(w, /*distinct=*/true), all_heads = static_cast<double>(w.kv_heads) * static_cast<double>(w.kv_lens.size());
  const double share = all_heads > 0 ? std::min(1.0, static_cast<double>(machine.cube_cores) / all_heads) : 0;
  const double half = static_cast<double>(machine.l2) / 2;
  double hbm_read = (once * share <= half ? std::min(once, bytes.kv) : bytes.kv) + bytes.q, hbm_write = bytes.out;
  if (static_cast<double>(layout->workspace_bytes) > half) hbm_read += bytes.workspace_read, hbm_write += bytes.workspace_write;
  const double partials = static_cast<double>(plan.partial_bytes);
  const auto whole = [](double x) { return static_cast<int64_t>(x); };
  plan.traffic = {.hbm_read = whole(hbm_read),
                  .hbm_write = whole(hbm_write),
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
    const RaggedRows rows(queries, w.kv_lens[i], 1, 1, w.view), all(queries, w.kv_lens[i], queries, 1, w.view);
    sums.queries += static_cast<double>(queries);
    sums.pairs += static_cast<double>(rows.KvBlocksBefore(queries));
    sums.entries += static_cast<double>(all.NumKvBlocks(0));
    sums.longest = std::max(sums.longest, static_cast<double>(rows.NumKvBlocks(queries - 1)));
    sums.most_queries = std::max(sums.most_queries, queries);
    sums.sequences += 1;
  }
  sums.kv_bytes = KvBytesOnce(w, /*distinct=*/true);
  return sums;
}

double GuessSeconds(const FlashWork& w, const FlashSums& sums, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  const double heads = static_cast<double>(w.kv_heads * (w.group / tile.heads)), q = static_cast<double>(tile.queries);
  const bool one_row = sums.most_queries <= tile.queries;
  const double rows = one_row ? sums.sequences : tile.queries == 1 ? sums.queries : sums.queries / q + sums.sequences / 2;
  const double entries = one_row ? sums.entries : sums.pairs / q + rows * (q - 1) / 2;
  const double blocks = std::max(rows, entries / static_cast<double>(tile.entries) + rows / 2);
  const FlashCount count = {.queries = std::clamp<int64_t>(std::llround(sums.queries / std::max(1.0, rows)), 1, tile.queries),
                            .rows = rows * heads,
                            .blocks = blocks * heads,
                            .entries = (entries + rows * (kFractal - 1) / 2) * heads};
  PipeSeconds busy = {};
  AddBusy(w, tile, layout, machine, count, busy);
  const double cores = static_cast<double>(machine.cube_cores), used = std::min(cores, count.blocks);
  double all = 0, most = 0;
  for (const double seconds : busy) all += seconds, most = std::max(most, seconds);
  const double core_blocks = std::max(1.0, count.blocks / used);
  const FlashBytes bytes = BytesOf(w, tile, layout, machine, count);
  const double hbm = (std::min(sums.kv_bytes, bytes.kv) + bytes.q + bytes.out) / machine.hbm_rate;
  const double l2 = (bytes.kv + bytes.q + bytes.out + bytes.workspace_read + bytes.workspace_write) / machine.l2_rate;
  const double uneven = 0.5 * most / std::max(1.0, count.blocks);  // half a block
  return std::max({most / used + (all - most) / used / core_blocks + uneven, hbm, l2});
}

}  // namespace jumar::tiling
