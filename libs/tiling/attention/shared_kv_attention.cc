#include "libs/tiling/attention/shared_kv_attention.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = SharedKvAttentionProblem;
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 1024},
    {"head_dim", "elements of a query, a key and a value", &P::head_dim, 1, 1024},
    {"window", "tokens before the query, its own included", &P::window, 1, 65536},
    {"ratio", "tokens of a compressed entry; 0: no compressed entries", &P::ratio, 0, 1024},
    {"top_k", "compressed entries that a query selects; 0: all", &P::top_k, 0, kMaxSize},
    {"type", "of queries, keys and values", &P::type},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  return DescribeAttention(SolveSharedKvAttention(problem, spec), spec, "shared_kv_attention");
}

}  // namespace

std::span<const TypedField<P>> SharedKvAttentionFields() { return kFields; }

absl::StatusOr<AttentionKernel> SharedKvAttentionKernel(const P& problem) {
  if (absl::Status status = CheckProblem(SharedKvAttentionFields(), problem); !status.ok()) return status;
  if (problem.ratio == 0 && problem.top_k > 0) {
    return absl::InvalidArgumentError(absl::StrCat("top_k = ", problem.top_k, " selects compressed entries, but ratio = 0: there are none; give a ratio or no top_k"));
  }
  const KvView view = problem.ratio == 0 ? KvView{.window = problem.window}
                                         : KvView{.ratio = problem.ratio, .max_selected = problem.top_k, .leading_entries = problem.window};
  return AttentionKernel{.work = {.view = view,
                                  .group = problem.heads,
                                  .key_dim = problem.head_dim,
                                  .value_dim = problem.head_dim,
                                  .shared_kv = true,
                                  .type = problem.type},
                         .fixed = {.heads = problem.heads % 128 == 0 ? 128 : problem.heads, .entries = 512}};
}

absl::StatusOr<AttentionPlan> SolveSharedKvAttention(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionKernel> kernel = SharedKvAttentionKernel(problem);
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(problem, *kernel, spec);
}

Solver SharedKvAttentionSolver() { return MakeSolver<P>("shared_kv_attention", "attention over a window and compressed entries that serve as keys and values", SharedKvAttentionFields(), Solve); }

}  // namespace jumar::tiling
