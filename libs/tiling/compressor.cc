#include "libs/tiling/compressor.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};

using P = CompressorProblem;
constexpr TypedField<P> kFields[] = {
    {"tokens", "of the call", &P::tokens, 1, kMaxSize},
    {"entries", "that the call completes", &P::entries, 0, kMaxSize},
    {"hidden", "hidden size", &P::hidden, 1, int64_t{1} << 20},
    {"head_dim", "features of an entry", &P::head_dim, 16, 4096},
    {"ratio", "tokens of a group", &P::ratio, 1, 4096},
    {"overlap", "whether groups overlap by one group", &P::overlap, 0, 1, kNoYes},
    {"input", "type of tokens and weights", &P::input},
};

int64_t RowBytes(const P& problem) { return 2 * (1 + problem.overlap) * problem.head_dim * 4; }  // kv and gate of a token

RowStream EntryStream(const P& problem) {
  const int64_t features = problem.head_dim, tokens = problem.ratio * (1 + problem.overlap);
  // Passes in FP32 over tokens x features: maximum, subtract, exp, sum, times kv, sum; over features: divide, square, sum, times 1/rms and
  // gamma, rotate, narrow.
  return {.rows = problem.entries,
          .read_bytes = problem.ratio * RowBytes(problem),
          .write_bytes = features * 2,
          .vector_bytes = tokens * features * 24 + features * 32,
          .work_bytes = tokens * features * 4,
          .weight_bytes = features * 4};
}

absl::Status CheckSizes(const P& problem) {
  if (absl::Status status = CheckProblem(CompressorFields(), problem); !status.ok()) return status;
  if (problem.head_dim % kFractal != 0)
    return absl::InvalidArgumentError(absl::StrCat("head_dim = ", problem.head_dim, " is not a multiple of 16"));
  if (problem.entries > problem.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("entries = ", problem.entries, " is more than tokens = ", problem.tokens, ": a token completes at most one"));
  }
  return Product("bytes of all passes (entries * ratio * head_dim * 64)", {problem.entries, problem.ratio, problem.head_dim, 64}).status();
}

absl::StatusOr<CompressorTiling> WithEntries(const P& problem, absl::StatusOr<MatmulTiling> projection, const HardwareSpec& spec) {
  if (!projection.ok()) return projection.status();
  CompressorTiling tiling = {.projection = *std::move(projection), .entries = {}};
  tiling.traffic = tiling.projection.traffic;
  tiling.prediction = tiling.projection.prediction;
  tiling.bound = tiling.projection.bound;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  if (!machine.ok()) return machine.status();
  // Rows that no entry took yet stay in the state cache; rows that an earlier call left there come from it.
  const int64_t taken = problem.entries * problem.ratio;
  const int64_t kept = std::max<int64_t>(0, problem.tokens - taken) * RowBytes(problem),
                earlier = std::max<int64_t>(0, taken - problem.tokens) * RowBytes(problem);
  // Bound: that of the projection, and what both phases together need of HBM or keep a pipe busy with, even if they overlapped.
  const auto raise = [&bound = tiling.bound](double& term, double seconds) { term = std::max(term, seconds - bound.after); };
  const MatmulProblem projected = CompressorProjection(problem);
  int64_t hbm = (projected.m + projected.n) * projected.k * Bytes(problem.input);
  if (problem.entries > 0) {
    const RowStream stream = EntryStream(problem);
    absl::StatusOr<RowTiling> entries = SolveRows(stream, *machine);
    if (!entries.ok()) return entries.status();
    Traffic& traffic = entries->traffic;
    const int64_t rows = problem.tokens * RowBytes(problem);  // what the cubes wrote, which L2 keeps if it can
    traffic.hbm_read = earlier + (rows <= machine->l2 ? 0 : std::min(rows, traffic.hbm_read));
    entries->prediction =
        Predict(*machine, entries->slowest, traffic.hbm_read + traffic.hbm_write + kept, traffic.l2_read + traffic.l2_write);
    tiling.prediction = Then(tiling.prediction, entries->prediction);
    tiling.traffic.hbm_read += traffic.hbm_read;
    tiling.traffic.hbm_write += traffic.hbm_write;
    tiling.traffic.l2_read += traffic.l2_read;
    tiling.traffic.l2_write += traffic.l2_write;
    tiling.traffic.vector_bytes += traffic.vector_bytes;
    const Bound rows_bound = BoundRows(stream, *machine);
    raise(tiling.bound.vector, rows_bound.vector);
    raise(tiling.bound.read_port, rows_bound.read_port);
    raise(tiling.bound.write_port, rows_bound.write_port);
    hbm += earlier + traffic.hbm_write;
    tiling.entries = *std::move(entries);
  } else {
    tiling.prediction = Then(tiling.prediction, Predict(*machine, {}, kept, 0));
  }
  tiling.traffic.hbm_write += kept;
  raise(tiling.bound.hbm, static_cast<double>(hbm + kept) / machine->hbm_rate);
  return tiling;
}

}  // namespace

std::span<const TypedField<P>> CompressorFields() { return kFields; }

MatmulProblem CompressorProjection(const P& problem) {
  return {.m = problem.tokens, .n = RowBytes(problem) / 4, .k = problem.hidden, .input = problem.input, .output_bytes = 4, .consumed = 1};
}

absl::StatusOr<CompressorTiling> SolveCompressor(const P& problem, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem); !status.ok()) return status;
  return WithEntries(problem, SolveMatmul(CompressorProjection(problem), spec), spec);
}

absl::StatusOr<CompressorTiling> EvaluateCompressor(const P& problem, const MatmulChoice& projection, const HardwareSpec& spec) {
  if (absl::Status status = CheckSizes(problem); !status.ok()) return status;
  return WithEntries(problem, EvaluateMatmul(CompressorProjection(problem), projection, spec), spec);
}

namespace {

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<CompressorTiling> tiling = SolveCompressor(problem, spec);
  if (!tiling.ok()) return tiling.status();
  Solution solution = DescribeMatmul(CompressorProjection(problem), tiling->projection, spec);
  solution.solver = "compressor";
  solution.core_kind = "AIC, then AIV";
  if (problem.entries > 0) {
    absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
    const Solution entries = DescribeRows(EntryStream(problem), tiling->entries, *machine, "compressor", "entry");
    solution.tiling.push_back({"entry_cores", tiling->entries.cores, "vector cores that make entries"});
    solution.tiling.push_back({"entries_per_core", tiling->entries.rows_per_core, ""});
    solution.tiling.push_back({"entries_per_step", tiling->entries.rows_per_step, "in UB at once"});
    solution.tiling.push_back({"entry_pieces", tiling->entries.pieces, "slices of features, if UB doesn't hold an entry's tokens"});
    for (Buffer buffer : entries.buffers) {
      buffer.first = buffer.last = 2;
      solution.buffers.push_back(buffer);
    }
  }
  solution.traffic = tiling->traffic;
  solution.prediction = tiling->prediction;
  solution.bound = tiling->bound;
  return solution;
}

}  // namespace

Solver CompressorSolver() {
  return MakeSolver<P>("compressor", "groups of tokens into one entry each, for sparse attention", CompressorFields(), Solve);
}

}  // namespace jumar::tiling
