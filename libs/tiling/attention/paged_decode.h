#ifndef LIBS_TILING_ATTENTION_PAGED_DECODE_H_
#define LIBS_TILING_ATTENTION_PAGED_DECODE_H_

// Attention of one new token per sequence (or of a few speculated ones) over a paged KV cache, heads grouped (GQA, MQA, MHA). KV is read
// once per KV head: all heads of its group are folded into the rows. Long sequences are split along the keys (flash-decode).
//
// Fixed rule (of vllm-ascend's sparse flash attention): the group by 512 keys, rows never split.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct PagedDecodeProblem : AttentionBatch {
  PagedDecodeProblem() {
    context = {8192};
    queries = {1};
  }
  int64_t heads = 64;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t value_dim = 0;  // 0 = head_dim
  int64_t window = 0;
  DType type = DType::kBf16;
};

std::span<const TypedField<PagedDecodeProblem>> PagedDecodeFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> PagedDecodeKernel(const PagedDecodeProblem& problem);
absl::StatusOr<AttentionPlan> SolvePagedDecode(const PagedDecodeProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_PAGED_DECODE_H_
