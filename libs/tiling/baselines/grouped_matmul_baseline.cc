// The fixed rule for grouped products: tiles of 128 x 256 (as a general product's base block), each a task of its own, k in steps of 256.

#include <algorithm>
#include <random>

#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/baselines/shapes.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/grouped_matmul.h"

namespace jumar::tiling {
namespace {

// Tokens choose experts at random; a rank has its part of the experts.
std::vector<int64_t> Route(int64_t tokens, const Experts& experts, int64_t ranks) {
  std::mt19937_64 random(static_cast<uint64_t>(tokens * 131 + experts.experts * 7 + ranks));
  std::vector<int64_t> rows(static_cast<size_t>(experts.experts), 0);
  for (int64_t choice = 0; choice < tokens * experts.chosen; ++choice) ++rows[random() % rows.size()];
  rows.resize(static_cast<size_t>(experts.experts / ranks));
  if (std::all_of(rows.begin(), rows.end(), [](int64_t r) { return r == 0; })) rows[0] = 1;
  return rows;
}

std::vector<Values> Grid() {
  std::vector<Values> grid;
  for (const Experts& experts : kExperts) {
    for (const int64_t ranks : {1, 4, 8, 16, 32}) {
      if (experts.experts % ranks != 0) continue;
      for (const int64_t tokens : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
        for (const DType type : {DType::kBf16, DType::kInt8}) {
          for (const bool up : {true, false}) {
            GroupedMatmulProblem problem;
            problem.rows = Route(tokens, experts, ranks);
            problem.n = up ? 2 * experts.intermediate : experts.hidden;
            problem.k = up ? experts.hidden : experts.intermediate;
            problem.input = type;
            grid.push_back(ToValues(GroupedMatmulFields(), problem));
          }
        }
      }
    }
  }
  return grid;
}

absl::StatusOr<Prediction> Predict(const Values& values, const HardwareSpec& spec) {
  const GroupedMatmulProblem problem = FromValues(GroupedMatmulFields(), values);
  const int64_t element = Bytes(problem.input), fractal_k = FractalK(problem.input);
  GroupedMatmulChoice choice;
  const int64_t most = *std::max_element(problem.rows.begin(), problem.rows.end());
  choice.task_m = choice.tile_m = std::min<int64_t>(128, RoundUp(most, kFractal));
  choice.task_n = choice.tile_n = std::min<int64_t>(256, RoundUp(problem.n, kFractal));
  choice.step_k = std::min<int64_t>(256, RoundUp(problem.k, fractal_k));
  choice.l0_k = choice.step_k;
  while (2 * std::max(choice.tile_m, choice.tile_n) * choice.l0_k * element > spec.l0a_bytes)
    choice.l0_k = std::max(fractal_k, choice.l0_k / 2 / fractal_k * fractal_k);
  choice.l0c_copies = 2 * choice.tile_m * choice.tile_n * 4 <= spec.l0c_bytes ? 2 : 1;
  const absl::StatusOr<GroupedMatmulTiling> tiling = EvaluateGroupedMatmul(problem, choice, spec);
  if (!tiling.ok()) return tiling.status();
  return tiling->prediction;
}

}  // namespace

Baseline GroupedMatmulBaseline() { return {"grouped_matmul", Grid, Predict}; }

}  // namespace jumar::tiling
