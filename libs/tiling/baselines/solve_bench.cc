// Time of one solve, at the median over each solver's grid: ./bazelw run //libs/tiling/baselines:solve_bench

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

void Solve(benchmark::State& state, const Baseline& baseline) {
  const Solver& solver = **FindSolver(baseline.solver);
  const HardwareSpec spec = SyntheticSpec();
  const std::vector<Values> grid = baseline.grid();
  std::vector<double> microseconds;
  size_t next = 0;
  for (auto _ : state) {
    next = (next + 997) % grid.size();  // a prime: all over the grid
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(solver.solve(grid[next], spec));
    microseconds.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(microseconds.begin(), microseconds.end());
  state.counters["median_us"] = microseconds[microseconds.size() / 2];
  state.counters["p95_us"] = microseconds[microseconds.size() * 95 / 100];
}

const int registered = [] {
  for (const Baseline& baseline : Baselines())
    benchmark::RegisterBenchmark(("solve/" + std::string(baseline.solver)).c_str(), Solve, baseline);
  return 0;
}();

}  // namespace
}  // namespace jumar::tiling
