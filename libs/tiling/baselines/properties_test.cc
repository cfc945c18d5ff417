// What every solver's answers have in common, on seeded samples of the grids and on several chips.

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/buffer_map.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

constexpr int kSample = 60;

class Properties : public testing::TestWithParam<size_t> {
 protected:
  const Baseline& baseline() { return Baselines()[GetParam()]; }
  const Solver& solver() { return **FindSolver(baseline().solver); }

  std::vector<Values> Sample(int count) {
    const std::vector<Values> grid = baseline().grid();
    std::mt19937_64 random(GetParam() + 1);
    std::vector<Values> sample;
    for (int i = 0; i < count; ++i) sample.push_back(grid[random() % grid.size()]);
    return sample;
  }

  std::string Describe(const Values& values, const HardwareSpec& spec) {
    std::string text(solver().name);
    for (size_t i = 0; i < values.size(); ++i) text += " --" + std::string(solver().fields[i].name) + " " + FormatValue(solver().fields[i], values[i]);
    return text + " on " + std::string(spec.name);
  }
};

std::vector<HardwareSpec> Chips() {
  std::vector<HardwareSpec> chips = {SyntheticSpec(), SyntheticUnifiedSpec()};
  for (const HardwareSpec& spec : AllHardware()) {
    if (MakeMachine(spec, kCubeFigures | kVectorFigures | kMacs16 | kMacs8).ok()) chips.push_back(spec);
  }
  return chips;
}

TEST_P(Properties, FitsIsPlannedAndIsNotBelowTheBound) {
  for (const HardwareSpec& spec : Chips()) {
    for (const Values& values : Sample(kSample)) {
      const absl::StatusOr<Solution> solution = solver().solve(values, spec);
      if (!solution.ok()) {  // a type that the chip lacks
        EXPECT_EQ(solution.status().code(), absl::StatusCode::kInvalidArgument) << Describe(values, spec) << ": " << solution.status();
        continue;
      }
      EXPECT_TRUE(CheckBuffers(solution->buffers, spec).ok()) << Describe(values, spec);
      EXPECT_TRUE(PlanBuffers(solution->buffers, spec).ok()) << Describe(values, spec);
      EXPECT_GE(solution->prediction.seconds, solution->bound.Seconds() * (1 - 1e-12)) << Describe(values, spec) << ", bound by " << solution->bound.Limit();
      EXPECT_TRUE(std::isfinite(solution->prediction.seconds)) << Describe(values, spec);
      double most = 0;
      for (const double seconds : solution->core_seconds) most = std::max(most, seconds);
      EXPECT_LE(most, solution->prediction.seconds * (1 + 1e-9)) << Describe(values, spec);
      EXPECT_GT(most, 0) << Describe(values, spec);
    }
  }
}

// Shares lie within the axes and are disjoint; that they also fill the axes is for the solvers whose axes are a full box.
TEST_P(Properties, SharesCoverEveryPointOnce) {
  for (const HardwareSpec& spec : {SyntheticSpec(), SyntheticUnifiedSpec()}) {
    for (const Values& values : Sample(kSample / 2)) {
      const absl::StatusOr<Solution> solution = solver().solve(values, spec);
      if (!solution.ok()) continue;
      const std::vector<Share>& shares = solution->shares;
      double volume = 0, all = 1;
      for (const Axis& axis : solution->axes) all *= static_cast<double>(axis.extent);
      for (size_t i = 0; i < shares.size(); ++i) {
        double part = 1;
        for (size_t axis = 0; axis < shares[i].range.size(); ++axis) {
          const auto& [begin, end] = shares[i].range[axis];
          EXPECT_LE(0, begin);
          EXPECT_LT(begin, end) << Describe(values, spec);
          EXPECT_LE(end, solution->axes[axis].extent) << Describe(values, spec);
          part *= static_cast<double>(end - begin);
        }
        volume += part;
        for (size_t j = 0; j < i && i < 1000; ++j) {
          bool apart = false;
          for (size_t axis = 0; axis < shares[i].range.size(); ++axis) {
            apart = apart || shares[i].range[axis][1] <= shares[j].range[axis][0] || shares[j].range[axis][1] <= shares[i].range[axis][0];
          }
          ASSERT_TRUE(apart) << Describe(values, spec) << ": shares " << j << " and " << i << " overlap";
        }
      }
      if (baseline().full_box) {
        EXPECT_DOUBLE_EQ(volume, all) << Describe(values, spec);
      }
    }
  }
}

TEST_P(Properties, MoreOfAnythingIsNeverSlower) {
  using S = HardwareSpec;
  for (const Values& values : Sample(kSample / 3)) {
    const absl::StatusOr<Solution> before = solver().solve(values, SyntheticSpec());
    ASSERT_TRUE(before.ok()) << before.status();
    for (int64_t S::* const figure : {&S::ub_bytes, &S::l1_bytes, &S::l0a_bytes, &S::l0b_bytes, &S::l0c_bytes, &S::l2_bytes, &S::memory_bytes_per_second,
                                      &S::l2_bytes_per_second, &S::gm_read_bytes_per_cycle, &S::gm_write_bytes_per_cycle, &S::vector_bytes_per_cycle,
                                      &S::l1_to_l0a_bytes_per_cycle, &S::l0c_read_bytes_per_cycle, &S::cube_macs_per_cycle_16bit, &S::clock_hz}) {
      HardwareSpec more = SyntheticSpec();
      more.*figure += more.*figure / 2;
      const absl::StatusOr<Solution> after = solver().solve(values, more);
      ASSERT_TRUE(after.ok()) << after.status();
      EXPECT_LE(after->prediction.seconds, before->prediction.seconds * (1 + 1e-12 + baseline().slack)) << Describe(values, more) << ", a figure was " << more.*figure / 3 * 2;
      EXPECT_LE(after->bound.Seconds(), before->bound.Seconds() * (1 + 1e-12)) << Describe(values, more);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Solvers, Properties, testing::Range<size_t>(0, Baselines().size()),
                         [](const auto& info) { return std::string(Baselines()[info.param].solver); });

}  // namespace
}  // namespace jumar::tiling
