#ifndef LIBS_TILING_SIMD_H_
#define LIBS_TILING_SIMD_H_

// Which instruction set the SIMD kernels run with. Highway chooses the best one that the CPU has; tests and benchmarks force others.

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace jumar::tiling {

// What kernels are compiled for and this CPU can run, best first, for example {"AVX3_ZEN4", "AVX3", "AVX2", "SSE2"}.
std::vector<std::string> SimdTargets();

// Makes every kernel of the process run with this instruction set from now on; "" = the best. NotFound lists the names. Call it
// while no kernel runs.
absl::Status UseSimdTarget(const std::string& name);

// Takes JUMAR_SIMD from the environment, for benchmarks and tests.
absl::Status UseSimdTargetFromEnvironment();

std::string SimdTarget();

}  // namespace jumar::tiling

#endif  // LIBS_TILING_SIMD_H_
