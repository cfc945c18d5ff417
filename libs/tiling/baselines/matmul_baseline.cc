// The fixed rule for products: tiles are powers of two from 16 to 512 whose sums fit L0C, chosen by the cost 1 / (a n0) + 1 / (b m0), where
// a and b are 5 for an operand whose part in flight is beyond L2; tiles are dealt out to a grid of cores, and k goes in steps of 256
// elements.

#include <algorithm>

#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/baselines/shapes.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/matmul.h"

namespace jumar::tiling {
namespace {

std::vector<Values> Grid() {
  std::vector<Values> grid;
  for (const Linear& linear : kLinears) {
    for (const int64_t parallel : kTensorParallel) {
      if (linear.split == Split::kNone && parallel > 1) continue;
      for (const int64_t m : kTokenCounts) {
        for (const DType type : {DType::kBf16, DType::kInt8}) {
          MatmulProblem problem = {.m = m, .n = linear.n, .k = linear.k, .input = type};
          (linear.split == Split::kRows ? problem.k : problem.n) /= parallel;
          if (type == DType::kBf16 && parallel == 2) problem.layout = static_cast<int64_t>(WeightLayout::kNdTransposed);
          grid.push_back(ToValues(MatmulFields(), problem));
        }
      }
    }
  }
  return grid;
}

MatmulChoice Rule(const MatmulProblem& problem, const HardwareSpec& spec) {
  const int64_t element = Bytes(problem.input), cores = spec.aic_cores;
  const int64_t most_m = RoundUp(problem.m, kFractal), most_n = RoundUp(problem.n, kFractal);
  MatmulChoice choice;
  double least = 1e300;
  for (int64_t m0 = kFractal; m0 <= 512 && m0 < 2 * most_m; m0 *= 2) {
    for (int64_t n0 = kFractal; n0 <= 512 && n0 < 2 * most_n; n0 *= 2) {
      if (m0 * n0 * 4 > spec.l0c_bytes) continue;
      const int64_t in_flight_m = std::min(cores, CeilDiv(problem.m, m0)) * m0, in_flight_n = std::min(cores, CeilDiv(problem.n, n0)) * n0;
      const double a = in_flight_m * problem.k * element > spec.l2_bytes ? 5 : 1,
                   b = in_flight_n * problem.k * element > spec.l2_bytes ? 5 : 1;
      const double cost = 1 / (a * static_cast<double>(n0)) + 1 / (b * static_cast<double>(m0));
      if (cost >= least) continue;
      least = cost;
      choice.tile_m = m0, choice.tile_n = n0;
    }
  }
  // The grid of cores with the fewest tiles for the busiest.
  const int64_t tiles_m = CeilDiv(problem.m, choice.tile_m), tiles_n = CeilDiv(problem.n, choice.tile_n);
  int64_t fewest = INT64_MAX;
  for (int64_t m = 1; m <= std::min(cores, tiles_m); ++m) {
    const int64_t n = std::min(cores / m, tiles_n), tiles = CeilDiv(tiles_m, m) * CeilDiv(tiles_n, n);
    if (tiles >= fewest) continue;
    fewest = tiles;
    choice.cores_m = m, choice.cores_n = n;
  }
  const int64_t padded_k = RoundUp(problem.k, FractalK(problem.input));
  choice.step_k = std::min<int64_t>(padded_k, 256);
  while (2 * (choice.tile_m + choice.tile_n) * choice.step_k * element > spec.l1_bytes) choice.step_k /= 2;
  choice.l0_k = choice.step_k;
  while (2 * std::max(choice.tile_m, choice.tile_n) * choice.l0_k * element > spec.l0a_bytes) choice.l0_k /= 2;
  choice.l0_k = std::max(choice.l0_k / FractalK(problem.input), int64_t{1}) * FractalK(problem.input);
  choice.l0c_copies = 2 * choice.tile_m * choice.tile_n * 4 <= spec.l0c_bytes ? 2 : 1;
  // A core's box isn't always a multiple of the tile.
  const int64_t core_m = CeilDiv(CeilDiv(problem.m, kFractal), choice.cores_m) * kFractal,
                core_n = CeilDiv(CeilDiv(problem.n, kFractal), choice.cores_n) * kFractal;
  choice.tile_m = std::min(choice.tile_m, core_m);
  choice.tile_n = std::min(choice.tile_n, core_n);
  return choice;
}

absl::StatusOr<Prediction> Predict(const Values& values, const HardwareSpec& spec) {
  const MatmulProblem problem = FromValues(MatmulFields(), values);
  const absl::StatusOr<MatmulTiling> tiling = EvaluateMatmul(problem, Rule(problem, spec), spec);
  if (!tiling.ok()) return tiling.status();
  return tiling->prediction;
}

}  // namespace

Baseline MatmulBaseline() { return {"matmul", Grid, Predict}; }

}  // namespace jumar::tiling
