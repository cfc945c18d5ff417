#ifndef LIBS_TILING_MACHINE_LIMITS_H_
#define LIBS_TILING_MACHINE_LIMITS_H_

// What this machine can do at most, measured on the workers of an executor: for the row "host" of the table of hardware, for benchmarks to
// compare with in the same run, and for the summary of a trace.

#include <cstdint>

#include "libs/tiling/executor.h"

namespace jumar::tiling {

// The sum of an array's 64-bit words, less what remains behind the last 256 bytes: reads each once, with vector loads and next to no
// other arithmetic, on all workers. A long array is read as several streams side by side, which is as fast as memory goes.
int64_t SumBytes(const void* data, int64_t bytes, Executor& executor);

// Runs fp32 multiply-adds on registers, on all workers, for about 100 microseconds; returns the floating-point operations done.
double MultiplyAdds(Executor& executor);

// The same with the instruction that adds pairs of bf16 products to fp32 sums; 0 where the instruction set has none.
double BF16DotOps(Executor& executor);

// The same with integer products: the instruction that adds four products of int8 to an int32 sum (AVX-512 VNNI), else the one that adds two
// of int16, to which the int8 of an exact product are widened.
double Int8DotOps(Executor& executor);

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
