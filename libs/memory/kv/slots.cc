#include "libs/memory/kv/slots.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {
namespace {

template <class... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("slot mapping: ", parts...));
}

template <class Slot>
absl::Status CheckSizes(const SlotMapping& m, size_t slots) {
  const ContextParallel& cp = m.context_parallel;
  int64_t count = 0, virtual_block = 0;
  if (m.num_blocks < 0 || m.block_size < 1) {
    return Refuse("num_blocks = ", m.num_blocks, ", block_size = ", m.block_size, "; a block has at least one token");
  }
  if (cp.size < 1 || cp.rank < 0 || cp.rank >= cp.size) {
    return Refuse("context-parallel rank ", cp.rank, " is not in [0, size = ", cp.size, ")");
  }
  if (cp.interleave < 1 || m.block_size % cp.interleave != 0) {
    return Refuse("interleave = ", cp.interleave, " doesn't divide block_size = ", m.block_size);
  }
  if (__builtin_mul_overflow(m.block_size, cp.size, &virtual_block)) {
    return Refuse("block_size ", m.block_size, " * ", cp.size, " ranks exceeds int64");
  }
  if (__builtin_mul_overflow(m.num_blocks, m.block_size, &count) || count - 1 > std::numeric_limits<Slot>::max()) {
    return Refuse("num_blocks ", m.num_blocks, " * block_size ", m.block_size, " is more slots than int", 8 * sizeof(Slot), " can count",
                  sizeof(Slot) == 4 ? "; use int64" : "");
  }
  if (m.pad >= 0 || m.pad < std::numeric_limits<Slot>::min()) {
    return Refuse("pad = ", m.pad, " must be negative, and fit in int", 8 * sizeof(Slot));
  }
  if (auto status = m.block_table.Check(); !status.ok()) return status;
  if (m.query_start_loc.empty()) return absl::OkStatus();
  const auto requests = static_cast<int64_t>(m.query_start_loc.size()) - 1;
  if (requests > m.block_table.rows) return Refuse(requests, " requests, but the block table has ", m.block_table.rows, " rows");
  if (m.query_start_loc[0] != 0) return Refuse("query_start_loc[0] is ", m.query_start_loc[0], "; it must be 0");
  for (size_t r = 1; r < m.query_start_loc.size(); ++r) {
    if (m.query_start_loc[r] < m.query_start_loc[r - 1]) {
      return Refuse("query_start_loc[", r, "] is ", m.query_start_loc[r], ", less than the one before, ", m.query_start_loc[r - 1]);
    }
  }
  const auto tokens = static_cast<size_t>(m.query_start_loc.back());
  if (tokens > m.positions.size()) return Refuse("the requests have ", tokens, " tokens, but there are ", m.positions.size(), " positions");
  if (tokens > slots) return Refuse("the requests have ", tokens, " tokens, but there is room for ", slots, " slots");
  return absl::OkStatus();
}

// x / divisor and x % divisor for x >= 0; most block sizes are powers of two.
struct Divider {
  explicit Divider(int64_t d)
      : divisor(d), shift(std::has_single_bit(static_cast<uint64_t>(d)) ? std::countr_zero(static_cast<uint64_t>(d)) : -1) {}
  int64_t Divide(int64_t x) const { return shift >= 0 ? x >> shift : x / divisor; }
  int64_t divisor;
  int shift;
};

// How many of positions[0, n) follow positions[0] one by one.
int64_t RunLength(const int64_t* positions, int64_t n) {
  const int64_t first = positions[0];
  int64_t i = 1;
  // In steps of 16 without a branch in between, which the compiler vectorises.
  for (; i + 16 <= n; i += 16) {
    int64_t wrong = 0;
    for (int64_t j = 0; j < 16; ++j) wrong |= positions[i + j] ^ (first + i + j);
    if (wrong != 0) break;
  }
  while (i < n && positions[i] == first + i) ++i;
  return i;
}

template <class Slot>
void Count(Slot* slots, int64_t n, int64_t first) {
  for (int64_t i = 0; i < n; ++i) slots[i] = static_cast<Slot>(first + i);
}

// Slots of the tokens at offsets [offset, offset + n) of a virtual block, whose local block begins at `base`.
template <class Slot>
void Deal(const SlotMapping& m, int64_t offset, int64_t n, int64_t base, Slot* slots) {
  const ContextParallel& cp = m.context_parallel;
  if (cp.size == 1) return Count(slots, n, base + offset);
  const int64_t group = offset / cp.interleave;
  int64_t inside = offset - group * cp.interleave, rank = group % cp.size, local = base + group / cp.size * cp.interleave;
  const auto pad = static_cast<Slot>(m.pad);
  while (n > 0) {
    const int64_t count = std::min(n, cp.interleave - inside);
    if (rank == cp.rank) {
      Count(slots, count, local + inside);
    } else {
      std::fill_n(slots, count, pad);
    }
    slots += count, n -= count, inside = 0;
    if (++rank == cp.size) rank = 0, local += cp.interleave;
  }
}

template <class Slot>
absl::Status Compute(const SlotMapping& m, std::span<Slot> slots) {
  if (auto status = CheckSizes<Slot>(m, slots.size()); !status.ok()) return status;
  const Divider by_block(m.block_size * m.context_parallel.size);
  const int64_t virtual_block = by_block.divisor;
  const int64_t requests = static_cast<int64_t>(m.query_start_loc.size()) - 1;
  int64_t t = 0;
  for (int64_t r = 0; r < requests; ++r) {
    const int64_t end = m.query_start_loc[static_cast<size_t>(r) + 1];
    const int32_t* const row = m.block_table.entries.data() + r * m.block_table.stride;
    while (t < end) {
      const int64_t position = m.positions[static_cast<size_t>(t)];
      if (position < 0) {
        if (position != -1) return Refuse("positions[", t, "] of request ", r, " is ", position, "; only -1 marks a token that isn't kept");
        slots[static_cast<size_t>(t++)] = static_cast<Slot>(m.pad);
        continue;
      }
      const int64_t column = by_block.Divide(position), offset = position - column * virtual_block;
      if (column >= m.block_table.width) {
        return Refuse("positions[", t, "] = ", position, " of request ", r, " needs column ", column, " of the block table, which has ",
                      m.block_table.width);
      }
      const int64_t block = row[column];
      if (block < 0 || block >= m.num_blocks) {
        return Refuse("positions[", t, "] = ", position, " of request ", r, " lies in block_table[", r, ", ", column,
                      "], which names block ", block, "; the cache has ", m.num_blocks);
      }
      if (t + 1 == end && m.context_parallel.size == 1) {  // all that a decode step has
        slots[static_cast<size_t>(t++)] = static_cast<Slot>(block * m.block_size + offset);
        continue;
      }
      const int64_t n = RunLength(m.positions.data() + t, std::min(end - t, virtual_block - offset));
      Deal(m, offset, n, block * m.block_size, slots.data() + t);
      t += n;
    }
  }
  std::fill(slots.begin() + t, slots.end(), static_cast<Slot>(m.pad));
  return absl::OkStatus();
}

}  // namespace

absl::Status ComputeSlots(const SlotMapping& mapping, std::span<int64_t> slots) { return Compute(mapping, slots); }
absl::Status ComputeSlots(const SlotMapping& mapping, std::span<int32_t> slots) { return Compute(mapping, slots); }

}  // namespace jumar::memory::kv
