#include "libs/tiling/baselines/baselines.h"

namespace jumar::tiling {

#define JUMAR_TILING_BASELINE(function) Baseline function();
#include "libs/tiling/baselines/baselines.inc"
#undef JUMAR_TILING_BASELINE

std::span<const Baseline> Baselines() {
  static const std::vector<Baseline>& baselines = *new std::vector<Baseline>{
#define JUMAR_TILING_BASELINE(function) function(),
#include "libs/tiling/baselines/baselines.inc"
#undef JUMAR_TILING_BASELINE
  };
  return baselines;
}

}  // namespace jumar::tiling
