#include "libs/tiling/model.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

struct Figure {
  std::string_view name;
  int64_t HardwareSpec::* field;
  uint32_t needs;  // a bit of Needs
};

constexpr uint32_t kCubeBit = kCubeFigures & ~kSharedFigures, kVectorBit = kVectorFigures & ~kSharedFigures;

constexpr Figure kFigures[] = {
    {"clock_hz", &HardwareSpec::clock_hz, kSharedFigures},
    {"memory_bytes_per_second", &HardwareSpec::memory_bytes_per_second, kSharedFigures},
    {"l2_bytes", &HardwareSpec::l2_bytes, kSharedFigures},
    {"l2_bytes_per_second", &HardwareSpec::l2_bytes_per_second, kSharedFigures},
    {"gm_read_bytes_per_cycle", &HardwareSpec::gm_read_bytes_per_cycle, kSharedFigures},
    {"aic_cores", &HardwareSpec::aic_cores, kCubeBit},
    {"l1_bytes", &HardwareSpec::l1_bytes, kCubeBit},
    {"l0a_bytes", &HardwareSpec::l0a_bytes, kCubeBit},
    {"l0b_bytes", &HardwareSpec::l0b_bytes, kCubeBit},
    {"l0c_bytes", &HardwareSpec::l0c_bytes, kCubeBit},
    {"l1_to_l0a_bytes_per_cycle", &HardwareSpec::l1_to_l0a_bytes_per_cycle, kCubeBit},
    {"l1_to_l0b_bytes_per_cycle", &HardwareSpec::l1_to_l0b_bytes_per_cycle, kCubeBit},
    {"l0c_read_bytes_per_cycle", &HardwareSpec::l0c_read_bytes_per_cycle, kCubeBit},
    {"aiv_cores", &HardwareSpec::aiv_cores, kVectorBit},
    {"ub_bytes", &HardwareSpec::ub_bytes, kVectorBit},
    {"vector_bytes_per_cycle", &HardwareSpec::vector_bytes_per_cycle, kVectorBit},
    {"gm_write_bytes_per_cycle", &HardwareSpec::gm_write_bytes_per_cycle, kVectorBit},
    {"cube_macs_per_cycle_16bit", &HardwareSpec::cube_macs_per_cycle_16bit, kMacs16},
    {"cube_macs_per_cycle_8bit", &HardwareSpec::cube_macs_per_cycle_8bit, kMacs8},
    {"cube_macs_per_cycle_32bit", &HardwareSpec::cube_macs_per_cycle_32bit, kMacs32},
};

}  // namespace

Format FormatOf(DType type) {
  switch (type) {
    case DType::kFp32: return kFp32;
    case DType::kFp16: return kFp16;
    case DType::kBf16: return kBf16;
    case DType::kInt8: return kInt8;
    case DType::kFp8: return kFp8;
    case DType::kHiF8: return kHiF8;
  }
  return kFp32;
}

absl::StatusOr<Machine> MakeMachine(const HardwareSpec& spec, uint32_t needs) {
  std::vector<std::string> missing;
  for (const Figure& figure : kFigures) {
    if ((figure.needs & needs) != 0 && spec.*figure.field <= 0) missing.emplace_back(figure.name);
  }
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("no public figure for ", absl::StrJoin(missing, ", "), " of ", std::string(spec.name),
                                                      ", which this solver needs; give it with --set NAME=VALUE or SpecOverrides"));
  }
  if (std::max(spec.aic_cores, spec.aiv_cores) > kMaxCores) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(spec.name), " with ", spec.aic_cores, " cube and ", spec.aiv_cores,
                                                   " vector cores: solvers take up to ", kMaxCores, " of a kind"));
  }
  const double clock = static_cast<double>(spec.clock_hz);
  const auto rate = [clock](int64_t per_cycle) { return static_cast<double>(per_cycle) * clock; };
  return Machine{.architecture = spec.architecture,
                 .cube_cores = spec.aic_cores,
                 .vector_cores = spec.aiv_cores,
                 .vectors_per_cube = spec.aic_cores > 0 ? std::max<int64_t>(1, spec.aiv_cores / spec.aic_cores) : 1,
                 .ub = spec.ub_bytes,
                 .l1 = spec.l1_bytes,
                 .l0a = spec.l0a_bytes,
                 .l0b = spec.l0b_bytes,
                 .l0c = spec.l0c_bytes,
                 .l2 = spec.l2_bytes,
                 .hbm_rate = static_cast<double>(spec.memory_bytes_per_second),
                 .l2_rate = static_cast<double>(spec.l2_bytes_per_second),
                 .read_rate = rate(spec.gm_read_bytes_per_cycle),
                 .write_rate = rate(spec.gm_write_bytes_per_cycle),
                 .l0a_rate = rate(spec.l1_to_l0a_bytes_per_cycle),
                 .l0b_rate = rate(spec.l1_to_l0b_bytes_per_cycle),
                 .fix_rate = rate(spec.l0c_read_bytes_per_cycle),
                 .macs16 = rate(spec.cube_macs_per_cycle_16bit),
                 .macs8 = rate(spec.cube_macs_per_cycle_8bit),
                 .macs32 = rate(spec.cube_macs_per_cycle_32bit),
                 .vector_rate = rate(spec.vector_bytes_per_cycle),
                 .step_seconds = clock > 0 ? kStepCycles / clock : 0};
}

absl::Status RequireFormat(const HardwareSpec& spec, DType type) {
  if (spec.Supports(FormatOf(type))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(spec.name), " doesn't compute with ",
                                                 std::string(kDTypeNames[static_cast<size_t>(type)]), "; it has ",
                                                 FormatNames(spec.formats)));
}

void CoreWork::TakeTurns(Pipe a, Pipe b) {
  const uint8_t from = turn[b], to = turn[a];
  for (uint8_t& t : turn) {
    if (t == from) t = to;
  }
}

double CoreSeconds(const CoreWork& work) {
  PipeSeconds busy = {}, step = {};
  double all_steps = 0;
  for (int pipe = 0; pipe < kNumPipes; ++pipe) {
    busy[work.turn[pipe]] += work.busy[pipe];
    step[work.turn[pipe]] += work.step[pipe];
    all_steps += work.step[pipe];
  }
  double seconds = 0;
  for (int turn = 0; turn < kNumPipes; ++turn) seconds = std::max(seconds, busy[turn] + (all_steps - step[turn]));
  return seconds;
}

Prediction Predict(const Machine& machine, const CoreWork& slowest, int64_t hbm_bytes, int64_t l2_bytes) {
  Prediction prediction = {.core_seconds = CoreSeconds(slowest),
                           .hbm_seconds = static_cast<double>(hbm_bytes) / machine.hbm_rate,
                           .l2_seconds = static_cast<double>(l2_bytes) / machine.l2_rate,
                           .busy = slowest.busy};
  prediction.seconds = prediction.core_seconds;
  prediction.limit = kPipeNames[std::max_element(slowest.busy.begin(), slowest.busy.end()) - slowest.busy.begin()];
  if (prediction.l2_seconds > prediction.seconds) {
    prediction.seconds = prediction.l2_seconds;
    prediction.limit = "L2";
  }
  if (prediction.hbm_seconds >= prediction.seconds) {
    prediction.seconds = prediction.hbm_seconds;
    prediction.limit = "HBM";
  }
  return prediction;
}

Prediction Then(const Prediction& first, const Prediction& second) {
  Prediction sum = {.seconds = first.seconds + second.seconds,
                    .core_seconds = first.core_seconds + second.core_seconds,
                    .hbm_seconds = first.hbm_seconds + second.hbm_seconds,
                    .l2_seconds = first.l2_seconds + second.l2_seconds,
                    .limit = first.seconds >= second.seconds ? first.limit : second.limit};
  for (int pipe = 0; pipe < kNumPipes; ++pipe) sum.busy[pipe] = first.busy[pipe] + second.busy[pipe];
  return sum;
}

std::string_view Bound::Limit() const {
  struct Term {
    double seconds;
    std::string_view name;
  };
  Term largest = {hbm, "HBM"};
  for (const Term& term : {Term{l2, "L2"}, Term{read_port + latency, "GM read"}, Term{write_port + latency, "GM write"},
                           Term{cube + latency, "cube"}, Term{l0_port + latency, "MTE1"}, Term{vector + latency, "vector"}}) {
    if (term.seconds > largest.seconds) largest = term;
  }
  return largest.name;
}

std::string_view MemoryName(Memory memory) {
  switch (memory) {
    case Memory::kUb: return "UB";
    case Memory::kL1: return "L1";
    case Memory::kL0A: return "L0A";
    case Memory::kL0B: return "L0B";
    case Memory::kL0C: return "L0C";
  }
  return "";
}

int64_t Capacity(const HardwareSpec& spec, Memory memory) {
  switch (memory) {
    case Memory::kUb: return spec.ub_bytes;
    case Memory::kL1: return spec.l1_bytes;
    case Memory::kL0A: return spec.l0a_bytes;
    case Memory::kL0B: return spec.l0b_bytes;
    case Memory::kL0C: return spec.l0c_bytes;
  }
  return 0;
}

int64_t PeakBytes(const std::vector<Buffer>& buffers, Memory memory) {
  int64_t peak = 0;
  for (const Buffer& at : buffers) {  // the peak is in the first phase of some buffer
    int64_t bytes = 0;
    for (const Buffer& buffer : buffers) {
      if (buffer.memory == memory && buffer.first <= at.first && at.first <= buffer.last)
        bytes += RoundUp(buffer.bytes, buffer.alignment) * buffer.copies;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

absl::Status CheckBuffers(const std::vector<Buffer>& buffers, const HardwareSpec& spec) {
  for (const Memory memory : {Memory::kUb, Memory::kL1, Memory::kL0A, Memory::kL0B, Memory::kL0C}) {
    const int64_t bytes = PeakBytes(buffers, memory);
    if (bytes == 0 || bytes <= Capacity(spec, memory)) continue;
    std::vector<std::string> table;
    for (const Buffer& buffer : buffers) {
      if (buffer.memory == memory) table.push_back(absl::StrCat(std::string(buffer.name), " ", buffer.copies, " x ", buffer.bytes));
    }
    return absl::InvalidArgumentError(absl::StrCat(std::string(MemoryName(memory)), " of ", std::string(spec.name), " has ",
                                                   Capacity(spec, memory), " bytes, the buffers need ", bytes, ": ",
                                                   absl::StrJoin(table, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace jumar::tiling
