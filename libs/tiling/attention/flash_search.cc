#include "libs/tiling/attention/flash_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "libs/tiling/attention/flash_pipes.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr double kGood = 1.05;  // times the bound: not worth another evaluation
constexpr size_t kEvaluated = 4;

// What the batch needs at least, of all cores together.
struct Least {
  double scores, kv_reads, q, out, output_blocks;
  double rows;  // as many tiles of queries and heads
};
Least LeastOf(const FlashWork& w, const FlashSums& sums, const Machine& machine) {
  const double kv_heads = static_cast<double>(w.kv_heads), group = static_cast<double>(w.group), size = static_cast<double>(Bytes(w.type));
  // No tile has more rows: L1 holds Q, UB its statistics.
  const double l1_rows = static_cast<double>(machine.l1) / (static_cast<double>(w.key_dim) * size);
  const double ub_rows = static_cast<double>(machine.ub * machine.vectors_per_cube) / 96;
  const double most_rows = std::max(1.0, std::min({l1_rows, ub_rows, static_cast<double>(kMaxTileRows)}));
  Least least = {};
  least.scores = sums.pairs * group * kv_heads;
  least.kv_reads = std::max(sums.entries, sums.pairs * std::max(w.view.max_selected > 0 ? 1.0 : 0.0, group / most_rows)) * kv_heads;
  least.q = sums.queries * group * kv_heads * static_cast<double>(w.key_dim) * size;
  least.out = sums.queries * (group * kv_heads * static_cast<double>(w.value_dim) * size + kv_heads * static_cast<double>(w.output_bytes));
  least.output_blocks = std::max(sums.pairs > 0 ? sums.queries * group * kv_heads : 0, least.scores / static_cast<double>(kMaxTileEntries));
  const double row_queries = w.view.max_selected > 0 ? 1 : std::max(1.0, std::floor(most_rows / group));
  least.rows = std::max(sums.sequences, sums.queries / row_queries) * kv_heads;
  if (sums.shortest == 0) least.rows = 0;  // those without keys don't have a block
  return least;
}

// Pipes of `cores` cores that share the work evenly.
void AddPipes(const FlashWork& w, const Least& least, double most_queries, const Machine& machine, double cores, Bound& bound) {
  const double size = static_cast<double>(Bytes(w.type)), key = static_cast<double>(w.key_dim), value = static_cast<double>(w.value_dim);
  const double aivs = static_cast<double>(machine.vectors_per_cube), fractal = static_cast<double>(kFractal);
  const bool pv = w.value_dim > 0, direct = HasDirectWay(machine);
  const double s = least.scores * 4, p = pv ? least.scores * size : 0, o = least.output_blocks * value * 4;
  const double padded = std::max(least.scores, fractal * least.kv_reads);
  const double kv = least.kv_reads * static_cast<double>(w.entry_bytes());
  const auto raise = [cores](double& term, double seconds) { term = std::max(term, seconds / cores); };
  // What every row costs beside its bytes: Q; K and V, at once or not; P. S and O'. S and O'. P, O and the output.
  const double row_steps = machine.step_seconds * least.rows;
  const double loads = pv ? 1 + (w.shared_kv ? 1 : 2) + (direct ? 0 : 1) : 2, products = pv ? 2 : 1;
  raise(bound.read_port, KvReadSeconds(w, machine, kv) + (least.q + (direct ? 0 : p)) / machine.read_rate + loads * row_steps);
  if (!direct) raise(bound.read_port, (s + o) / (machine.read_rate * aivs) + products * row_steps);
  raise(bound.write_port, (s + o) / machine.fix_rate + products * row_steps);
  raise(bound.write_port, (p + least.out) / (machine.write_rate * aivs) + (products + 1) * row_steps);
  const double macs = padded * (key + value);
  const double m0 = std::min(static_cast<double>(kMaxM0), std::ceil(most_queries * static_cast<double>(w.group) / fractal) * fractal);
  const double product = std::min(m0 * static_cast<double>(machine.l0b), static_cast<double>(kMaxN0 * machine.l0a)) / (2 * size);
  const double steps = std::max(machine.step_seconds * macs / product, products * row_steps);
  raise(bound.cube, macs / machine.Macs(w.type) + steps);
  const double a = padded * size * (key / kMaxN0 + (pv ? std::ceil(value / kMaxN0) : 0));
  const double b = std::max(least.kv_reads, least.scores / kMaxM0) * (key + value) * size;
  raise(bound.l0_port, a / machine.l0a_rate + b / machine.l0b_rate + steps);
  const double select = least.scores / static_cast<double>(w.group) * 4 * static_cast<double>(w.select_passes);
  raise(bound.vector, (s * static_cast<double>(w.score_passes) + 2 * o + select) / (machine.vector_rate * aivs) + products * row_steps);
}

}  // namespace

Bound BoundFlash(const FlashWork& w, const FlashSums& sums, const Machine& machine) {
  const Least least = LeastOf(w, sums, machine);
  const double size = static_cast<double>(Bytes(w.type)), kv = least.kv_reads * static_cast<double>(w.entry_bytes());
  const double s = least.scores * 4, p = w.value_dim > 0 ? least.scores * size : 0, o = least.output_blocks * static_cast<double>(w.value_dim) * 4;
  Bound split = {.hbm = (sums.kv_bytes + least.q + least.out) / machine.hbm_rate,
                 .l2 = (kv + least.q + least.out + (HasDirectWay(machine) ? 0 : 2 * (s + p + o))) / machine.l2_rate};
  if (sums.pairs == 0) return split;
  AddPipes(w, least, static_cast<double>(sums.most_queries), machine, static_cast<double>(machine.cube_cores), split);
  // A step of each pipe but the busiest. With PV, cube and vector unit have two in a block; MTE2 three in two, of K, V and P.
  // A load has at least 16 entries, and so has a block on the cube.
  const double dims = static_cast<double>(w.key_dim + w.value_dim), load = w.shared_kv && w.value_dim > 0 ? static_cast<double>(w.value_dim) : w.value_dim > 0 ? dims / 2 : dims;
  split.latency = (w.value_dim == 0 ? 6 : HasDirectWay(machine) ? 7 : 7.5) * machine.step_seconds +
                  std::min(kFractal * load * size / machine.read_rate, kFractal * kFractal * dims / machine.Macs(w.type));
  // A row that stays whole is at least one query of one head (or of all whose scores are summed up). One core has the longest of them, and one
  // has as many as there are for each core, rounded up.
  Bound whole = split;
  const double heads = w.whole_group ? static_cast<double>(w.group) : 1, cores = static_cast<double>(machine.cube_cores);
  const Least row = {.scores = heads, .kv_reads = sums.longest, .q = 0, .out = 0, .output_blocks = heads, .rows = 1};
  AddPipes(w, row, static_cast<double>(sums.most_queries), machine, 1, whole);
  const double each = std::ceil(least.rows / cores);
  const Least rows = {.scores = each * heads, .kv_reads = each * sums.shortest, .q = 0, .out = 0, .output_blocks = each * heads, .rows = each};
  AddPipes(w, rows, static_cast<double>(sums.most_queries), machine, 1, whole);
  // Rows in pieces: a barrier, and every core that works has a piece.
  const Least piece = {.scores = heads, .kv_reads = kFractal, .q = heads * static_cast<double>(w.key_dim) * size, .out = 0, .output_blocks = heads, .rows = 1};
  AddPipes(w, piece, static_cast<double>(sums.most_queries), machine, 1, split);
  split.latency += machine.step_seconds * (kBarrierCycles / kStepCycles + 3);
  return split.Seconds() < whole.Seconds() ? split : whole;
}

absl::StatusOr<FlashPlan> SearchFlash(const FlashWork& w, const FlashSums& sums, const Machine& machine, const std::optional<FlashTile>& fixed) {
  struct Guess {
    double seconds;
    FlashTile tile;
  };
  std::array<Guess, kEvaluated> best;
  size_t found = 0;
  absl::Status no_tile = absl::ResourceExhaustedError("attention: no tile fits");
  const int64_t most_queries = w.view.max_selected > 0 ? 1 : std::max<int64_t>(1, sums.most_queries);
  for (int64_t heads = w.group; heads >= 1; heads = heads % 2 == 0 && heads > kFractal && !w.whole_group ? heads / 2 : 0) {
    for (int64_t queries = 1; queries * heads <= kMaxTileRows; queries *= 2) {
      const int64_t used = std::min(queries, most_queries);
      // Rows below a fractal are padded; a chunk of prefill always has enough to fill one.
      if (used < most_queries && used * heads * 2 <= kFractal) continue;
      bool any = false;
      // Powers of two, and what makes one or two blocks for each core.
      const double rows_entries = most_queries <= used ? sums.entries : sums.pairs / static_cast<double>(used);
      const double of_core = rows_entries * static_cast<double>(w.kv_heads * (w.group / heads)) / static_cast<double>(machine.cube_cores);
      std::array<int64_t, 10> sizes = {};
      size_t num_sizes = 0;
      for (int64_t entries = kFractal; entries <= kMaxTileEntries; entries *= 2) {
        sizes[num_sizes++] = entries;
        if (static_cast<double>(entries) >= sums.longest) break;
      }
      for (const double share : {of_core, of_core / 2}) {
        const int64_t entries = share <= kMaxTileEntries ? RoundUp(static_cast<int64_t>(std::ceil(share)), kFractal) : 0;
        if (entries > 0 && (entries & (entries - 1)) != 0 && static_cast<double>(entries) < sums.longest) sizes[num_sizes++] = entries;
      }
      for (const int64_t entries : std::span(sizes).first(num_sizes)) {
        for (const bool keep_kv : {false, true}) {
          if (keep_kv && !w.shared_kv) break;
          for (const bool in_ub : {true, false}) {
            const FlashTile tile = {used, heads, entries, keep_kv, in_ub};
            const absl::StatusOr<FlashLayout> layout = Layout(w, tile, machine);
            if (!layout.ok()) continue;
            any = true;
            const Guess guess = {GuessSeconds(w, sums, tile, *layout, machine), tile};
            // Insertion into the best few; of equals the first stays.
            size_t at = found < kEvaluated ? found++ : kEvaluated;
            if (at == kEvaluated && guess.seconds >= best[kEvaluated - 1].seconds) continue;
            at = std::min(at, kEvaluated - 1);
            for (; at > 0 && guess.seconds < best[at - 1].seconds; --at) best[at] = best[at - 1];
            best[at] = guess;
            if (in_ub) break;  // what GM holds can't be faster than UB
          }
        }
      }
      if (used == most_queries || !any) break;
    }
  }

  absl::StatusOr<FlashPlan> plan = no_tile;
  const double good = BoundFlash(w, sums, machine).Seconds() * kGood;
  const auto take = [&](absl::StatusOr<FlashPlan> other) {
    if (!other.ok()) {
      if (!plan.ok()) plan = std::move(other);
    } else if (!plan.ok() || other->prediction.seconds < plan->prediction.seconds) {
      plan = std::move(other);
    }
  };
  // Not worth a look if it can't be better, or only a little.
  const auto hopeless = [&](const FlashTile& tile, double gain) {
    if (!plan.ok()) return false;
    const absl::StatusOr<FlashLayout> layout = Layout(w, tile, machine);
    return !layout.ok() || LeastSeconds(w, sums, tile, *layout, machine) * gain >= plan->prediction.seconds;
  };
  for (size_t i = 0; i < found && !(plan.ok() && plan->prediction.seconds <= good); ++i) {
    if (!hopeless(best[i].tile, kGood)) take(EvaluateFlash(w, sums, best[i].tile, machine, Split::kBalance));
  }
  if (fixed.has_value() && !hopeless(*fixed, 1)) {
    take(EvaluateFlash(w, sums, *fixed, machine, Split::kFixedRule));
    take(EvaluateFlash(w, sums, *fixed, machine, Split::kBalance));
  }
  return plan;
}

}  // namespace jumar::tiling
