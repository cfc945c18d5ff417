#include "libs/tiling/kv_store.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = KvStoreProblem;
constexpr TypedField<P> kFields[] = {
    {"tokens", "new tokens of the batch", &P::tokens, 1, kMaxSize},
    {"row_bytes", "bytes of a token in one tensor", &P::row_bytes, 1, int64_t{1} << 24},
    {"tensors", "that a token goes into: 2 for keys and values, 1 for a latent", &P::tensors, 1, 16},
    {"runs", "of consecutive slots among the tokens' slots; 0 is one per token", &P::runs, 0, kMaxSize},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowTiling> tiling = SolveKvStore(problem, spec);
  if (!tiling.ok()) return tiling.status();
  absl::StatusOr<RowStream> stream = KvStoreStream(problem);
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  return DescribeRows(*stream, *tiling, *machine, "kv_store", "block of 32 bytes");
}

}  // namespace

std::span<const TypedField<P>> KvStoreFields() { return kFields; }

absl::StatusOr<RowStream> KvStoreStream(const P& problem) {
  if (absl::Status status = CheckProblem(KvStoreFields(), problem); !status.ok()) return status;
  if (problem.runs > problem.tokens) {
    return absl::InvalidArgumentError(absl::StrCat("runs = ", problem.runs, " is more than tokens = ", problem.tokens));
  }
  const int64_t blocks = CeilDiv(problem.row_bytes, kBlockBytes);
  absl::StatusOr<int64_t> rows =
      Product("blocks of 32 bytes (tokens * tensors * row_bytes / 32)", {problem.tokens, problem.tensors, blocks});
  if (!rows.ok()) return rows.status();
  if (absl::Status status = Product("bytes that are moved", {*rows, 2 * kBlockBytes}).status(); !status.ok()) return status;
  return RowStream{.rows = *rows,
                   .read_bytes = kBlockBytes,
                   .write_bytes = kBlockBytes,
                   .write_commands = (problem.runs == 0 ? problem.tokens : problem.runs) * problem.tensors};
}

absl::StatusOr<RowTiling> SolveKvStore(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<RowStream> stream = KvStoreStream(problem);
  if (!stream.ok()) return stream.status();
  absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  if (!machine.ok()) return machine.status();
  return SolveRows(*stream, *machine);
}

Solver KvStoreSolver() {
  return MakeSolver<P>("kv_store", "new keys and values into their slots of the paged cache", KvStoreFields(), Solve);
}

}  // namespace jumar::tiling
