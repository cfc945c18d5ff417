// Tiles a matrix product for a chip, from a workspace that isn't Jumar's: bazel run //:tile -- Ascend910B2 8 7168 7168

#include <cstdio>
#include <cstdlib>
#include <string>

#include "libs/tiling/hardware.h"
#include "libs/tiling/hardware_table.h"
#include "libs/tiling/matmul.h"

namespace tiling = jumar::tiling;

// The table is there at compile time, too.
static_assert(tiling::ChipNamed("Ascend910B2")->ub_bytes == 192 * 1024);

int main(int argc, char** argv) {
  const auto chip = tiling::FindHardware(argc > 1 ? argv[1] : "Ascend910B2");
  if (!chip.ok()) {
    std::fprintf(stderr, "%s\n", std::string(chip.status().message()).c_str());
    return 1;
  }
  tiling::MatmulProblem problem;
  if (argc > 4) problem = {.m = std::atoll(argv[2]), .n = std::atoll(argv[3]), .k = std::atoll(argv[4])};
  const auto tiled = tiling::SolveMatmul(problem, **chip);
  if (!tiled.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tiled.status().message()).c_str());
    return 1;
  }
  const tiling::MatmulChoice& choice = tiled->choice;
  std::printf("%s, %lld x %lld x %lld: cores %lld x %lld x %lld, tiles %lld x %lld, %.1f us, of which no tiling saves more than %.1f us\n",
              std::string((*chip)->name).c_str(), static_cast<long long>(problem.m), static_cast<long long>(problem.n), static_cast<long long>(problem.k),
              static_cast<long long>(choice.cores_m), static_cast<long long>(choice.cores_n), static_cast<long long>(choice.cores_k),
              static_cast<long long>(choice.tile_m), static_cast<long long>(choice.tile_n), 1e6 * tiled->prediction.seconds,
              1e6 * (tiled->prediction.seconds - tiled->bound.Seconds()));
  return 0;
}
