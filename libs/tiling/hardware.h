#ifndef LIBS_TILING_HARDWARE_H_
#define LIBS_TILING_HARDWARE_H_

// What the repository knows about chips, as data: the only place that does. Platform, hostcann, kernels and documentation read it.
//
//   auto spec = FindHardware("Ascend910B2");
//   if (!spec.ok()) return spec.status();          // names the chips that are spelled nearly so
//   const int64_t ub = (*spec)->ub_bytes;
//
// A figure for which we found no public source is kUnknown (0); whoever needs it then has to say so. Sources, by letter:
//   [D] Huawei, CANN documentation, "NPU architecture version" 200x and 220x: a 220x has cube and vector units on separate cores, two
//       vector cores to a cube core; a 200x has both on one core. Buffer sizes as published with open kernels for these chips.
//   [H] Project HAMi (Apache-2.0), docs/ascend910b-support.md: cores and memory of 910B2, 910B3, 910B4 and 310P3.
//   [C] arXiv 2506.12708, "Serving Large Language Models on Huawei CloudMatrix384": a 910C package is two dies, each a device with 24 AIC,
//       48 AIV, 64 GB at 1.6 TB/s.
//   [K] Huawei Connect 2025 keynote: memory of 950PR and 950DT, formats of the 950.
//   [T] Ascend/pytorch (BSD-3), NpuVariables: names and numbers of SoC versions; which have bf16.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace jumar::tiling {

inline constexpr int64_t kUnknown = 0;

enum class Architecture : uint8_t {
  kA2,    // 910B: cube and vector on separate cores
  kA3,    // 910_93 (910C): the same cores, two dies a package, each a device
  kA5,    // 950
  k310P,  // 310P: cube and vector on one core
  kHost,  // hostcann: a CPU. Its devices bear an Ascend name (JUMAR_SOC) and take that row's limits, not speeds.
};

// Number formats that the cube or vector unit computes with.
enum Format : uint32_t {
  kFp32 = 1u << 0,
  kFp16 = 1u << 1,
  kBf16 = 1u << 2,
  kInt8 = 1u << 3,
  kInt4 = 1u << 4,
  kFp8 = 1u << 5,  // E4M3, E5M2
  kHiF8 = 1u << 6,
  kMxFp8 = 1u << 7,
  kMxFp4 = 1u << 8,
};

struct HardwareSpec {
  std::string_view name;  // what aclrtGetSocName says; "host" for the CPU itself
  Architecture architecture;
  int64_t soc_version;    // torch_npu's number for it; -1 = none
  int64_t aic_cores;      // cube cores
  int64_t aiv_cores;      // vector cores
  int64_t ub_bytes;       // of one vector core
  int64_t l1_bytes;       // of one cube core, as the following
  int64_t l0a_bytes;
  int64_t l0b_bytes;
  int64_t l0c_bytes;
  int64_t l2_bytes;
  int64_t memory_bytes;             // HBM, or DDR of 310P
  int64_t memory_bytes_per_second;
  uint32_t formats;                 // of Format
  int64_t flag_events;              // that a device has for aclrtCreateEvent [D: page "aclrtCreateEvent"]

  // Speeds, for the cost model.
  int64_t clock_hz = kUnknown;
  int64_t l2_bytes_per_second = kUnknown;           // of all cores together
  int64_t cube_macs_per_cycle_16bit = kUnknown;     // multiply-adds of one cube core: fp16, bf16
  int64_t cube_macs_per_cycle_8bit = kUnknown;      // int8, fp8
  int64_t cube_macs_per_cycle_32bit = kUnknown;     // fp32
  int64_t vector_bytes_per_cycle = kUnknown;        // that one vector core reads of one operand
  int64_t gm_read_bytes_per_cycle = kUnknown;       // MTE2: global memory to L1 or UB, one core
  int64_t gm_write_bytes_per_cycle = kUnknown;      // MTE3: UB to global memory, one core
  int64_t l1_to_l0a_bytes_per_cycle = kUnknown;     // MTE1
  int64_t l1_to_l0b_bytes_per_cycle = kUnknown;
  int64_t l0c_read_bytes_per_cycle = kUnknown;      // FIX: L0C to L1, UB or global memory

  constexpr bool Supports(Format format) const { return (formats & format) != 0; }
};

std::span<const HardwareSpec> AllHardware();

// By name, capitals or not; a suffix behind an underscore is a variant of the same row ("Ascend950PR_9599"). NotFound lists the names
// that are spelled nearly so, or all.
absl::StatusOr<const HardwareSpec*> FindHardware(std::string_view name);

std::string_view ArchitectureName(Architecture architecture);  // "A2", "A3", "A5", "310P", "host"
std::string FormatNames(uint32_t formats);                     // "fp32 fp16 bf16 int8"

}  // namespace jumar::tiling

#endif  // LIBS_TILING_HARDWARE_H_
