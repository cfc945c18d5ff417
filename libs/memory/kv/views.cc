#include "libs/memory/kv/views.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {
namespace {

// `count` items of `bytes`, `stride` apart, in `room` bytes.
absl::Status CheckExtent(std::string_view what, std::string_view item, int64_t count, int64_t bytes, int64_t stride, size_t room) {
  if (count < 0 || bytes < 0 || (count > 1 && stride < bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", count, " ", item, "s of ", bytes, " bytes, ", stride,
                                                   " bytes apart: none may be negative, and the stride not less than a ", item));
  }
  int64_t end = 0;
  if (count == 0) return absl::OkStatus();
  if (__builtin_mul_overflow(count - 1, stride, &end) || __builtin_add_overflow(end, bytes, &end) || static_cast<uint64_t>(end) > room) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", count, " ", item, "s of ", bytes, " bytes, ", stride, " bytes apart, don't fit in its ", room, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(std::string_view what, const ConstBlocks& b) {
  return CheckExtent(what, "page", b.num_blocks, b.page_bytes, b.block_stride, b.bytes.size());
}

absl::Status Check(std::string_view what, const DenseRows<const std::byte>& r) {
  return CheckExtent(what, "row", r.count, r.row_bytes, r.stride, r.bytes.size());
}

absl::Status Check(std::string_view what, const PartRows<const std::byte>& r) {
  if (r.num_blocks < 0 || r.block_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has ", r.num_blocks, " blocks of ", r.block_size, " tokens"));
  }
  const auto extent = Extent(r.rows, r.block_size);
  if (!extent.ok()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", extent.status().message()));
  int64_t slots = 0;
  if (__builtin_mul_overflow(r.num_blocks, r.block_size, &slots)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", r.num_blocks, " blocks of ", r.block_size, " tokens: more than int64 slots"));
  }
  // Planes may share pages (K and V of one block), so that a stride says nothing about what lies between two blocks; but no block may reach
  // into the next one's rows of this part, or two slots would be one.
  return CheckExtent(what, "block", r.num_blocks, *extent, r.block_stride, r.bytes.size());
}

template <class Byte>
absl::StatusOr<PartRows<Byte>> RowsOf(const PageLayout& layout, int64_t part, std::span<Byte> plane, int64_t num_blocks,
                                      int64_t block_stride) {
  if (auto status = Validate(layout); !status.ok()) return status;
  if (part < 0 || part >= layout.num_parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", layout.name, " has ", layout.num_parts, " parts; part ", part, " is none of them"));
  }
  const Part& p = layout.parts[static_cast<size_t>(part)];
  const int64_t page = layout.page_bytes[static_cast<size_t>(p.plane)], stride = block_stride == 0 ? page : block_stride;
  const Blocks<const std::byte> pages{plane, num_blocks, page, stride};
  if (auto status = Check(layout.name, pages); !status.ok()) return status;
  const PartRows<Byte> rows{num_blocks == 0 ? plane : plane.subspan(static_cast<size_t>(p.offset)), num_blocks, layout.block_size, stride,
                            p.rows};
  const PartRows<const std::byte> checked{rows.bytes, num_blocks, layout.block_size, stride, p.rows};
  if (auto status = Check(layout.name, checked); !status.ok()) return status;
  return rows;
}

template absl::StatusOr<PartRows<std::byte>> RowsOf(const PageLayout&, int64_t, std::span<std::byte>, int64_t, int64_t);
template absl::StatusOr<PartRows<const std::byte>> RowsOf(const PageLayout&, int64_t, std::span<const std::byte>, int64_t, int64_t);

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::less<>()(a.data(), b.data() + b.size()) && std::less<>()(b.data(), a.data() + a.size());
}

void Share(const ParallelFor& parallel, int64_t n, int64_t bytes_per_item, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  if (!parallel) return body(0, n);
  parallel(n, std::max<int64_t>(1, (int64_t{64} << 10) / std::max<int64_t>(1, bytes_per_item)), body);
}

}  // namespace jumar::memory::kv
