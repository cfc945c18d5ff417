#include "libs/tiling/kv_row.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

constexpr std::string_view kNoYes[] = {"no", "yes"};

using P = KvRowProblem;
constexpr TypedField<P> kFields[] = {
    {"tokens", "new tokens of the batch", &P::tokens, 1, kMaxSize},
    {"layout", "what a row holds", &P::layout, 0, 0, kKvRowLayoutNames},
    {"norm", "whether the part without RoPE is normalised first", &P::norm, 0, 1, kNoYes},
    {"runs", "of consecutive slots among the tokens' slots; 0 is one per token", &P::runs, 0, kMaxSize},
};

struct Layout {
  int64_t plain;      // values without RoPE
  int64_t rope;       // values with
  bool quantised;     // the plain ones
  int64_t row_bytes;
};
constexpr Layout kLayouts[] = {
    {512, 64, false, 1152}, {512, 64, true, 656}, {448, 64, true, 640}, {448, 64, true, 584}, {64, 64, true, 132}};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowTiling> tiling = SolveKvRow(problem, spec);
  if (!tiling.ok()) return tiling.status();
  absl::StatusOr<RowStream> stream = KvRowStream(problem);
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  return DescribeRows(*stream, *tiling, *machine, "kv_row", "token");
}

}  // namespace

std::span<const TypedField<P>> KvRowFields() { return kFields; }

absl::StatusOr<RowStream> KvRowStream(const P& problem) {
  if (absl::Status status = CheckProblem(KvRowFields(), problem); !status.ok()) return status;
  if (problem.runs > problem.tokens) {
    return absl::InvalidArgumentError(absl::StrCat("runs = ", problem.runs, " is more than tokens = ", problem.tokens));
  }
  const Layout& layout = kLayouts[problem.layout];
  const int64_t values = layout.plain + layout.rope;
  // Passes in FP32. All: widen, narrow. Norm: square, sum, times 1/rms, times gamma. RoPE: two products and a sum. Quantisation (of all 128
  // values of an indexer's key): |x|, maximum, times 1/scale, round.
  const int64_t quantised = layout.quantised ? (layout.row_bytes == 132 ? values : layout.plain) : 0;
  const int64_t pass_bytes = values * (4 + 4) + (problem.norm ? layout.plain * 16 : 0) + layout.rope * 12 + quantised * 16;
  return RowStream{.rows = problem.tokens,
                   .read_bytes = values * 2 + layout.rope * 4,  // the row, and its cosines and sines
                   .write_bytes = layout.row_bytes,
                   .vector_bytes = pass_bytes,
                   .work_bytes = values * 4,
                   .weight_bytes = problem.norm ? layout.plain * 2 : 0,
                   .write_commands = problem.runs == 0 ? problem.tokens : problem.runs,
                   .reduces = true};
}

absl::StatusOr<RowTiling> SolveKvRow(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowStream> stream = KvRowStream(problem);
  if (!stream.ok()) return stream.status();
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  if (!machine.ok()) return machine.status();
  return SolveRows(*stream, *machine);
}

Solver KvRowSolver() { return MakeSolver<P>("kv_row", "rows for the KV cache: norm, RoPE, quantisation, packing", KvRowFields(), Solve); }

}  // namespace jumar::tiling
