#ifndef LIBS_TILING_ATTENTION_PAGED_PREFILL_H_
#define LIBS_TILING_ATTENTION_PAGED_PREFILL_H_

// Causal attention of prompts and chunks of prompts over a paged KV cache, heads grouped (GQA, MQA, MHA): ragged queries and keys, optionally
// a sliding window. Rows are query tokens times the heads of a group.
//
// Fixed rule: vllm-ascend's csrc has none for dense prefill, which it leaves to CANN; taken is the inner tile that it has for sparse flash
// attention, 128 rows by 512 keys, rows never split.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct PagedPrefillProblem : AttentionBatch {
  PagedPrefillProblem() {
    context = {8192};
    queries = {2048};
  }
  int64_t heads = 64;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t value_dim = 0;  // 0 = head_dim
  int64_t window = 0;
  DType type = DType::kBf16;
};

std::span<const TypedField<PagedPrefillProblem>> PagedPrefillFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> PagedPrefillKernel(const PagedPrefillProblem& problem);
absl::StatusOr<AttentionPlan> SolvePagedPrefill(const PagedPrefillProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_PAGED_PREFILL_H_
