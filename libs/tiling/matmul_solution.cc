// What explain, survey and bindings read of a product's tiling.

#include <algorithm>
#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/matmul.h"
#include "libs/tiling/matmul_model.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {

std::vector<Buffer> MatmulBuffers(const MatmulProblem& problem, const MatmulTiling& tiling) {
  const MatmulChoice& choice = tiling.choice;
  const int64_t element = Bytes(problem.input);
  const Box box = {tiling.core_m, tiling.core_n, tiling.core_k, 0, 0, 0};
  const BoxTiles tiles = TilesOf(choice);
  const BoxCopies copies = CopiesOf(box, tiles, 1);
  const int64_t panel_k = RoundUp(tiling.core_k, choice.step_k);
  const auto l1 = [&](std::string_view name, int64_t tile, bool resident) {
    return Buffer{.name = name,
                  .memory = Memory::kL1,
                  .bytes = tile * (resident ? panel_k : choice.step_k) * element,
                  .copies = resident ? copies.panel : copies.step};
  };
  std::vector<Buffer> buffers = {l1("A", choice.tile_m, choice.resident == Resident::kA),
                                 l1("B", choice.tile_n, choice.resident == Resident::kB)};
  buffers.push_back({.name = "A0", .memory = Memory::kL0A, .bytes = choice.tile_m * choice.l0_k * element, .copies = copies.l0});
  buffers.push_back({.name = "B0", .memory = Memory::kL0B, .bytes = choice.tile_n * choice.l0_k * element, .copies = copies.l0});
  buffers.push_back({.name = "C0", .memory = Memory::kL0C, .bytes = choice.tile_m * choice.tile_n * 4, .copies = choice.l0c_copies});
  if (tiling.reduction) {  // a phase of its own, in the vector cores
    const int64_t rows = tiling.reduction->rows_per_step;
    const int64_t bytes_in = kBlockBytes * choice.cores_k * rows,
                  bytes_out = RoundUp(kBlockBytes / 4 * problem.output_bytes * rows, kBlockBytes);
    buffers.push_back(
        {.name = "partial sums", .memory = Memory::kUb, .bytes = bytes_in, .copies = tiling.reduction->copies, .first = 1, .last = 1});
    buffers.push_back({.name = "C", .memory = Memory::kUb, .bytes = bytes_out, .copies = tiling.reduction->copies, .first = 1, .last = 1});
  }
  return buffers;
}

Solution DescribeMatmul(const MatmulProblem& problem, const MatmulTiling& tiling, const HardwareSpec& spec) {
  const MatmulChoice& choice = tiling.choice;
  Solution solution = {.solver = "matmul", .core_kind = choice.cores_k > 1 ? "AIC, then AIV" : "AIC"};
  solution.tiling = {{"cores_m", choice.cores_m, "the grid of cores, along m"},
                     {"cores_n", choice.cores_n, "along n"},
                     {"cores_k", choice.cores_k, "along k: more than 1 makes partial sums that the vector cores add up"},
                     {"core_m", tiling.core_m, "a core's box"},
                     {"core_n", tiling.core_n, ""},
                     {"core_k", tiling.core_k, ""},
                     {"tile_m", choice.tile_m, "the tile whose sums stay in L0C"},
                     {"tile_n", choice.tile_n, ""},
                     {"step_k", choice.step_k, "of k, that comes to L1 at once"},
                     {"l0_k", choice.l0_k, "of k, that comes to L0A and L0B at once"},
                     {"resident", static_cast<int64_t>(choice.resident), "whose panel stays in L1: 0 none, 1 A, 2 B"},
                     {"l0c_copies", choice.l0c_copies, "2: FIX and cube overlap"}};
  if (tiling.reduction)
    solution.tiling.push_back({"reduction_rows", tiling.reduction->rows_per_step, "blocks of 32 bytes of sums in UB at once"});
  solution.buffers = MatmulBuffers(problem, tiling);
  solution.axes = {{"m", problem.m, choice.tile_m}, {"n", problem.n, choice.tile_n}, {"k", problem.k, choice.step_k}};
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  const ProductRates rates(*machine, problem.input, static_cast<WeightLayout>(problem.layout));
  solution.core_seconds.assign(static_cast<size_t>(machine->cube_cores), 0.0);
  const auto range = [](int64_t index, int64_t box, int64_t extent) {
    return std::array<int64_t, 2>{std::min(extent, index * box), std::min(extent, (index + 1) * box)};
  };
  for (int64_t core = 0; core < choice.cores_m * choice.cores_n * choice.cores_k; ++core) {
    const auto m = range(core / choice.cores_k / choice.cores_n, tiling.core_m, problem.m);
    const auto n = range(core / choice.cores_k % choice.cores_n, tiling.core_n, problem.n);
    const auto k = range(core % choice.cores_k, tiling.core_k, problem.k);
    if (m[0] == m[1] || n[0] == n[1] || k[0] == k[1]) continue;
    solution.shares.push_back({core, {m, n, k}});
    const Box box = {RoundUp(m[1] - m[0], kFractal),
                     RoundUp(n[1] - n[0], kFractal),
                     RoundUp(k[1] - k[0], rates.fractal_k),
                     m[1] - m[0],
                     n[1] - n[0],
                     k[1] - k[0]};
    solution.core_seconds[static_cast<size_t>(core)] = CoreSeconds(BoxWork(rates, box, TilesOf(choice), 1));
  }
  solution.slowest = tiling.slowest;
  solution.traffic = tiling.traffic;
  solution.prediction = tiling.prediction;
  solution.bound = tiling.bound;
  return solution;
}

namespace {

absl::StatusOr<Solution> Solve(const MatmulProblem& problem, const HardwareSpec& spec) {
  absl::StatusOr<MatmulTiling> tiling = SolveMatmul(problem, spec);
  if (!tiling.ok()) return tiling.status();
  return DescribeMatmul(problem, *tiling, spec);
}

}  // namespace

Solver MatmulSolver() {
  return MakeSolver<MatmulProblem>("matmul", "product of a matrix of tokens with a matrix of weights", MatmulFields(), Solve);
}

}  // namespace jumar::tiling
