#ifndef LIBS_TILING_MACHINE_LIMITS_H_
#define LIBS_TILING_MACHINE_LIMITS_H_

// What this machine can do at most, measured on the workers of an executor: for the row "host" of the table of hardware, for benchmarks to
// compare with in the same run, and for the summary of a trace.

#include <cstdint>

#include "libs/tiling/executor.h"

namespace jumar::tiling {

// The sum of an array's 64-bit words, less what remains behind the last 256 bytes: reads each once, with vector loads and next to no
// other arithmetic, on all workers.
int64_t SumBytes(const void* data, int64_t bytes, Executor& executor);

// Runs fp32 multiply-adds on registers, on all workers, for about 100 microseconds; returns the floating-point operations done.
double MultiplyAdds(Executor& executor);

// Bytes per second, the best of a few runs: read from an array of `bytes` (too large for a cache, or just right for one) that was read
// before; read and written (both counted) by copies between arrays of 64 MiB.
double ReadBytesPerSecond(int64_t bytes, Executor& executor);
double CopyBytesPerSecond(Executor& executor);

// Floating-point operations per second of MultiplyAdds: a multiply-add counts as two.
double FlopsPerSecond(Executor& executor);

// Cycles per second of the calling thread's core under load, from a chain of additions, each of which takes a cycle on any CPU.
double CyclesPerSecond();

}  // namespace jumar::tiling

#endif  // LIBS_TILING_MACHINE_LIMITS_H_
