#include "libs/tiling/attention/lightning_indexer.h"

#include <algorithm>

#include "absl/status/status.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = LightningIndexerProblem;
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 128},
    {"head_dim", "elements of a query and a key", &P::head_dim, 1, 512},
    {"top_k", "entries to select for each query", &P::top_k, 1, 8192},
    {"ratio", "tokens that an entry stands for", &P::ratio, 1, 1024},
    {"type", "of queries and keys", &P::type},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  return DescribeAttention(SolveLightningIndexer(problem, spec), spec, "lightning_indexer");
}

}  // namespace

std::span<const TypedField<P>> LightningIndexerFields() { return kFields; }

absl::StatusOr<AttentionKernel> LightningIndexerKernel(const P& problem) {
  if (absl::Status status = CheckProblem(LightningIndexerFields(), problem); !status.ok()) return status;
  return AttentionKernel{.work = {.view = {.ratio = problem.ratio},
                                  .group = problem.heads,
                                  .key_dim = problem.head_dim,
                                  .value_dim = 0,
                                  .type = problem.type,
                                  .whole_group = true,
                                  .score_passes = 3,
                                  .select_passes = 16,
                                  .output_bytes = problem.top_k * 4},
                         .fixed = {.queries = std::max<int64_t>(1, 512 / problem.heads), .heads = problem.heads, .entries = 512}};
}

absl::StatusOr<AttentionPlan> SolveLightningIndexer(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionKernel> kernel = LightningIndexerKernel(problem);
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(problem, *kernel, spec);
}

Solver LightningIndexerSolver() { return MakeSolver<P>("lightning_indexer", "scores of queries against compressed or plain keys, and the top k of them", LightningIndexerFields(), Solve); }

}  // namespace jumar::tiling
