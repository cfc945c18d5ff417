#include "libs/attention/block_sparse/block_sparse_attention.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/block_sparse/selected_blocks.h"

namespace jumar::attention {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("block-sparse attention: ", parts...));
}

absl::Status Check(const BlockSparseAttentionArgs& args) {
  const PagedAttentionArgs& dense = args.dense;
  if (dense.num_seqs < 0) return Invalid("num_seqs = ", dense.num_seqs, " is negative");
  if (dense.num_kv_heads < 1 || dense.num_heads < 1 || dense.num_heads % dense.num_kv_heads != 0) {
    return Invalid("num_heads = ", dense.num_heads, " is not a positive multiple of num_kv_heads = ", dense.num_kv_heads);
  }
  if (dense.block_size < 1 || args.block_tokens < 1 || args.block_tokens % dense.block_size != 0) {
    return Invalid("block_tokens = ", args.block_tokens, " is not a positive multiple of block_size = ", dense.block_size);
  }
  if (args.top_k < 0 || args.top_k > INT32_MAX / args.block_tokens) {
    return Invalid("top_k = ", args.top_k, " is not in [0, ", INT32_MAX / args.block_tokens, "]");
  }
  if (dense.window_left >= 0 || dense.window_right > 0) return Invalid("there is a window, but attention to blocks has none");
  if (dense.mask != nullptr) return Invalid("there is a mask, but attention to blocks has none");
  for (const KvScales* scales : {&dense.k_scales, &dense.v_scales}) {
    if (scales->data != nullptr && scales->per == KvScales::Per::kPosition) return Invalid("scales by position; give them by slot");
  }
  if (dense.num_seqs > 0 && (dense.query_ends == nullptr || dense.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  return absl::OkStatus();
}

absl::Status CheckSequence(const BlockSparseAttentionArgs& args, int64_t seq, int64_t query_begin) {
  const PagedAttentionArgs& dense = args.dense;
  const int64_t num_queries = dense.query_ends[seq] - query_begin, kv_len = dense.kv_lens[seq];
  if (query_begin < 0) return Invalid("query_starts[", seq, "] = ", query_begin, " is negative");
  if (num_queries < 0) return Invalid("query_ends[", seq, "] = ", dense.query_ends[seq], " lies before the sequence's first query ", query_begin);
  if (kv_len < 0) return Invalid("kv_lens[", seq, "] = ", kv_len, " is negative");
  if (num_queries == 0 || kv_len == 0) return absl::OkStatus();
  if (dense.block_table == nullptr) return Invalid("block_table is null");
  if (args.indices == nullptr && args.top_k > 0) return Invalid("indices is null");
  const int64_t used = (kv_len + dense.block_size - 1) / dense.block_size;
  if (used > dense.block_table_stride) {
    return Invalid("kv_lens[", seq, "] = ", kv_len, " needs ", used, " blocks of ", dense.block_size, ", but block_table has ",
                   dense.block_table_stride, " entries a row");
  }
  return absl::OkStatus();
}

// The queries of the batch as sequences of one query, for one KV head.
struct Rows {
  std::vector<int32_t> table;
  std::vector<int64_t> starts, ends, lens;
};

// Adds the query: the pages of its blocks, and how many of their keys it sees. Only the last block can end behind the query.
void AddQuery(const BlockSparseAttentionArgs& args, int64_t seq, int64_t token, int64_t kv_head, int64_t visible_keys, int64_t row_pages,
              std::vector<int32_t>& blocks, Rows& rows) {
  blocks.resize(args.top_k);
  const int64_t count = visible_keys <= 0 || args.top_k == 0
                            ? 0
                            : internal::VisibleBlocks(args.indices + token * args.indices_token_stride + kv_head * args.indices_head_stride,
                                                      args.top_k, visible_keys, args.block_tokens, blocks.data());
  const int64_t pages = args.block_tokens / args.dense.block_size;
  const size_t row = rows.table.size();
  rows.table.resize(row + row_pages, -1);
  int64_t keys = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = blocks[i] * args.block_tokens, seen = std::min(args.block_tokens, visible_keys - first);
    keys += seen;
    for (int64_t p = 0; p * args.dense.block_size < seen; ++p) {
      rows.table[row + i * pages + p] = args.dense.block_table[seq * args.dense.block_table_stride + blocks[i] * pages + p];
    }
  }
  rows.starts.push_back(token);
  rows.ends.push_back(token + 1);
  rows.lens.push_back(keys);
}

// The arguments of the heads that share a KV head.
PagedAttentionArgs OfHead(const PagedAttentionArgs& dense, int64_t kv_head) {
  PagedAttentionArgs args = dense;
  const int64_t group = dense.num_heads / dense.num_kv_heads, size = quant::SizeOf(dense.type), kv_size = dense.kv_format ? 1 : size;
  const auto advance = [](const void* p, int64_t bytes) { return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes; };
  args.num_heads = group, args.num_kv_heads = 1;
  args.q = advance(dense.q, kv_head * group * dense.q_head_stride * size);
  args.q_rope = advance(dense.q_rope, kv_head * group * dense.q_rope_head_stride * size);
  args.k_rope = advance(dense.k_rope, kv_head * dense.k_rope_head_stride * size);
  args.k = advance(dense.k, kv_head * dense.k_head_stride * kv_size);
  args.v = advance(dense.v, kv_head * dense.v_head_stride * kv_size);
  if (dense.out != nullptr) args.out = static_cast<char*>(dense.out) + kv_head * group * dense.out_head_stride * size;
  if (dense.sinks != nullptr) args.sinks = dense.sinks + kv_head * group;
  if (dense.lse != nullptr) args.lse = dense.lse + kv_head * group * dense.lse_head_stride;
  for (KvScales* scales : {&args.k_scales, &args.v_scales}) {
    if (scales->data != nullptr) scales->data += kv_head * scales->head_stride;
  }
  args.window_left = args.window_right = -1;
  return args;
}

}  // namespace

absl::Status BlockSparseAttention(const BlockSparseAttentionArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  const PagedAttentionArgs& dense = args.dense;
  static thread_local Rows rows_memory;
  static thread_local std::vector<int32_t> blocks;
  Rows& rows = rows_memory;
  const int64_t row_pages = args.top_k * (args.block_tokens / dense.block_size);
  for (int64_t kv_head = 0; kv_head < dense.num_kv_heads; ++kv_head) {
    rows.table.clear(), rows.starts.clear(), rows.ends.clear(), rows.lens.clear();
    int64_t query_begin = 0;
    for (int64_t seq = 0; seq < dense.num_seqs; ++seq) {
      if (dense.query_starts != nullptr) query_begin = dense.query_starts[seq];
      if (auto status = CheckSequence(args, seq, query_begin); !status.ok()) return status;
      const int64_t num_queries = dense.query_ends[seq] - query_begin;
      for (int64_t i = 0; i < num_queries; ++i) {
        AddQuery(args, seq, query_begin + i, kv_head, dense.kv_lens[seq] - num_queries + i + 1, row_pages, blocks, rows);
      }
      query_begin = dense.query_ends[seq];
    }
    PagedAttentionArgs head = OfHead(dense, kv_head);
    rows.table.push_back(-1);  // not null even if no query has a block
    head.num_seqs = static_cast<int64_t>(rows.lens.size());
    head.block_table = rows.table.data(), head.block_table_stride = row_pages;
    head.query_starts = rows.starts.data(), head.query_ends = rows.ends.data(), head.kv_lens = rows.lens.data();
    if (auto status = PagedAttention(head, executor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace jumar::attention
