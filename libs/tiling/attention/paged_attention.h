#ifndef LIBS_TILING_ATTENTION_PAGED_ATTENTION_H_
#define LIBS_TILING_ATTENTION_PAGED_ATTENTION_H_

// Causal attention over a paged KV cache, heads grouped (GQA, MQA, MHA), optionally with a sliding window. Rows are query tokens times the
// heads of a group; KV is read once per row.
//
//   paged_prefill  prompts and chunks of prompts: ragged queries and keys
//   paged_decode   one new token per sequence, or a few speculated ones; long sequences are split along the keys (flash-decode)
//
// Fixed rule: vllm-ascend's inner tile for sparse flash attention, the group by 512 keys, rows never split. Its csrc has none for dense
// prefill, which it leaves to CANN; the same keys with 128 rows stand in for it.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct PagedAttentionProblem : AttentionBatch {
  int64_t heads = 64;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t value_dim = 0;  // 0 = head_dim
  int64_t window = 0;
  DType type = DType::kBf16;
};

struct PagedPrefillProblem : PagedAttentionProblem {
  PagedPrefillProblem() {
    context = {8192};
    queries = {2048};
  }
};

struct PagedDecodeProblem : PagedAttentionProblem {
  PagedDecodeProblem() {
    context = {8192};
    queries = {1};
  }
};

std::span<const TypedField<PagedPrefillProblem>> PagedPrefillFields();
std::span<const TypedField<PagedDecodeProblem>> PagedDecodeFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> PagedPrefillKernel(const PagedPrefillProblem& problem);
absl::StatusOr<AttentionKernel> PagedDecodeKernel(const PagedDecodeProblem& problem);
absl::StatusOr<AttentionPlan> SolvePagedPrefill(const PagedPrefillProblem& problem, const HardwareSpec& spec);
absl::StatusOr<AttentionPlan> SolvePagedDecode(const PagedDecodeProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_PAGED_ATTENTION_H_
