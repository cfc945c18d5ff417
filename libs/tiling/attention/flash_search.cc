#include "libs/tiling/attention/flash_search.h"

#include <algorithm>
#include <array>
#include <cmath>
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
};
Least LeastOf(const FlashWork& w, const FlashSums& sums, const Machine& machine) {
  const double kv_heads = static_cast<double>(w.kv_heads), group = static_cast<double>(w.group), size = static_cast<double>(Bytes(w.type));
  // No tile has more rows: L1 holds Q, UB its statistics.
  const double l1_rows = static_cast<double>(machine.l1) / (static_cast<double>(w.key_dim) * size);
  const double ub_rows = static_cast<double>(machine.ub * machine.vectors_per_cube) / 96;
  const double most_rows = std::max(1.0, std::min({l1_rows, ub_rows, static_cast<double>(kMaxTileRows)}));
  Least least;
  least.scores = sums.pairs * group * kv_heads;
  least.kv_reads = std::max(sums.entries, sums.pairs * std::max(w.view.max_selected > 0 ? 1.0 : 0.0, group / most_rows)) * kv_heads;
  least.q = sums.queries * group * kv_heads * static_cast<double>(w.key_dim) * size;
  least.out = sums.queries * (group * kv_heads * static_cast<double>(w.value_dim) * size + kv_heads * static_cast<double>(w.output_bytes));
  least.output_blocks = std::max(sums.pairs > 0 ? sums.queries * group * kv_heads : 0, least.scores / static_cast<double>(kMaxTileEntries));
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
  raise(bound.read_port, KvReadSeconds(w, machine, kv) + (least.q + (direct ? 0 : p)) / machine.read_rate);
  if (!direct) raise(bound.read_port, (s + o) / (machine.read_rate * aivs));
  raise(bound.write_port, (s + o) / machine.fix_rate);
  raise(bound.write_port, (p + least.out) / (machine.write_rate * aivs));
  const double macs = padded * (key + value);
  const double m0 = std::min(static_cast<double>(kMaxM0), std::ceil(most_queries * static_cast<double>(w.group) / fractal) * fractal);
  const double product = std::min(m0 * static_cast<double>(machine.l0b), static_cast<double>(kMaxN0 * machine.l0a)) / (2 * size);
  const double steps = machine.step_seconds * macs / product;
  raise(bound.cube, macs / machine.Macs(w.type) + steps);
  const double a = padded * size * (key / kMaxN0 + (pv ? std::ceil(value / kMaxN0) : 0));
  const double b = std::max(least.kv_reads, least.scores / kMaxM0) * (key + value) * size;
  raise(bound.l0_port, a / machine.l0a_rate + b / machine.l0b_rate + steps);
  const double select = least.scores / static_cast<double>(w.group) * 4 * static_cast<double>(w.select_passes);
  raise(bound.vector, (s * static_cast<double>(w.score_passes) + 2 * o + select) / (machine.vector_rate * aivs));
}

}  // namespace

Bound BoundFlash(const FlashWork& w, const Machine& machine) {
  const FlashSums sums = SumsOf(w);
  const Least least = LeastOf(w, sums, machine);
  const double size = static_cast<double>(Bytes(w.type)), kv = least.kv_reads * static_cast<double>(w.entry_bytes());
  const double s = least.scores * 4, p = w.value_dim > 0 ? least.scores * size : 0, o = least.output_blocks * static_cast<double>(w.value_dim) * 4;
  Bound split = {.hbm = (KvBytesOnce(w, /*distinct=*/false) + least.q + least.out) / machine.hbm_rate,
                 .l2 = (kv + least.q + least.out + (HasDirectWay(machine) ? 0 : 2 * (s + p + o))) / machine.l2_rate};
  if (sums.pairs == 0) return split;
  AddPipes(w, least, static_cast<double>(sums.most_queries), machine, static_cast<double>(machine.cube_cores), split);
  split.latency = (kNumPipes - 1) * machine.step_seconds;
  // One core has the longest sequence's last query whole, of one head (or of all whose scores are summed up).
  Bound whole = split;
  const double heads = w.whole_group ? static_cast<double>(w.group) : 1;
  const Least row = {.scores = sums.longest * heads, .kv_reads = sums.longest, .q = 0, .out = 0, .output_blocks = 0};
  AddPipes(w, row, static_cast<double>(sums.most_queries), machine, 1, whole);
  split.latency += machine.step_seconds * (kBarrierCycles / kStepCycles + 3);
  return split.Seconds() < whole.Seconds() ? split : whole;
}

absl::StatusOr<FlashPlan> SearchFlash(const FlashWork& w, const Machine& machine, const std::optional<FlashTile>& fixed) {
  const FlashSums sums = SumsOf(w);
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
      for (int64_t entries = kFractal; entries <= kMaxTileEntries; entries *= 2) {
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
        if (static_cast<double>(entries) >= sums.longest) break;
      }
      if (used == most_queries || !any) break;
    }
  }

  absl::StatusOr<FlashPlan> plan = no_tile;
  const double good = BoundFlash(w, machine).Seconds() * kGood;
  const auto take = [&](absl::StatusOr<FlashPlan> other) {
    if (!other.ok()) {
      if (!plan.ok()) plan = std::move(other);
    } else if (!plan.ok() || other->prediction.seconds < plan->prediction.seconds) {
      plan = std::move(other);
    }
  };
  for (size_t i = 0; i < found && !(plan.ok() && plan->prediction.seconds <= good); ++i) take(EvaluateFlash(w, best[i].tile, machine));
  if (fixed.has_value()) {
    if (!(plan.ok() && plan->prediction.seconds <= good)) take(EvaluateFlash(w, *fixed, machine));
    take(EvaluateFlash(w, *fixed, machine, Split::kFixedRule));
  }
  return plan;
}

}  // namespace jumar::tiling
