#include "libs/tiling/attention/flash_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "libs/tiling/attention/flash_pipes.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr double kGood = 1.05;  // times the bound: not worth another evaluation
constexpr size_t kRanked = 10;    // tiles that are looked at again
constexpr int kEvaluated = 4;     // of them, those that are split over the cores

// What the batch needs at least, of all cores together.
struct Least {
  double scores, kv_reads, q, out, output_blocks;
  double rows;    // as many tiles of queries and heads
  double padded;  // scores with rows rounded up to fractals
};
// A tile's rows are no more than this: L1 holds Q, UB its statistics.
double MostRows(const FlashWork& w, const Machine& machine) {
  const double l1_rows = static_cast<double>(machine.l1) / static_cast<double>(w.key_dim * Bytes(w.type));
  const double ub_rows = static_cast<double>(machine.ub * machine.vectors_per_cube) / 96;
  return std::max(1.0, std::min({l1_rows, ub_rows, static_cast<double>(kMaxTileRows)}));
}

// Queries in a tile of so many heads, at most.
double MostQueries(const FlashWork& w, const FlashSums& sums, const Machine& machine, double heads) {
  if (w.view.max_selected > 0) return 1;
  return std::clamp(std::floor(MostRows(w, machine) / heads), 1.0, std::max(1.0, static_cast<double>(sums.most_queries)));
}

// Tiles of so many heads that the batch makes at least.
double RowsOf(const FlashWork& w, const FlashSums& sums, const Machine& machine, double heads) {
  if (sums.shortest == 0) return 0;  // sequences without keys don't have a block
  return std::max(sums.sequences, sums.queries / MostQueries(w, sums, machine, heads)) * static_cast<double>(w.kv_heads * w.group) / heads;
}

double RoundToFractal(double rows) { return std::ceil(rows / kFractal) * kFractal; }

Least LeastOf(const FlashWork& w, const FlashSums& sums, const Machine& machine) {
  const double kv_heads = static_cast<double>(w.kv_heads), group = static_cast<double>(w.group), size = static_cast<double>(Bytes(w.type));
  Least least = {};
  least.scores = sums.pairs * group * kv_heads;
  least.kv_reads = std::max(sums.entries, sums.pairs * std::max(w.view.max_selected > 0 ? 1.0 : 0.0, group / MostRows(w, machine))) * kv_heads;
  least.q = sums.queries * group * kv_heads * static_cast<double>(w.key_dim) * size;
  least.out = sums.queries * (group * kv_heads * static_cast<double>(w.value_dim) * size + kv_heads * static_cast<double>(w.output_bytes));
  least.output_blocks = std::max(sums.pairs > 0 ? sums.queries * group * kv_heads : 0, least.scores / static_cast<double>(kMaxTileEntries));
  least.rows = RowsOf(w, sums, machine, group);
  least.padded = std::max(least.scores, kFractal * least.kv_reads);
  return least;
}

double L2Seconds(const FlashWork& w, const Least& least, const Machine& machine) {
  const double kv = least.kv_reads * static_cast<double>(w.entry_bytes()), s = least.scores * 4;
  const double p = w.value_dim > 0 ? least.scores * static_cast<double>(Bytes(w.type)) : 0, o = least.output_blocks * static_cast<double>(w.value_dim) * 4;
  return (kv + least.q + least.out + (HasDirectWay(machine) ? 0 : 2 * (s + p + o))) / machine.l2_rate;
}

// Pipes of `cores` cores that share the work evenly.
void AddPipes(const FlashWork& w, const Least& least, double most_queries, const Machine& machine, double cores, Bound& bound) {
  const double size = static_cast<double>(Bytes(w.type)), key = static_cast<double>(w.key_dim), value = static_cast<double>(w.value_dim);
  const double aivs = static_cast<double>(machine.vectors_per_cube), fractal = static_cast<double>(kFractal);
  const bool pv = w.value_dim > 0, direct = HasDirectWay(machine);
  const double s = least.scores * 4, p = pv ? least.scores * size : 0, o = least.output_blocks * value * 4;
  const double padded = least.padded;
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

// The bound if rows have so many heads. Whole ones: one core has the longest sequence's last query, and one has as many rows as there are for
// each core, rounded up. In pieces of at least a fractal: as many pieces, and a barrier on top.
Bound WithRows(const FlashWork& w, const FlashSums& sums, const Machine& machine, double heads, bool whole, Bound bound) {
  const double size = static_cast<double>(Bytes(w.type)), key = static_cast<double>(w.key_dim), value = static_cast<double>(w.value_dim);
  const double most_queries = static_cast<double>(sums.most_queries), m16 = RoundToFractal(heads), fractal = static_cast<double>(kFractal);
  const double output = heads * value * size + static_cast<double>(w.output_bytes);
  const auto rows_of = [&](double count, double entries) {
    return Least{.scores = count * heads * entries, .kv_reads = count * entries, .q = count * heads * key * size, .out = whole ? count * output : 0,
                 .output_blocks = count * heads, .rows = count, .padded = count * m16 * entries};
  };
  const double each = std::max(1.0, std::ceil(RowsOf(w, sums, machine, heads) / static_cast<double>(machine.cube_cores)));
  if (sums.shortest > 0) AddPipes(w, rows_of(each, whole ? sums.fewest : std::min(sums.fewest, fractal)), most_queries, machine, 1, bound);
  if (whole) AddPipes(w, rows_of(1, sums.longest), most_queries, machine, 1, bound);

  // A step of each pipe but the busiest: a load has at least 16 entries; cube and vector unit do a block, with PV in two products; of MTE2's
  // steps two in three are loads, the third is P's.
  const double o = machine.step_seconds, aivs = static_cast<double>(machine.vectors_per_cube);
  const bool pv = w.value_dim > 0;
  const double load_dims = !pv ? key : w.shared_kv ? value : (key + value) / 2;
  const double block_bytes = heads * fractal * 4 * static_cast<double>(w.score_passes) + 2 * heads * value * 4;
  const double steps[] = {(pv && !HasDirectWay(machine) ? 1.5 : 1) * o + fractal * load_dims * size / machine.read_rate, o,
                          (pv ? 2 : 1) * o + m16 * fractal * (key + value) / machine.Macs(w.type), o, o,
                          (pv ? 2 : 1) * o + block_bytes / (machine.vector_rate * aivs), o};
  for (const double step : steps) bound.latency += step;
  bound.latency -= *std::max_element(std::begin(steps), std::end(steps));
  return bound;
}

// What follows where a row is split: a barrier, and of one core the partial results of a row, in once and twice through the vector unit, and out.
double MergeSeconds(const FlashWork& w, const Machine& machine, double heads) {
  const double partial = heads * static_cast<double>(w.value_dim * 4 + kBlockBytes), output = heads * static_cast<double>(w.value_dim * Bytes(w.type));
  return machine.step_seconds * (static_cast<double>(kBarrierCycles) / kStepCycles + 3) +
         (partial / machine.read_rate + 2 * partial / machine.vector_rate + output / machine.write_rate) / static_cast<double>(machine.vectors_per_cube);
}

// Each term at least.
Bound Highest(Bound a, const Bound& b) {
  for (double Bound::*term : {&Bound::l2, &Bound::read_port, &Bound::write_port, &Bound::cube, &Bound::l0_port, &Bound::vector}) {
    a.*term = std::max(a.*term, b.*term);
  }
  return a;
}

// Lowers `bound` to what rows of so many heads need, in however many pieces. Few pieces keep few cores busy; each has its own Q, and its O'
// crosses L2 for a block at least. Numbers of pieces are taken together from `first` to `last`: the traffic of the one, the cores of the other.
void LowerToPieces(const FlashWork& w, const FlashSums& sums, const Machine& machine, double heads, const Least& least, const Bound& mean,
                   std::optional<Bound>& bound) {
  const double cores = static_cast<double>(machine.cube_cores), key_bytes = static_cast<double>(w.key_dim * Bytes(w.type));
  const Bound whole = WithRows(w, sums, machine, heads, true, mean), split = WithRows(w, sums, machine, heads, false, mean);
  const double merge = MergeSeconds(w, machine, heads);
  if (bound.has_value() && std::min(whole.Seconds(), split.Seconds() + merge) >= bound->Seconds()) return;
  Least own = least;
  own.kv_reads = std::max(own.kv_reads, std::max(sums.entries, sums.pairs / MostQueries(w, sums, machine, heads)) *
                                            static_cast<double>(w.kv_heads * w.group) / heads);
  own.padded = std::max(own.padded, kFractal * own.kv_reads);
  for (double first = std::max(1.0, std::floor(RowsOf(w, sums, machine, heads))), last = 0; last < cores; first = last + 1) {
    last = first >= cores ? first : std::min(cores - 1, std::floor(1.5 * first));
    own.rows = first;
    own.output_blocks = std::max(least.output_blocks, first * heads);
    own.q = std::max(least.q, first * heads * key_bytes);
    Bound pieces = {.l2 = L2Seconds(w, own, machine)};
    AddPipes(w, own, static_cast<double>(sums.most_queries), machine, std::min(cores, last), pieces);
    Bound merged = Highest(split, pieces);
    for (double Bound::*term : {&Bound::hbm, &Bound::l2, &Bound::latency}) merged.*term += merge;
    for (const Bound& other : {Highest(whole, pieces), merged}) {
      if (!bound.has_value() || other.Seconds() < bound->Seconds()) bound = other;
    }
    if (first >= cores) break;
  }
}

}  // namespace

Bound BoundFlash(const FlashWork& w, const FlashSums& sums, const Machine& machine) {
  const Least least = LeastOf(w, sums, machine);
  Bound mean = {.hbm = (sums.kv_bytes + least.q + least.out) / machine.hbm_rate, .l2 = L2Seconds(w, least, machine)};
  if (sums.pairs == 0) return mean;
  AddPipes(w, least, static_cast<double>(sums.most_queries), machine, static_cast<double>(machine.cube_cores), mean);
  std::optional<Bound> bound;
  for (int64_t heads = w.group; heads >= (w.whole_group ? w.group : 1); --heads) {
    if (w.group % heads == 0) LowerToPieces(w, sums, machine, static_cast<double>(heads), least, mean, bound);
  }
  return *bound;
}

absl::StatusOr<FlashPlan> SearchFlash(const FlashWork& w, const FlashSums& sums, const Machine& machine, const Bound& bound,
                                     const std::optional<FlashTile>& fixed) {
  struct Guess {
    double seconds;
    FlashTile tile;
  };
  std::array<Guess, kRanked> best;
  size_t found = 0;
  const int64_t most_queries = w.view.max_selected > 0 ? 1 : std::max<int64_t>(1, sums.most_queries);
  // Tiles below a fractal are padded, which pays only to give every core something, or because each query adds an entry to a short window.
  const auto few = [&](int64_t heads, int64_t queries) {
    return std::max(sums.sequences, sums.queries / static_cast<double>(queries)) * static_cast<double>(w.kv_heads * (w.group / heads)) < 2.0 * static_cast<double>(machine.cube_cores);
  };
  for (int64_t heads = w.group; heads >= 1;
       heads = heads % 2 == 0 && !w.whole_group && (heads > kFractal || few(heads, most_queries)) ? heads / 2 : 0) {
    for (int64_t queries = 1; queries * heads <= kMaxTileRows; queries *= 2) {
      const int64_t used = std::min(queries, most_queries);
      if (used < most_queries && used * heads * 2 <= kFractal && w.view.window == 0 && !few(heads, 2 * queries)) continue;
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
            FlashLayout layout;
            if (FitLayout(w, tile, machine, layout) != FlashFit::kFits) continue;
            any = true;
            const Guess guess = {GuessSeconds(w, sums, tile, layout, machine), tile};
            // Insertion into the best few; of equals the first stays.
            size_t at = found < kRanked ? found++ : kRanked;
            if (at == kRanked && guess.seconds >= best[kRanked - 1].seconds) continue;
            at = std::min(at, kRanked - 1);
            for (; at > 0 && guess.seconds < best[at - 1].seconds; --at) best[at] = best[at - 1];
            best[at] = guess;
            if (in_ub) break;  // what GM holds can't be faster than UB
          }
        }
      }
      if (used == most_queries || !any) break;
    }
  }

  absl::StatusOr<FlashPlan> plan = absl::ResourceExhaustedError("attention: no tile fits");
  const double good = bound.Seconds() * kGood;
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
    FlashLayout layout;
    return FitLayout(w, tile, machine, layout) != FlashFit::kFits || LeastSeconds(w, sums, tile, layout, machine) * gain >= plan->prediction.seconds;
  };
  int evaluated = 0;
  for (size_t i = 0; i < found && evaluated < kEvaluated && !(plan.ok() && plan->prediction.seconds <= good); ++i) {
    if (hopeless(best[i].tile, kGood)) continue;
    take(EvaluateFlash(w, sums, best[i].tile, machine, Split::kBalance));
    ++evaluated;
  }
  if (fixed.has_value() && !hopeless(*fixed, 1)) {
    take(EvaluateFlash(w, sums, *fixed, machine, Split::kFixedRule));
    take(EvaluateFlash(w, sums, *fixed, machine, Split::kBalance));
  }
  return plan;
}

}  // namespace jumar::tiling
