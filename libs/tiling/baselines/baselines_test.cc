// The goals over the grids: within 1.25 of the bound at the median and 2 at the 95th percentile, never worse than the fixed rule.

#include "libs/tiling/baselines/baselines.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

std::string Describe(const Solver& solver, const Values& values) {
  std::string text(solver.name);
  for (size_t i = 0; i < values.size(); ++i) text += " --" + std::string(solver.fields[i].name) + " " + FormatValue(solver.fields[i], values[i]);
  return text;
}

class Goals : public testing::TestWithParam<std::tuple<size_t, std::string>> {};

TEST_P(Goals, NearTheBoundAndNeverWorseThanTheFixedRule) {
  const auto& [index, chip] = GetParam();
  const Baseline& baseline = Baselines()[index];
  const Solver& solver = **FindSolver(baseline.solver);
  const HardwareSpec spec = chip == "synthetic" ? SyntheticSpec() : **FindHardware(chip);
  const std::vector<Values> grid = baseline.grid();
  EXPECT_GE(grid.size(), 2000u);
  std::vector<double> ratios, gains;
  std::vector<std::pair<double, size_t>> worst;
  for (size_t i = 0; i < grid.size(); ++i) {
    const absl::StatusOr<Solution> solution = solver.solve(grid[i], spec);
    if (chip != "synthetic" && solution.status().code() == absl::StatusCode::kInvalidArgument) continue;  // a type that it lacks
    ASSERT_TRUE(solution.ok()) << Describe(solver, grid[i]) << ": " << solution.status();
    const double seconds = solution->prediction.seconds, bound = solution->bound.Seconds();
    EXPECT_GE(seconds, bound * (1 - 1e-12)) << Describe(solver, grid[i]);
    EXPECT_TRUE(CheckBuffers(solution->buffers, spec).ok()) << Describe(solver, grid[i]);
    const absl::StatusOr<Prediction> fixed = baseline.predict(grid[i], spec);
    if (fixed.ok()) {
      EXPECT_LE(seconds, fixed->seconds * (1 + 1e-12)) << Describe(solver, grid[i]);
      gains.push_back(fixed->seconds / seconds);
    }
    ratios.push_back(seconds / bound);
    worst.push_back({seconds / bound, i});
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(gains.begin(), gains.end());
  std::sort(worst.begin(), worst.end());
  const double median = ratios[ratios.size() / 2], p95 = ratios[ratios.size() * 95 / 100];
  std::printf("%s on %s: %zu problems, against the bound %.3f median, %.3f p95, %.3f worst; the fixed rule has a tiling for %zu, takes %.2f median, %.2f p95, %.2f worst\n",
              std::string(solver.name).c_str(), chip.c_str(), ratios.size(), median, p95, ratios.back(), gains.size(), gains.empty() ? 0 : gains[gains.size() / 2],
              gains.empty() ? 0 : gains[gains.size() * 95 / 100], gains.empty() ? 0 : gains.back());
  std::printf("  worst: %s\n", Describe(solver, grid[worst.back().second]).c_str());
  EXPECT_LE(median, 1.25);
  EXPECT_LE(p95, baseline.p95);
}

INSTANTIATE_TEST_SUITE_P(Solvers, Goals, testing::Combine(testing::Range<size_t>(0, Baselines().size()), testing::Values("synthetic", "Ascend910B2")),
                         [](const auto& info) { return std::string(Baselines()[std::get<0>(info.param)].solver) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace jumar::tiling
