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

// Memory as a device gives it: aligned, in huge pages. Its bytes are 0x3C: 0x3C3C3C3C is finite and not subnormal in every type, so that speed
// is that of ordinary numbers.
class BenchmarkBuffer {
 public:
  explicit BenchmarkBuffer(int64_t bytes);
  ~BenchmarkBuffer();
  BenchmarkBuffer(const BenchmarkBuffer&) = delete;
  BenchmarkBuffer& operator=(const BenchmarkBuffer&) = delete;
  char* data() { return data_; }
  int64_t size() const { return bytes_; }  // a whole number of pages

 private:
  const int64_t bytes_;
  char* const data_;
};

// A counter: `per_iteration` units a second.
benchmark::Counter Rate(double per_iteration);

// Adds the benchmarks of libs/tiling/machine_limits.h: ReadBandwidth (bytes a second from an array far larger than the caches), and on
// registers MultiplyAddPeak (fp32 flops a second), BF16DotPeak (0 where the CPU has no such instruction) and Int8DotPeak.
void RegisterMachineLimits();

}  // namespace jumar::quant

#endif  // LIBS_QUANT_BENCH_UTIL_H_
