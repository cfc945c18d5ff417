#ifndef LIBS_MEMORY_KV_LAYOUT_H_
#define LIBS_MEMORY_KV_LAYOUT_H_

// One page (block) of a KV cache as a value: which parts a token's data has, and where each lies. constexpr; makers in layouts.h.
//
//   constexpr PageLayout kPage = SeparateKv({.heads = 8, .head_dim = 128, .block_size = 128}, Order::kHeadMajor);
//   static_assert(kPage.page_bytes[0] == 8 * 128 * 128 * 2);
//   absl::StatusOr<Location> at = Locate(kPage, num_blocks, {.block = 3, .token = 17, .head = 5, .part = 1});
//
// A part is a row of bytes for each token. All layouts in use cut that row to equal chunks and differ in two strides:
//
//   byte c of the row of token t:  offset + t * token_stride + c / chunk_bytes * chunk_stride + c % chunk_bytes
//
//   token-major [bs, heads, dim]           one chunk, the whole row
//   head-major  [heads, bs, dim]           a chunk per head,       chunk_stride = bs * dim bytes
//   fractal NZ  [heads * dim / c0, bs, c0] a chunk of c0 elements, chunk_stride = bs * c0 elements
//   page split  values [bs, 576], scales [bs, 8]   two parts of one chunk each, the second behind all of the first

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::memory::kv {

// A tag for people and for matching parts; this library moves bytes and doesn't compute with them.
enum class Element : uint8_t { kBytes, kInt8, kE4M3, kE8M0, kFloat16, kBFloat16, kFloat32 };

constexpr int64_t ElementBytes(Element e) {
  switch (e) {
    case Element::kBytes: case Element::kInt8: case Element::kE4M3: case Element::kE8M0: return 1;
    case Element::kFloat16: case Element::kBFloat16: return 2;
    case Element::kFloat32: return 4;
  }
  return 0;
}
std::string_view ElementName(Element e);

// Where the bytes of a token's row lie, relative to the part's first byte in its page. All in bytes.
struct RowGeometry {
  int64_t row_bytes = 0, chunk_bytes = 0, chunk_stride = 0, token_stride = 0;

  constexpr int64_t ByteOffset(int64_t token, int64_t c) const {
    return token * token_stride + c / chunk_bytes * chunk_stride + c % chunk_bytes;
  }
  friend constexpr bool operator==(const RowGeometry&, const RowGeometry&) = default;
};

// One past the last byte that `tokens` rows touch. InvalidArgument if a size isn't positive, chunks don't divide the row, rows or chunks of
// one part overlap, or the result doesn't fit int64.
absl::StatusOr<int64_t> Extent(const RowGeometry& rows, int64_t tokens);

struct Part {
  const char* name = "";
  Element element = Element::kBytes;
  int64_t heads = 1;   // the row is `heads` equal pieces
  int64_t plane = 0;   // which array of pages: K and V kept apart are planes 0 and 1
  int64_t offset = 0;  // of the part in its page
  RowGeometry rows;

  constexpr int64_t head_bytes() const { return rows.row_bytes / heads; }
};

inline constexpr int64_t kMaxParts = 4, kMaxPlanes = 2;

// Limits of a maker's arguments, so that no product of theirs overflows: tokens of a block, bytes of a row.
inline constexpr int64_t kMaxBlockSize = int64_t{1} << 30, kMaxRowBytes = int64_t{1} << 30;

struct PageLayout {
  const char* name = "";
  int64_t block_size = 0;  // tokens per page
  int64_t num_parts = 0, num_planes = 0;
  std::array<Part, kMaxParts> parts = {};
  std::array<int64_t, kMaxPlanes> page_bytes = {};  // padding included
  // What a maker refused, or null: an argument, its value, what it must be.
  const char* error = nullptr;
  int64_t error_value = 0;
  const char* error_mend = nullptr;

  constexpr bool ok() const { return error == nullptr; }
  // Bytes of one block over all planes: what vLLM calls page_size_bytes.
  constexpr int64_t block_bytes() const { return page_bytes[0] + page_bytes[1]; }
  // Bytes of a token over all parts, without padding.
  constexpr int64_t token_bytes() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < num_parts; ++i) sum += parts[static_cast<size_t>(i)].rows.row_bytes;
    return sum;
  }
  constexpr int64_t padding_bytes() const { return block_bytes() - token_bytes() * block_size; }
};

// InvalidArgument if a maker refused an argument, or for a layout made by hand: a part outside its page, rows that overlap within a part,
// heads that don't divide a row. That two parts don't overlap is the maker's promise.
absl::Status Validate(const PageLayout& layout);

// The part of that name, or NotFound with the names that there are.
absl::StatusOr<int64_t> FindPart(const PageLayout& layout, std::string_view name);

struct Index {
  int64_t block = 0, token = 0, head = 0, part = 0;  // token: in its block
};
struct Location {
  int64_t plane = 0;
  int64_t offset = 0;      // in the plane's bytes, whose pages lie `block_stride` apart
  int64_t contiguous = 0;  // bytes of the head from there on, before a jump of its chunk
};
// Where the first byte of a head's row lies. `block_stride` 0: pages without a gap. InvalidArgument for an index outside its table.
absl::StatusOr<Location> Locate(const PageLayout& layout, int64_t num_blocks, const Index& index, int64_t block_stride = 0);

// A table: part, element, bytes of a token, offsets, strides; page and padding.
std::string Describe(const PageLayout& layout);

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_LAYOUT_H_
