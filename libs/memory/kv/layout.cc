#include "libs/memory/kv/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::memory::kv {
namespace {

absl::Status Outside(std::string_view what, int64_t value, std::string_view limit_name, int64_t limit, const PageLayout& layout) {
  return absl::InvalidArgumentError(
      absl::StrCat("layout ", layout.name, ": ", what, " = ", value, " is not in [0, ", limit_name, " = ", limit, ")"));
}

}  // namespace

std::string_view ElementName(Element e) {
  switch (e) {
    case Element::kBytes: return "bytes";
    case Element::kInt8: return "int8";
    case Element::kE4M3: return "e4m3";
    case Element::kE8M0: return "e8m0";
    case Element::kFloat16: return "fp16";
    case Element::kBFloat16: return "bf16";
    case Element::kFloat32: return "fp32";
  }
  return "?";
}

absl::StatusOr<int64_t> Extent(const RowGeometry& r, int64_t tokens) {
  if (tokens < 0) return absl::InvalidArgumentError(absl::StrCat(tokens, " tokens is negative"));
  if (r.row_bytes <= 0 || r.chunk_bytes <= 0 || r.row_bytes % r.chunk_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", r.row_bytes, " bytes in chunks of ", r.chunk_bytes, ": both must be positive, and chunks fill a row"));
  }
  if (tokens == 0) return 0;
  const int64_t chunks = r.row_bytes / r.chunk_bytes;
  if ((chunks > 1 && r.chunk_stride <= 0) || (tokens > 1 && r.token_stride <= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("strides of ", r.token_stride, " bytes from token to token and ", r.chunk_stride,
                                                   " from chunk to chunk must be positive"));
  }
  int64_t over_tokens = 0, over_chunks = 0, extent = 0;
  if (__builtin_mul_overflow(tokens - 1, r.token_stride, &over_tokens) ||
      __builtin_mul_overflow(chunks - 1, r.chunk_stride, &over_chunks) || __builtin_add_overflow(over_tokens, over_chunks, &extent) ||
      __builtin_add_overflow(extent, r.chunk_bytes, &extent)) {
    return absl::InvalidArgumentError(absl::StrCat(tokens, " tokens ", r.token_stride, " bytes apart, in ", chunks, " chunks ",
                                                   r.chunk_stride, " bytes apart, exceed int64"));
  }
  // The smaller stride must step over a chunk, the larger one over all that the smaller walks.
  const bool tokens_apart =
      tokens == 1 || r.token_stride >= (chunks > 1 && r.chunk_stride < r.token_stride ? over_chunks : 0) + r.chunk_bytes;
  const bool chunks_apart =
      chunks == 1 || r.chunk_stride >= (tokens > 1 && r.token_stride <= r.chunk_stride ? over_tokens : 0) + r.chunk_bytes;
  if (!tokens_apart || !chunks_apart) {
    return absl::InvalidArgumentError(absl::StrCat("rows overlap: ", tokens, " tokens ", r.token_stride, " bytes apart, each ", chunks,
                                                   " chunks of ", r.chunk_bytes, " bytes ", r.chunk_stride, " apart"));
  }
  return extent;
}

absl::Status Validate(const PageLayout& l) {
  if (!l.ok()) return absl::InvalidArgumentError(absl::StrCat("layout ", l.name, ": ", l.error, " = ", l.error_value, "; ", l.error_mend));
  if (l.num_parts < 1 || l.num_parts > kMaxParts || l.num_planes < 1 || l.num_planes > kMaxPlanes || l.block_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", l.name, ": ", l.num_parts, " parts in ", l.num_planes, " planes, blocks of ",
                                                   l.block_size, " tokens; there are 1 to ", kMaxParts, " parts, 1 to ", kMaxPlanes,
                                                   " planes, and at least one token"));
  }
  for (int64_t i = 0; i < l.num_parts; ++i) {
    const Part& part = l.parts[static_cast<size_t>(i)];
    const auto extent = Extent(part.rows, l.block_size);
    if (!extent.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("layout ", l.name, ", part ", part.name, ": ", extent.status().message()));
    }
    if (part.heads < 1 || part.rows.row_bytes % part.heads != 0) {
      return absl::InvalidArgumentError(absl::StrCat("layout ", l.name, ", part ", part.name, ": ", part.heads,
                                                     " heads don't divide a row of ", part.rows.row_bytes, " bytes"));
    }
    if (part.plane < 0 || part.plane >= l.num_planes) return Outside("plane", part.plane, "num_planes", l.num_planes, l);
    const int64_t page = l.page_bytes[static_cast<size_t>(part.plane)];
    if (part.offset < 0 || page < *extent || part.offset > page - *extent) {
      return absl::InvalidArgumentError(absl::StrCat("layout ", l.name, ", part ", part.name, ": ", *extent, " bytes from ", part.offset,
                                                     " on don't fit in a page of ", page));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FindPart(const PageLayout& layout, std::string_view name) {
  std::string known;
  for (int64_t i = 0; i < layout.num_parts; ++i) {
    if (name == layout.parts[static_cast<size_t>(i)].name) return i;
    absl::StrAppend(&known, i == 0 ? "" : ", ", layout.parts[static_cast<size_t>(i)].name);
  }
  return absl::NotFoundError(absl::StrCat("layout ", layout.name, " has no part ", name, "; it has ", known));
}

absl::StatusOr<Location> Locate(const PageLayout& layout, int64_t num_blocks, const Index& at, int64_t block_stride) {
  if (auto status = Validate(layout); !status.ok()) return status;
  if (at.part < 0 || at.part >= layout.num_parts) return Outside("part", at.part, "num_parts", layout.num_parts, layout);
  const Part& part = layout.parts[static_cast<size_t>(at.part)];
  if (at.block < 0 || at.block >= num_blocks) return Outside("block", at.block, "num_blocks", num_blocks, layout);
  if (at.token < 0 || at.token >= layout.block_size) return Outside("token", at.token, "block_size", layout.block_size, layout);
  if (at.head < 0 || at.head >= part.heads) return Outside("head", at.head, "heads", part.heads, layout);
  const int64_t page = layout.page_bytes[static_cast<size_t>(part.plane)];
  const int64_t stride = block_stride == 0 ? page : block_stride, c = at.head * part.head_bytes();
  const int64_t inside = part.offset + part.rows.ByteOffset(at.token, c);
  int64_t offset = 0;
  if (stride < page) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", layout.name, ": block_stride = ", stride, " is less than a page of ", page));
  }
  if (__builtin_mul_overflow(at.block, stride, &offset) || __builtin_add_overflow(offset, inside, &offset)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout ", layout.name, ": block ", at.block, " of ", stride, " bytes lies beyond int64"));
  }
  return Location{part.plane, offset, std::min(part.head_bytes(), part.rows.chunk_bytes - c % part.rows.chunk_bytes)};
}

std::string Describe(const PageLayout& l) {
  std::string text = absl::StrFormat("%s: %d tokens per block, %d bytes per token, ", l.name, l.block_size, l.token_bytes());
  absl::StrAppend(&text, l.block_bytes(), " bytes per block", l.num_planes > 1 ? " in two planes" : "", ", ", l.padding_bytes(),
                  " of them padding\n");
  absl::StrAppendFormat(&text, "%-10s %-6s %5s %6s %12s %10s %10s %12s %12s\n", "part", "type", "plane", "heads", "token bytes", "offset",
                        "chunk", "chunk stride", "token stride");
  for (int64_t i = 0; i < l.num_parts; ++i) {
    const Part& p = l.parts[static_cast<size_t>(i)];
    absl::StrAppendFormat(&text, "%-10s %-6s %5d %6d %12d %10d %10d %12d %12d\n", p.name, ElementName(p.element), p.plane, p.heads,
                          p.rows.row_bytes, p.offset, p.rows.chunk_bytes, p.rows.chunk_stride, p.rows.token_stride);
  }
  return text;
}

}  // namespace jumar::memory::kv
