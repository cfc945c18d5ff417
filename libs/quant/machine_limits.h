#ifndef LIBS_QUANT_MACHINE_LIMITS_H_
#define LIBS_QUANT_MACHINE_LIMITS_H_

// What the machine can do at most, for benchmarks to compare with in the same run.

#include <cstdint>

#include "libs/tiling/executor.h"

namespace jumar::quant {

// Reads every byte once, with vector loads and next to no arithmetic, on all workers. The result only keeps the loads alive.
int64_t SumBytes(const void* data, int64_t bytes, tiling::Executor& executor);

// Runs fp32 multiply-adds on registers, on all workers, for about 100 microseconds; returns the floating-point operations done.
double MultiplyAdds(tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_MACHINE_LIMITS_H_
