// Grids of the attention solvers over what serving asks for, uniform and ragged, and the fixed rules' predictions.

#include <algorithm>
#include <array>
#include <random>

#include "libs/tiling/attention/lightning_indexer.h"
#include "libs/tiling/attention/mla_decode.h"
#include "libs/tiling/attention/paged_attention.h"
#include "libs/tiling/attention/selected_attention.h"
#include "libs/tiling/attention/shared_kv_attention.h"
#include "libs/tiling/baselines/baselines.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr int64_t kContexts[] = {1, 16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576};
constexpr int64_t kMostTokens = int64_t{1} << 25;  // of a batch that one device serves

// Heads and KV heads of Qwen3 dense and MoE, Llama 3 70B, GLM 4.5 and MiniMax M2, whole or a tensor-parallel rank's share.
struct Heads {
  int64_t heads, kv_heads;
};
constexpr Heads kModels[] = {{64, 8}, {32, 8}, {8, 1}, {64, 4}, {32, 4}, {96, 8}, {48, 8}};

// `batch` lengths from 1 up to `most`, their logarithms evenly spread: a few long ones, many short.
std::vector<int64_t> Ragged(int64_t batch, int64_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> lens;
  for (int64_t i = 0; i < batch; ++i) {
    int64_t bits = 0;
    while ((most >> bits) > 1) ++bits;
    const int64_t limit = std::min(most, int64_t{2} << (random() % static_cast<uint64_t>(bits + 1)));
    lens.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(limit)));
  }
  return lens;
}

// Calls add(problem) with decode batches: one query, or `speculated` ones, for each sequence.
template <typename Problem, typename Add>
void Decodes(const Problem& like, int64_t speculated, const Add& add) {
  for (const int64_t batch : kBatches) {
    for (const int64_t context : kContexts) {
      if (batch * context > kMostTokens) continue;
      for (const bool ragged : {false, true}) {
        if (ragged && (batch == 1 || context == 1)) continue;
        Problem problem = like;
        problem.context = ragged ? Ragged(batch, context, static_cast<uint64_t>(batch * context)) : std::vector<int64_t>(static_cast<size_t>(batch), context);
        problem.queries = {};
        for (const int64_t keys : problem.context) problem.queries.push_back(std::min(keys, speculated));
        add(problem);
      }
    }
  }
}

// Chunks of up to `chunk` queries: whole prompts, and the last chunk of longer ones.
template <typename Problem, typename Add>
void Prefills(const Problem& like, int64_t chunk, const Add& add) {
  for (const int64_t batch : {1, 2, 4, 8, 16}) {
    for (const int64_t context : kContexts) {
      if (batch * context > kMostTokens) continue;
      for (const bool ragged : {false, true}) {
        if (ragged && (batch == 1 || context == 1)) continue;
        Problem problem = like;
        problem.context = ragged ? Ragged(batch, context, static_cast<uint64_t>(batch + context)) : std::vector<int64_t>(static_cast<size_t>(batch), context);
        problem.queries = {};
        for (const int64_t keys : problem.context) problem.queries.push_back(std::min(keys, chunk));
        add(problem);
      }
    }
  }
}

std::vector<Values> PagedPrefillGrid() {
  std::vector<Values> grid;
  const auto add = [&](const PagedPrefillProblem& problem) { grid.push_back(ToValues(PagedPrefillFields(), problem)); };
  for (const Heads& model : kModels) {
    PagedPrefillProblem like;
    like.heads = model.heads;
    like.kv_heads = model.kv_heads;
    for (const int64_t chunk : {512, 8192}) Prefills(like, chunk, add);
    like.window = 4096;
    Prefills(like, 2048, add);
  }
  return grid;
}

std::vector<Values> PagedDecodeGrid() {
  std::vector<Values> grid;
  const auto add = [&](const PagedDecodeProblem& problem) { grid.push_back(ToValues(PagedDecodeFields(), problem)); };
  for (const Heads& model : kModels) {
    PagedDecodeProblem like;
    like.heads = model.heads;
    like.kv_heads = model.kv_heads;
    for (const int64_t speculated : {1, 4}) Decodes(like, speculated, add);
  }
  return grid;
}

std::vector<Values> MlaDecodeGrid() {
  std::vector<Values> grid;
  const auto add = [&](const MlaDecodeProblem& problem) { grid.push_back(ToValues(MlaDecodeFields(), problem)); };
  for (const int64_t heads : {128, 64, 32, 16}) {  // DeepSeek V3, Kimi K2, and their shares
    MlaDecodeProblem like;
    like.heads = heads;
    for (const int64_t speculated : {1, 2, 4}) Decodes(like, speculated, add);
  }
  return grid;
}

std::vector<Values> LightningIndexerGrid() {
  std::vector<Values> grid;
  const auto add = [&](const LightningIndexerProblem& problem) { grid.push_back(ToValues(LightningIndexerFields(), problem)); };
  for (const auto& [heads, top_k, ratio] : {std::array<int64_t, 3>{64, 2048, 1}, {32, 2048, 1}, {64, 512, 4}}) {  // V3.2, GLM 5, V4
    LightningIndexerProblem like;
    like.heads = heads;
    like.top_k = top_k;
    like.ratio = ratio;
    for (const int64_t speculated : {1, 2, 4}) Decodes(like, speculated, add);
    for (const int64_t chunk : {1024, 4096}) Prefills(like, chunk, add);
  }
  return grid;
}

std::vector<Values> SelectedAttentionGrid() {
  std::vector<Values> grid;
  const auto add = [&](const SelectedAttentionProblem& problem) { grid.push_back(ToValues(SelectedAttentionFields(), problem)); };
  for (const int64_t heads : {128, 64, 16}) {
    SelectedAttentionProblem like;
    like.heads = heads;
    for (const int64_t speculated : {1, 2, 4}) Decodes(like, speculated, add);
    for (const int64_t chunk : {1024, 4096}) Prefills(like, chunk, add);
  }
  return grid;
}

std::vector<Values> SharedKvAttentionGrid() {
  std::vector<Values> grid;
  const auto add = [&](const SharedKvAttentionProblem& problem) { grid.push_back(ToValues(SharedKvAttentionFields(), problem)); };
  for (const auto& [ratio, top_k] : {std::array<int64_t, 2>{128, 0}, {4, 512}, {0, 0}}) {  // C128A, C4A, window only
    SharedKvAttentionProblem like;
    like.ratio = ratio;
    like.top_k = top_k;
    for (const int64_t heads : {64, 128}) {
      like.heads = heads;
      for (const int64_t speculated : {1, 2}) Decodes(like, speculated, add);
      for (const int64_t chunk : {1024, 4096}) Prefills(like, chunk, add);
    }
  }
  return grid;
}

template <typename Problem>
using Fields = std::span<const TypedField<Problem>> (*)();
template <typename Problem>
using Kernel = absl::StatusOr<AttentionKernel> (*)(const Problem&);

template <typename Problem, Fields<Problem> fields, Kernel<Problem> kernel_of>
absl::StatusOr<Prediction> Predict(const Values& values, const HardwareSpec& spec) {
  const Problem problem = FromValues(fields(), values);
  const absl::StatusOr<AttentionKernel> kernel = kernel_of(problem);
  if (!kernel.ok()) return kernel.status();
  return PredictFixedRule(problem, *kernel, spec);
}

// The search ranks tiles by a guess of their time, and evaluates the best few.
constexpr double kSlack = 0.25;

// MLA decode of a few short sequences takes 1 to 5 microseconds, most of it waiting for the first and the last block, which the bound doesn't
// see in full.
constexpr double kMlaP95 = 2.2;

template <typename Problem, Fields<Problem> fields, Kernel<Problem> kernel_of>
Baseline MakeBaseline(std::string_view solver, std::vector<Values> (*grid)(), double p95 = 2) {
  return {.solver = solver, .grid = grid, .predict = Predict<Problem, fields, kernel_of>, .p95 = p95, .slack = kSlack};
}

}  // namespace

Baseline PagedPrefillBaseline() { return MakeBaseline<PagedPrefillProblem, PagedPrefillFields, PagedPrefillKernel>("paged_prefill", PagedPrefillGrid); }
Baseline PagedDecodeBaseline() { return MakeBaseline<PagedDecodeProblem, PagedDecodeFields, PagedDecodeKernel>("paged_decode", PagedDecodeGrid); }
Baseline MlaDecodeBaseline() { return MakeBaseline<MlaDecodeProblem, MlaDecodeFields, MlaDecodeKernel>("mla_decode", MlaDecodeGrid, kMlaP95); }
Baseline LightningIndexerBaseline() {
  return MakeBaseline<LightningIndexerProblem, LightningIndexerFields, LightningIndexerKernel>("lightning_indexer", LightningIndexerGrid);
}
Baseline SelectedAttentionBaseline() {
  return MakeBaseline<SelectedAttentionProblem, SelectedAttentionFields, SelectedAttentionKernel>("selected_attention", SelectedAttentionGrid);
}
Baseline SharedKvAttentionBaseline() {
  return MakeBaseline<SharedKvAttentionProblem, SharedKvAttentionFields, SharedKvAttentionKernel>("shared_kv_attention", SharedKvAttentionGrid);
}

}  // namespace jumar::tiling
