#include "libs/tiling/row_quant.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};

using P = RowQuantProblem;
constexpr TypedField<P> kFields[] = {
    {"rows", "rows (tokens)", &P::rows, 1, kMaxSize},
    {"columns", "columns (hidden size)", &P::columns, 1, int64_t{1} << 24},
    {"input", "type that is read: bf16, fp16 or fp32", &P::input},
    {"output", "type that is written: int8, fp8 or hif8", &P::output},
    {"group", "columns that share a scale; 0 is the whole row", &P::group, 0, int64_t{1} << 24},
    {"smooth", "whether columns are multiplied by a vector first", &P::smooth, 0, 1, kNoYes},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowTiling> tiling = SolveRowQuant(problem, spec);
  if (!tiling.ok()) return tiling.status();
  absl::StatusOr<RowStream> stream = RowQuantStream(problem);
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  return DescribeRows(*stream, *tiling, *machine, "row_quant", problem.group == 0 ? "row" : "group of a row");
}

}  // namespace

std::span<const TypedField<P>> RowQuantFields() { return kFields; }

absl::StatusOr<RowStream> RowQuantStream(const P& problem) {
  if (absl::Status status = CheckProblem(RowQuantFields(), problem); !status.ok()) return status;
  if (Bytes(problem.input) == 1) return absl::InvalidArgumentError("input of row_quant is bf16, fp16 or fp32");
  if (Bytes(problem.output) != 1) return absl::InvalidArgumentError("output of row_quant is int8, fp8 or hif8");
  if (absl::Status status = Product("bytes of all passes (rows * columns * 64)", {problem.rows, problem.columns, 64}).status();
      !status.ok())
    return status;
  const int64_t group = problem.group == 0 ? problem.columns : problem.group;
  if (problem.columns % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("columns = ", problem.columns, " is not a multiple of group = ", group));
  }
  // Passes in FP32: widen, |x|, maximum, times 1/scale, round to an 8-bit code through a 16-bit one; the smoothing product before.
  const int64_t pass_bytes = 4 + 4 + 4 + 4 + 4 + 2 + (problem.smooth ? 4 : 0);
  return RowStream{.rows = problem.rows * (problem.columns / group),  // what has a scale of its own is a row of its own
                   .read_bytes = group * Bytes(problem.input),
                   .write_bytes = group + 4,
                   .vector_bytes = group * pass_bytes,
                   .work_bytes = group * 4,
                   .weight_bytes = problem.smooth ? problem.columns * Bytes(problem.input) : 0,
                   .reduces = true};
}

absl::StatusOr<RowTiling> SolveRowQuant(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowStream> stream = RowQuantStream(problem);
  if (!stream.ok()) return stream.status();
  if (absl::Status status = RequireFormat(spec, problem.output); !status.ok()) return status;
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  if (!machine.ok()) return machine.status();
  return SolveRows(*stream, *machine);
}

Solver RowQuantSolver() {
  return MakeSolver<P>("row_quant", "quantisation of rows to 8 bits, a scale per row or group", RowQuantFields(), Solve);
}

}  // namespace jumar::tiling
