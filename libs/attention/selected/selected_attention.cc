#include "libs/attention/selected/selected_attention.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/attention/selected/selected_blocks.h"

namespace jumar::attention {
namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 20, kMaxPackedSlots = int64_t{1} << 14;  // of one call of paged attention

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("selected attention: ", parts...));
}

absl::Status CheckPacked(const SelectedAttentionArgs& args) {
  const PagedAttentionArgs& dense = args.dense;
  if (args.codec == nullptr) return absl::OkStatus();
  if (dense.k != nullptr || dense.k_rope != nullptr || dense.v != nullptr || dense.kv_format) return Invalid("there are packed rows, and k, v or kv_format");
  if (quant::SizeOf(dense.type) != 2 || dense.num_kv_heads != 1) {
    return Invalid("packed rows are for bfloat16 or float16 and one KV head, not ", quant::Name(dense.type), " and ", dense.num_kv_heads);
  }
  if (dense.head_dim != args.codec->dims || dense.rope_dim != args.codec->rope_dims || (dense.value_head_dim != 0 && dense.value_head_dim != dense.head_dim)) {
    return Invalid("head_dim = ", dense.head_dim, ", rope_dim = ", dense.rope_dim, ", value_head_dim = ", dense.value_head_dim,
                   "; packed rows have ", args.codec->dims, ", ", args.codec->rope_dims, " and ", args.codec->dims);
  }
  if (dense.num_seqs > 0 && dense.block_table == nullptr) return Invalid("block_table is null; packed rows lie in pages");
  return absl::OkStatus();
}

absl::Status Check(const SelectedAttentionArgs& args) {
  const PagedAttentionArgs& dense = args.dense;
  if (dense.num_seqs < 0) return Invalid("num_seqs = ", dense.num_seqs, " is negative");
  if (dense.num_kv_heads < 1 || dense.num_heads < 1 || dense.num_heads % dense.num_kv_heads != 0) {
    return Invalid("num_heads = ", dense.num_heads, " is not a positive multiple of num_kv_heads = ", dense.num_kv_heads);
  }
  if (args.selected_tokens < 1) return Invalid("selected_tokens = ", args.selected_tokens, " is not positive");
  if (args.ratio < 1) return Invalid("ratio = ", args.ratio, " is not positive");
  if (args.all && (args.top_k != 0 || args.selected_tokens != 1)) return Invalid("all keys are selected, but top_k = ", args.top_k, " and selected_tokens = ", args.selected_tokens);
  if (args.top_k < 0 || args.top_k > INT32_MAX / args.selected_tokens) {
    return Invalid("top_k = ", args.top_k, " is not in [0, ", INT32_MAX / args.selected_tokens, "]");
  }
  if (dense.window_left >= 0 || dense.window_right > 0) return Invalid("there is a window, but attention to selected keys has none");
  if (dense.mask != nullptr) return Invalid("there is a mask, but attention to selected keys has none");
  if (dense.slots != nullptr) return Invalid("there are slots; the keys of a query come from indices");
  for (const KvScales* scales : {&dense.k_scales, &dense.v_scales}) {
    if (scales->data != nullptr && scales->per == KvScales::Per::kPosition) return Invalid("scales by position; give them by slot");
  }
  if (dense.num_seqs > 0 && (dense.query_ends == nullptr || dense.kv_lens == nullptr)) return Invalid("query_ends or kv_lens is null");
  if (dense.block_table != nullptr) {
    if (dense.block_size < 1) return Invalid("block_size = ", dense.block_size, " is not positive");
    if (dense.num_blocks < 0 || dense.num_blocks > INT32_MAX / dense.block_size) {
      return Invalid("num_blocks = ", dense.num_blocks, " is not in [0, ", INT32_MAX / dense.block_size, "]");
    }
  }
  return CheckPacked(args);
}

absl::Status CheckSequence(const SelectedAttentionArgs& args, int64_t seq, int64_t query_begin, int64_t kv_begin) {
  const PagedAttentionArgs& dense = args.dense;
  const int64_t num_queries = dense.query_ends[seq] - query_begin, kv_len = dense.kv_lens[seq] / args.ratio;
  if (query_begin < 0) return Invalid("query_starts[", seq, "] = ", query_begin, " is negative");
  if (num_queries < 0) return Invalid("query_ends[", seq, "] = ", dense.query_ends[seq], " lies before the sequence's first query ", query_begin);
  if (dense.kv_lens[seq] < 0) return Invalid("kv_lens[", seq, "] = ", dense.kv_lens[seq], " is negative");
  if (num_queries == 0 || kv_len == 0) return absl::OkStatus();
  if (args.indices == nullptr && args.top_k > 0) return Invalid("indices is null");
  if (dense.block_table == nullptr) {
    if (kv_begin < 0 || kv_begin > INT32_MAX - kv_len) return Invalid("kv_starts[", seq, "] = ", kv_begin, " is not in [0, ", INT32_MAX, " - ", kv_len, "]");
    return absl::OkStatus();
  }
  const int64_t used = (kv_len + dense.block_size - 1) / dense.block_size;
  if (used > dense.block_table_stride) {
    return Invalid("kv_lens[", seq, "] = ", dense.kv_lens[seq], " needs ", used, " blocks of ", dense.block_size, ", but block_table has ",
                   dense.block_table_stride, " entries a row");
  }
  return absl::OkStatus();
}

// Queries, for one KV head, as sequences of one query over the slots of their keys.
struct Rows {
  std::vector<int32_t> slots;  // rows `stride` apart
  std::vector<int64_t> starts, ends, lens;
  int64_t stride = 0;

  void Clear() { slots.clear(), starts.clear(), ends.clear(), lens.clear(); }
};

// Adds the query at `token`, which would see the first `visible_keys` keys of the sequence.
absl::Status AddQuery(const SelectedAttentionArgs& args, int64_t seq, int64_t token, int64_t kv_begin, int64_t kv_head, int64_t visible_keys,
                      std::vector<int32_t>& blocks, Rows& rows) {
  const PagedAttentionArgs& dense = args.dense;
  int64_t count = 0;
  if (args.all) {
    count = std::max<int64_t>(0, visible_keys);
    blocks.resize(static_cast<size_t>(count));
    std::iota(blocks.begin(), blocks.end(), 0);
  } else if (visible_keys > 0 && args.top_k > 0) {
    blocks.resize(static_cast<size_t>(args.top_k));
    const int32_t* list = args.indices + token * args.indices_token_stride + kv_head * args.indices_head_stride;
    count = internal::VisibleBlocks(list, args.top_k, visible_keys, args.selected_tokens, blocks.data());
  }
  const size_t row = rows.slots.size();
  rows.slots.resize(row + static_cast<size_t>(rows.stride), -1);
  int32_t* out = rows.slots.data() + row;
  const int32_t* table = dense.block_table == nullptr ? nullptr : dense.block_table + seq * dense.block_table_stride;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = blocks[static_cast<size_t>(i)] * args.selected_tokens, end = std::min(first + args.selected_tokens, visible_keys);
    for (int64_t key = first; key < end;) {
      if (table == nullptr) {
        *out++ = static_cast<int32_t>(kv_begin + key++);
        continue;
      }
      const int64_t page = key / dense.block_size, page_end = std::min(end, (page + 1) * dense.block_size);
      if (table[page] < 0 || table[page] >= dense.num_blocks) {
        return Invalid("block_table[", seq, "][", page, "] = ", table[page], " is not in [0, num_blocks = ", dense.num_blocks, ")");
      }
      for (int64_t slot = table[page] * dense.block_size + key % dense.block_size; key < page_end; ++key) *out++ = static_cast<int32_t>(slot++);
    }
  }
  rows.starts.push_back(token);
  rows.ends.push_back(token + 1);
  rows.lens.push_back(out - (rows.slots.data() + row));
  return absl::OkStatus();
}

// The arguments of the heads that share a KV head.
PagedAttentionArgs OfHead(const PagedAttentionArgs& dense, int64_t kv_head) {
  PagedAttentionArgs args = dense;
  const int64_t group = dense.num_heads / dense.num_kv_heads, size = quant::SizeOf(dense.type), kv_size = dense.kv_format ? 1 : size;
  const auto advance = [](const void* p, int64_t bytes) { return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes; };
  args.num_heads = group, args.num_kv_heads = 1;
  args.q = advance(dense.q, kv_head * group * dense.q_head_stride * size);
  args.q_rope = advance(dense.q_rope, kv_head * group * dense.q_rope_head_stride * size);
  args.k = advance(dense.k, kv_head * dense.k_head_stride * kv_size);
  args.k_rope = advance(dense.k_rope, kv_head * dense.k_rope_head_stride * size);
  args.v = advance(dense.v, kv_head * dense.v_head_stride * kv_size);
  if (dense.sinks != nullptr) args.sinks = dense.sinks + kv_head * group;
  const int64_t out_size = quant::SizeOf(dense.out_type.value_or(dense.type));
  if (dense.out != nullptr) args.out = static_cast<char*>(dense.out) + kv_head * group * dense.out_head_stride * out_size;
  if (dense.lse != nullptr) args.lse = dense.lse + kv_head * group * dense.lse_head_stride;
  for (KvScales* scales : {&args.k_scales, &args.v_scales}) {
    if (scales->data != nullptr) scales->data += kv_head * scales->head_stride;
  }
  args.window_right = -1;  // the lists have what a query sees
  if (dense.block_table == nullptr) {
    args.block_size = 1, args.num_blocks = INT32_MAX;
    args.k_block_stride = dense.k_token_stride, args.k_rope_block_stride = dense.k_rope_token_stride, args.v_block_stride = dense.v_token_stride;
    for (KvScales* scales : {&args.k_scales, &args.v_scales}) scales->block_stride = scales->token_stride;
  }
  args.block_table = nullptr, args.kv_starts = nullptr;
  return args;
}

// The selected rows of all queries, decoded one after the other.
absl::Status UnpackRows(const SelectedAttentionArgs& args, const Rows& rows, PagedAttentionArgs& head, tiling::Executor& executor) {
  static thread_local std::vector<int64_t> slots, starts;
  static thread_local std::vector<uint16_t> memory;
  const int64_t width = args.codec->dims + args.codec->rope_dims;
  slots.clear(), starts.clear();
  for (size_t r = 0; r < rows.lens.size(); ++r) {
    starts.push_back(static_cast<int64_t>(slots.size()));
    const int32_t* row = rows.slots.data() + static_cast<int64_t>(r) * rows.stride;
    slots.insert(slots.end(), row, row + rows.lens[r]);
  }
  memory.resize(std::max(memory.size(), (slots.size() + 1) * static_cast<size_t>(width)));
  const quant::MutableTokenRows out = {
      .type = args.dense.type, .values = memory.data(), .stride = width, .rope = memory.data() + args.codec->dims, .rope_stride = width};
  if (auto status = quant::ReadRows(*args.codec, args.pages, slots, out, executor); !status.ok()) return status;
  head.k = head.v = memory.data(), head.k_rope = memory.data() + args.codec->dims;
  head.k_token_stride = head.v_token_stride = head.k_rope_token_stride = width;
  head.slots = nullptr, head.kv_starts = starts.data();
  return absl::OkStatus();
}

absl::Status Run(const SelectedAttentionArgs& args, int64_t kv_head, const Rows& rows, tiling::Executor& executor) {
  if (rows.lens.empty()) return absl::OkStatus();
  PagedAttentionArgs head = OfHead(args.dense, kv_head);
  head.num_seqs = static_cast<int64_t>(rows.lens.size());
  head.slots = rows.slots.data(), head.slots_stride = rows.stride;
  head.query_starts = rows.starts.data(), head.query_ends = rows.ends.data(), head.kv_lens = rows.lens.data();
  if (args.codec != nullptr) {
    if (auto status = UnpackRows(args, rows, head, executor); !status.ok()) return status;
  }
  return PagedAttention(head, executor);
}

}  // namespace

absl::Status SelectedAttention(const SelectedAttentionArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  const PagedAttentionArgs& dense = args.dense;
  static thread_local Rows rows;
  static thread_local std::vector<int32_t> blocks;
  const int64_t longest = dense.num_seqs == 0 ? 0 : *std::max_element(dense.kv_lens, dense.kv_lens + dense.num_seqs);
  rows.stride = std::max<int64_t>(1, args.all ? longest / args.ratio : std::min(longest / args.ratio, args.top_k * args.selected_tokens));
  const int64_t most = args.codec != nullptr ? kMaxPackedSlots : kMaxSlots;
  for (int64_t kv_head = 0; kv_head < dense.num_kv_heads; ++kv_head) {
    rows.Clear();
    int64_t query_begin = 0, kv_begin = 0;
    for (int64_t seq = 0; seq < dense.num_seqs; ++seq) {
      if (dense.query_starts != nullptr) query_begin = dense.query_starts[seq];
      if (dense.kv_starts != nullptr) kv_begin = dense.kv_starts[seq];
      if (auto status = CheckSequence(args, seq, query_begin, kv_begin); !status.ok()) return status;
      const int64_t num_queries = dense.query_ends[seq] - query_begin;
      for (int64_t i = 0; i < num_queries; ++i) {
        const int64_t tokens = dense.window_right < 0 ? dense.kv_lens[seq] : std::max<int64_t>(0, dense.kv_lens[seq] - num_queries + i + 1);
        const int64_t visible = tokens / args.ratio;
        if (auto status = AddQuery(args, seq, query_begin + i, kv_begin, kv_head, visible, blocks, rows); !status.ok()) return status;
        if (static_cast<int64_t>(rows.slots.size()) + rows.stride <= most) continue;
        if (auto status = Run(args, kv_head, rows, executor); !status.ok()) return status;
        rows.Clear();
      }
      query_begin = dense.query_ends[seq];
      kv_begin += dense.kv_lens[seq] / args.ratio;
    }
    if (auto status = Run(args, kv_head, rows, executor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace jumar::attention
