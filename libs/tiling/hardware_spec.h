#ifndef LIBS_TILING_HARDWARE_SPEC_H_
#define LIBS_TILING_HARDWARE_SPEC_H_

// What a chip's row in the table of hardware (hardware_table.h) consists of: figures, each with its source. Header-only and constexpr, with
// nothing beyond the standard library, so that a kernel can take capacities from it and check them while it is compiled.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace jumar::tiling {

// A figure for which we found no public source. Whoever needs it has to say so.
inline constexpr int64_t kUnknown = 0;

enum class Architecture : uint8_t {
  kA2,    // 910B: cube and vector on separate cores
  kA3,    // 910_93 (910C): the same cores, two dies a package, each a device
  kA5,    // 950
  k310P,  // 310P: cube and vector on one core
  kHost,  // a CPU. hostcann's devices bear an Ascend name (JUMAR_SOC) and take that row's limits, not speeds.
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

// Where a figure comes from. Sources() in hardware_table.h says of each what it is and where it is to be found.
enum class Source : uint8_t {
  kNone,  // of a figure that is unknown
  kArch2201,
  kArch3510,
  kArch2002,
  kCaches,
  kLayouts,
  kCubeRates,
  kVectorRates,
  kMmad,
  kWeightQuant,
  kEvents,
  kCopyExample,
  kLoadTest,
  kMigration,
  kCloudMatrix,
  kKeynote,
  kTorchNpu,
  kNpuIr,
  kAkg,
  kAkgRates,
  kHami,
  kSimulator,
  kMeasured,
  kGiven,
};

inline constexpr size_t kNumFigures = 36;

struct HardwareSpec {
  std::string_view name;  // what aclrtGetSocName says; "host" for the CPU itself
  Architecture architecture = Architecture::kHost;
  uint32_t formats = 0;   // of Format
  Source formats_source = Source::kNone;
  uint32_t weight_formats = 0;  // of Format: what a weight may be where the product is one of 16 bits (weight-only quantisation)
  Source weight_formats_source = Source::kNone;

  // The figures: kSpecFigures, below, says what each of them is.
  int64_t soc_version = kUnknown;
  int64_t aic_cores = kUnknown;
  int64_t aiv_cores = kUnknown;
  int64_t ub_bytes = kUnknown;
  int64_t l1_bytes = kUnknown;
  int64_t l0a_bytes = kUnknown;
  int64_t l0b_bytes = kUnknown;
  int64_t l0c_bytes = kUnknown;
  int64_t bias_table_bytes = kUnknown;
  int64_t fixpipe_bytes = kUnknown;
  int64_t l2_bytes = kUnknown;
  int64_t memory_bytes = kUnknown;
  int64_t memory_bytes_per_second = kUnknown;
  int64_t flag_events = kUnknown;
  int64_t clock_hz = kUnknown;
  int64_t l2_bytes_per_second = kUnknown;
  int64_t cube_macs_per_cycle_32bit = kUnknown;
  int64_t cube_macs_per_cycle_16bit = kUnknown;
  int64_t cube_macs_per_cycle_8bit = kUnknown;
  int64_t cube_macs_per_cycle_4bit = kUnknown;
  int64_t vector_bytes_per_cycle = kUnknown;
  int64_t vector_exp_per_cycle = kUnknown;
  int64_t gm_read_bytes_per_cycle = kUnknown;
  int64_t gm_write_bytes_per_cycle = kUnknown;
  int64_t l1_to_l0a_bytes_per_cycle = kUnknown;
  int64_t l1_to_l0b_bytes_per_cycle = kUnknown;
  int64_t l0c_read_bytes_per_cycle = kUnknown;
  int64_t ub_alignment = kUnknown;
  int64_t l1_alignment = kUnknown;
  int64_t l0a_alignment = kUnknown;
  int64_t l0b_alignment = kUnknown;
  int64_t l0c_alignment = kUnknown;
  int64_t cache_line_bytes = kUnknown;
  int64_t fractal_rows = kUnknown;
  int64_t fractal_row_bytes = kUnknown;
  int64_t fractal_accumulator_columns = kUnknown;

  std::array<Source, kNumFigures> sources = {};  // in the order of kSpecFigures

  constexpr bool Supports(Format format) const { return (formats & format) != 0; }
  constexpr bool TakesWeightsIn(Format format) const { return (weight_formats & format) != 0; }
};

struct SpecFigure {
  std::string_view name;
  std::string_view unit;  // "" = a number
  std::string_view meaning;
  int64_t HardwareSpec::*value;
};

inline constexpr std::array<SpecFigure, kNumFigures> kSpecFigures = {{
    {"soc_version", "", "torch_npu's number for the chip", &HardwareSpec::soc_version},
    {"aic_cores", "", "cube cores", &HardwareSpec::aic_cores},
    {"aiv_cores", "", "vector cores", &HardwareSpec::aiv_cores},
    {"ub_bytes", "bytes", "unified buffer of a vector core", &HardwareSpec::ub_bytes},
    {"l1_bytes", "bytes", "L1 of a cube core", &HardwareSpec::l1_bytes},
    {"l0a_bytes", "bytes", "L0A of a cube core: the left operand", &HardwareSpec::l0a_bytes},
    {"l0b_bytes", "bytes", "L0B of a cube core: the right operand", &HardwareSpec::l0b_bytes},
    {"l0c_bytes", "bytes", "L0C of a cube core: accumulators", &HardwareSpec::l0c_bytes},
    {"bias_table_bytes", "bytes", "bias table of a cube core", &HardwareSpec::bias_table_bytes},
    {"fixpipe_bytes", "bytes", "fixpipe buffer of a cube core: scales for the way out of L0C", &HardwareSpec::fixpipe_bytes},
    {"l2_bytes", "bytes", "L2, of all cores together", &HardwareSpec::l2_bytes},
    {"memory_bytes", "bytes", "device memory: HBM, or DDR", &HardwareSpec::memory_bytes},
    {"memory_bytes_per_second", "bytes/s", "its bandwidth", &HardwareSpec::memory_bytes_per_second},
    {"flag_events", "", "events that a device has for aclrtCreateEvent", &HardwareSpec::flag_events},
    {"clock_hz", "Hz", "clock of cube and vector cores", &HardwareSpec::clock_hz},
    {"l2_bytes_per_second", "bytes/s", "bandwidth of L2, of all cores together", &HardwareSpec::l2_bytes_per_second},
    {"cube_macs_per_cycle_32bit", "MAC/cycle", "multiply-adds of a cube core: fp32", &HardwareSpec::cube_macs_per_cycle_32bit},
    {"cube_macs_per_cycle_16bit", "MAC/cycle", "fp16, bf16", &HardwareSpec::cube_macs_per_cycle_16bit},
    {"cube_macs_per_cycle_8bit", "MAC/cycle", "int8, fp8", &HardwareSpec::cube_macs_per_cycle_8bit},
    {"cube_macs_per_cycle_4bit", "MAC/cycle", "int4, mxfp4", &HardwareSpec::cube_macs_per_cycle_4bit},
    {"vector_bytes_per_cycle", "bytes/cycle", "of one operand, of a vector core: additions, products, maxima",
     &HardwareSpec::vector_bytes_per_cycle},
    {"vector_exp_per_cycle", "1/cycle", "exponentials of a vector core, fp32", &HardwareSpec::vector_exp_per_cycle},
    {"gm_read_bytes_per_cycle", "bytes/cycle", "MTE2 of a core: global memory to L1 or UB", &HardwareSpec::gm_read_bytes_per_cycle},
    {"gm_write_bytes_per_cycle", "bytes/cycle", "MTE3 of a core: UB to global memory", &HardwareSpec::gm_write_bytes_per_cycle},
    {"l1_to_l0a_bytes_per_cycle", "bytes/cycle", "MTE1 of a cube core, to L0A", &HardwareSpec::l1_to_l0a_bytes_per_cycle},
    {"l1_to_l0b_bytes_per_cycle", "bytes/cycle", "MTE1 of a cube core, to L0B", &HardwareSpec::l1_to_l0b_bytes_per_cycle},
    {"l0c_read_bytes_per_cycle", "bytes/cycle", "FIX of a cube core: fp32 accumulators that it reads and writes out as 16 bits",
     &HardwareSpec::l0c_read_bytes_per_cycle},
    {"ub_alignment", "bytes", "of an address in UB", &HardwareSpec::ub_alignment},
    {"l1_alignment", "bytes", "of an address in L1", &HardwareSpec::l1_alignment},
    {"l0a_alignment", "bytes", "of an address in L0A", &HardwareSpec::l0a_alignment},
    {"l0b_alignment", "bytes", "of an address in L0B", &HardwareSpec::l0b_alignment},
    {"l0c_alignment", "bytes", "of an address in L0C", &HardwareSpec::l0c_alignment},
    {"cache_line_bytes", "bytes", "L2's line: copies that start and end on it are fastest", &HardwareSpec::cache_line_bytes},
    {"fractal_rows", "", "rows of a fractal, the tile of which NZ, ZZ and ZN are made", &HardwareSpec::fractal_rows},
    {"fractal_row_bytes", "bytes", "a row of a fractal in L1, L0A and L0B", &HardwareSpec::fractal_row_bytes},
    {"fractal_accumulator_columns", "", "columns of a fractal in L0C, whatever the type", &HardwareSpec::fractal_accumulator_columns},
}};

constexpr size_t FigureIndex(int64_t HardwareSpec::*figure) {
  size_t index = 0;
  while (index < kNumFigures && kSpecFigures[index].value != figure) ++index;
  return index;
}

constexpr Source SourceOf(const HardwareSpec& spec, int64_t HardwareSpec::*figure) { return spec.sources[FigureIndex(figure)]; }

constexpr void SetFigure(HardwareSpec& spec, int64_t HardwareSpec::*figure, int64_t value, Source source) {
  spec.*figure = value;
  spec.sources[FigureIndex(figure)] = value == kUnknown ? Source::kNone : source;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_HARDWARE_SPEC_H_
