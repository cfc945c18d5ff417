#ifndef LIBS_MEMORY_KV_ROWS_H_
#define LIBS_MEMORY_KV_ROWS_H_

// Rows of tokens into a paged cache and out of it, whatever its layout.

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/memory/kv/block_table.h"
#include "libs/memory/kv/slots.h"
#include "libs/memory/kv/views.h"

namespace jumar::memory::kv {

// Row i goes to slot slots[i] of the cache; kPadSlot: nowhere. Slots that follow each other become one copy. InvalidArgument names the slot
// that is outside; rows before it may have been written. Of two rows for one slot, either may stay.
absl::Status StoreRows(const DenseRows<const std::byte>& rows, std::span<const int64_t> slots, const PartRows<std::byte>& cache,
                       const ParallelFor& parallel = {});
absl::Status StoreRows(const DenseRows<const std::byte>& rows, std::span<const int32_t> slots, const PartRows<std::byte>& cache,
                       const ParallelFor& parallel = {});

// Row i comes from slot slots[i]; of kPadSlot, it stays as it is. Same errors.
absl::Status LoadRows(const PartRows<const std::byte>& cache, std::span<const int64_t> slots, const DenseRows<std::byte>& rows,
                      const ParallelFor& parallel = {});
absl::Status LoadRows(const PartRows<const std::byte>& cache, std::span<const int32_t> slots, const DenseRows<std::byte>& rows,
                      const ParallelFor& parallel = {});

// A stretch of each request's tokens: [first[r], first[r] + count[r]), positions in the request.
struct Stretches {
  BlockTableView block_table;      // [>= requests, width]
  std::span<const int64_t> first;  // [requests], or empty: from 0 on
  std::span<const int64_t> count;  // [requests]
};
// rows receives the stretches one behind the other; rows behind them stay. InvalidArgument, before a row is written, for more tokens
// than rows, a token past its request's row of the table, a block outside the cache.
absl::Status LoadStretches(const PartRows<const std::byte>& cache, const Stretches& stretches, const DenseRows<std::byte>& rows,
                           const ParallelFor& parallel = {});

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_ROWS_H_
