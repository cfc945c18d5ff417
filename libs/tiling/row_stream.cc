#include "libs/tiling/row_stream.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kMaxPieces = 1024;

struct StepBytes {
  int64_t read, write, work;  // of the UB buffers of a step, one copy
};

StepBytes BytesOfStep(const RowStream& stream, int64_t rows, int64_t pieces) {
  const auto padded = [&](int64_t bytes) { return RoundUp(CeilDiv(rows * bytes, pieces), kBlockBytes); };
  return {padded(stream.read_bytes), padded(stream.write_bytes), padded(stream.work_bytes)};
}

int64_t UbBytes(const RowStream& stream, const StepBytes& step, int64_t copies) {
  return copies * (step.read + step.write) + step.work + RoundUp(stream.weight_bytes, kBlockBytes);
}

int64_t RowsPerCore(const RowStream& stream, const Machine& machine) { return CeilDiv(stream.rows, machine.vector_cores); }

int64_t Passes(const RowStream& stream, int64_t pieces) { return stream.reduces && pieces > 1 ? 2 : 1; }

struct Rates {
  double read, vector, write;  // seconds per row
};

Rates SecondsPerRow(const RowStream& stream, const Machine& machine) {
  return {static_cast<double>(stream.read_bytes) / machine.read_rate, static_cast<double>(stream.vector_bytes) / machine.vector_rate,
          static_cast<double>(stream.write_bytes) / machine.write_rate};
}

CoreWork WorkOf(const RowStream& stream, const Machine& machine, int64_t rows, int64_t rows_per_step, int64_t pieces, int64_t copies) {
  const Rates row = SecondsPerRow(stream, machine);
  const int64_t passes = Passes(stream, pieces);
  const double n = static_cast<double>(rows);
  const double step_rows = static_cast<double>(std::min(rows_per_step, rows)) / static_cast<double>(pieces);
  const double weights = static_cast<double>(stream.weight_bytes) / machine.read_rate;
  const double commands = static_cast<double>(CeilDiv(stream.write_commands, machine.vector_cores)) * machine.step_seconds;
  CoreWork work = {.steps = CeilDiv(rows, rows_per_step) * pieces * passes};
  const double issue = static_cast<double>(work.steps) * machine.step_seconds;
  work.busy[kVectorIn] = n * row.read * static_cast<double>(passes) + weights + issue;
  work.step[kVectorIn] = step_rows * row.read + weights + machine.step_seconds;
  if (stream.vector_bytes > 0) {
    work.busy[kVector] = n * row.vector + issue;
    work.step[kVector] = step_rows * row.vector + machine.step_seconds;
  }
  work.busy[kMte3] = n * row.write + commands + issue;
  work.step[kMte3] = step_rows * row.write + machine.step_seconds;
  if (copies == 1) {
    work.TakeTurns(kVectorIn, kVector);
    work.TakeTurns(kVectorIn, kMte3);
  }
  return work;
}

Traffic TrafficOf(const RowStream& stream, int64_t cores, int64_t pieces) {
  const int64_t passes = Passes(stream, pieces);
  return {.hbm_read = stream.rows * stream.read_bytes + stream.weight_bytes,  // a second pass finds its row in L2
          .hbm_write = stream.rows * stream.write_bytes,
          .l2_read = stream.rows * stream.read_bytes * passes + cores * stream.weight_bytes,
          .l2_write = stream.rows * stream.write_bytes,
          .vector_bytes = stream.rows * stream.vector_bytes};
}

}  // namespace

double LeastLatency(const Machine& machine, double others, int pipes) {
  const double o = machine.step_seconds;
  const double s = o > 0 ? std::max(1.0, std::sqrt(others / o)) : 1.0;
  return s * o + others / s + (pipes - 1) * o;
}

absl::StatusOr<RowTiling> EvaluateRows(const RowStream& stream, const Machine& machine, int64_t rows_per_step, int64_t pieces,
                                       int64_t copies) {
  const int64_t bytes = UbBytes(stream, BytesOfStep(stream, rows_per_step, pieces), copies);
  if (bytes > machine.ub) {
    return absl::ResourceExhaustedError(absl::StrCat(rows_per_step, " rows in ", pieces, " pieces and ", copies, " copies need ", bytes,
                                                     " bytes of UB, which has ", machine.ub));
  }
  RowTiling tiling = {.rows_per_core = RowsPerCore(stream, machine), .rows_per_step = rows_per_step, .pieces = pieces, .copies = copies};
  tiling.cores = CeilDiv(stream.rows, tiling.rows_per_core);
  tiling.slowest = WorkOf(stream, machine, tiling.rows_per_core, rows_per_step, pieces, copies);
  tiling.traffic = TrafficOf(stream, tiling.cores, pieces);
  const Traffic& traffic = tiling.traffic;
  tiling.prediction = Predict(machine, tiling.slowest, traffic.hbm_read + traffic.hbm_write, traffic.l2_read + traffic.l2_write);
  return tiling;
}

absl::StatusOr<RowTiling> SolveRows(const RowStream& stream, const Machine& machine) {
  const int64_t rows = RowsPerCore(stream, machine);
  RowTiling best;
  const auto consider = [&](int64_t rows_per_step, int64_t pieces) {
    for (const int64_t copies : {2, 1}) {
      if (UbBytes(stream, BytesOfStep(stream, rows_per_step, pieces), copies) > machine.ub) continue;
      const double seconds = CoreSeconds(WorkOf(stream, machine, rows, rows_per_step, pieces, copies));
      if (best.rows_per_step != 0 && seconds >= best.prediction.seconds) continue;
      best.rows_per_step = rows_per_step, best.pieces = pieces, best.copies = copies;
      best.prediction.seconds = seconds;
    }
  };
  int64_t last = 0;
  for (int64_t steps = 1; steps <= rows; steps = std::max(steps + 1, steps < 64 ? steps + 1 : steps + steps / 5)) {
    const int64_t rows_per_step = CeilDiv(rows, steps);
    if (rows_per_step != last) consider(rows_per_step, 1);
    last = rows_per_step;
  }
  consider(1, 1);
  // No more pieces than blocks of the wider of read and written row: a piece holds at least one.
  const int64_t blocks = CeilDiv(std::max(stream.read_bytes, stream.write_bytes), kBlockBytes);
  for (int64_t pieces = 2; pieces <= std::min(kMaxPieces, blocks); pieces = std::max(pieces + 1, pieces * 5 / 4)) consider(1, pieces);
  if (best.rows_per_step == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a row that reads ", stream.read_bytes, " bytes, writes ", stream.write_bytes, " and needs ", stream.work_bytes, " besides, with ",
        stream.weight_bytes, " bytes of weights, doesn't fit UB of ", machine.ub, " bytes even in pieces; shorten the row or the weights"));
  }
  auto tiling = EvaluateRows(stream, machine, best.rows_per_step, best.pieces, best.copies);
  if (tiling.ok()) tiling->bound = BoundRows(stream, machine);
  return tiling;
}

Bound BoundRows(const RowStream& stream, const Machine& machine) {
  const Traffic least = TrafficOf(stream, 1, 1);
  const Rates row = SecondsPerRow(stream, machine);
  const double rows = static_cast<double>(RowsPerCore(stream, machine));  // of the busiest core: a row is on one core
  Bound bound = {
      .hbm = static_cast<double>(least.hbm_read + least.hbm_write) / machine.hbm_rate,
      .l2 = static_cast<double>(least.l2_read + least.l2_write) / machine.l2_rate,
      .read_port = rows * row.read + static_cast<double>(stream.weight_bytes) / machine.read_rate,
      .write_port = rows * row.write + static_cast<double>(CeilDiv(stream.write_commands, machine.vector_cores)) * machine.step_seconds,
      .vector = rows * row.vector};
  const double all = rows * (row.read + row.vector + row.write);
  bound.latency = LeastLatency(machine, all - rows * std::max({row.read, row.vector, row.write}), stream.vector_bytes > 0 ? 3 : 2);
  return bound;
}

Solution DescribeRows(const RowStream& stream, const RowTiling& tiling, const Machine& machine, std::string_view solver,
                      std::string_view axis) {
  const StepBytes step = BytesOfStep(stream, tiling.rows_per_step, tiling.pieces);
  Solution solution = {.solver = solver, .core_kind = "AIV"};
  solution.tiling = {{"cores", tiling.cores, "vector cores that work"},
                     {"rows_per_core", tiling.rows_per_core, "rows of a core; the last has what is left"},
                     {"rows_per_step", tiling.rows_per_step, "rows in UB at once"},
                     {"pieces", tiling.pieces, "of a row, if UB doesn't hold a whole one"},
                     {"copies", tiling.copies, "of the buffers that rows come and go through"}};
  const auto buffer = [&](std::string_view name, int64_t bytes, int64_t copies) {
    if (bytes > 0) solution.buffers.push_back({.name = name, .memory = Memory::kUb, .bytes = bytes, .copies = copies});
  };
  buffer("in", step.read, tiling.copies);
  buffer("out", step.write, tiling.copies);
  buffer("work", step.work, 1);
  buffer("weights", RoundUp(stream.weight_bytes, kBlockBytes), 1);
  solution.axes = {{axis, stream.rows, tiling.rows_per_step}};
  solution.core_seconds.assign(static_cast<size_t>(machine.vector_cores), 0.0);
  for (int64_t core = 0; core < tiling.cores; ++core) {
    const int64_t begin = core * tiling.rows_per_core, end = std::min(stream.rows, begin + tiling.rows_per_core);
    solution.shares.push_back({core, {{begin, end}}});
    solution.core_seconds[static_cast<size_t>(core)] =
        CoreSeconds(WorkOf(stream, machine, end - begin, tiling.rows_per_step, tiling.pieces, tiling.copies));
  }
  solution.slowest = tiling.slowest;
  solution.traffic = tiling.traffic;
  solution.prediction = tiling.prediction;
  solution.bound = tiling.bound;
  return solution;
}

}  // namespace jumar::tiling
