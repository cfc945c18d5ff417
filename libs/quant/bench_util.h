#ifndef LIBS_QUANT_BENCH_UTIL_H_
#define LIBS_QUANT_BENCH_UTIL_H_

// What the kernels' benchmarks share: their thread pool, their counters and the machine's limits as benchmarks.

#include <cstdint>

#include "benchmark/benchmark.h"
#include "libs/tiling/executor.h"
#include "libs/tiling/simd.h"

namespace jumar::quant {

// JUMAR_BENCH_THREADS workers (2), with the instruction set that JUMAR_SIMD names. Ends the program if that name is wrong.
tiling::Executor& BenchmarkPool();

// A counter: `per_iteration` units a second.
benchmark::Counter Rate(double per_iteration);

// Adds the benchmarks of libs/tiling/machine_limits.h: ReadBandwidth (bytes a second from an array far larger than the caches), and on
// registers MultiplyAddPeak (fp32 flops a second), BF16DotPeak (0 where the CPU has no such instruction) and Int8DotPeak.
void RegisterMachineLimits();

}  // namespace jumar::quant

#endif  // LIBS_QUANT_BENCH_UTIL_H_
