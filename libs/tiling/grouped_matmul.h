#ifndef LIBS_TILING_GROUPED_MATMUL_H_
#define LIBS_TILING_GROUPED_MATMUL_H_

// C_g = A_g B_g for the groups g of a mixture of experts: A's rows are sorted by group, group g has rows[g] of them (or none) and a weight
// matrix B_g[k, n] of its own.
//
// Each group's output is cut into tasks of up to task_m x task_n (rows evenly), over all of k. Tasks are sorted, those with most rows
// first, and dealt out to the cores in turn: the first core has most. Inside a task a core does as in matmul.h.

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/matmul.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

inline constexpr int64_t kMaxGroups = 4096;

struct GroupedMatmulProblem {
  std::vector<int64_t> rows = {4, 4, 4, 4, 4, 4, 4, 4};  // of each group
  int64_t n = 4096;
  int64_t k = 7168;
  DType input = DType::kBf16;
  int64_t output_bytes = 2;
  int64_t layout = static_cast<int64_t>(WeightLayout::kNz);
};

struct GroupedMatmulChoice {
  int64_t task_m = kFractal, task_n = kFractal;  // multiples of 16
  int64_t tile_m = kFractal, tile_n = kFractal, step_k = kFractal, l0_k = kFractal;
  Resident resident = Resident::kNone;
  int64_t l0c_copies = 1;
};

// A part of one group's output.
struct GroupTask {
  int64_t group;
  int64_t begin_m, end_m;  // rows of the group
  int64_t begin_n, end_n;
};

struct GroupedMatmulTiling {
  GroupedMatmulChoice choice;
  int64_t tasks = 0;
  int64_t cores = 0;  // that have a task
  CoreWork slowest = {};
  Traffic traffic = {};
  Prediction prediction = {};
  Bound bound = {};
};

std::span<const TypedField<GroupedMatmulProblem>> GroupedMatmulFields();

// Errors as of SolveMatmul; also InvalidArgument if no group has a row or there are more than kMaxGroups.
absl::StatusOr<GroupedMatmulTiling> SolveGroupedMatmul(const GroupedMatmulProblem& problem, const HardwareSpec& spec);
absl::StatusOr<GroupedMatmulTiling> EvaluateGroupedMatmul(const GroupedMatmulProblem& problem, const GroupedMatmulChoice& choice,
                                                          const HardwareSpec& spec);

// In the order in which they are dealt: task i is core i % cores'.
std::vector<GroupTask> GroupTasks(const GroupedMatmulProblem& problem, const GroupedMatmulChoice& choice);

std::vector<Buffer> GroupedMatmulBuffers(const GroupedMatmulProblem& problem, const GroupedMatmulTiling& tiling);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_GROUPED_MATMUL_H_
