#include "libs/tiling/attention/paged_attention.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

template <typename P>
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 1024},
    {"kv_heads", "heads of keys and values; divides heads", &P::kv_heads, 1, 1024},
    {"head_dim", "elements of a query and a key", &P::head_dim, 1, 1024},
    {"value_dim", "elements of a value; 0: as head_dim", &P::value_dim, 0, 1024},
    {"window", "keys that a query sees, its own included; 0: all before it", &P::window, 0, kMaxSize},
    {"type", "of queries, keys and values", &P::type},
};

// The fixed rule has at least `fixed_rows` rows.
template <typename P>
absl::StatusOr<AttentionKernel> Kernel(const P& problem, int64_t fixed_rows) {
  if (absl::Status status = CheckProblem(std::span<const TypedField<P>>(kFields<P>), problem); !status.ok()) return status;
  if (problem.heads % problem.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("heads = ", problem.heads, " is not a multiple of kv_heads = ", problem.kv_heads));
  }
  const int64_t group = problem.heads / problem.kv_heads, tile_heads = group % 128 == 0 ? 128 : group;
  return AttentionKernel{.work = {.view = {.window = problem.window},
                                  .kv_heads = problem.kv_heads,
                                  .group = group,
                                  .key_dim = problem.head_dim,
                                  .value_dim = problem.value_dim == 0 ? problem.head_dim : problem.value_dim,
                                  .type = problem.type},
                         .fixed = {.queries = std::max<int64_t>(1, fixed_rows / tile_heads), .heads = tile_heads, .entries = 512}};
}

absl::StatusOr<AttentionPlan> Solve(const AttentionBatch& batch, const absl::StatusOr<AttentionKernel>& kernel, const HardwareSpec& spec) {
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(batch, *kernel, spec);
}

}  // namespace

std::span<const TypedField<PagedPrefillProblem>> PagedPrefillFields() { return kFields<PagedPrefillProblem>; }
std::span<const TypedField<PagedDecodeProblem>> PagedDecodeFields() { return kFields<PagedDecodeProblem>; }

absl::StatusOr<AttentionKernel> PagedPrefillKernel(const PagedPrefillProblem& problem) { return Kernel(problem, 128); }
absl::StatusOr<AttentionKernel> PagedDecodeKernel(const PagedDecodeProblem& problem) { return Kernel(problem, 1); }

absl::StatusOr<AttentionPlan> SolvePagedPrefill(const PagedPrefillProblem& problem, const HardwareSpec& spec) {
  return Solve(problem, PagedPrefillKernel(problem), spec);
}
absl::StatusOr<AttentionPlan> SolvePagedDecode(const PagedDecodeProblem& problem, const HardwareSpec& spec) {
  return Solve(problem, PagedDecodeKernel(problem), spec);
}

Solver PagedPrefillSolver() {
  return MakeSolver<PagedPrefillProblem>(
      "paged_prefill", "causal attention of prompts or chunks of them over a paged KV cache", PagedPrefillFields(),
      [](const PagedPrefillProblem& problem, const HardwareSpec& spec) { return DescribeAttention(SolvePagedPrefill(problem, spec), spec, "paged_prefill"); });
}

Solver PagedDecodeSolver() {
  return MakeSolver<PagedDecodeProblem>(
      "paged_decode", "attention of new tokens over a paged KV cache, split along the keys", PagedDecodeFields(),
      [](const PagedDecodeProblem& problem, const HardwareSpec& spec) { return DescribeAttention(SolvePagedDecode(problem, spec), spec, "paged_decode"); });
}

}  // namespace jumar::tiling
