#ifndef LIBS_TILING_ATTENTION_MLA_DECODE_H_
#define LIBS_TILING_ATTENTION_MLA_DECODE_H_

// Absorbed multi-head latent attention of new tokens (DeepSeek V2, V3; Kimi K2): all heads share one key of latent_dim + rope_dim elements,
// whose first latent_dim are the value too, so that one read of KV serves all heads, QK and PV.
//
// Fixed rule (of vllm-ascend's sparse flash attention): all heads (at most 128) by 512 keys, V read again, rows never split.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct MlaDecodeProblem : AttentionBatch {
  int64_t heads = 128;
  int64_t latent_dim = 512;
  int64_t rope_dim = 64;
  DType type = DType::kBf16;
};

std::span<const TypedField<MlaDecodeProblem>> MlaDecodeFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> MlaDecodeKernel(const MlaDecodeProblem& problem);
absl::StatusOr<AttentionPlan> SolveMlaDecode(const MlaDecodeProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_MLA_DECODE_H_
