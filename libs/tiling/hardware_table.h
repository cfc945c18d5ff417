#ifndef LIBS_TILING_HARDWARE_TABLE_H_
#define LIBS_TILING_HARDWARE_TABLE_H_

// What the repository knows about chips, as data: the only place that does. Header-only and constexpr:
//
//   constexpr const auto& kChip = *ChipNamed("Ascend910B2");
//   static_assert(2 * kTileBytes <= kChip.ub_bytes, "two tiles have to fit into UB");
//
// A row is made of facts: of its architecture, then its own, which win. A fact is a figure, its value and its source. Programs that take
// a chip's name from a user look it up with hardware.h; docs/hardware.md shows the table (./bazelw run //libs/tiling:hardware_page).

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "libs/tiling/hardware_spec.h"

namespace jumar::tiling {

struct SourceNote {
  Source source;
  std::string_view title;
  std::string_view where;
  std::string_view says;
};

// Documents were read for facts; nothing here is a figure that we remember or derived from a program's source.
inline constexpr std::array kSources = std::to_array<SourceNote>({
    {Source::kArch2201, "Ascend C guide, “NPU architecture version 2201”",
     "mirror-cann/asc-devkit, docs/zh/guide: 高级编程/硬件实现/架构规格",
     "A2 and A3: one cube core to two vector cores; sizes and alignments of UB, L1, L0A, L0B, L0C, bias table, fixpipe buffer; "
     "MTE1's rates"},
    {Source::kArch3510, "Ascend C guide, “NPU architecture version 3510”",
     "the same folder",
     "950PR and 950DT: the same; 256 bytes per cycle of a vector core; types of the cube. UB has 256 KiB, of which a kernel has "
     "248 unless it is compiled with options that take the reserved rest"},
    {Source::kArch2002, "Ascend C guide, “NPU architecture version 2002”",
     "the same folder",
     "310P: cube and vector unit on one core; alignments, no sizes"},
    {Source::kCaches, "Ascend C guide, “Cache coherence”",
     "mirror-cann/asc-devkit, docs/zh/guide: 高级编程/内存模型/缓存一致性",
     "L2: 192 MB with lines of 512 bytes (2201), 128 MB with lines of up to 512 bytes (3510)"},
    {Source::kLayouts, "Ascend C guide, “Data layouts”",
     "mirror-cann/asc-devkit, docs/zh/guide: 技术附录/概念原理和术语/神经网络和算子/数据排布格式",
     "a fractal has 16 rows of 32 bytes in L1, L0A and L0B, and 16 × 16 elements in L0C"},
    {Source::kCubeRates, "Ascend C reference, “Theoretical performance of cube instructions”",
     "mirror-cann/asc-devkit, docs/zh/api/附录",
     "multiply-adds per cycle by type; rates of MTE1; FIX takes 64 accumulators per cycle out of L0C when it narrows them to 16 "
     "bits"},
    {Source::kVectorRates, "Ascend C reference, “Theoretical performance of vector instructions”, “… of register computations”",
     "the same folder",
     "elements per cycle: 128 fp16 or 64 fp32 additions; 32 (2201) or 16 (3510) exponentials"},
    {Source::kMmad, "Ascend C reference, “Mmad”",
     "mirror-cann/asc-devkit, docs/zh/api/SIMD-API: 矩阵计算（ISASI）/Mmad计算",
     "which types the cube of each product multiplies"},
    {Source::kWeightQuant, "CANN operators, “aclnnWeightQuantBatchMatmulV2”",
     "hicann/ops-nn, matmul/weight_quant_batch_matmul_v2/docs",
     "types of a weight that is multiplied with 16-bit rows: int8 and int4 on A2 and A3; these, E4M3, HiF8 and E2M1 on the 950; int8 on "
     "the 310P"},
    {Source::kEvents, "CANN reference, “aclrtCreateEvent”",
     "hiascend.com, CANN API reference",
     "how many events a device has"},
    {Source::kCopyExample, "Ascend C best practice, “data_copy”",
     "mirror-cann/asc-devkit, examples/01_simd_cpp_api/05_best_practices/04_memory_access/data_copy/README.md",
     "peak of L2 ≈ 5.2 TB/s for A2, A3 and 950; 64 vector and 32 cube cores in the 950 series"},
    {Source::kLoadTest, "Ascend C performance test of LoadData",
     "mirror-cann/asc-devkit, tests/perf/load_data_perf/README.md",
     "clock: 1800 MHz for A2 and A3, 1650 MHz for the 950"},
    {Source::kMigration, "CANN operators, “Moving operators between platforms”",
     "hicann/ops-nn, docs/zh/develop/cross_platform_migration_guide.md",
     "A2 with 24 cores: 1.8 GHz, 353 TFLOP/s bf16, 1.6 TB/s. 950: 32 cores, 1.65 GHz, 426 TFLOP/s bf16, 128 GB at 1.6 TB/s"},
    {Source::kCloudMatrix, "“Serving Large Language Models on Huawei CloudMatrix384”",
     "arXiv 2506.12708",
     "a 910C package is two dies, each a device with 24 AIC, 48 AIV, 64 GB at 1.6 TB/s"},
    {Source::kKeynote, "Huawei Connect 2025, keynote",
     "huawei.com",
     "memory of 950PR (128 GB, 1.6 TB/s) and 950DT (144 GB, 4 TB/s)"},
    {Source::kTorchNpu, "torch_npu, NpuVariables",
     "Ascend/pytorch (BSD-3)",
     "names and numbers of SoC versions; which have bf16"},
    {Source::kNpuIr, "AscendNPU IR, NPUTargetSpec.td",
     "Ascend/AscendNPU-IR (Apache-2.0)",
     "cores of each 910B and 910_93"},
    {Source::kAkg, "AKG, hardware pages",
     "mindspore-ai/akg (Apache-2.0), akg_agents/python/akg_agents/op/resources/docs/hardware",
     "memory and L2 of 910B2, 910B2C, 910B3 and 910B4; these and the clock of each 910_93; UB of 310P3. Variants of the 950 have 28 (9579) "
     "to 36 (9599) cube cores, where the documents of the series say 32"},
    {Source::kAkgRates, "AKG, hardware pages: bandwidth of a core",
     "the same folder",
     "910_93: 110 from L2, 64 from UB to memory; 950: 100 and 128. The pages' units differ; CANN's GetCoreMemBw says bytes per "
     "cycle, and so 24 cores × 110 × 1.8 GHz = 4.8 TB/s, which is what the best practices call L2's peak"},
    {Source::kHami, "HAMi, docs/ascend910b-support.md and its device configuration",
     "Project-HAMi/HAMi (Apache-2.0)",
     "cores and memory of 910B2, 910B3, 910B4, 910B4-1 and 310P3"},
    {Source::kSimulator, "light-llm-simulator, conf/hardware_config.py",
     "JiusiServe/light-llm-simulator",
     "910B3: 1.8 GHz, 1.6 TB/s. 910B4: 1.5 GHz, 0.8 TB/s"},
    {Source::kMeasured, "measured on this machine",
     "MeasureHost() in libs/tiling/host.h",
     "the row “host”"},
    {Source::kGiven, "given by the caller",
     "",
     "replaces the table's figure"},
});

struct Fact {
  int64_t HardwareSpec::*figure;
  int64_t value;
  Source source;
};

namespace hardware_internal {

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
inline constexpr int64_t kMHz = 1'000'000, kGB = 1'000'000'000;  // bandwidths are decimal
inline constexpr uint32_t kFloats = kFp32 | kFp16 | kBf16;
using S = HardwareSpec;
using F = std::span<const Fact>;

inline constexpr std::array kFractals = std::to_array<Fact>({
    {&S::fractal_rows, 16, Source::kLayouts},
    {&S::fractal_row_bytes, 32, Source::kLayouts},
    {&S::fractal_accumulator_columns, 16, Source::kLayouts},
});

// A2 and A3.
inline constexpr std::array k2201 = std::to_array<Fact>({
    {&S::ub_bytes, 192 * kKiB, Source::kArch2201},
    {&S::l1_bytes, 512 * kKiB, Source::kArch2201},
    {&S::l0a_bytes, 64 * kKiB, Source::kArch2201},
    {&S::l0b_bytes, 64 * kKiB, Source::kArch2201},
    {&S::l0c_bytes, 128 * kKiB, Source::kArch2201},
    {&S::bias_table_bytes, 1 * kKiB, Source::kArch2201},
    {&S::fixpipe_bytes, 2 * kKiB, Source::kArch2201},
    {&S::flag_events, 65535, Source::kEvents},
    {&S::cube_macs_per_cycle_32bit, 16 * 16 * 4, Source::kCubeRates},
    {&S::cube_macs_per_cycle_16bit, 16 * 16 * 16, Source::kCubeRates},
    {&S::cube_macs_per_cycle_8bit, 16 * 16 * 32, Source::kCubeRates},
    {&S::cube_macs_per_cycle_4bit, 16 * 16 * 64, Source::kCubeRates},
    {&S::vector_bytes_per_cycle, 128 * 2, Source::kVectorRates},
    {&S::vector_exp_per_cycle, 32, Source::kVectorRates},
    {&S::gm_read_bytes_per_cycle, 110, Source::kAkgRates},
    {&S::gm_write_bytes_per_cycle, 64, Source::kAkgRates},
    {&S::l1_to_l0a_bytes_per_cycle, 256, Source::kArch2201},
    {&S::l1_to_l0b_bytes_per_cycle, 128, Source::kArch2201},
    {&S::l0c_read_bytes_per_cycle, 64 * 4, Source::kCubeRates},
    {&S::ub_alignment, 32, Source::kArch2201},
    {&S::l1_alignment, 32, Source::kArch2201},
    {&S::l0a_alignment, 512, Source::kArch2201},
    {&S::l0b_alignment, 512, Source::kArch2201},
    {&S::l0c_alignment, 64, Source::kArch2201},
    {&S::cache_line_bytes, 512, Source::kCaches},
});

// 950.
inline constexpr std::array k3510 = std::to_array<Fact>({
    {&S::soc_version, 260, Source::kTorchNpu},
    {&S::aic_cores, 32, Source::kCopyExample},
    {&S::aiv_cores, 64, Source::kCopyExample},
    {&S::ub_bytes, 248 * kKiB, Source::kArch3510},
    {&S::l1_bytes, 512 * kKiB, Source::kArch3510},
    {&S::l0a_bytes, 64 * kKiB, Source::kArch3510},
    {&S::l0b_bytes, 64 * kKiB, Source::kArch3510},
    {&S::l0c_bytes, 256 * kKiB, Source::kArch3510},
    {&S::bias_table_bytes, 4 * kKiB, Source::kArch3510},
    {&S::fixpipe_bytes, 4 * kKiB, Source::kArch3510},
    {&S::l2_bytes, 128 * kMiB, Source::kCaches},
    {&S::flag_events, 65535, Source::kEvents},
    {&S::clock_hz, 1650 * kMHz, Source::kLoadTest},
    {&S::l2_bytes_per_second, 5200 * kGB, Source::kCopyExample},
    {&S::cube_macs_per_cycle_32bit, 16 * 16 * 1, Source::kCubeRates},
    {&S::cube_macs_per_cycle_16bit, 16 * 16 * 16, Source::kCubeRates},
    {&S::cube_macs_per_cycle_8bit, 16 * 16 * 32, Source::kCubeRates},
    {&S::cube_macs_per_cycle_4bit, 16 * 16 * 64, Source::kCubeRates},
    {&S::vector_bytes_per_cycle, 256, Source::kArch3510},
    {&S::vector_exp_per_cycle, 16, Source::kVectorRates},
    {&S::gm_read_bytes_per_cycle, 100, Source::kAkgRates},
    {&S::gm_write_bytes_per_cycle, 128, Source::kAkgRates},
    {&S::l1_to_l0a_bytes_per_cycle, 256, Source::kArch3510},
    {&S::l1_to_l0b_bytes_per_cycle, 256, Source::kArch3510},
    {&S::l0c_read_bytes_per_cycle, 64 * 4, Source::kCubeRates},
    {&S::ub_alignment, 32, Source::kArch3510},
    {&S::l1_alignment, 32, Source::kArch3510},
    {&S::l0a_alignment, 512, Source::kArch3510},
    {&S::l0b_alignment, 512, Source::kArch3510},
    {&S::l0c_alignment, 64, Source::kArch3510},
    {&S::cache_line_bytes, 512, Source::kCaches},
});

// 310P.
inline constexpr std::array k2002 = std::to_array<Fact>({
    {&S::flag_events, 1023, Source::kEvents},
    {&S::ub_alignment, 32, Source::kArch2002},
    {&S::l1_alignment, 32, Source::kArch2002},
    {&S::l0a_alignment, 512, Source::kArch2002},
    {&S::l0b_alignment, 512, Source::kArch2002},
    {&S::l0c_alignment, 64, Source::kArch2002},
});

constexpr void Add(HardwareSpec& spec, F facts) {
  for (const Fact& fact : facts) SetFigure(spec, fact.figure, fact.value, fact.source);
}

constexpr uint32_t WeightFormats(Architecture architecture) {
  switch (architecture) {
    case Architecture::kA2:
    case Architecture::kA3: return kInt8 | kInt4;
    case Architecture::kA5: return kInt8 | kInt4 | kFp8 | kHiF8 | kMxFp4;
    case Architecture::k310P: return kInt8;
    case Architecture::kHost: return 0;
  }
  return 0;
}

constexpr HardwareSpec Row(std::string_view name, Architecture architecture, uint32_t formats, F common, std::initializer_list<Fact> own) {
  HardwareSpec spec{.name = name,
                    .architecture = architecture,
                    .formats = formats,
                    .formats_source = Source::kMmad,
                    .weight_formats = WeightFormats(architecture),
                    .weight_formats_source = Source::kWeightQuant};
  if (architecture == Architecture::kHost) spec.formats_source = spec.weight_formats_source = Source::kMeasured;
  if (architecture != Architecture::kHost) Add(spec, kFractals);
  Add(spec, common);
  Add(spec, {own.begin(), own.size()});
  return spec;
}

constexpr HardwareSpec A2(std::string_view name, int64_t soc_version, int64_t aic, std::initializer_list<Fact> own) {
  HardwareSpec spec = Row(name, Architecture::kA2, kFloats | kInt8 | kInt4, k2201, own);
  Add(spec, std::array<Fact, 3>{{{&S::soc_version, soc_version, Source::kTorchNpu},
                                 {&S::aic_cores, aic, Source::kNpuIr},
                                 {&S::aiv_cores, 2 * aic, Source::kNpuIr}}});
  return spec;
}

constexpr HardwareSpec A3(std::string_view name, int64_t soc_version, int64_t aic, int64_t mhz, int64_t memory, int64_t l2,
                          std::initializer_list<Fact> own) {
  HardwareSpec spec = Row(name, Architecture::kA3, kFloats | kInt8 | kInt4, k2201, own);
  Add(spec, std::array<Fact, 6>{{{&S::soc_version, soc_version, Source::kTorchNpu},
                                 {&S::aic_cores, aic, Source::kNpuIr},
                                 {&S::aiv_cores, 2 * aic, Source::kNpuIr},
                                 {&S::clock_hz, mhz * kMHz, Source::kAkg},
                                 {&S::memory_bytes, memory, Source::kAkg},
                                 {&S::l2_bytes, l2, Source::kAkg}}});
  return spec;
}

constexpr HardwareSpec A5(std::string_view name, int64_t memory, int64_t bandwidth) {
  return Row(name, Architecture::kA5, kFloats | kInt8 | kFp8 | kHiF8 | kMxFp8 | kMxFp4, k3510,
             {{&S::memory_bytes, memory, Source::kKeynote}, {&S::memory_bytes_per_second, bandwidth, Source::kKeynote}});
}

constexpr HardwareSpec P310(std::string_view name, int64_t soc_version, std::initializer_list<Fact> own = {}) {
  HardwareSpec spec = Row(name, Architecture::k310P, kFp32 | kFp16 | kInt8, k2002, own);
  SetFigure(spec, &S::soc_version, soc_version, Source::kTorchNpu);
  return spec;
}

constexpr Fact L2Peak() { return {&S::l2_bytes_per_second, 5200 * kGB, Source::kCopyExample}; }
constexpr Fact Hbm(int64_t bandwidth, Source source) { return {&S::memory_bytes_per_second, bandwidth, source}; }

}  // namespace hardware_internal

inline constexpr std::array kHardware = [] {
  using namespace hardware_internal;
  return std::to_array<HardwareSpec>({
      A2("Ascend910B1", 220, 24,
         {{&S::clock_hz, 1800 * kMHz, Source::kMigration},
          {&S::l2_bytes, 192 * kMiB, Source::kCaches},
          L2Peak(),
          Hbm(1600 * kGB, Source::kMigration)}),
      A2("Ascend910B2", 221, 24,
         {{&S::clock_hz, 1800 * kMHz, Source::kMigration},
          {&S::memory_bytes, 64 * kGiB, Source::kHami},
          {&S::l2_bytes, 192 * kMiB, Source::kAkg},
          L2Peak(),
          Hbm(1600 * kGB, Source::kMigration)}),
      A2("Ascend910B2C", 222, 24,
         {{&S::clock_hz, 1800 * kMHz, Source::kMigration},
          {&S::memory_bytes, 64 * kGiB, Source::kAkg},
          {&S::l2_bytes, 192 * kMiB, Source::kAkg},
          L2Peak(),
          Hbm(1600 * kGB, Source::kMigration)}),
      A2("Ascend910B3", 223, 20,
         {{&S::clock_hz, 1800 * kMHz, Source::kSimulator},
          {&S::memory_bytes, 64 * kGiB, Source::kHami},
          {&S::l2_bytes, 192 * kMiB, Source::kAkg},
          L2Peak(),
          Hbm(1600 * kGB, Source::kSimulator)}),
      A2("Ascend910B4", 224, 20,
         {{&S::clock_hz, 1500 * kMHz, Source::kSimulator},
          {&S::memory_bytes, 32 * kGiB, Source::kHami},
          {&S::l2_bytes, 96 * kMiB, Source::kAkg},
          Hbm(800 * kGB, Source::kSimulator)}),
      A2("Ascend910B4-1", 225, 20, {{&S::memory_bytes, 64 * kGiB, Source::kHami}}),
      A3("Ascend910_9391", 250, 24, 1850, 64 * kGiB, 192 * kMiB, {L2Peak(), Hbm(1600 * kGB, Source::kCloudMatrix)}),
      A3("Ascend910_9392", 251, 24, 1850, 64 * kGiB, 192 * kMiB, {L2Peak(), Hbm(1600 * kGB, Source::kCloudMatrix)}),
      A3("Ascend910_9381", 252, 24, 1800, 64 * kGiB, 192 * kMiB, {L2Peak()}),
      A3("Ascend910_9382", 253, 24, 1800, 64 * kGiB, 192 * kMiB, {L2Peak()}),
      A3("Ascend910_9372", 254, 20, 1800, 64 * kGiB, 192 * kMiB, {L2Peak()}),
      A3("Ascend910_9362", 255, 20, 1500, 32 * kGiB, 168 * kMiB, {}),
      Row("Ascend910_9363", Architecture::kA3, kFloats | kInt8 | kInt4, k2201, {{&S::soc_version, 256, Source::kTorchNpu}}),
      A5("Ascend950PR", 128 * kGiB, 1600 * kGB),
      A5("Ascend950DT", 144 * kGiB, 4000 * kGB),
      P310("Ascend310P1", 200),
      P310("Ascend310P2", 201),
      P310("Ascend310P3", 202,
           {{&S::aic_cores, 8, Source::kHami}, {&S::ub_bytes, 256 * kKiB, Source::kAkg}, {&S::memory_bytes, 24 * kGiB, Source::kHami}}),
      P310("Ascend310P4", 203),
      P310("Ascend310P5", 204),
      P310("Ascend310P7", 205),
      // What is known of a CPU before it is measured: MeasureHost() (host.h) fills the rest.
      Row("host", Architecture::kHost, kFloats, {}, {}),
  });
}();

// By its exact name; null if there is none.
constexpr const HardwareSpec* ChipNamed(std::string_view name) {
  for (const HardwareSpec& spec : kHardware) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

constexpr const SourceNote* NoteOf(Source source) {
  for (const SourceNote& note : kSources) {
    if (note.source == source) return &note;
  }
  return nullptr;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_HARDWARE_TABLE_H_
