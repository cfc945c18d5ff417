#ifndef LIBS_TILING_MODEL_H_
#define LIBS_TILING_MODEL_H_

// The machine as the solvers see it, and the time that work takes on it. libs/tiling/README.md has the formulas.
//
//   cube core (AIC):   GM --MTE2--> L1 --MTE1--> L0A, L0B --cube--> L0C --FIX--> GM
//   vector core (AIV): GM --MTE2--> UB --vector--> UB --MTE3--> GM
//
// A pipe works at its rate and side by side with the others, as far as buffers come in two copies; all cores share L2 and HBM.
//
//   auto machine = MakeMachine(spec, kCubeFigures);                    // or an error that names the figure that nobody published
//   CoreWork slowest = ...;                                            // seconds of each pipe, of the core with most work
//   Prediction time = Predict(*machine, slowest, hbm_bytes, l2_bytes);

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/hardware.h"

namespace jumar::tiling {

// ---- The machine.

enum class DType : int64_t { kFp32, kFp16, kBf16, kInt8, kFp8, kHiF8 };
inline constexpr std::array<std::string_view, 6> kDTypeNames = {"fp32", "fp16", "bf16", "int8", "fp8", "hif8"};
constexpr int64_t Bytes(DType type) { return type == DType::kFp32 ? 4 : type == DType::kFp16 || type == DType::kBf16 ? 2 : 1; }
Format FormatOf(DType type);

// The cube multiplies fractals of 16 rows and 32 bytes; MTE2 and the vector unit move blocks of 32 bytes.
inline constexpr int64_t kFractal = 16;
inline constexpr int64_t kBlockBytes = 32;
constexpr int64_t FractalK(DType type) { return kBlockBytes / Bytes(type); }

// What a step costs each pipe beside its work: to issue it, to set and wait for its flag. An assumption of the model, not a figure of a
// chip: it is what speaks for large tiles where the rates don't care.
inline constexpr int64_t kStepCycles = 16;

inline constexpr int64_t kMaxCores = 1024;  // of either kind, that solvers accept

// Rates in units per second, of one core where a core has its own. 0 where the chip's figure is unknown and the solver didn't need it.
struct Machine {
  Architecture architecture;
  int64_t cube_cores, vector_cores;
  int64_t vectors_per_cube;         // AIVs that work with one AIC: 2, or 1
  int64_t ub, l1, l0a, l0b, l0c;    // bytes, of one core
  int64_t l2;
  double hbm_rate, l2_rate;         // bytes, of all cores together
  double read_rate, write_rate;     // bytes of one core's MTE2 and MTE3
  double l0a_rate, l0b_rate;        // bytes of MTE1
  double fix_rate;                  // bytes that FIX reads of L0C
  double macs16, macs8, macs32;     // multiply-adds of a cube core
  double vector_rate;               // bytes of one operand, of a vector core
  double step_seconds;              // kStepCycles

  double Macs(DType type) const { return Bytes(type) == 2 ? macs16 : Bytes(type) == 1 ? macs8 : macs32; }
  bool unified() const { return architecture == Architecture::k310P; }  // one MTE2 for the cube's and the vector unit's data
};

// Which figures a solver needs, to be combined.
enum Needs : uint32_t {
  kSharedFigures = 1u << 0,  // clock, HBM and L2 bandwidth, L2 size, MTE2's rate
  kCubeFigures = 1u << 1 | kSharedFigures,    // cores, L1, L0A, L0B, L0C, MTE1, FIX
  kVectorFigures = 1u << 2 | kSharedFigures,  // cores, UB, vector rate, MTE3
  kMacs16 = 1u << 3,
  kMacs8 = 1u << 4,
  kMacs32 = 1u << 5,
};
constexpr uint32_t MacFigure(DType type) { return Bytes(type) == 2 ? kMacs16 : Bytes(type) == 1 ? kMacs8 : kMacs32; }

// FailedPrecondition names every figure that is needed and unknown, the chip, and the mend. InvalidArgument for more than kMaxCores cores.
absl::StatusOr<Machine> MakeMachine(const HardwareSpec& spec, uint32_t needs);

// InvalidArgument if the chip's cube doesn't multiply this type.
absl::Status RequireFormat(const HardwareSpec& spec, DType type);

// ---- Time.

enum Pipe { kMte2, kMte1, kCube, kFix, kVectorIn, kVector, kMte3, kNumPipes };
inline constexpr std::array<std::string_view, kNumPipes> kPipeNames = {"MTE2", "MTE1", "cube", "FIX", "MTE2 (AIV)", "vector", "MTE3"};
using PipeSeconds = std::array<double, kNumPipes>;

// What one core does. Pipes with the same `turn` share a buffer that exists once, so they take turns; the others overlap, all but the
// first and the last step: there the data is on its way to the busiest pipe, or from it.
struct CoreWork {
  int64_t steps = 0;
  PipeSeconds busy = {};  // all steps
  PipeSeconds step = {};  // one step: what the pipe is busy with while the others wait to begin, or have ended
  std::array<uint8_t, kNumPipes> turn = {0, 1, 2, 3, 4, 5, 6};

  void TakeTurns(Pipe a, Pipe b);  // joins what each of them already takes turns with
};

// max over turns t of busy(t) + the other turns' steps.
double CoreSeconds(const CoreWork& work);

struct Traffic {               // of all cores, in bytes and operations
  int64_t hbm_read = 0, hbm_write = 0;
  int64_t l2_read = 0;         // GM to L1 or UB, wherever it came from
  int64_t l2_write = 0;        // to GM
  int64_t l1_to_l0 = 0;
  int64_t l0c_out = 0;
  int64_t vector_bytes = 0;    // operand bytes, each pass over them
  int64_t cube_macs = 0;       // with the fractals' padding
};

struct Prediction {
  double seconds = 0;
  double core_seconds = 0;     // the slowest core's
  double hbm_seconds = 0, l2_seconds = 0;
  PipeSeconds busy = {};       // of the slowest core
  std::string_view limit = {}; // what binds: "HBM", "L2", or a pipe's name

  double Utilisation(Pipe pipe) const { return seconds > 0 ? busy[pipe] / seconds : 0; }
};

// seconds = max(slowest core, HBM bytes / bandwidth, L2 bytes / bandwidth).
Prediction Predict(const Machine& machine, const CoreWork& slowest, int64_t hbm_bytes, int64_t l2_bytes);

// Phases one after the other, with a barrier between: partial sums and their reduction.
Prediction Then(const Prediction& first, const Prediction& second);

// What no tiling of the problem beats, as lower bounds on seconds. `latency` comes on top of what a core does itself: the first step of
// the other pipes, which every tiling waits for.
struct Bound {
  double hbm = 0;         // bytes that cross HBM at least once
  double l2 = 0;          // bytes between L2 and the cores, at least
  double read_port = 0;   // the same through the cores' MTE2 (with the re-reads that on-chip capacity forces)
  double write_port = 0;  // through MTE3 or FIX
  double cube = 0;
  double l0_port = 0;     // MTE1
  double vector = 0;
  double latency = 0;
  double after = 0;       // a later phase that every tiling (or the best kind of them) has

  double Seconds() const { return std::max({hbm, l2, std::max({read_port, write_port, cube, l0_port, vector}) + latency}) + after; }
  std::string_view Limit() const;  // the name of the largest: "HBM", "L2", "GM read", "GM write", "cube", "MTE1", "vector"
};

// ---- What every solver hands out beside its typed tiling: explain, survey, bindings and tests read this.

enum class Memory : uint8_t { kUb, kL1, kL0A, kL0B, kL0C };
std::string_view MemoryName(Memory memory);  // "UB", "L1", ...
int64_t Capacity(const HardwareSpec& spec, Memory memory);

struct Buffer {
  std::string_view name;
  Memory memory;
  int64_t bytes;              // of one copy
  int64_t copies = 1;         // 2: one is filled while the other is read
  int64_t alignment = kBlockBytes;
  int64_t first = 0, last = 0;  // phases of the kernel in which it lives; those that don't overlap may share space
};

struct NamedValue {
  std::string_view name;
  int64_t value;
  std::string_view doc;
};

struct Axis {
  std::string_view name;
  int64_t extent;
  int64_t tile;  // the core's step along it
};

// A core's part of the output (or of the work, where an axis is summed over): [begin, end) on each of Solution::axes.
struct Share {
  int64_t core;
  std::vector<std::array<int64_t, 2>> range;
};

struct Solution {
  std::string_view solver = {};
  std::string_view core_kind = {};   // "AIC", "AIV", "AIC + AIV"
  std::vector<NamedValue> tiling = {};
  std::vector<Buffer> buffers = {};  // of one core
  std::vector<Axis> axes = {};
  std::vector<Share> shares = {};    // cover every point of the axes exactly once
  std::vector<double> core_seconds = {};  // of each core; 0 = idle
  CoreWork slowest = {};             // its steps are the timeline's
  Traffic traffic = {};
  Prediction prediction = {};
  Bound bound = {};
};

// InvalidArgument names the memory, the buffers and both sizes if the copies of those that live together exceed it.
absl::Status CheckBuffers(const std::vector<Buffer>& buffers, const HardwareSpec& spec);

// The buffers' bytes with copies, as CheckBuffers counts them, of one memory, all phases at their worst.
int64_t PeakBytes(const std::vector<Buffer>& buffers, Memory memory);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_MODEL_H_
