#ifndef LIBS_TILING_ATTENTION_LIGHTNING_INDEXER_H_
#define LIBS_TILING_ATTENTION_LIGHTNING_INDEXER_H_

// The lightning indexer (DeepSeek V3.2, V4): score[t, s] = sum over heads of w[t, h] * relu(q[t, h] . k[s]), and of each query the top_k
// entries with the highest score. One key head; with `ratio` an entry stands for so many tokens (cmp_ratio). Cube cores multiply, vector
// cores add up the heads and select. An assumption of the model: relu, weight and sum are 3 passes over the scores of each head, and
// selecting, by sorted runs of values and indices, is 16 passes over the sum.
//
// Fixed rule (of vllm-ascend's lightning_indexer): 512 rows by 512 entries, from its workspace of 512*512*4*2 bytes a core.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/attention_solver.h"

namespace jumar::tiling {

struct LightningIndexerProblem : AttentionBatch {
  int64_t heads = 64;
  int64_t head_dim = 128;
  int64_t top_k = 2048;
  int64_t ratio = 1;  // tokens per entry
  DType type = DType::kBf16;
};

std::span<const TypedField<LightningIndexerProblem>> LightningIndexerFields();

// InvalidArgument names a field outside its range. Beyond that the errors of SolveAttention.
absl::StatusOr<AttentionKernel> LightningIndexerKernel(const LightningIndexerProblem& problem);
absl::StatusOr<AttentionPlan> SolveLightningIndexer(const LightningIndexerProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_LIGHTNING_INDEXER_H_
