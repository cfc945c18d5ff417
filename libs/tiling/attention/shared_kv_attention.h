#ifndef LIBS_TILING_ATTENTION_SHARED_KV_ATTENTION_H_
#define LIBS_TILING_ATTENTION_SHARED_KV_ATTENTION_H_

// DeepSeek V4's attention: one KV head, K = V, all query heads share it; a query sees the last `window` tokens and compressed entries, each of
// `ratio` tokens: all of them (C128A), or top_k that it selected (C4A). With ratio 0 there are none: a layer of the window only.
//
// Fixed rule (of vllm-ascend's sparse_attn_sharedkv on A2 and A3): the group by 512 entries, V read again, rows never split.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct SharedKvAttentionProblem : AttentionBatch {
  int64_t heads = 64;
  int64_t head_dim = 512;
  int64_t window = 128;  // tokens
  int64_t ratio = 128;   // tokens per compressed entry; 0 = no compressed entries
  int64_t top_k = 0;     // compressed entries that a query selects; 0 = all
  DType type = DType::kBf16;
};

std::span<const TypedField<SharedKvAttentionProblem>> SharedKvAttentionFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> SharedKvAttentionKernel(const SharedKvAttentionProblem& problem);
absl::StatusOr<AttentionPlan> SolveSharedKvAttention(const SharedKvAttentionProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_SHARED_KV_ATTENTION_H_
