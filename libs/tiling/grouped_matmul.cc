#include "libs/tiling/grouped_matmul.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/grouped_tasks.h"
#include "libs/tiling/matmul_model.h"

namespace jumar::tiling {
namespace {

using P = GroupedMatmulProblem;
constexpr TypedField<P> kFields[] = {
    {"rows", "rows (tokens) of each group (expert)", &P::rows, 0, kMaxSize},
    {"n", "columns of the weights", &P::n, 1, kMaxSize},
    {"k", "rows of the weights", &P::k, 1, kMaxSize},
    {"input", "type of activations and weights", &P::input},
    {"output_bytes", "bytes of an element of the result", &P::output_bytes, 1, 4},
    {"layout", "how the weights lie in memory: rows of k, rows of n (transposed), or fractals", &P::layout, 0, 0, kWeightLayoutNames},
};

constexpr int64_t kMaxTasks = 1 << 16;

// Groups with as many rows, most first.
struct RowCount {
  int64_t rows, groups;
};

class Model {
 public:
  Model(const P& problem, const Machine& machine)
      : problem_(problem), machine_(machine), rates_(machine, problem.input, static_cast<WeightLayout>(problem.layout)) {
    std::vector<int64_t> rows;
    for (const int64_t r : problem.rows) {
      if (r > 0) rows.push_back(r);
    }
    std::sort(rows.begin(), rows.end(), std::greater<int64_t>());
    for (const int64_t r : rows) {
      if (counts_.empty() || counts_.back().rows != r) counts_.push_back({r, 0});
      ++counts_.back().groups;
      total_rows_ += r;
      padded_rows_ += RoundUp(r, kFractal);
    }
    groups_ = static_cast<int64_t>(rows.size());
    padded_n_ = RoundUp(problem.n, kFractal);
    padded_k_ = RoundUp(problem.k, rates_.fractal_k);
  }

  const ProductRates& rates() const { return rates_; }
  int64_t most_rows() const { return RoundUp(counts_[0].rows, kFractal); }
  int64_t padded_n() const { return padded_n_; }
  int64_t padded_k() const { return padded_k_; }

  int64_t Tasks(int64_t task_m, int64_t task_n) const {
    int64_t blocks = 0;
    for (const RowCount& count : counts_) blocks += count.groups * PartsOf(count.rows, task_m).count;
    return blocks * CeilDiv(padded_n_, task_n);
  }

  // What the first core gets: task 0, cores, 2 cores, ... of the sorted tasks. Sizes that differ by less than a fractal count as the
  // larger.
  void FirstCore(int64_t task_m, int64_t task_n, std::vector<BoxCount>& boxes) const {
    boxes.clear();
    const int64_t blocks_n = CeilDiv(padded_n_, task_n);
    sizes_.clear();
    for (const RowCount& count : counts_) {
      const Parts parts = PartsOf(count.rows, task_m);
      if (parts.count > 1) sizes_.push_back({parts.size, count.groups * (parts.count - 1) * blocks_n});
      sizes_.push_back({count.rows - (parts.count - 1) * parts.size, count.groups * blocks_n});
    }
    std::sort(sizes_.begin(), sizes_.end(), [](const RowCount& a, const RowCount& b) { return a.rows > b.rows; });
    int64_t before = 0;
    for (const RowCount& size : sizes_) {
      const int64_t after = before + size.groups;
      const int64_t mine = CeilDiv(after, machine_.cube_cores) - CeilDiv(before, machine_.cube_cores);
      before = after;
      if (mine == 0) continue;
      const int64_t m = RoundUp(size.rows, kFractal);
      if (!boxes.empty() && boxes.back().box.m == m) {
        boxes.back().count += mine;
        continue;
      }
      boxes.push_back({{m, task_n, padded_k_, size.rows, std::min(task_n, problem_.n), problem_.k}, mine});
    }
  }

  int64_t HbmReadBytes(int64_t task_m) const {
    const int64_t weights = problem_.n * problem_.k * rates_.element;
    int64_t bytes = total_rows_ * problem_.k * rates_.element;
    for (const RowCount& count : counts_) {  // a group's tasks are in flight together; what they share stays in L2 if it fits
      bytes += count.groups * weights * (weights <= machine_.l2 ? 1 : PartsOf(count.rows, task_m).count);
    }
    return bytes;
  }
  int64_t OutputBytes() const { return total_rows_ * problem_.n * problem_.output_bytes; }

  int64_t L2ReadBytes(int64_t task_m, int64_t task_n, int64_t tile_m, int64_t tile_n, Resident resident) const {
    const int64_t blocks_n = CeilDiv(padded_n_, task_n);
    const int64_t tiles_n = (blocks_n - 1) * CeilDiv(task_n, tile_n) + CeilDiv(padded_n_ - (blocks_n - 1) * task_n, tile_n);
    int64_t bytes = total_rows_ * problem_.k * rates_.element * (resident == Resident::kA ? blocks_n : tiles_n);
    for (const RowCount& count : counts_) {
      const Parts parts = PartsOf(count.rows, task_m);
      const int64_t tiles = (parts.count - 1) * CeilDiv(parts.size, tile_m) + CeilDiv(count.rows - (parts.count - 1) * parts.size, tile_m);
      bytes += count.groups * problem_.n * problem_.k * rates_.element * (resident == Resident::kB ? parts.count : tiles);
    }
    return bytes;
  }

  Traffic TrafficOf(const GroupedMatmulChoice& choice) const {
    Traffic traffic = {.hbm_read = HbmReadBytes(choice.task_m),
                       .hbm_write = OutputBytes(),
                       .l2_read = L2ReadBytes(choice.task_m, choice.task_n, choice.tile_m, choice.tile_n, choice.resident),
                       .l2_write = OutputBytes(),
                       .l0c_out = padded_rows_ * padded_n_ * 4,
                       .cube_macs = padded_rows_ * padded_n_ * padded_k_};
    traffic.l1_to_l0 = rates_.element * padded_k_ * padded_rows_ * CeilDiv(padded_n_, choice.tile_n);
    for (const RowCount& count : counts_)
      traffic.l1_to_l0 += rates_.element * padded_k_ * padded_n_ * count.groups * CeilDiv(count.rows, choice.tile_m);
    return traffic;
  }

  // No tiling beats these: the busiest core has at least the mean of what every tiling does, and whole fractals of output.
  Bound BoundOf() const {
    const double cores = ToDouble(machine_.cube_cores), sums = ToDouble(machine_.l0c / 4), k = ToDouble(padded_k_);
    const int64_t fractals = (padded_rows_ / kFractal) * (padded_n_ / kFractal);
    const double area = ToDouble(CeilDiv(fractals, machine_.cube_cores) * kFractal * kFractal);  // of output, of the busiest core
    const double panel = ToDouble(machine_.l1 / rates_.element) / k;
    // Re-reads per element of output and k, as in BoundBox, of the rows and columns that exist.
    double reread = 2 / std::sqrt(sums);
    if (panel >= ToDouble(kFractal)) reread = std::min(reread, 1 / std::min(panel, sums / ToDouble(kFractal)));
    const double once = ToDouble(total_rows_ + groups_ * problem_.n);
    const double read =
        std::max(once, reread * ToDouble(total_rows_) * ToDouble(problem_.n)) * ToDouble(problem_.k) * rates_.a_seconds / cores;
    const int64_t reads = (total_rows_ + groups_ * problem_.n) * problem_.k * rates_.element;
    return {.hbm = ToDouble(reads + OutputBytes()) / machine_.hbm_rate,
            .l2 = ToDouble(reads + OutputBytes()) / machine_.l2_rate,
            .read_port = read,
            .write_port = area * rates_.fix,
            .cube = area * k * rates_.mac,
            .l0_port = 2 * area * k * std::sqrt(rates_.l0a * rates_.l0b / sums),
            .latency = 4 * machine_.step_seconds};
  }

 private:
  const P& problem_;
  const Machine& machine_;
  ProductRates rates_;
  std::vector<RowCount> counts_;
  mutable std::vector<RowCount> sizes_;  // FirstCore's, to allocate once
  int64_t total_rows_ = 0, padded_rows_ = 0, groups_ = 0, padded_n_ = 0, padded_k_ = 0;
};

absl::Status CheckSizes(const P& problem, const HardwareSpec& spec) {
  if (absl::Status status = CheckProblem(GroupedMatmulFields(), problem); !status.ok()) return status;
  if (problem.output_bytes == 3) return absl::InvalidArgumentError("output_bytes = 3 is not 1, 2 or 4");
  if (absl::Status status = RequireFormat(spec, problem.input); !status.ok()) return status;
  const int64_t groups = static_cast<int64_t>(problem.rows.size());
  if (groups > kMaxGroups)
    return absl::InvalidArgumentError(absl::StrCat("rows has ", groups, " groups; at most ", kMaxGroups, " are allowed"));
  int64_t padded = 0;
  for (const int64_t rows : problem.rows) padded += RoundUp(rows, kFractal);
  if (padded == 0) return absl::InvalidArgumentError("rows: no group has a row");
  const int64_t n = RoundUp(problem.n, kFractal), k = RoundUp(problem.k, kBlockBytes);
  // Every group's weights are read at most once per 16 rows, every row at most once per 16 columns.
  if (absl::Status status = Product("multiply-adds (rows in all) * n * k", {padded, n, k, 4}).status(); !status.ok()) return status;
  return Product("bytes of the weights", {groups, n, k, 4}).status();
}

GroupedMatmulTiling Finish(const Model& model, const Machine& machine, const GroupedMatmulChoice& choice) {
  GroupedMatmulTiling tiling = {.choice = choice, .tasks = model.Tasks(choice.task_m, choice.task_n)};
  tiling.cores = std::min(tiling.tasks, machine.cube_cores);
  std::vector<BoxCount> boxes;
  model.FirstCore(choice.task_m, choice.task_n, boxes);
  tiling.slowest = BoxesWork(model.rates(), boxes, TilesOf(choice));
  tiling.traffic = model.TrafficOf(choice);
  tiling.prediction = Predict(machine, tiling.slowest, tiling.traffic.hbm_read + tiling.traffic.hbm_write,
                              tiling.traffic.l2_read + tiling.traffic.l2_write);
  tiling.bound = model.BoundOf();
  return tiling;
}

}  // namespace

std::span<const TypedField<P>> GroupedMatmulFields() { return kFields; }

absl::StatusOr<GroupedMatmulTiling> SolveGroupedMatmul(const P& problem, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem, spec); !status.ok()) return status;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  if (!machine.ok()) return machine.status();
  const Model model(problem, *machine);
  struct Candidate {
    double least;
    double cores;  // of that, what the first core does: where HBM makes tasks equal, those that leave the cores most room come first
    int64_t task_m, task_n;
  };
  std::vector<Candidate> candidates;
  std::vector<BoxCount> boxes;
  const double output = ToDouble(model.OutputBytes());
  const auto consider = [&](int64_t task_m, int64_t task_n) {
    if (model.Tasks(task_m, task_n) > kMaxTasks) return;
    model.FirstCore(task_m, task_n, boxes);
    double cube = 0, read = 0;
    for (const BoxCount& more : boxes) {
      cube += ToDouble(more.count) * ToDouble(more.box.m * more.box.n) * ToDouble(more.box.k) * model.rates().mac;
      read += ToDouble(more.count) * ToDouble(more.box.read_m + more.box.read_n) * ToDouble(more.box.read_k) * model.rates().a_seconds;
    }
    const double cores = std::max(cube, read);
    candidates.push_back({std::max(cores, (ToDouble(model.HbmReadBytes(task_m)) + output) / machine->hbm_rate), cores, task_m, task_n});
  };
  // Rows of a task: all of the largest group's, and powers of two. Columns: even divisions into up to a part per core, then coarser ones,
  // and those that are next to a tile of 256, 128 or 64.
  const int64_t fractals_n = model.padded_n() / kFractal, cores = machine->cube_cores;
  std::vector<int64_t> widths;
  for (int64_t parts = 1; parts <= std::min(fractals_n, 16 * cores);
       parts = parts < cores ? parts + 1 : std::max(parts + 1, parts * 5 / 4)) {
    widths.push_back(CeilDiv(fractals_n, parts) * kFractal);
  }
  for (const int64_t tile : {256, 128, 64}) widths.push_back(CeilDiv(fractals_n, CeilDiv(fractals_n * kFractal, tile)) * kFractal);
  std::sort(widths.begin(), widths.end(), std::greater<int64_t>());
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  for (const int64_t task_n : widths) {
    consider(model.most_rows(), task_n);
    for (int64_t task_m = kFractal; task_m < model.most_rows(); task_m *= 2) consider(task_m, task_n);
  }
  if (candidates.empty()) return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxTasks, " tasks however they are cut"));
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.least != b.least ? a.least < b.least : a.cores < b.cores;
  });
  BestTiles best = {.seconds = std::numeric_limits<double>::infinity()};
  Candidate chosen = {};
  for (const Candidate& candidate : candidates) {
    if (candidate.least >= best.seconds) break;
    model.FirstCore(candidate.task_m, candidate.task_n, boxes);
    const auto whole = [&](int64_t tile_m, int64_t tile_n, Resident resident) {
      return std::max(
          candidate.least,
          (ToDouble(model.L2ReadBytes(candidate.task_m, candidate.task_n, tile_m, tile_n, resident)) + output) / machine->l2_rate);
    };
    const BestTiles found = SearchTiles(model.rates(), *machine, boxes, best.seconds, whole);
    if (found.tiles.tile_m == 0) continue;
    best = found;
    chosen = candidate;
    chosen.task_m = boxes[0].box.m;  // the largest that there is: the division stays the same
  }
  if (best.tiles.tile_m == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("not even a tile of one fractal fits ", std::string(spec.name), ": L1 ", machine->l1,
                                                     ", L0A ", machine->l0a, ", L0B ", machine->l0b, ", L0C ", machine->l0c, " bytes"));
  }
  const BoxTiles& tiles = best.tiles;
  return Finish(model, *machine,
                {chosen.task_m, chosen.task_n, tiles.tile_m, tiles.tile_n, tiles.step_k, tiles.l0_k, tiles.resident, tiles.l0c_copies});
}

absl::StatusOr<GroupedMatmulTiling> EvaluateGroupedMatmul(const P& problem, const GroupedMatmulChoice& choice, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem, spec); !status.ok()) return status;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  if (!machine.ok()) return machine.status();
  const Model model(problem, *machine);
  struct Size {
    const char* name;
    int64_t value, multiple, most;
  };
  const int64_t fractal_k = model.rates().fractal_k;
  for (const Size& size :
       {Size{"task_m", choice.task_m, kFractal, model.most_rows()}, Size{"task_n", choice.task_n, kFractal, model.padded_n()},
        Size{"tile_m", choice.tile_m, kFractal, choice.task_m}, Size{"tile_n", choice.tile_n, kFractal, choice.task_n},
        Size{"step_k", choice.step_k, fractal_k, model.padded_k()}, Size{"l0_k", choice.l0_k, fractal_k, choice.step_k}}) {
    if (size.value < 1 || size.value > size.most || size.value % size.multiple != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(size.name, " = ", size.value, " is not a multiple of ", size.multiple, " up to ", size.most));
    }
  }
  if (choice.l0c_copies < 1 || choice.l0c_copies > 2)
    return absl::InvalidArgumentError(absl::StrCat("l0c_copies = ", choice.l0c_copies, " is not 1 or 2"));
  if (model.Tasks(choice.task_m, choice.task_n) > kMaxTasks) {
    return absl::InvalidArgumentError(absl::StrCat("tasks of ", choice.task_m, " x ", choice.task_n, " make more than ", kMaxTasks));
  }
  GroupedMatmulTiling tiling = Finish(model, *machine, choice);
  if (absl::Status status = CheckBuffers(GroupedMatmulBuffers(problem, tiling), spec); !status.ok()) return status;
  return tiling;
}

}  // namespace jumar::tiling
