#ifndef LIBS_TILING_HOST_H_
#define LIBS_TILING_HOST_H_

#include "libs/tiling/executor.h"
#include "libs/tiling/hardware_spec.h"

namespace jumar::tiling {

// The row "host" for this machine and the workers of `executor`: measured, in about a quarter of a second. What the figures stand for:
//
//   aic_cores, aiv_cores          workers
//   l0a_bytes, l0b_bytes          half of a core's L1 data cache each
//   l1_bytes, ub_bytes            a core's L2 cache
//   l2_bytes(_per_second)         the last-level cache and how fast the workers read from it together
//   memory_bytes(_per_second)     RAM and how fast they read it together
//   clock_hz                      under load
//   cube_macs_per_cycle_32bit     fp32 multiply-adds of a worker; vector_bytes_per_cycle: the bytes of one of their operands
//   gm_read/write_bytes_per_cycle a worker's part of the reading, and of the writing by copies
//
// A cache whose size the system doesn't tell stays unknown.
HardwareSpec MeasureHost(Executor& executor);

// Bytes of the data or unified cache of this level (1, 2, 3) as the system tells it; kUnknown if it doesn't.
int64_t CacheBytes(int level);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_HOST_H_
