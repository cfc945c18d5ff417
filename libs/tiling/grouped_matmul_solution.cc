// The tasks of a grouped product, and what explain, survey and bindings read of its tiling.

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/grouped_matmul.h"
#include "libs/tiling/grouped_tasks.h"
#include "libs/tiling/matmul_model.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {

std::vector<GroupTask> GroupTasks(const GroupedMatmulProblem& problem, const GroupedMatmulChoice& choice) {
  std::vector<GroupTask> tasks;
  for (int64_t group = 0; group < static_cast<int64_t>(problem.rows.size()); ++group) {
    const int64_t rows = problem.rows[static_cast<size_t>(group)];
    if (rows == 0) continue;
    const int64_t part = PartsOf(rows, choice.task_m).size;
    for (int64_t m = 0; m < rows; m += part) {
      for (int64_t n = 0; n < problem.n; n += choice.task_n)
        tasks.push_back({group, m, std::min(rows, m + part), n, std::min(problem.n, n + choice.task_n)});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const GroupTask& a, const GroupTask& b) { return a.end_m - a.begin_m > b.end_m - b.begin_m; });
  return tasks;
}

std::vector<Buffer> GroupedMatmulBuffers(const GroupedMatmulProblem& problem, const GroupedMatmulTiling& tiling) {
  const GroupedMatmulChoice& choice = tiling.choice;
  const int64_t element = Bytes(problem.input), padded_k = RoundUp(problem.k, FractalK(problem.input));
  const Box box = {choice.task_m, choice.task_n, padded_k, 0, 0, 0};
  const BoxCopies copies = CopiesOf(box, TilesOf(choice), CeilDiv(tiling.tasks, tiling.cores));
  const auto l1 = [&](std::string_view name, int64_t tile, bool resident) {
    return Buffer{.name = name,
                  .memory = Memory::kL1,
                  .bytes = tile * (resident ? RoundUp(padded_k, choice.step_k) : choice.step_k) * element,
                  .copies = resident ? copies.panel : copies.step};
  };
  return {l1("A", choice.tile_m, choice.resident == Resident::kA), l1("B", choice.tile_n, choice.resident == Resident::kB),
          {.name = "A0", .memory = Memory::kL0A, .bytes = choice.tile_m * choice.l0_k * element, .copies = copies.l0},
          {.name = "B0", .memory = Memory::kL0B, .bytes = choice.tile_n * choice.l0_k * element, .copies = copies.l0},
          {.name = "C0", .memory = Memory::kL0C, .bytes = choice.tile_m * choice.tile_n * 4, .copies = choice.l0c_copies}};
}

namespace {

absl::StatusOr<Solution> Solve(const GroupedMatmulProblem& problem, const HardwareSpec& spec) {
  absl::StatusOr<GroupedMatmulTiling> tiling = SolveGroupedMatmul(problem, spec);
  if (!tiling.ok()) return tiling.status();
  const GroupedMatmulChoice& choice = tiling->choice;
  Solution solution = {.solver = "grouped_matmul", .core_kind = "AIC"};
  solution.tiling = {{"tasks", tiling->tasks, "parts of groups' outputs, sorted by rows and dealt out in turn"},
                     {"cores", tiling->cores, "cube cores that have one"},
                     {"task_m", choice.task_m, "rows of a task, at most"},
                     {"task_n", choice.task_n, "columns of a task"},
                     {"tile_m", choice.tile_m, "the tile whose sums stay in L0C"},
                     {"tile_n", choice.tile_n, ""},
                     {"step_k", choice.step_k, "of k, that comes to L1 at once"},
                     {"l0_k", choice.l0_k, "of k, that comes to L0A and L0B at once"},
                     {"resident", static_cast<int64_t>(choice.resident), "whose panel stays in L1: 0 none, 1 A, 2 B"},
                     {"l0c_copies", choice.l0c_copies, "2: FIX and cube overlap"}};
  solution.buffers = GroupedMatmulBuffers(problem, *tiling);
  std::vector<int64_t> first_row = {0};
  for (const int64_t rows : problem.rows) first_row.push_back(first_row.back() + rows);
  solution.axes = {{"row", first_row.back(), choice.tile_m}, {"n", problem.n, choice.tile_n}};
  absl::StatusOr<Machine> machine = MakeMachine(spec, kCubeFigures | MacFigure(problem.input));
  const ProductRates rates(*machine, problem.input, static_cast<WeightLayout>(problem.layout));
  std::vector<std::vector<BoxCount>> boxes(static_cast<size_t>(tiling->cores));
  int64_t index = 0;
  for (const GroupTask& task : GroupTasks(problem, choice)) {
    const int64_t core = index++ % tiling->cores, first = first_row[static_cast<size_t>(task.group)];
    solution.shares.push_back({core, {{first + task.begin_m, first + task.end_m}, {task.begin_n, task.end_n}}});
    const int64_t m = task.end_m - task.begin_m, n = task.end_n - task.begin_n;
    boxes[static_cast<size_t>(core)].push_back(
        {{RoundUp(m, kFractal), RoundUp(n, kFractal), RoundUp(problem.k, rates.fractal_k), m, n, problem.k}, 1});
  }
  solution.core_seconds.assign(static_cast<size_t>(machine->cube_cores), 0.0);
  for (size_t core = 0; core < boxes.size(); ++core)
    solution.core_seconds[core] = CoreSeconds(BoxesWork(rates, boxes[core], TilesOf(choice)));
  solution.slowest = tiling->slowest;
  solution.traffic = tiling->traffic;
  solution.prediction = tiling->prediction;
  solution.bound = tiling->bound;
  return solution;
}

}  // namespace

Solver GroupedMatmulSolver() {
  return MakeSolver<GroupedMatmulProblem>("grouped_matmul", "products of groups of tokens with a matrix per group (experts)",
                                          GroupedMatmulFields(), Solve);
}

}  // namespace jumar::tiling
