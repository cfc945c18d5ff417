#ifndef LIBS_MEMORY_KV_BLOCK_TABLE_H_
#define LIBS_MEMORY_KV_BLOCK_TABLE_H_

// Block tables: row r, column c is the block that holds tokens [c * block_size, (c + 1) * block_size) of request r.
//
//   auto table = BlockTable::Create({.max_requests = 256, .max_blocks = 8192, .num_blocks = 100000});
//   table->Append(/*row=*/3, blocks);                      // a request grows
//   table->Gather(batch_rows, device_copy, /*stride=*/8192);  // the rows of a step, in the batch's order

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::memory::kv {

// Fills the columns behind a row's blocks. Never a block: reading a token from it is refused.
inline constexpr int32_t kNoBlock = -1;

// Somebody's table, with bounds. Entry (r, c) at entries[r * stride + c].
struct BlockTableView {
  std::span<const int32_t> entries;
  int64_t rows = 0, width = 0, stride = 0;

  // InvalidArgument if a size is negative, the stride less than the width, or the last row outside `entries`.
  absl::Status Check() const;
  // The block of column c, or InvalidArgument: which request, which column or block, which limit.
  absl::StatusOr<int64_t> At(int64_t row, int64_t column, int64_t num_blocks) const;
};

class BlockTable {
 public:
  struct Options {
    int64_t max_requests = 0;  // rows
    int64_t max_blocks = 0;    // of one request: columns
    int64_t num_blocks = 0;    // of the cache: entries lie in [0, num_blocks)
  };
  // InvalidArgument if an option is negative, num_blocks more than 2^31, or the table's bytes exceed int64.
  static absl::StatusOr<BlockTable> Create(const Options& options);

  // Each is InvalidArgument, and changes nothing, for a row, a range or a block outside the table.
  absl::Status Append(int64_t row, std::span<const int32_t> blocks);
  absl::Status Assign(int64_t row, std::span<const int32_t> blocks);  // in place of all that the row had
  absl::Status Truncate(int64_t row, int64_t count);                  // keeps the first `count`
  absl::Status Move(int64_t from, int64_t to);                        // `from` is then empty
  absl::Status Swap(int64_t a, int64_t b);

  // Blocks [begin, begin + count) of a row.
  absl::StatusOr<std::span<const int32_t>> Slice(int64_t row, int64_t begin, int64_t count) const;
  absl::StatusOr<int64_t> Count(int64_t row) const;

  // Row rows[i] to out[i * stride ...], kNoBlock behind its blocks up to the stride; -1 in `rows` gives an empty row (padding of a captured
  // graph's batch). The stride may be less than max_blocks if every row fits.
  absl::Status Gather(std::span<const int64_t> rows, std::span<int32_t> out, int64_t stride) const;
  // The same for the first `count` rows in order.
  absl::Status Commit(int64_t count, std::span<int32_t> out, int64_t stride) const;

  BlockTableView View() const { return {entries_, options_.max_requests, options_.max_blocks, options_.max_blocks}; }
  const Options& options() const { return options_; }

 private:
  explicit BlockTable(const Options& options);
  absl::Status CheckRow(const char* what, int64_t row) const;
  absl::Status CheckBlocks(int64_t row, int64_t before, std::span<const int32_t> blocks) const;
  int32_t* row_data(int64_t row) { return entries_.data() + row * options_.max_blocks; }
  const int32_t* row_data(int64_t row) const { return entries_.data() + row * options_.max_blocks; }

  Options options_;
  std::vector<int32_t> entries_;
  std::vector<int64_t> counts_;
};

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_BLOCK_TABLE_H_
