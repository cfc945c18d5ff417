#include "libs/attention/block_sparse/block_csr.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/selected/selected_blocks.h"

namespace jumar::attention {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("block CSR: ", parts...));
}

// fn(token, row) for each pair of a head, by ascending token.
template <class Fn>
void ForEachPair(const BlockCsrArgs& args, int64_t head, const Fn& fn) {
  std::vector<int32_t> blocks(static_cast<size_t>(args.top_k));
  int64_t query_begin = 0, first_row = 0;
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    if (args.query_starts != nullptr) query_begin = args.query_starts[seq];
    const int64_t num_queries = args.query_ends[seq] - query_begin;
    for (int64_t i = 0; i < num_queries; ++i) {
      const int64_t token = query_begin + i, visible = args.kv_lens[seq] - num_queries + i + 1;
      if (visible <= 0) continue;
      const int32_t* list = args.indices + token * args.indices_token_stride + head * args.indices_head_stride;
      const int64_t count = internal::VisibleBlocks(list, args.top_k, visible, args.block_tokens, blocks.data());
      for (int64_t b = 0; b < count; ++b) fn(token, first_row + blocks[b]);
    }
    query_begin = args.query_ends[seq];
    first_row += (args.kv_lens[seq] + args.block_tokens - 1) / args.block_tokens;
  }
}

}  // namespace

absl::StatusOr<int64_t> BlockCsrRows(const BlockCsrArgs& args) {
  if (args.num_seqs < 0) return Invalid("num_seqs = ", args.num_seqs, " is negative");
  if (args.num_kv_heads < 0) return Invalid("num_kv_heads = ", args.num_kv_heads, " is negative");
  if (args.block_tokens < 1) return Invalid("block_tokens = ", args.block_tokens, " is not positive");
  if (args.top_k < 0) return Invalid("top_k = ", args.top_k, " is negative");
  if (args.num_seqs > 0 && (args.query_ends == nullptr || args.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  int64_t rows = 0, query_begin = 0;
  for (int64_t seq = 0; seq < args.num_seqs; ++seq) {
    const int64_t start = args.query_starts != nullptr ? args.query_starts[seq] : query_begin;
    if (start < query_begin) return Invalid("query_starts[", seq, "] = ", start, " lies before the previous sequence's end ", query_begin);
    query_begin = args.query_ends[seq];
    if (query_begin < start || query_begin > INT32_MAX) {
      return Invalid("query_ends[", seq, "] = ", query_begin, " is not in [", start, ", 2^31 - 1]");
    }
    if (args.kv_lens[seq] < 0 || args.kv_lens[seq] > INT32_MAX) return Invalid("kv_lens[", seq, "] = ", args.kv_lens[seq], " is not in [0, 2^31 - 1]");
    rows += (args.kv_lens[seq] + args.block_tokens - 1) / args.block_tokens;
    if (rows > INT32_MAX) return Invalid("there are more than 2^31 - 1 blocks");
  }
  return rows;
}

absl::Status BuildBlockCsr(const BlockCsrArgs& args, tiling::Executor& executor) {
  const absl::StatusOr<int64_t> rows = BlockCsrRows(args);
  if (!rows.ok()) return rows.status();
  if (args.num_kv_heads == 0) return absl::OkStatus();
  if (args.row_starts == nullptr) return Invalid("row_starts is null");
  if (args.row_starts_stride < *rows + 1) return Invalid("row_starts_stride = ", args.row_starts_stride, " is less than the rows and one, ", *rows + 1);
  const int64_t tokens = args.num_seqs == 0 ? 0 : args.query_ends[args.num_seqs - 1];
  if (tokens > 0 && args.top_k > 0 && args.indices == nullptr) return Invalid("indices is null");
  if (args.top_k > 0 && tokens > INT32_MAX / args.top_k) return Invalid("queries = ", tokens, " by top_k = ", args.top_k, " are more than 2^31 - 1 pairs");

  executor.ParallelFor(args.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      int32_t* starts = args.row_starts + head * args.row_starts_stride;
      std::fill(starts, starts + *rows + 1, 0);
      ForEachPair(args, head, [&](int64_t, int64_t row) { ++starts[row + 1]; });
      for (int64_t r = 0; r < *rows; ++r) starts[r + 1] += starts[r];
    }
  });
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    const int64_t pairs = args.row_starts[head * args.row_starts_stride + *rows];
    if (pairs > args.queries_stride) return Invalid("queries_stride = ", args.queries_stride, " is less than the ", pairs, " pairs of head ", head);
    if (pairs > 0 && args.queries == nullptr) return Invalid("queries is null");
  }
  executor.ParallelFor(args.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      const int32_t* starts = args.row_starts + head * args.row_starts_stride;
      std::vector<int32_t> next(starts, starts + *rows);
      ForEachPair(args, head, [&](int64_t token, int64_t row) { args.queries[head * args.queries_stride + next[row]++] = static_cast<int32_t>(token); });
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::attention
