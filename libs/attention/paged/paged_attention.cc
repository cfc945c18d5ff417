#include "libs/attention/paged/paged_attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/paged/paged_kernel.h"

namespace jumar::attention {
namespace {

using internal::kChunk;
using internal::kMaxRows;
using internal::KeyRange;
using internal::RowTile;

constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kRangesPerWorker = 4;
constexpr double kParallelNanoseconds = 8'000;  // a smaller call is done before another thread has come

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("paged attention: ", parts...));
}

absl::Status CheckShape(const PagedAttentionArgs& args, int64_t value_head_dim) {
  if (args.num_seqs < 0) return Invalid("num_seqs = ", args.num_seqs, " is negative");
  if (args.num_kv_heads < 1 || args.num_heads < 1 || args.num_heads % args.num_kv_heads != 0) {
    return Invalid("num_heads = ", args.num_heads, " is not a positive multiple of num_kv_heads = ", args.num_kv_heads);
  }
  if (args.head_dim < 1 || args.head_dim > kMaxHeadDim) return Invalid("head_dim = ", args.head_dim, " is not in [1, ", kMaxHeadDim, "]");
  if (value_head_dim < 1 || value_head_dim > kMaxHeadDim) {
    return Invalid("value_head_dim = ", value_head_dim, " is not in [1, ", kMaxHeadDim, "]");
  }
  if (args.rope_dim < 0 || args.rope_dim > kMaxHeadDim - args.head_dim) {
    return Invalid("rope_dim = ", args.rope_dim, " is not in [0, ", kMaxHeadDim, " - head_dim]");
  }
  if (args.rope_dim > 0 && args.kv_format) return Invalid("a quantised cache has no part of rope_dim = ", args.rope_dim);
  if (!std::isfinite(args.scale)) return Invalid("scale = ", args.scale, " is not finite");
  if (!std::isfinite(args.soft_cap) || args.soft_cap < 0) return Invalid("soft_cap = ", args.soft_cap, " is not a finite number from 0 on");
  if (args.kv_format && *args.kv_format != quant::Format::kI8 && *args.kv_format != quant::Format::kE4M3 &&
      *args.kv_format != quant::Format::kE5M2) {
    return Invalid("kv_format = ", quant::Name(*args.kv_format), "; a cache is int8, e4m3 or e5m2, or not quantised");
  }
  if (!args.kv_format && (args.k_scales.data != nullptr || args.v_scales.data != nullptr)) {
    return Invalid("there are k_scales or v_scales, but kv_format is not set");
  }
  if (args.num_seqs > 0 && (args.query_ends == nullptr || args.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  if (args.block_table != nullptr || args.slots != nullptr) {
    if (args.block_table != nullptr && args.slots != nullptr) return Invalid("there are slots and a block_table; give one of them");
    if (args.block_size < 1) return Invalid("block_size = ", args.block_size, " is not positive");
    if (args.kv_starts != nullptr) return Invalid("kv_starts is for the contiguous layout, but there is a block_table, or slots");
  }
  return absl::OkStatus();
}

// The whole batch as row tiles, each piece of work a tile's chunks or some of them.
struct Task {
  RowTile tile;
  int64_t chunk_begin, chunk_end;
};
struct Piece {
  int64_t task, chunk_begin, chunk_end;
};
struct Plan {
  std::vector<Task> tasks;
  std::vector<Piece> pieces;
  std::vector<int64_t> partial_offset;  // of each task, in floats; -1 = not split
  int64_t partial_floats = 0;
  double work = 0;  // multiply-adds
};

absl::Status CheckSequence(const PagedAttentionArgs& args, int64_t seq, int64_t query_begin, int64_t num_queries, int64_t kv_len) {
  if (num_queries < 0) {
    return Invalid("query_ends[", seq, "] = ", args.query_ends[seq], " lies before the sequence's first query ", query_begin);
  }
  if (query_begin < 0) return Invalid("query_starts[", seq, "] = ", query_begin, " is negative");
  if (kv_len < 0) return Invalid("kv_lens[", seq, "] = ", kv_len, " is negative");
  if (num_queries > 0 && (args.q == nullptr || args.out == nullptr)) return Invalid("q or out is null");
  if (num_queries > 0 && args.rope_dim > 0 && args.q_rope == nullptr) return Invalid("q_rope is null");
  if (num_queries == 0 || kv_len == 0) return absl::OkStatus();
  if (args.k == nullptr || args.v == nullptr) return Invalid("k or v is null");
  if (args.rope_dim > 0 && args.k_rope == nullptr) return Invalid("k_rope is null");
  // Keys that lie wholly left of every query's window may have been given back.
  const int64_t first_key = args.window_left < 0 ? 0 : std::max<int64_t>(0, kv_len - num_queries - args.window_left);
  if (args.slots != nullptr) {
    if (kv_len > args.slots_stride) return Invalid("kv_lens[", seq, "] = ", kv_len, ", but slots has ", args.slots_stride, " entries a row");
    const int32_t* slots = args.slots + seq * args.slots_stride;
    for (int64_t j = first_key; j < kv_len; ++j) {
      if (slots[j] < 0 || slots[j] / args.block_size >= args.num_blocks) {
        return Invalid("slots[", seq, "][", j, "] = ", slots[j], " is not in the ", args.num_blocks, " blocks of ", args.block_size);
      }
    }
    return absl::OkStatus();
  }
  if (args.block_table == nullptr) return absl::OkStatus();
  const int64_t used = (kv_len + args.block_size - 1) / args.block_size;
  if (used > args.block_table_stride) {
    return Invalid("kv_lens[", seq, "] = ", kv_len, " needs ", used, " blocks of ", args.block_size, ", but block_table has ",
                   args.block_table_stride, " entries a row");
  }
  for (int64_t i = first_key / args.block_size; i < used; ++i) {
    const int32_t block = args.block_table[seq * args.block_table_stride + i];
    if (block < 0 || block >= args.num_blocks) {
      return Invalid("block_table[", seq, "][", i, "] = ", block, " is not in [0, num_blocks = ", args.num_blocks, ")");
    }
  }
  return absl::OkStatus();
}

absl::Status MakeTasks(const PagedAttentionArgs& args, Plan& plan) {
  plan.tasks.clear();
  plan.work = 0;
  const int64_t group = args.num_heads / args.num_kv_heads;
  int64_t query_begin = 0, kv_begin = 0;
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    if (args.query_starts != nullptr) query_begin = args.query_starts[seq];
    if (args.kv_starts != nullptr) kv_begin = args.kv_starts[seq];
    const int64_t num_queries = args.query_ends[seq] - query_begin, kv_len = args.kv_lens[seq];
    if (auto status = CheckSequence(args, seq, query_begin, num_queries, kv_len); !status.ok()) return status;
    // Tiles of nearly equal height.
    const int64_t rows = num_queries * group, num_tiles = (rows + kMaxRows - 1) / kMaxRows;
    for (int64_t head = 0; head < args.num_kv_heads; ++head) {
      for (int64_t t = 0; t < num_tiles; ++t) {
        const RowTile tile = {seq, head, rows * t / num_tiles, rows * (t + 1) / num_tiles, query_begin, num_queries, kv_begin, kv_len};
        const KeyRange keys = VisibleKeys(args, tile);
        Task task = {tile, 0, 0};
        if (keys.begin < keys.end) {
          task.chunk_begin = keys.begin / kChunk;
          task.chunk_end = (keys.end + kChunk - 1) / kChunk;
          // Four more rows' worth for reading, widening and transposing the keys.
          plan.work += static_cast<double>(keys.end - keys.begin) * (tile.row_end - tile.row_begin + 4) * (2 * args.head_dim + args.rope_dim);
        }
        plan.tasks.push_back(task);
      }
    }
    query_begin = args.query_ends[seq];
    kv_begin += kv_len;
  }
  return absl::OkStatus();
}

// Splits tasks that are longer than a fair share along the keys. This changes who computes a chunk, not what.
void MakePieces(const PagedAttentionArgs& args, int num_workers, Plan& plan) {
  plan.pieces.clear();
  plan.partial_offset.assign(plan.tasks.size(), -1);
  plan.partial_floats = 0;
  int64_t total = 0;
  const auto weight = [](const Task& task) { return task.tile.row_end - task.tile.row_begin + 4; };
  for (const Task& task : plan.tasks) total += (task.chunk_end - task.chunk_begin) * weight(task);
  const int64_t share = num_workers == 1 ? INT64_MAX : std::max<int64_t>(1, total / (num_workers * kRangesPerWorker));
  for (size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    const int64_t chunks = task.chunk_end - task.chunk_begin;
    const int64_t pieces = std::clamp<int64_t>((chunks * weight(task) + share / 2) / share, 1, std::max<int64_t>(chunks, 1));
    if (pieces > 1) {
      plan.partial_offset[t] = plan.partial_floats;
      plan.partial_floats += chunks * internal::PartialFloats(task.tile.row_end - task.tile.row_begin, args.value_head_dim);
    }
    for (int64_t p = 0; p < pieces; ++p) {
      plan.pieces.push_back({static_cast<int64_t>(t), task.chunk_begin + chunks * p / pieces, task.chunk_begin + chunks * (p + 1) / pieces});
    }
  }
}

void Run(const PagedAttentionArgs& args, tiling::Executor& executor, Plan& plan, float* partials) {
  std::unique_ptr<std::atomic<int64_t>[]> left;
  if (plan.partial_floats > 0) {
    left = std::make_unique<std::atomic<int64_t>[]>(plan.tasks.size());
    for (const Piece& piece : plan.pieces) left[piece.task].fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic<size_t> next{0};
  executor.ParallelFor(std::min<int64_t>(executor.num_workers(), plan.pieces.size()), 1, [&](int64_t, int64_t) {
    for (size_t p; (p = next.fetch_add(1, std::memory_order_relaxed)) < plan.pieces.size();) {
      const Piece& piece = plan.pieces[p];
      const Task& task = plan.tasks[piece.task];
      const int64_t offset = plan.partial_offset[piece.task];
      if (offset < 0) {
        ComputeChunks(args, task.tile, piece.chunk_begin, piece.chunk_end, nullptr);
        continue;
      }
      const int64_t floats = internal::PartialFloats(task.tile.row_end - task.tile.row_begin, args.value_head_dim);
      ComputeChunks(args, task.tile, piece.chunk_begin, piece.chunk_end, partials + offset + (piece.chunk_begin - task.chunk_begin) * floats);
      if (left[piece.task].fetch_sub(1, std::memory_order_acq_rel) == 1) {  // the last piece of the task
        MergeChunks(args, task.tile, task.chunk_end - task.chunk_begin, partials + offset);
      }
    }
  });
}

}  // namespace

absl::Status PagedAttention(const PagedAttentionArgs& given, tiling::Executor& given_executor) {
  PagedAttentionArgs args = given;
  if (args.value_head_dim == 0) args.value_head_dim = args.head_dim;
  if (auto status = CheckShape(args, args.value_head_dim); !status.ok()) return status;

  static thread_local Plan plan;
  static thread_local std::vector<float> partial_memory;
  if (auto status = MakeTasks(args, plan); !status.ok()) return status;
  // About 8 multiply-adds a nanosecond.
  tiling::Executor& executor = plan.work / 8 < kParallelNanoseconds ? tiling::InlineExecutor() : given_executor;
  MakePieces(args, executor.num_workers(), plan);
  float* partials = nullptr;
  if (plan.partial_floats > 0) {
    if (static_cast<int64_t>(partial_memory.size()) < plan.partial_floats + 16) partial_memory.resize(plan.partial_floats + 16);
    partials = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(partial_memory.data()) + 63) / 64 * 64);
  }
  Run(args, executor, plan, partials);
  return absl::OkStatus();
}

}  // namespace jumar::attention
