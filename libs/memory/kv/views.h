#ifndef LIBS_MEMORY_KV_VIEWS_H_
#define LIBS_MEMORY_KV_VIEWS_H_

// What the functions of this folder read and write: views of a cache's memory that know their bounds.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/kv/layout.h"

namespace jumar::memory::kv {

// How a function shares its work out: calls body(begin, end) over disjoint ranges that cover [0, n), each of at least `grain` items, and
// returns when all are done. Empty: the caller's thread does it all. No result depends on the cut.
using ParallelFor = std::function<void(int64_t n, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& body)>;

// Pages of one plane. Byte: std::byte or const std::byte.
template <class Byte>
struct Blocks {
  std::span<Byte> bytes;
  int64_t num_blocks = 0;
  int64_t page_bytes = 0;
  int64_t block_stride = 0;  // >= page_bytes; a gap between two pages is never touched

  Byte* page(int64_t block) const { return bytes.data() + block * block_stride; }
  operator Blocks<const Byte>() const requires(!std::is_const_v<Byte>) { return {bytes, num_blocks, page_bytes, block_stride}; }
};
using MutableBlocks = Blocks<std::byte>;
using ConstBlocks = Blocks<const std::byte>;

// One part of a cache: the row of slot s is that of token s % block_size in block s / block_size.
template <class Byte>
struct PartRows {
  std::span<Byte> bytes;  // from the part's first byte in block 0
  int64_t num_blocks = 0, block_size = 0, block_stride = 0;
  RowGeometry rows;

  int64_t num_slots() const { return num_blocks * block_size; }
  Byte* at(int64_t block, int64_t token) const { return bytes.data() + block * block_stride + token * rows.token_stride; }
  operator PartRows<const Byte>() const requires(!std::is_const_v<Byte>) { return {bytes, num_blocks, block_size, block_stride, rows}; }
};

// Rows one behind the other: what a model computes, a row per token.
template <class Byte>
struct DenseRows {
  std::span<Byte> bytes;
  int64_t count = 0, row_bytes = 0, stride = 0;

  Byte* at(int64_t row) const { return bytes.data() + row * stride; }
  operator DenseRows<const Byte>() const requires(!std::is_const_v<Byte>) { return {bytes, count, row_bytes, stride}; }
};

// InvalidArgument, naming `what`, if the view is ill-formed or its last byte lies outside the span.
absl::Status Check(std::string_view what, const ConstBlocks& blocks);
absl::Status Check(std::string_view what, const PartRows<const std::byte>& rows);
absl::Status Check(std::string_view what, const DenseRows<const std::byte>& rows);

// Whether the two share a byte. Copies between layouts refuse that: they would read what they have just written.
bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b);

// The part's rows in a plane of `num_blocks` pages. `block_stride` 0: no gap between pages.
template <class Byte>
absl::StatusOr<PartRows<Byte>> RowsOf(const PageLayout& layout, int64_t part, std::span<Byte> plane, int64_t num_blocks,
                                      int64_t block_stride = 0);

extern template absl::StatusOr<PartRows<std::byte>> RowsOf(const PageLayout&, int64_t, std::span<std::byte>, int64_t, int64_t);
extern template absl::StatusOr<PartRows<const std::byte>> RowsOf(const PageLayout&, int64_t, std::span<const std::byte>, int64_t, int64_t);

// body(0, n) here or in parallel; several ranges only if `bytes_per_item` makes them worth a thread (64 KiB each).
void Share(const ParallelFor& parallel, int64_t n, int64_t bytes_per_item, const std::function<void(int64_t, int64_t)>& body);

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_VIEWS_H_
