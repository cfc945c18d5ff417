#include "libs/tiling/attention/attention_solver.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace jumar::tiling {
namespace {

absl::StatusOr<AttentionPlan> Prepare(const AttentionBatch& batch, const AttentionKernel& kernel, const HardwareSpec& spec) {
  AttentionPlan plan;
  const size_t longer = std::max(batch.context.size(), batch.queries.size()), sequences = batch.batch > 0 ? static_cast<size_t>(batch.batch) : longer;
  const auto expand = [&](const char* name, const std::vector<int64_t>& list, std::vector<int64_t>& lens) {
    if (list.size() != 1 && list.size() != sequences) {
      return absl::InvalidArgumentError(absl::StrCat(name, " has ", list.size(), " numbers for a batch of ", sequences, "; give one, or one for each sequence"));
    }
    lens = list.size() == 1 ? std::vector<int64_t>(sequences, list[0]) : list;
    return absl::OkStatus();
  };
  if (absl::Status status = expand("context", batch.context, plan.kv_lens); !status.ok()) return status;
  if (absl::Status status = expand("queries", batch.queries, plan.query_lens); !status.ok()) return status;
  for (size_t i = 0; i < sequences; ++i) {
    if (plan.query_lens[i] <= plan.kv_lens[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("queries of sequence ", i, " = ", plan.query_lens[i], " is more than its context = ", plan.kv_lens[i],
                                                   ": the context counts the new tokens too"));
  }
  plan.work = kernel.work;
  plan.work.query_lens = plan.query_lens;
  plan.work.kv_lens = plan.kv_lens;
  if (absl::Status status = CheckWork(plan.work); !status.ok()) return status;
  if (absl::Status status = RequireFormat(spec, plan.work.type); !status.ok()) return status;
  return plan;
}

}  // namespace

absl::StatusOr<AttentionPlan> SolveAttention(const AttentionBatch& batch, const AttentionKernel& kernel, const HardwareSpec& spec) {
  absl::StatusOr<AttentionPlan> plan = Prepare(batch, kernel, spec);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Machine> machine = MakeMachine(spec, FlashNeeds(kernel.work.type));
  if (!machine.ok()) return machine.status();
  const FlashSums sums = SumsOf(plan->work);
  plan->bound = BoundFlash(plan->work, sums, *machine);
  absl::StatusOr<FlashPlan> found = SearchFlash(plan->work, sums, *machine, plan->bound, kernel.fixed);
  if (!found.ok()) return found.status();
  plan->plan = *std::move(found);
  return plan;
}

absl::StatusOr<Prediction> PredictFixedRule(const AttentionBatch& batch, const AttentionKernel& kernel, const HardwareSpec& spec) {
  absl::StatusOr<AttentionPlan> plan = Prepare(batch, kernel, spec);
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Machine> machine = MakeMachine(spec, FlashNeeds(kernel.work.type));
  if (!machine.ok()) return machine.status();
  absl::StatusOr<FlashPlan> fixed = EvaluateFlash(plan->work, SumsOf(plan->work), kernel.fixed, *machine, Split::kFixedRule);
  if (!fixed.ok()) return fixed.status();
  return fixed->prediction;
}

absl::StatusOr<Solution> DescribeAttention(const absl::StatusOr<AttentionPlan>& solved, const HardwareSpec& spec, std::string_view solver) {
  if (!solved.ok()) return solved.status();
  const AttentionPlan& attention = *solved;
  const FlashPlan& plan = attention.plan;
  const FlashTile& tile = plan.tile;
  const FlashLayout& layout = plan.layout;
  const Machine machine = *MakeMachine(spec, FlashNeeds(attention.work.type));
  Solution solution = {.solver = solver, .core_kind = machine.unified() ? "AIC" : "AIC + AIV"};
  solution.tiling = {{"queries", tile.queries, "query tokens of a row"},
                     {"heads", tile.heads, "query heads of a row, which share a KV head"},
                     {"entries", tile.entries, "KV entries of a block, for which cube and vector unit exchange S and P"},
                     {"keep_kv", tile.keep_kv, "1: a block of KV stays in L1 until the product with V"},
                     {"output_in_ub", tile.output_in_ub, "1: O is kept in UB over the blocks of a row, 0: in global memory"},
                     {"l1_entries", layout.l1_entries, "KV entries of one load into L1"},
                     {"m0", layout.m0, "rows of a product in L0"},
                     {"n0", layout.n0, "KV entries of a product QK in L0"},
                     {"k0", layout.k0, "elements of a key of a product QK in L0"},
                     {"n1", layout.n1, "elements of a value of a product PV in L0"},
                     {"k1", layout.k1, "KV entries of a product PV in L0"},
                     {"vector_rows", layout.vector_rows, "rows that a vector core takes at once"},
                     {"workspace_bytes", layout.workspace_bytes, "of S, P and O in global memory, all cores"},
                     {"split_rows", static_cast<int64_t>(plan.balance.merges.size()), "rows that several cores share along the KV length"},
                     {"partial_bytes", plan.partial_bytes, "of the partial results of split rows in global memory"}};
  solution.buffers = FlashBuffers(attention.work, tile, layout, machine);
  int64_t blocks = 0;
  for (size_t core = 0; core < plan.balance.shares.size(); ++core) {
    const CoreShare& share = plan.balance.shares[core];
    const int64_t begin = blocks;
    ForEachRowCount(plan.balance_problem, plan.balance, share.begin, share.end, [&](const RowCount& count) { blocks += count.blocks; });
    if (blocks > begin) solution.shares.push_back({static_cast<int64_t>(core), {{begin, blocks}}});
  }
  solution.axes = {{"KV blocks of all rows, longest sequence first", blocks, 1}};
  solution.core_seconds = plan.core_seconds;
  solution.slowest = plan.slowest;
  solution.traffic = plan.traffic;
  solution.prediction = plan.prediction;
  solution.bound = attention.bound;
  return solution;
}

}  // namespace jumar::tiling
