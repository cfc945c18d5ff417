#include "libs/tiling/attention/selected_attention.h"

#include "absl/status/status.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = SelectedAttentionProblem;
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 1024},
    {"latent_dim", "elements of the latent: value, and part of the key", &P::latent_dim, 1, 1024},
    {"rope_dim", "further elements of the key", &P::rope_dim, 0, 1024},
    {"top_k", "tokens that a query selects", &P::top_k, 1, kMaxSize},
    {"block", "consecutive tokens of one index", &P::block, 1, 1024},
    {"type", "of queries and latents", &P::type},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  return DescribeAttention(SolveSelectedAttention(problem, spec), spec, "selected_attention");
}

}  // namespace

std::span<const TypedField<P>> SelectedAttentionFields() { return kFields; }

absl::StatusOr<AttentionKernel> SelectedAttentionKernel(const P& problem) {
  if (absl::Status status = CheckProblem(SelectedAttentionFields(), problem); !status.ok()) return status;
  const int64_t key_dim = problem.latent_dim + problem.rope_dim;
  return AttentionKernel{.work = {.view = {.max_selected = problem.top_k},
                                  .group = problem.heads,
                                  .key_dim = key_dim,
                                  .value_dim = problem.latent_dim,
                                  .shared_kv = true,
                                  .type = problem.type,
                                  .run_bytes = problem.block * key_dim * Bytes(problem.type)},
                         .fixed = {.heads = problem.heads % 128 == 0 ? 128 : problem.heads, .entries = 512, .output_in_ub = false}};
}

absl::StatusOr<AttentionPlan> SolveSelectedAttention(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionKernel> kernel = SelectedAttentionKernel(problem);
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(problem, *kernel, spec);
}

Solver SelectedAttentionSolver() { return MakeSolver<P>("selected_attention", "latent attention over tokens that each query selected", SelectedAttentionFields(), Solve); }

}  // namespace jumar::tiling
