#include "libs/attention/indexer/lightning_indexer.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/indexer/indexer_kernel.h"
#include "libs/attention/indexer/key_code.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {
namespace {

using internal::Candidate;
using internal::kTileTokens;
using internal::TokenTile;
using internal::TopK;

constexpr int64_t kPiecesPerWorker = 4;
constexpr double kParallelNanoseconds = 8'000;  // a smaller call is done before another thread has come

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("lightning indexer: ", parts...));
}

absl::Status CheckShape(const LightningIndexerArgs& args) {
  if (args.num_seqs < 0) return Invalid("num_seqs = ", args.num_seqs, " is negative");
  if (args.num_heads < 1 || args.num_heads > 1024) return Invalid("num_heads = ", args.num_heads, " is not in [1, 1024]");
  if (args.head_dim < 16 || args.head_dim > 1024 || args.head_dim % 16 != 0) {
    return Invalid("head_dim = ", args.head_dim, " is not a multiple of 16 in [16, 1024]");
  }
  if (args.top_k < 1 || args.top_k > std::numeric_limits<int32_t>::max()) return Invalid("top_k = ", args.top_k, " is not in [1, 2^31 - 1]");
  if (args.cmp_ratio < 1) return Invalid("cmp_ratio = ", args.cmp_ratio, " is not positive");
  if (args.format && *args.format != quant::Format::kI8 && *args.format != quant::Format::kE4M3) {
    return Invalid("format = ", quant::Name(*args.format), "; q and k are int8 or e4m3, or not quantised");
  }
  if (args.format && args.scales_type == DType::kBF16) return Invalid("scales_type is bfloat16; scales are float32 or float16");
  if (!args.format && (args.q_scales != nullptr || args.k_scales != nullptr)) return Invalid("there are q_scales or k_scales, but format is not set");
  if (args.num_seqs > 0 && (args.query_ends == nullptr || args.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  if (args.block_table != nullptr) {
    if (args.block_size < 1) return Invalid("block_size = ", args.block_size, " is not positive");
    if (args.kv_starts != nullptr) return Invalid("kv_starts is for the contiguous layout, but there is a block_table");
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const LightningIndexerArgs& args, int64_t seq, int64_t query_begin, int64_t num_queries) {
  if (query_begin < 0) return Invalid("query_starts[", seq, "] = ", query_begin, " is negative");
  if (num_queries < 0) return Invalid("query_ends[", seq, "] = ", args.query_ends[seq], " lies before the sequence's first query ", query_begin);
  if (args.kv_lens[seq] < 0 || args.kv_lens[seq] > std::numeric_limits<int32_t>::max() * args.cmp_ratio) {
    return Invalid("kv_lens[", seq, "] = ", args.kv_lens[seq], " is negative, or has more entries than an int32 index can name");
  }
  if (num_queries == 0) return absl::OkStatus();
  if (args.indices == nullptr) return Invalid("indices is null");
  const int64_t entries = args.kv_lens[seq] / args.cmp_ratio;
  if (entries == 0) return absl::OkStatus();
  if (args.q == nullptr || args.k == nullptr || args.weights == nullptr) return Invalid("q, k or weights is null");
  if (args.format && (args.q_scales == nullptr || args.k_scales == nullptr)) return Invalid("q_scales or k_scales of quantised keys is null");
  if (args.block_table == nullptr) return absl::OkStatus();
  const int64_t used = (entries + args.block_size - 1) / args.block_size;
  if (used > args.block_table_stride) {
    return Invalid("kv_lens[", seq, "] = ", args.kv_lens[seq], " needs ", used, " blocks of ", args.block_size, ", but block_table has ",
                   args.block_table_stride, " entries a row");
  }
  for (int64_t i = 0; i < used; ++i) {
    const int32_t block = args.block_table[seq * args.block_table_stride + i];
    if (block < 0 || block >= args.num_blocks) {
      return Invalid("block_table[", seq, "][", i, "] = ", block, " is not in [0, num_blocks = ", args.num_blocks, ")");
    }
  }
  return absl::OkStatus();
}

struct Task {
  TokenTile tile;
  int64_t entries = 0;       // that its last query sees
  int64_t k = 0;             // candidates that a row can end with
  int64_t pieces = 1;        // of the entries
  int64_t partials = -1;     // offset of its pieces' candidates; -1 = not cut
  int64_t first_piece = 0;   // of all pieces
};
struct Plan {
  std::vector<Task> tasks;
  std::vector<int64_t> task_of_piece;
  std::vector<int64_t> sizes;  // of the candidates of [piece][token]
  int64_t candidates = 0;      // of all pieces of tasks that are cut
  double work = 0;             // multiply-adds
};

absl::Status MakeTasks(const LightningIndexerArgs& args, Plan& plan) {
  plan.tasks.clear();
  plan.work = 0;
  int64_t query_begin = 0, kv_begin = 0;
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    if (args.query_starts != nullptr) query_begin = args.query_starts[seq];
    if (args.kv_starts != nullptr) kv_begin = args.kv_starts[seq];
    const int64_t num_queries = args.query_ends[seq] - query_begin;
    if (auto status = CheckSequence(args, seq, query_begin, num_queries); !status.ok()) return status;
    const int64_t entries = args.kv_lens[seq] / args.cmp_ratio;
    for (int64_t i = 0; i < num_queries; i += kTileTokens) {
      Task task;
      task.tile = {seq, query_begin + i, std::min(kTileTokens, num_queries - i), args.kv_lens[seq] - num_queries + i, kv_begin, entries};
      task.entries = VisibleEntries(args, task.tile, task.tile.num_tokens - 1);
      task.k = std::min(args.top_k, task.entries);
      plan.work += static_cast<double>(task.entries) * task.tile.num_tokens * args.num_heads * args.head_dim;
      plan.tasks.push_back(task);
    }
    query_begin = args.query_ends[seq];
    kv_begin += entries;
  }
  return absl::OkStatus();
}

// Cuts tasks that are longer than a fair share along the entries. This changes who scores an entry, not what is chosen.
void MakePieces(int num_workers, Plan& plan) {
  plan.task_of_piece.clear();
  plan.candidates = 0;
  int64_t total = 0;
  for (const Task& task : plan.tasks) total += task.entries * task.tile.num_tokens;
  const int64_t share = num_workers == 1 ? std::numeric_limits<int64_t>::max() : std::max<int64_t>(1, total / (num_workers * kPiecesPerWorker));
  for (size_t t = 0; t < plan.tasks.size(); ++t) {
    Task& task = plan.tasks[t];
    const int64_t tiles = (task.entries + key_panel::kTileKeys - 1) / key_panel::kTileKeys;
    task.pieces = std::clamp<int64_t>(task.entries * task.tile.num_tokens / share, 1, std::max<int64_t>(tiles, 1));
    task.first_piece = static_cast<int64_t>(plan.task_of_piece.size());
    if (task.pieces > 1) {
      task.partials = plan.candidates;
      plan.candidates += task.pieces * task.tile.num_tokens * task.k;
    }
    plan.task_of_piece.insert(plan.task_of_piece.end(), task.pieces, static_cast<int64_t>(t));
  }
  plan.sizes.assign(plan.task_of_piece.size() * kTileTokens, 0);
}

// `candidates` has room for twice as many.
void WriteRow(const LightningIndexerArgs& args, int64_t token, Candidate* candidates, int64_t count) {
  candidates = internal::SortBestFirst(candidates, count, candidates + count);
  int32_t* indices = args.indices + token * args.indices_token_stride;
  for (int64_t i = 0; i < count; ++i) indices[i] = internal::IndexOf(candidates[i]);
  std::fill(indices + count, indices + args.top_k, -1);
  if (args.scores == nullptr) return;
  float* scores = args.scores + token * args.scores_token_stride;
  for (int64_t i = 0; i < count; ++i) scores[i] = internal::ScoreOfOrdered(internal::OrderedOf(candidates[i]));
  std::fill(scores + count, scores + args.top_k, -std::numeric_limits<float>::infinity());
}

// The best of a piece's entries: written, or left in the plan's memory for MergePieces.
void RunPiece(const LightningIndexerArgs& args, Plan& plan, const Task& task, int64_t piece, Candidate* partials) {
  static thread_local quant::ScratchBuffer buffer;
  const int64_t capacity = TopK::Capacity(task.k), tiles = (task.entries + key_panel::kTileKeys - 1) / key_panel::kTileKeys;
  Candidate* memory = reinterpret_cast<Candidate*>(buffer.Get(capacity * kTileTokens * static_cast<int64_t>(sizeof(Candidate))));
  TopK top[kTileTokens];
  for (int64_t t = 0; t < task.tile.num_tokens; ++t) top[t] = {memory + t * capacity, task.k};
  const int64_t begin = tiles * piece / task.pieces, end = tiles * (piece + 1) / task.pieces;
  if (begin < end) {
    ScoreEntries(args, task.tile, begin * key_panel::kTileKeys, std::min(end * key_panel::kTileKeys, task.entries), top);
  }
  for (int64_t t = 0; t < task.tile.num_tokens; ++t) {
    const int64_t count = internal::CutToBest(top[t].candidates, top[t].size, task.k);
    if (task.pieces == 1) {
      WriteRow(args, task.tile.first_token + t, top[t].candidates, count);
    } else {
      std::copy(top[t].candidates, top[t].candidates + count, partials + task.partials + (piece * task.tile.num_tokens + t) * task.k);
      plan.sizes[(task.first_piece + piece) * kTileTokens + t] = count;
    }
  }
}

void MergePieces(const LightningIndexerArgs& args, const Plan& plan, const Task& task, const Candidate* partials) {
  static thread_local quant::ScratchBuffer buffer;
  Candidate* all = reinterpret_cast<Candidate*>(buffer.Get(task.pieces * task.k * static_cast<int64_t>(sizeof(Candidate))));
  for (int64_t t = 0; t < task.tile.num_tokens; ++t) {
    int64_t count = 0;
    for (int64_t p = 0; p < task.pieces; ++p) {
      const Candidate* from = partials + task.partials + (p * task.tile.num_tokens + t) * task.k;
      const int64_t size = plan.sizes[(task.first_piece + p) * kTileTokens + t];
      std::copy(from, from + size, all + count);
      count += size;
    }
    WriteRow(args, task.tile.first_token + t, all, internal::CutToBest(all, count, task.k));
  }
}

void Run(const LightningIndexerArgs& args, tiling::Executor& executor, Plan& plan, Candidate* partials) {
  std::unique_ptr<std::atomic<int64_t>[]> left;
  if (plan.candidates > 0) {
    left = std::make_unique<std::atomic<int64_t>[]>(plan.tasks.size());
    for (size_t t = 0; t < plan.tasks.size(); ++t) left[t].store(plan.tasks[t].pieces, std::memory_order_relaxed);
  }
  const int64_t pieces = static_cast<int64_t>(plan.task_of_piece.size());
  std::atomic<int64_t> next{0};
  executor.ParallelFor(std::min<int64_t>(executor.num_workers(), pieces), 1, [&](int64_t, int64_t) {
    for (int64_t p; (p = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
      const int64_t t = plan.task_of_piece[p];
      const Task& task = plan.tasks[t];
      RunPiece(args, plan, task, p - task.first_piece, partials);
      if (task.pieces > 1 && left[t].fetch_sub(1, std::memory_order_acq_rel) == 1) MergePieces(args, plan, task, partials);
    }
  });
}

}  // namespace

absl::Status LightningIndexer(const LightningIndexerArgs& args, tiling::Executor& given_executor) {
  if (auto status = CheckShape(args); !status.ok()) return status;
  static thread_local Plan plan;
  static thread_local quant::ScratchBuffer partials;
  if (auto status = MakeTasks(args, plan); !status.ok()) return status;
  // About 16 multiply-adds a nanosecond.
  tiling::Executor& executor = plan.work / 16 < kParallelNanoseconds ? tiling::InlineExecutor() : given_executor;
  MakePieces(executor.num_workers(), plan);
  Run(args, executor, plan, reinterpret_cast<Candidate*>(partials.Get(plan.candidates * static_cast<int64_t>(sizeof(Candidate)))));
  return absl::OkStatus();
}

}  // namespace jumar::attention
