#ifndef LIBS_TILING_ATTENTION_ATTENTION_SOLVER_H_
#define LIBS_TILING_ATTENTION_ATTENTION_SOLVER_H_

// What the attention solvers share: ragged batches as fields, and the way from a kernel's work to a plan and to a Solution.

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/flash_model.h"
#include "libs/tiling/attention/flash_search.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/hardware.h"

namespace jumar::tiling {

// The base of every attention problem. A list of one number stands for all sequences.
struct AttentionBatch {
  int64_t batch = 0;                   // sequences; 0 = as many as the longer list has
  std::vector<int64_t> context = {4096};  // keys of each sequence, new tokens included
  std::vector<int64_t> queries = {1};     // new tokens of each sequence
};

// Fields of a problem that derives from AttentionBatch, to begin its table with.
#define JUMAR_TILING_BATCH_FIELDS(P)                                                                                       \
  {"batch", "sequences; 0: as many as the lists have", &P::batch, 0, kMaxListLength},                                      \
      {"context", "keys of each sequence, new tokens included; one number stands for all", &P::context, 1, kMaxSize},       \
      {"queries", "new tokens of each sequence; one number stands for all", &P::queries, 1, kMaxSize}

// A kernel without its batch, and the tile of the fixed rule (the source of which each solver names).
struct AttentionKernel {
  FlashWork work = {};
  FlashTile fixed = {};
};

// Move-only: the spans of work and plan point into the lists.
struct AttentionPlan {
  AttentionPlan() = default;
  AttentionPlan(AttentionPlan&&) = default;
  AttentionPlan& operator=(AttentionPlan&&) = default;

  std::vector<int64_t> query_lens = {}, kv_lens = {};  // [batch]
  FlashWork work = {};
  FlashPlan plan = {};
  Bound bound = {};
};

// InvalidArgument: lists whose lengths don't match, more queries than keys, sizes beyond 2^60, a type that the chip doesn't compute with.
// FailedPrecondition: figures that nobody published. ResourceExhausted: no tile fits.
absl::StatusOr<AttentionPlan> SolveAttention(const AttentionBatch& batch, const AttentionKernel& kernel, const HardwareSpec& spec);

// The fixed rule's tile and split under the same model; the errors of SolveAttention.
absl::StatusOr<Prediction> PredictFixedRule(const AttentionBatch& batch, const AttentionKernel& kernel, const HardwareSpec& spec);

// The plan as every solver hands it out; an error stays one.
absl::StatusOr<Solution> DescribeAttention(const absl::StatusOr<AttentionPlan>& plan, const HardwareSpec& spec, std::string_view solver);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_ATTENTION_SOLVER_H_
