#include "libs/memory/kv/block_table.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {

absl::Status BlockTableView::Check() const {
  int64_t end = 0;
  if (rows < 0 || width < 0 || (rows > 1 && stride < width)) {
    return absl::InvalidArgumentError(absl::StrCat("block table of ", rows, " rows of ", width, " blocks, stride ", stride,
                                                   ": none may be negative, and the stride not less than the width"));
  }
  if (rows == 0) return absl::OkStatus();
  if (__builtin_mul_overflow(rows - 1, stride, &end) || __builtin_add_overflow(end, width, &end) ||
      static_cast<uint64_t>(end) > entries.size()) {
    return absl::InvalidArgumentError(absl::StrCat("block table of ", rows, " rows of ", width, " blocks, stride ", stride,
                                                   ", doesn't fit in its ", entries.size(), " entries"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BlockTableView::At(int64_t row, int64_t column, int64_t num_blocks) const {
  if (row < 0 || row >= rows) {
    return absl::InvalidArgumentError(absl::StrCat("request ", row, " is past the block table's ", rows, " rows"));
  }
  if (column < 0 || column >= width) {
    return absl::InvalidArgumentError(absl::StrCat("request ", row, " needs column ", column, " of the block table, which has ", width));
  }
  const int64_t block = entries[static_cast<size_t>(row * stride + column)];
  if (block < 0 || block >= num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_table[", row, ", ", column, "] names block ", block, "; the cache has ", num_blocks));
  }
  return block;
}

BlockTable::BlockTable(const Options& options)
    : options_(options),
      entries_(static_cast<size_t>(options.max_requests * options.max_blocks), kNoBlock),
      counts_(static_cast<size_t>(options.max_requests), 0) {}

absl::StatusOr<BlockTable> BlockTable::Create(const Options& o) {
  int64_t bytes = 0;
  if (o.max_requests < 0 || o.max_blocks < 0 || o.num_blocks < 0 || o.num_blocks > int64_t{1} << 31 ||
      __builtin_mul_overflow(o.max_requests, o.max_blocks, &bytes) || __builtin_mul_overflow(bytes, int64_t{4}, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("block table for ", o.max_requests, " requests of ", o.max_blocks, " blocks, out of ", o.num_blocks,
                     ": none may be negative, the table must fit in int64 bytes and a block's number in int32"));
  }
  return BlockTable(o);
}

absl::Status BlockTable::CheckRow(const char* what, int64_t row) const {
  if (row >= 0 && row < options_.max_requests) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("block table: ", what, " = ", row, " is not in [0, max_requests = ", options_.max_requests, ")"));
}

absl::Status BlockTable::CheckBlocks(int64_t row, int64_t before, std::span<const int32_t> blocks) const {
  if (auto status = CheckRow("row", row); !status.ok()) return status;
  if (static_cast<int64_t>(blocks.size()) > options_.max_blocks - before) {
    return absl::InvalidArgumentError(absl::StrCat("block table: row ", row, " has ", before, " blocks; ", blocks.size(),
                                                   " more exceed max_blocks = ", options_.max_blocks));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < 0 || blocks[i] >= options_.num_blocks) {
      return absl::InvalidArgumentError(absl::StrCat("block table: blocks[", i, "] for row ", row, " is ", blocks[i],
                                                     ", not in [0, num_blocks = ", options_.num_blocks, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status BlockTable::Append(int64_t row, std::span<const int32_t> blocks) {
  if (auto status = CheckRow("row", row); !status.ok()) return status;
  int64_t& count = counts_[static_cast<size_t>(row)];
  if (auto status = CheckBlocks(row, count, blocks); !status.ok()) return status;
  std::copy(blocks.begin(), blocks.end(), row_data(row) + count);
  count += static_cast<int64_t>(blocks.size());
  return absl::OkStatus();
}

absl::Status BlockTable::Assign(int64_t row, std::span<const int32_t> blocks) {
  if (auto status = CheckBlocks(row, 0, blocks); !status.ok()) return status;
  if (!blocks.empty()) std::memmove(row_data(row), blocks.data(), blocks.size_bytes());  // `blocks` may be a slice of this very row
  int64_t& count = counts_[static_cast<size_t>(row)];
  const auto kept = static_cast<int64_t>(blocks.size());
  if (kept < count) std::fill(row_data(row) + kept, row_data(row) + count, kNoBlock);
  count = kept;
  return absl::OkStatus();
}

absl::Status BlockTable::Truncate(int64_t row, int64_t count) {
  if (auto status = CheckRow("row", row); !status.ok()) return status;
  int64_t& have = counts_[static_cast<size_t>(row)];
  if (count < 0 || count > have) {
    return absl::InvalidArgumentError(absl::StrCat("block table: row ", row, " has ", have, " blocks; it can't keep ", count));
  }
  std::fill(row_data(row) + count, row_data(row) + have, kNoBlock);
  have = count;
  return absl::OkStatus();
}

absl::Status BlockTable::Move(int64_t from, int64_t to) {
  if (auto status = CheckRow("from", from); !status.ok()) return status;
  if (auto status = CheckRow("to", to); !status.ok()) return status;
  if (from == to) return absl::OkStatus();
  const int64_t count = counts_[static_cast<size_t>(from)];
  if (auto status = Assign(to, {row_data(from), static_cast<size_t>(count)}); !status.ok()) return status;
  return Truncate(from, 0);
}

absl::Status BlockTable::Swap(int64_t a, int64_t b) {
  if (auto status = CheckRow("a", a); !status.ok()) return status;
  if (auto status = CheckRow("b", b); !status.ok()) return status;
  if (a == b) return absl::OkStatus();
  const int64_t used = std::max(counts_[static_cast<size_t>(a)], counts_[static_cast<size_t>(b)]);
  std::swap_ranges(row_data(a), row_data(a) + used, row_data(b));
  std::swap(counts_[static_cast<size_t>(a)], counts_[static_cast<size_t>(b)]);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const int32_t>> BlockTable::Slice(int64_t row, int64_t begin, int64_t count) const {
  if (auto status = CheckRow("row", row); !status.ok()) return status;
  const int64_t have = counts_[static_cast<size_t>(row)];
  if (begin < 0 || count < 0 || begin > have || count > have - begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("block table: row ", row, " has ", have, " blocks; ", count, " from ", begin, " on are outside"));
  }
  return std::span<const int32_t>(row_data(row) + begin, static_cast<size_t>(count));
}

absl::StatusOr<int64_t> BlockTable::Count(int64_t row) const {
  if (auto status = CheckRow("row", row); !status.ok()) return status;
  return counts_[static_cast<size_t>(row)];
}

absl::Status BlockTable::Gather(std::span<const int64_t> rows, std::span<int32_t> out, int64_t stride) const {
  int64_t needed = 0;
  if (stride < 0 || __builtin_mul_overflow(static_cast<int64_t>(rows.size()), stride, &needed) ||
      static_cast<uint64_t>(needed) > out.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block table: ", rows.size(), " rows of ", stride, " don't fit in an output of ", out.size()));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == -1) continue;
    if (rows[i] < 0 || rows[i] >= options_.max_requests) {
      return absl::InvalidArgumentError(
          absl::StrCat("block table: rows[", i, "] is ", rows[i], ", not in [0, max_requests = ", options_.max_requests, ") and not -1"));
    }
    const int64_t count = counts_[static_cast<size_t>(rows[i])];
    if (count > stride) {
      return absl::InvalidArgumentError(
          absl::StrCat("block table: row ", rows[i], " has ", count, " blocks; the output has room for ", stride));
    }
  }
  int32_t* to = out.data();
  for (const int64_t row : rows) {
    const int64_t count = row == -1 ? 0 : counts_[static_cast<size_t>(row)];
    if (count > 0) std::copy_n(row_data(row), count, to);
    std::fill(to + count, to + stride, kNoBlock);
    to += stride;
  }
  return absl::OkStatus();
}

absl::Status BlockTable::Commit(int64_t count, std::span<int32_t> out, int64_t stride) const {
  if (count < 0 || count > options_.max_requests) {
    return absl::InvalidArgumentError(
        absl::StrCat("block table: ", count, " rows are asked for; it has max_requests = ", options_.max_requests));
  }
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return Gather(rows, out, stride);
}

}  // namespace jumar::memory::kv
