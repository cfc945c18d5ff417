#include "libs/tiling/ragged_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kMaxBlocks = int64_t{1} << 60;
constexpr int64_t kNoCap = std::numeric_limits<int64_t>::max() / 2;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("ragged batch: ", parts...));
}

int64_t CeilDiv(int64_t a, int64_t b) { return a <= 0 ? 0 : (a - 1) / b + 1; }

// Sum of floor((a*i + b) / m) for i = 0 .. n-1, by Euclid's algorithm. n, a, b >= 0, m > 0; a*n + b and the sum fit.
int64_t FloorSum(int64_t n, int64_t m, int64_t a, int64_t b) {
  int64_t sum = 0;
  while (n > 0) {
    if (a >= m) {
      sum += n * (n - 1) / 2 * (a / m);
      a %= m;
    }
    if (b >= m) {
      sum += n * (b / m);
      b %= m;
    }
    const int64_t last = a * n + b;
    if (last < m) break;
    n = last / m;
    b = last % m;
    std::swap(m, a);
  }
  return sum;
}

}  // namespace

absl::Status CheckView(int64_t query_block, int64_t kv_block, const KvView& view) {
  if (query_block < 1 || query_block > kMaxRaggedTokens) {
    return Invalid("query_block = ", query_block, " is not in [1, ", kMaxRaggedTokens, "]");
  }
  if (kv_block < 1 || kv_block > kMaxRaggedTokens) return Invalid("kv_block = ", kv_block, " is not in [1, ", kMaxRaggedTokens, "]");
  if (view.ratio < 1 || view.ratio > kMaxRaggedTokens / kv_block) {
    return Invalid("ratio = ", view.ratio, " is not in [1, ", kMaxRaggedTokens / kv_block, "], so that a KV block of ", kv_block,
                   " entries stands for at most ", kMaxRaggedTokens, " tokens");
  }
  if (view.window < 0 || view.window > kMaxRaggedTokens) return Invalid("window = ", view.window, " is not in [0, ", kMaxRaggedTokens, "]");
  if (view.max_selected < 0) return Invalid("max_selected = ", view.max_selected, " is negative; 0 selects all");
  if (view.leading_entries < 0 || view.leading_entries > kMaxRaggedTokens / view.ratio) {
    return Invalid("leading_entries = ", view.leading_entries, " is not in [0, ", kMaxRaggedTokens / view.ratio, "]");
  }
  if (view.window > 0 && (!view.causal || view.ratio > 1 || view.max_selected > 0)) {
    return Invalid("window = ", view.window, " needs causal = true, ratio = 1 and max_selected = 0; of a mixture, give the window as leading_entries");
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(int64_t sequence, int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view) {
  if (query_len < 0 || query_len > kMaxRaggedTokens) {
    return Invalid("query_lens[", sequence, "] = ", query_len, " is not in [0, ", kMaxRaggedTokens, "]");
  }
  if (kv_len < 0 || kv_len > kMaxRaggedTokens) return Invalid("kv_lens[", sequence, "] = ", kv_len, " is not in [0, ", kMaxRaggedTokens, "]");
  if (view.causal && query_len > kv_len) {
    return Invalid("query_lens[", sequence, "] = ", query_len, " is more than kv_lens[", sequence, "] = ", kv_len,
                   ": a causal sequence's own tokens count as keys");
  }
  const int64_t rows = CeilDiv(query_len, query_block), blocks = CeilDiv(kv_len + view.leading_entries, kv_block);
  if (rows > 0 && blocks > kMaxBlocks / rows) {
    return Invalid("query_lens[", sequence, "] = ", query_len, " and kv_lens[", sequence, "] = ", kv_len, " make ", rows, " x ", blocks,
                   " blocks, more than ", kMaxBlocks, "; take larger blocks than ", query_block, " x ", kv_block);
  }
  return absl::OkStatus();
}

RaggedRows::RaggedRows(int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view)
    : query_len_(query_len), kv_len_(kv_len), query_block_(query_block), kv_block_(kv_block), view_(view), num_full_(query_len / query_block),
      tail_(query_len % query_block), base_(kv_len - query_len), full_cap_blocks_(kNoCap), first_capped_(num_full_) {
  const int64_t cap = Cap(query_block);
  if (cap == kNoCap) return;
  full_cap_blocks_ = CeilDiv(cap + view.leading_entries, kv_block);
  // The first i with floor((base + (i + 1) * query_block) / ratio) + leading > (full_cap_blocks - 1) * kv_block.
  const int64_t entries = (full_cap_blocks_ - 1) * kv_block + 1 - view.leading_entries;
  if (entries <= kMaxRaggedTokens / view.ratio) first_capped_ = std::min(num_full_, CeilDiv(entries * view.ratio - base_ - query_block, query_block));
}

int64_t RaggedRows::Cap(int64_t queries) const {
  // What no sequence exceeds is no cap.
  const int64_t cap = view_.window > 0 ? view_.window + queries - 1 : view_.max_selected > 0 ? view_.max_selected : kNoCap;
  return cap > 2 * kMaxRaggedTokens ? kNoCap : cap;
}

int64_t RaggedRows::BlocksOf(int64_t visible_tokens, int64_t cap) const {
  return CeilDiv(view_.leading_entries + std::min(visible_tokens / view_.ratio, cap), kv_block_);
}

int64_t RaggedRows::FirstEntry(int64_t query_block) const {
  return view_.window == 0 ? 0 : std::max<int64_t>(0, base_ + query_block * query_block_ + 1 - view_.window);
}

int64_t RaggedRows::NumKvBlocks(int64_t query_block) const {
  const int64_t end = std::min((query_block + 1) * query_block_, query_len_);
  return BlocksOf(view_.causal ? base_ + end : kv_len_, Cap(end - query_block * query_block_));
}

int64_t RaggedRows::KvBlocksBefore(int64_t query_block) const {
  const int64_t full = std::min(query_block, num_full_);
  int64_t blocks = 0;
  if (full == 1) {  // decode: the short way
    blocks = NumKvBlocks(0);
  } else if (!view_.causal) {
    blocks = full * BlocksOf(kv_len_, Cap(query_block_));
  } else {
    const int64_t uncapped = std::min(full, first_capped_);
    blocks = FloorSum(uncapped, kv_block_ * view_.ratio, query_block_, base_ + query_block_ + (view_.leading_entries + kv_block_ - 1) * view_.ratio);
    if (full > uncapped) blocks += (full - uncapped) * full_cap_blocks_;
  }
  return query_block > num_full_ ? blocks + NumKvBlocks(num_full_) : blocks;
}

int64_t RaggedRows::MostKvBlocks() const {
  // The last one sees most, but with a window a full one before it may see more.
  const int64_t rows = num_query_blocks();
  return rows == 0 ? 0 : std::max(NumKvBlocks(rows - 1), NumKvBlocks(std::max<int64_t>(0, rows - 2)));
}

}  // namespace jumar::tiling
