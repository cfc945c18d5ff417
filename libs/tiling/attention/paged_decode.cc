#include "libs/tiling/attention/paged_decode.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = PagedDecodeProblem;
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 1024},
    {"kv_heads", "heads of keys and values; divides heads", &P::kv_heads, 1, 1024},
    {"head_dim", "elements of a query and a key", &P::head_dim, 1, 1024},
    {"value_dim", "elements of a value; 0: as head_dim", &P::value_dim, 0, 1024},
    {"window", "keys that a query sees, its own included; 0: all before it", &P::window, 0, kMaxSize},
    {"type", "of queries, keys and values", &P::type},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionPlan> plan = SolvePagedDecode(problem, spec);
  if (!plan.ok()) return plan.status();
  return DescribeAttention(*plan, spec, "paged_decode");
}

}  // namespace

std::span<const TypedField<P>> PagedDecodeFields() { return kFields; }

absl::StatusOr<AttentionKernel> PagedDecodeKernel(const P& problem) {
  if (absl::Status status = CheckProblem(PagedDecodeFields(), problem); !status.ok()) return status;
  if (problem.heads % problem.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("heads = ", problem.heads, " is not a multiple of kv_heads = ", problem.kv_heads));
  }
  const int64_t group = problem.heads / problem.kv_heads, value_dim = problem.value_dim == 0 ? problem.head_dim : problem.value_dim;
  const int64_t tile_heads = group % 128 == 0 ? 128 : group;
  return AttentionKernel{.work = {.view = {.window = problem.window},
                                  .kv_heads = problem.kv_heads,
                                  .group = group,
                                  .key_dim = problem.head_dim,
                                  .value_dim = value_dim,
                                  .type = problem.type},
                         .fixed = {.heads = tile_heads, .entries = 512}};
}

absl::StatusOr<AttentionPlan> SolvePagedDecode(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionKernel> kernel = PagedDecodeKernel(problem);
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(problem, *kernel, spec);
}

Solver PagedDecodeSolver() { return MakeSolver<P>("paged_decode", "attention of new tokens over a paged KV cache, split along the keys", PagedDecodeFields(), Solve); }

}  // namespace jumar::tiling
