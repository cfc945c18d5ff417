#include "libs/attention/block_sparse/block_select.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/block_sparse/block_score_kernel.h"
#include "libs/attention/indexer/top_k.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {
namespace {

using internal::Candidate;
using internal::ScoreTile;

constexpr int64_t kPieceBlocks = 16;     // blocks that a thread scores at a time
constexpr double kParallelWork = 128e3;  // multiply-adds; a smaller call is done before another thread has come

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("block select: ", parts...));
}

absl::Status CheckShape(const BlockSelectArgs& args) {
  if (args.num_seqs < 0) return Invalid("num_seqs = ", args.num_seqs, " is negative");
  if (args.num_key_heads < 1 || args.num_heads < 1 || args.num_heads % args.num_key_heads != 0) {
    return Invalid("num_heads = ", args.num_heads, " is not a positive multiple of num_key_heads = ", args.num_key_heads);
  }
  if (args.head_dim < 16 || args.head_dim > 1024 || args.head_dim % 16 != 0) {
    return Invalid("head_dim = ", args.head_dim, " is not a multiple of 16 in [16, 1024]");
  }
  if (args.format && *args.format != quant::Format::kE4M3) return Invalid("format = ", quant::Name(*args.format), "; q and k are e4m3, or not quantised");
  if (args.page_size < 1) return Invalid("page_size = ", args.page_size, " is not positive");
  if (args.block_tokens < 1) return Invalid("block_tokens = ", args.block_tokens, " is not positive");
  if (args.top_k < 1) return Invalid("top_k = ", args.top_k, " is not positive");
  if (args.init_blocks < 0 || args.local_blocks < 0) {
    return Invalid("init_blocks = ", args.init_blocks, " or local_blocks = ", args.local_blocks, " is negative");
  }
  if (args.num_seqs > 0 && (args.query_ends == nullptr || args.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  return absl::OkStatus();
}

absl::Status CheckSequence(const BlockSelectArgs& args, int64_t seq, int64_t query_begin, int64_t num_queries) {
  const int64_t kv_len = args.kv_lens[seq];
  if (query_begin < 0) return Invalid("query_starts[", seq, "] = ", query_begin, " is negative");
  if (num_queries < 0) return Invalid("query_ends[", seq, "] = ", args.query_ends[seq], " lies before the sequence's first query ", query_begin);
  if (kv_len < 0 || kv_len > INT32_MAX) return Invalid("kv_lens[", seq, "] = ", kv_len, " is not in [0, 2^31 - 1]");
  if (num_queries == 0) return absl::OkStatus();
  if (args.indices == nullptr) return Invalid("indices is null");
  if (kv_len == 0) return absl::OkStatus();
  if (args.q == nullptr || args.k == nullptr || args.block_table == nullptr) return Invalid("q, k or block_table is null");
  const int64_t used = (kv_len + args.page_size - 1) / args.page_size;
  if (used > args.block_table_stride) {
    return Invalid("kv_lens[", seq, "] = ", kv_len, " needs ", used, " pages of ", args.page_size, ", but block_table has ", args.block_table_stride,
                   " entries a row");
  }
  for (int64_t i = 0; i < used; ++i) {
    const int32_t page = args.block_table[seq * args.block_table_stride + i];
    if (page < 0 || page >= args.num_pages) {
      return Invalid("block_table[", seq, "][", i, "] = ", page, " is not in [0, num_pages = ", args.num_pages, ")");
    }
  }
  return absl::OkStatus();
}

struct Piece {
  int64_t tile, begin, end;  // blocks
};
struct Plan {
  std::vector<ScoreTile> tiles;
  std::vector<Piece> pieces;
  int64_t floats = 0;
  double work = 0;
};

absl::Status MakePlan(const BlockSelectArgs& args, Plan& plan) {
  plan.tiles.clear();
  plan.pieces.clear();
  plan.floats = 0;
  plan.work = 0;
  const int64_t group = args.num_heads / args.num_key_heads, tokens = std::max<int64_t>(1, internal::kScoreRows / group);
  int64_t query_begin = 0;
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    if (args.query_starts != nullptr) query_begin = args.query_starts[seq];
    const int64_t num_queries = args.query_ends[seq] - query_begin;
    if (auto status = CheckSequence(args, seq, query_begin, num_queries); !status.ok()) return status;
    for (int64_t head = 0; head < args.num_key_heads; ++head) {
      for (int64_t i = 0; i < num_queries; i += tokens) {
        ScoreTile tile = {seq, head, query_begin + i, std::min(tokens, num_queries - i), args.kv_lens[seq] - num_queries + i, 0, plan.floats};
        const int64_t keys = std::max<int64_t>(0, tile.first_position + tile.num_tokens);
        tile.row_blocks = (keys + args.block_tokens - 1) / args.block_tokens;
        plan.floats += tile.num_tokens * group * tile.row_blocks;
        plan.work += static_cast<double>(keys) * tile.num_tokens * group * args.head_dim;
        for (int64_t b = 0; b < tile.row_blocks; b += kPieceBlocks) {
          plan.pieces.push_back({static_cast<int64_t>(plan.tiles.size()), b, std::min(b + kPieceBlocks, tile.row_blocks)});
        }
        plan.tiles.push_back(tile);
      }
    }
    query_begin = args.query_ends[seq];
  }
  return absl::OkStatus();
}

// Above +infinity's.
constexpr uint32_t kInit = 0xFFFFFFFF, kLocal = 0xFFFFFFFE;

void SelectRow(const BlockSelectArgs& args, int64_t position, const float* scores, std::vector<Candidate>& candidates, int32_t* indices) {
  const int64_t blocks = position < 0 ? 0 : position / args.block_tokens + 1;
  candidates.clear();
  for (int64_t b = 0; b < blocks; ++b) {
    const uint32_t rank = b >= blocks - args.local_blocks ? kLocal : b < args.init_blocks ? kInit : internal::OrderedScore(scores[b]);
    candidates.push_back(internal::MakeCandidate(rank, b));
  }
  const int64_t count = internal::CutToBest(candidates.data(), blocks, args.top_k);
  std::sort(candidates.begin(), candidates.begin() + count, std::greater<>());
  for (int64_t i = 0; i < count; ++i) indices[i] = internal::IndexOf(candidates[i]);
  std::fill(indices + count, indices + args.top_k, -1);
}

}  // namespace

absl::Status SelectBlocks(const BlockSelectArgs& args, tiling::Executor& given_executor) {
  if (auto status = CheckShape(args); !status.ok()) return status;
  static thread_local Plan plan_memory;
  static thread_local quant::ScratchBuffer buffer;
  Plan& plan = plan_memory;
  if (auto status = MakePlan(args, plan); !status.ok()) return status;
  float* scores = reinterpret_cast<float*>(buffer.Get(plan.floats * static_cast<int64_t>(sizeof(float))));
  tiling::Executor& executor = plan.work < kParallelWork ? tiling::InlineExecutor() : given_executor;
  executor.ParallelFor(static_cast<int64_t>(plan.pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const Piece& piece = plan.pieces[p];
      internal::ScoreBlocks(args, plan.tiles[piece.tile], piece.begin, piece.end, scores);
    }
  });
  executor.ParallelFor(static_cast<int64_t>(plan.tiles.size()), 1, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<Candidate> candidates;
    const int64_t group = args.num_heads / args.num_key_heads;
    for (int64_t t = begin; t < end; ++t) {
      const ScoreTile& tile = plan.tiles[t];
      for (int64_t r = 0; r < tile.num_tokens * group; ++r) {
        const int64_t token = tile.first_token + r / group, head = tile.key_head * group + r % group;
        SelectRow(args, tile.first_position + r / group, scores + tile.scores + r * tile.row_blocks, candidates,
                  args.indices + token * args.indices_token_stride + head * args.indices_head_stride);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::attention
