#ifndef LIBS_TILING_SYNTHETIC_SPEC_H_
#define LIBS_TILING_SYNTHETIC_SPEC_H_

// Chips that don't exist, with every figure given: for tests and for the survey's grid, which must not depend on which figures of a real
// chip somebody published. The proportions are those of a 220x: a cube core that needs about 100 bytes a cycle, HBM far below that.

#include "libs/tiling/hardware.h"

namespace jumar::tiling {

constexpr HardwareSpec SyntheticSpec() {
  HardwareSpec spec{};
  spec.name = "synthetic";
  spec.architecture = Architecture::kA2;
  spec.soc_version = -1;
  spec.aic_cores = 24;
  spec.aiv_cores = 48;
  spec.ub_bytes = 192 * 1024;
  spec.l1_bytes = 512 * 1024;
  spec.l0a_bytes = spec.l0b_bytes = 64 * 1024;
  spec.l0c_bytes = 128 * 1024;
  spec.l2_bytes = 192 * 1024 * 1024;
  spec.memory_bytes = int64_t{64} << 30;
  spec.memory_bytes_per_second = 1'600'000'000'000;
  spec.formats = kFp32 | kFp16 | kBf16 | kInt8 | kFp8;
  spec.clock_hz = 1'800'000'000;
  spec.l2_bytes_per_second = 5'000'000'000'000;
  spec.cube_macs_per_cycle_16bit = 4096;
  spec.cube_macs_per_cycle_8bit = 8192;
  spec.cube_macs_per_cycle_32bit = 1024;
  spec.vector_bytes_per_cycle = 256;
  spec.gm_read_bytes_per_cycle = 128;
  spec.gm_write_bytes_per_cycle = 128;
  spec.l1_to_l0a_bytes_per_cycle = 512;
  spec.l1_to_l0b_bytes_per_cycle = 256;
  spec.l0c_read_bytes_per_cycle = 256;
  return spec;
}

// Cube and vector unit on one core, as on a 200x.
constexpr HardwareSpec SyntheticUnifiedSpec() {
  HardwareSpec spec = SyntheticSpec();
  spec.name = "synthetic_unified";
  spec.architecture = Architecture::k310P;
  spec.aic_cores = spec.aiv_cores = 8;
  spec.ub_bytes = 256 * 1024;
  spec.l1_bytes = 1024 * 1024;
  spec.l0c_bytes = 256 * 1024;
  spec.l2_bytes = 16 * 1024 * 1024;
  spec.memory_bytes_per_second = 200'000'000'000;
  spec.l2_bytes_per_second = 1'000'000'000'000;
  spec.formats = kFp32 | kFp16 | kInt8;
  return spec;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_SYNTHETIC_SPEC_H_
