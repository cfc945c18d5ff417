#include "libs/tiling/attention/mla_decode.h"

#include "absl/status/status.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling {
namespace {

using P = MlaDecodeProblem;
constexpr TypedField<P> kFields[] = {
    JUMAR_TILING_BATCH_FIELDS(P),
    {"heads", "query heads", &P::heads, 1, 1024},
    {"latent_dim", "elements of the latent: value, and part of the key", &P::latent_dim, 1, 1024},
    {"rope_dim", "further elements of the key", &P::rope_dim, 0, 1024},
    {"type", "of queries and latents", &P::type},
};

absl::StatusOr<Solution> Solve(const P& problem, const HardwareSpec& spec) {
  return DescribeAttention(SolveMlaDecode(problem, spec), spec, "mla_decode");
}

}  // namespace

std::span<const TypedField<P>> MlaDecodeFields() { return kFields; }

absl::StatusOr<AttentionKernel> MlaDecodeKernel(const P& problem) {
  if (absl::Status status = CheckProblem(MlaDecodeFields(), problem); !status.ok()) return status;
  return AttentionKernel{.work = {.group = problem.heads,
                                  .key_dim = problem.latent_dim + problem.rope_dim,
                                  .value_dim = problem.latent_dim,
                                  .shared_kv = true,
                                  .type = problem.type},
                         .fixed = {.heads = problem.heads % 128 == 0 ? 128 : problem.heads, .entries = 512, .output_in_ub = false}};
}

absl::StatusOr<AttentionPlan> SolveMlaDecode(const P& problem, const HardwareSpec& spec) {
  absl::StatusOr<AttentionKernel> kernel = MlaDecodeKernel(problem);
  if (!kernel.ok()) return kernel.status();
  return SolveAttention(problem, *kernel, spec);
}

Solver MlaDecodeSolver() { return MakeSolver<P>("mla_decode", "absorbed multi-head latent attention of new tokens", MlaDecodeFields(), Solve); }

}  // namespace jumar::tiling
