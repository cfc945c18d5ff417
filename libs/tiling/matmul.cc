#include "libs/tiling/matmul.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/matmul_model.h"

namespace jumar::tiling {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};

using P = MatmulProblem;
constexpr TypedField<P> kFields[] = {
    {"m", "rows of A and C (tokens)", &P::m, 1, kMaxSize},
    {"n", "columns of B and C", &P::n, 1, kMaxSize},
    {"k", "columns of A, rows of B", &P::k, 1, kMaxSize},
    {"input", "type of A and B", &P::input},
    {"output_bytes", "bytes of an element of C", &P::output_bytes, 1, 4},
    {"layout", "how B lies in memory: rows of k, rows of n (transposed), or fractals", &P::layout, 0, 0, kWeightLayoutNames},
    {"consumed", "whether C is read at once, and needn't reach HBM if L2 holds it", &P::consumed, 0, 1, kNoYes},
};

// The cores as a grid, and the box of each; the first core's is the largest.
struct Grid {
  int64_t cores_m, cores_n, cores_k;
  Box box;
};

class Model {
 public:
  Model(const P& problem, const Machine& machine)
      : problem_(problem),
        machine_(machine),
        rates_(machine, problem.input, static_cast<WeightLayout>(problem.layout)),
        fractals_m_(CeilDiv(problem.m, kFractal)),
        fractals_n_(CeilDiv(problem.n, kFractal)),
        fractals_k_(CeilDiv(problem.k, FractalK(problem.input))),
        can_reduce_(machine.vector_rate > 0 && machine.write_rate > 0 && machine.ub > 0 && machine.vector_cores > 0) {}

  const ProductRates& rates() const { return rates_; }
  const Machine& machine() const { return machine_; }
  bool can_reduce() const { return can_reduce_; }

  Grid GridOf(int64_t cores_m, int64_t cores_n, int64_t cores_k) const {
    Grid grid = {cores_m, cores_n, cores_k, {}};
    grid.box.m = CeilDiv(fractals_m_, cores_m) * kFractal;
    grid.box.n = CeilDiv(fractals_n_, cores_n) * kFractal;
    grid.box.k = CeilDiv(fractals_k_, cores_k) * rates_.fractal_k;
    grid.box.read_m = std::min(grid.box.m, problem_.m);
    grid.box.read_n = std::min(grid.box.n, problem_.n);
    grid.box.read_k = std::min(grid.box.k, problem_.k);
    return grid;
  }

  // Grids in which no core is idle that a smaller grid with the same boxes wouldn't need.
  template <class Visit>
  void ForEachGrid(const Visit& visit) const {
    const auto useless = [](int64_t fractals, int64_t cores) {
      return cores > 1 && CeilDiv(fractals, cores) == CeilDiv(fractals, cores - 1);
    };
    const int64_t cores = machine_.cube_cores;
    for (int64_t m = 1; m <= std::min(cores, fractals_m_); ++m) {
      if (useless(fractals_m_, m)) continue;
      for (int64_t n = 1; n <= std::min(cores / m, fractals_n_); ++n) {
        if (useless(fractals_n_, n)) continue;
        for (int64_t k = 1; k <= std::min(cores / (m * n), can_reduce_ ? fractals_k_ : 1); ++k) {
          if (!useless(fractals_k_, k)) visit(GridOf(m, n, k));
        }
      }
    }
  }

  RowStream Reduction(int64_t cores_k) const {  // of partial sums, in blocks of 32 bytes of FP32
    return {.rows = CeilDiv(problem_.m * problem_.n * 4, kBlockBytes),
            .read_bytes = kBlockBytes * cores_k,
            .write_bytes = kBlockBytes / 4 * problem_.output_bytes,
            .vector_bytes = kBlockBytes * cores_k};
  }

  int64_t PartialBytes(int64_t cores_k) const { return cores_k == 1 ? 0 : cores_k * problem_.m * problem_.n * 4; }

  // Of C, through HBM.
  int64_t HbmOutputBytes() const {
    const int64_t bytes = problem_.m * problem_.n * problem_.output_bytes;
    return problem_.consumed != 0 && bytes <= machine_.l2 ? 0 : bytes;
  }

  // A and B through HBM: once if both fit L2 or one tile covers the other side; else as often as L2 has lost them, in the better of the two
  // orders of a core's tiles. In each step of the walk all cores together need cores_m panels of A and cores_n of B.
  int64_t HbmReadBytes(const Grid& grid, int64_t tile_m, int64_t tile_n, Resident resident) const {
    const int64_t a = problem_.m * problem_.k * rates_.element, b = problem_.k * problem_.n * rates_.element;
    if (a + b <= machine_.l2) return a + b;
    const int64_t tm = CeilDiv(grid.box.m, tile_m), tn = CeilDiv(grid.box.n, tile_n);
    const int64_t panels_a = std::min(a, grid.cores_m * tile_m * problem_.k * rates_.element),
                  panels_b = std::min(b, grid.cores_n * tile_n * problem_.k * rates_.element);
    const auto times = [&](int64_t bytes_that_stay, int64_t walks) { return bytes_that_stay <= machine_.l2 ? 1 : walks; };
    // Along n first: A's panels stay if they fit beside a panel of B, all of B stays for the next row of tiles if it does.
    const int64_t along_n =
        a * (resident == Resident::kA ? 1 : times(panels_a + panels_b, tn)) + b * (resident == Resident::kB ? 1 : times(b + panels_a, tm));
    const int64_t along_m =
        b * (resident == Resident::kB ? 1 : times(panels_a + panels_b, tm)) + a * (resident == Resident::kA ? 1 : times(a + panels_b, tn));
    return resident == Resident::kA ? along_n : resident == Resident::kB ? along_m : std::min(along_n, along_m);
  }

  // What crosses HBM besides the operands: C, or partial sums that L2 doesn't keep.
  int64_t HbmWriteBytes(int64_t cores_k) const {
    if (cores_k == 1) return HbmOutputBytes();
    return PartialBytes(cores_k) <= machine_.l2 ? 0 : PartialBytes(cores_k);
  }

  // Through the cores' ports, all of them.
  int64_t L2ReadBytes(const Grid& grid, int64_t tile_m, int64_t tile_n, Resident resident) const {
    const int64_t tiles_m = Tiles(grid.cores_m, grid.box.m, fractals_m_ * kFractal, tile_m),
                  tiles_n = Tiles(grid.cores_n, grid.box.n, fractals_n_ * kFractal, tile_n);
    return rates_.element * problem_.k *
           (problem_.m * (resident == Resident::kA ? Cores(grid.cores_n, grid.box.n, fractals_n_ * kFractal) : tiles_n) +
            problem_.n * (resident == Resident::kB ? Cores(grid.cores_m, grid.box.m, fractals_m_ * kFractal) : tiles_m));
  }

  int64_t L2WriteBytes(int64_t cores_k) const {
    return cores_k == 1 ? problem_.m * problem_.n * problem_.output_bytes : PartialBytes(cores_k);
  }

  // Lower bounds for every tiling with this grid.
  Bound BoundOf(const Grid& grid) const {
    const BoxBound box = BoundBox(rates_, machine_, grid.box);
    const int64_t reads = (problem_.m + problem_.n) * problem_.k * rates_.element;
    Bound bound = {
        .hbm = ToDouble(reads + HbmWriteBytes(grid.cores_k)) / machine_.hbm_rate,
        .l2 = ToDouble(L2ReadBytes(grid, grid.box.m, grid.box.n, Resident::kNone) + L2WriteBytes(grid.cores_k)) / machine_.l2_rate,
        .read_port = box.read,
        .write_port = box.fix,
        .cube = box.cube,
        .l0_port = box.l0,
        .latency = 4 * machine_.step_seconds};
    if (grid.cores_k > 1) {
      Bound after = BoundRows(Reduction(grid.cores_k), machine_);
      if (PartialBytes(grid.cores_k) <= machine_.l2) after.hbm = ToDouble(HbmOutputBytes()) / machine_.hbm_rate;
      bound.after = after.Seconds();
    }
    return bound;
  }

  // The vector cores' part, by itself.
  absl::StatusOr<RowTiling> SolveReduction(int64_t cores_k) const {
    absl::StatusOr<RowTiling> reduction = SolveRows(Reduction(cores_k), machine_);
    if (!reduction.ok()) return reduction.status();
    Traffic& traffic = reduction->traffic;
    if (PartialBytes(cores_k) <= machine_.l2) traffic.hbm_read = 0;  // L2 has kept them
    traffic.hbm_write = HbmOutputBytes();
    reduction->prediction = Predict(machine_, reduction->slowest, traffic.hbm_read + traffic.hbm_write, traffic.l2_read + traffic.l2_write);
    return reduction;
  }

 private:
  // Cores along one side that have work, and the tiles of all of them.
  static int64_t Cores(int64_t cores, int64_t box, int64_t extent) { return std::min(cores, CeilDiv(extent, box)); }
  static int64_t Tiles(int64_t cores, int64_t box, int64_t extent, int64_t tile) {
    const int64_t working = Cores(cores, box, extent);
    return (working - 1) * CeilDiv(box, tile) + CeilDiv(extent - (working - 1) * box, tile);
  }

  const P& problem_;
  const Machine& machine_;
  ProductRates rates_;
  int64_t fractals_m_, fractals_n_, fractals_k_;
  bool can_reduce_;
};

absl::Status CheckSizes(const P& problem, const HardwareSpec& spec) {
  if (absl::Status status = CheckProblem(MatmulFields(), problem); !status.ok()) return status;
  if (problem.output_bytes == 3) return absl::InvalidArgumentError("output_bytes = 3 is not 1, 2 or 4");
  if (absl::Status status = RequireFormat(spec, problem.input); !status.ok()) return status;
  // The dimensions padded to fractals, and the partial sums of kMaxCores cores.
  const int64_t m = RoundUp(problem.m, kFractal), n = RoundUp(problem.n, kFractal), k = RoundUp(problem.k, kBlockBytes);
  if (absl::Status status = Product("multiply-adds m * n * k", {m, n, k}).status(); !status.ok()) return status;
  if (absl::Status status = Product("bytes of the partial sums of C", {m, n, 4, kMaxCores}).status(); !status.ok()) return status;
  for (const int64_t side : {m, n}) {
    if (absl::Status status = Product("bytes of an operand, read by every core", {side, k, 4, kMaxCores}).status(); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<MatmulTiling> Finish(const Model& model, const P& problem, const Grid& grid, const BoxTiles& tiles) {
  const Machine& machine = model.machine();
  MatmulTiling tiling = {.choice = {grid.cores_m, grid.cores_n, grid.cores_k, tiles.tile_m, tiles.tile_n, tiles.step_k, tiles.l0_k,
                                    tiles.resident, tiles.l0c_copies},
                         .core_m = grid.box.m,
                         .core_n = grid.box.n,
                         .core_k = grid.box.k,
                         .reduction = {}};
  tiling.slowest = BoxWork(model.rates(), grid.box, tiles, 1);
  const int64_t m = RoundUp(problem.m, kFractal), n = RoundUp(problem.n, kFractal), k = RoundUp(problem.k, model.rates().fractal_k);
  Traffic& traffic = tiling.traffic;
  traffic.hbm_read = model.HbmReadBytes(grid, tiles.tile_m, tiles.tile_n, tiles.resident);
  traffic.hbm_write = model.HbmWriteBytes(grid.cores_k);
  traffic.l2_read = model.L2ReadBytes(grid, tiles.tile_m, tiles.tile_n, tiles.resident);
  traffic.l2_write = model.L2WriteBytes(grid.cores_k);
  traffic.l1_to_l0 = model.rates().element * k * (m * CeilDiv(n, tiles.tile_n) + n * CeilDiv(m, tiles.tile_m));
  traffic.l0c_out = m * n * 4 * grid.cores_k;
  traffic.cube_macs = m * n * k;
  tiling.prediction = Predict(machine, tiling.slowest, traffic.hbm_read + traffic.hbm_write, traffic.l2_read + traffic.l2_write);
  if (grid.cores_k > 1) {
    absl::StatusOr<RowTiling> reduction = model.SolveReduction(grid.cores_k);
    if (!reduction.ok()) return reduction.status();
    const Traffic& after = reduction->traffic;
    tiling.prediction = Then(tiling.prediction, reduction->prediction);
    traffic.hbm_read += after.hbm_read;
    traffic.hbm_write += after.hbm_write;
    traffic.l2_read += after.l2_read;
    traffic.l2_write += after.l2_write;
    traffic.vector_bytes += after.vector_bytes;
    tiling.reduction = *std::move(reduction);
  }
  return tiling;
}

}  // namespace

std::span<const TypedField<P>> MatmulFields() { return kFields; }

absl::StatusOr<MatmulTiling> SolveMatmul(const P& problem, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem, spec); !status.ok()) return status;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  if (!machine.ok()) return machine.status();
  const Model model(problem, *machine);
  struct Candidate {
    double least;
    double cores;  // of that, what a core does: among grids that HBM makes equal, the one that leaves the cores most room comes first
    Grid grid;
  };
  std::vector<Candidate> candidates;
  model.ForEachGrid([&](const Grid& grid) {
    const Bound bound = model.BoundOf(grid);
    candidates.push_back({bound.Seconds(), std::max({bound.read_port, bound.write_port, bound.cube, bound.l0_port}) + bound.after, grid});
  });
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.least != b.least ? a.least < b.least : a.cores < b.cores;
  });
  std::vector<double> reductions(static_cast<size_t>(machine->cube_cores) + 1, -1.0);  // seconds, by cores_k
  reductions[1] = 0;
  BestTiles best = {.seconds = std::numeric_limits<double>::infinity()};
  Grid best_grid = {};
  for (const Candidate& candidate : candidates) {
    if (candidate.least >= best.seconds) break;
    const Grid& grid = candidate.grid;
    double& reduction = reductions[static_cast<size_t>(grid.cores_k)];
    if (reduction < 0) {
      absl::StatusOr<RowTiling> rows = model.SolveReduction(grid.cores_k);
      reduction = rows.ok() ? rows->prediction.seconds : std::numeric_limits<double>::infinity();
    }
    const double writes = ToDouble(model.HbmWriteBytes(grid.cores_k)), l2_writes = ToDouble(model.L2WriteBytes(grid.cores_k));
    const auto whole = [&](int64_t tile_m, int64_t tile_n, Resident resident) {
      return std::max((ToDouble(model.HbmReadBytes(grid, tile_m, tile_n, resident)) + writes) / machine->hbm_rate,
                      (ToDouble(model.L2ReadBytes(grid, tile_m, tile_n, resident)) + l2_writes) / machine->l2_rate);
    };
    const BoxCount boxes[] = {{grid.box, 1}};
    BestTiles found = SearchTiles(model.rates(), *machine, boxes, best.seconds - reduction, whole);
    if (found.tiles.tile_m == 0) continue;
    found.seconds += reduction;
    best = found;
    best_grid = grid;
  }
  if (best.tiles.tile_m == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("not even a tile of one fractal fits ", std::string(spec.name), ": L1 ", machine->l1,
                                                     ", L0A ", machine->l0a, ", L0B ", machine->l0b, ", L0C ", machine->l0c, " bytes"));
  }
  absl::StatusOr<MatmulTiling> tiling = Finish(model, problem, best_grid, best.tiles);
  if (tiling.ok()) tiling->bound = model.BoundOf(candidates.front().grid);
  return tiling;
}

absl::StatusOr<MatmulTiling> EvaluateMatmul(const P& problem, const MatmulChoice& choice, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem, spec); !status.ok()) return status;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  if (!machine.ok()) return machine.status();
  const Model model(problem, *machine);
  for (const int64_t cores : {choice.cores_m, choice.cores_n, choice.cores_k}) {
    if (cores < 1 || cores > machine->cube_cores)
      return absl::InvalidArgumentError(absl::StrCat(cores, " cores along an axis; the chip has 1 to ", machine->cube_cores));
  }
  if (choice.cores_m * choice.cores_n * choice.cores_k > machine->cube_cores) {
    return absl::InvalidArgumentError(absl::StrCat("a grid of ", choice.cores_m, " x ", choice.cores_n, " x ", choice.cores_k,
                                                   " cores; the chip has ", machine->cube_cores));
  }
  if (choice.cores_k > 1 && !model.can_reduce())
    return absl::InvalidArgumentError("cores_k > 1 needs the vector cores' figures, to add up partial sums");
  const Grid grid = model.GridOf(choice.cores_m, choice.cores_n, choice.cores_k);
  struct Size {
    const char* name;
    int64_t value, multiple, most;
  };
  for (const Size& size : {Size{"tile_m", choice.tile_m, kFractal, grid.box.m}, Size{"tile_n", choice.tile_n, kFractal, grid.box.n},
                           Size{"step_k", choice.step_k, model.rates().fractal_k, grid.box.k},
                           Size{"l0_k", choice.l0_k, model.rates().fractal_k, choice.step_k}}) {
    if (size.value < 1 || size.value > size.most || size.value % size.multiple != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(size.name, " = ", size.value, " is not a multiple of ", size.multiple, " up to ", size.most));
    }
  }
  if (choice.l0c_copies < 1 || choice.l0c_copies > 2)
    return absl::InvalidArgumentError(absl::StrCat("l0c_copies = ", choice.l0c_copies, " is not 1 or 2"));
  absl::StatusOr<MatmulTiling> tiling = Finish(model, problem, grid, TilesOf(choice));
  if (!tiling.ok()) return tiling.status();
  if (absl::Status status = CheckBuffers(MatmulBuffers(problem, *tiling), spec); !status.ok()) return status;
  Bound least = model.BoundOf(grid);
  model.ForEachGrid([&](const Grid& other) {
    const Bound bound = model.BoundOf(other);
    if (bound.Seconds() < least.Seconds()) least = bound;
  });
  tiling->bound = least;
  return tiling;
}

}  // namespace jumar::tiling
