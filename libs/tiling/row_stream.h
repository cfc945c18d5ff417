#ifndef LIBS_TILING_ROW_STREAM_H_
#define LIBS_TILING_ROW_STREAM_H_

// What row-wise kernels of the vector cores share: rows come GM -> UB, some passes go over them, and rows go UB -> GM. Quantisation, rows
// for the KV cache, copies into slots. Rows are independent and dealt out in equal runs; a core takes so many at once (a step) that UB
// holds them, in two copies if reading, computing and writing are to overlap.

#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

struct RowStream {
  int64_t rows = 0;
  int64_t read_bytes = 0;         // of a row
  int64_t write_bytes = 0;
  int64_t vector_bytes = 0;       // operand bytes of all passes over a row
  int64_t work_bytes = 0;         // of a row's temporaries in UB, which nobody moves
  int64_t weight_bytes = 0;       // that every core reads once and keeps: a norm's gamma
  int64_t write_commands = 0;     // of all rows, beyond one per step: runs of slots that aren't consecutive
  bool reduces = false;           // a row in pieces is read twice: for its maximum, and to be scaled by it
};

struct RowTiling {
  int64_t cores = 0;              // AIVs that work
  int64_t rows_per_core = 0;      // of the first ones; the last has what is left
  int64_t rows_per_step = 0;
  int64_t pieces = 1;             // of a row: more than 1 if UB doesn't hold it at once; then rows_per_step is 1
  int64_t copies = 2;             // of the buffers for reading and writing
  CoreWork slowest = {};
  Traffic traffic = {};
  Prediction prediction = {};
  Bound bound = {};
};

// ResourceExhausted if the buffers exceed UB. rows > 0, every size at most 2^40; rows * (all bytes of a row) must have been checked.
absl::StatusOr<RowTiling> EvaluateRows(const RowStream& stream, const Machine& machine, int64_t rows_per_step, int64_t pieces,
                                       int64_t copies);

// The fastest of all numbers of steps up to 64, then by factors of 2^(1/4), of 1 to 1024 pieces, of one and two copies.
absl::StatusOr<RowTiling> SolveRows(const RowStream& stream, const Machine& machine);

Bound BoundRows(const RowStream& stream, const Machine& machine);

// What is common to the solvers' answers: buffers, shares along the axis `row`, loads. `axis` names what a row is.
Solution DescribeRows(const RowStream& stream, const RowTiling& tiling, const Machine& machine, std::string_view solver,
                      std::string_view axis);

// A lower bound on what the pipes besides the busiest add: n pipes, `others` seconds of theirs, in any number s >= 1 of steps, each of
// which costs each pipe machine.step_seconds. The busiest pays s steps, and waits for a step of each of the others: s * o + others / s +
// (n-1) * o, least where s = sqrt(others / o).
double LeastLatency(const Machine& machine, double others, int pipes);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ROW_STREAM_H_
