#ifndef LIBS_TILING_BASELINES_BASELINES_H_
#define LIBS_TILING_BASELINES_BASELINES_H_

// For the survey and the tests: of each solver a grid of realistic problems, and the fixed rules that others use in its place, under the
// same cost model.

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

struct Baseline {
  std::string_view solver;
  std::vector<Values> (*grid)();
  // The fixed rule's time. An error where the rule gives no legal tiling.
  absl::StatusOr<Prediction> (*predict)(const Values&, const HardwareSpec&);
  bool full_box = true;  // the shares fill all of the axes' box; not so where sequences are of several lengths
  double p95 = 2;        // of the bound, at the 95th percentile of the grid: the goal, or what is reached
  double slack = 0;      // by which more of a chip's figures may make it slower, where tiles are ranked by a guess
};

std::span<const Baseline> Baselines();

}  // namespace jumar::tiling

#endif  // LIBS_TILING_BASELINES_BASELINES_H_
