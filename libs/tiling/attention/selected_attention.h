#ifndef LIBS_TILING_ATTENTION_SELECTED_ATTENTION_H_
#define LIBS_TILING_ATTENTION_SELECTED_ATTENTION_H_

// Absorbed latent attention over selected tokens (DeepSeek V3.2, GLM 5): each query has its own top_k tokens, gathered by index from the
// cache, `block` consecutive tokens per index. A gathered run costs the read pipe a command (kRunCycles).
//
// Fixed rule (of vllm-ascend's sparse flash attention): all heads (at most 128) by 512 tokens, V read again, never split.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct SelectedAttentionProblem : AttentionBatch {
  int64_t heads = 128;
  int64_t latent_dim = 512;
  int64_t rope_dim = 64;
  int64_t top_k = 2048;  // tokens
  int64_t block = 1;     // tokens per index
  DType type = DType::kBf16;
};

std::span<const TypedField<SelectedAttentionProblem>> SelectedAttentionFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> SelectedAttentionKernel(const SelectedAttentionProblem& problem);
absl::StatusOr<AttentionPlan> SolveSelectedAttention(const SelectedAttentionProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_SELECTED_ATTENTION_H_
