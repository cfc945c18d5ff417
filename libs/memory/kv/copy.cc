#include "libs/memory/kv/copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {
namespace {

struct Piece {
  std::byte* to;
  const std::byte* from;
  int64_t bytes;
};

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // so that threads get even shares

// The runs of one plane; a run is one piece where pages have no gaps.
template <class Fn>
void ForEachPiece(const ConstBlocks& from, const MutableBlocks& to, std::span<const CopyRun> runs, const Fn& fn) {
  if (from.page_bytes == 0) return;
  const bool dense = from.block_stride == from.page_bytes && to.block_stride == to.page_bytes;
  for (const CopyRun& run : runs) {
    if (dense) {
      fn(Piece{to.page(run.dst), from.page(run.src), run.length * from.page_bytes});
    } else {
      for (int64_t i = 0; i < run.length; ++i) fn(Piece{to.page(run.dst + i), from.page(run.src + i), from.page_bytes});
    }
  }
}

void CopyAll(std::span<const Piece> pieces, int64_t bytes, const ParallelFor& parallel) {
  const auto n = static_cast<int64_t>(pieces.size());
  Share(parallel, n, n == 0 ? 0 : bytes / n, [&](int64_t begin, int64_t end) {
    for (const Piece& p : pieces.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))) {
      if (p.to != p.from) std::memcpy(p.to, p.from, static_cast<size_t>(p.bytes));
    }
  });
}

void CopyPlanes(std::span<const ConstBlocks> from, std::span<const MutableBlocks> to, std::span<const CopyRun> runs,
                const ParallelFor& parallel) {
  std::vector<Piece> pieces;
  int64_t bytes = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    ForEachPiece(from[i], to[i], runs, [&](Piece p) {
      bytes += p.bytes;
      for (; p.bytes > kPieceBytes; p.to += kPieceBytes, p.from += kPieceBytes, p.bytes -= kPieceBytes)
        pieces.push_back({p.to, p.from, kPieceBytes});
      pieces.push_back(p);
    });
  }
  CopyAll(pieces, bytes, parallel);
}

// Planes of one cache, with one number of blocks.
absl::Status CheckPlanes(std::string_view what, std::span<const ConstBlocks> planes) {
  for (size_t i = 0; i < planes.size(); ++i) {
    if (auto status = Check(absl::StrCat(what, "[", i, "]"), planes[i]); !status.ok()) return status;
    if (planes[i].num_blocks != planes[0].num_blocks) {
      return absl::InvalidArgumentError(absl::StrCat(what, "[", i, "] has ", planes[i].num_blocks, " blocks and ", what, "[0] ",
                                                     planes[0].num_blocks, "; the planes of a cache have the same"));
    }
  }
  return absl::OkStatus();
}

std::vector<ConstBlocks> Const(std::span<const MutableBlocks> planes) { return {planes.begin(), planes.end()}; }

}  // namespace

absl::Status CopyBlocks(std::span<const MutableBlocks> planes, std::span<const BlockPair> pairs, const ParallelFor& parallel) {
  const std::vector<ConstBlocks> from = Const(planes);
  if (auto status = CheckPlanes("planes", from); !status.ok()) return status;
  const int64_t blocks = planes.empty() ? 0 : planes[0].num_blocks;
  const auto runs = MergeBlocks(pairs, {blocks, blocks});
  if (!runs.ok()) return runs.status();
  // A run may lie on itself only as a whole (src == dst); otherwise no destination may be a source.
  std::vector<int64_t> written;
  for (const BlockPair& p : pairs) {
    if (p.src != p.dst) written.push_back(p.dst);
  }
  std::sort(written.begin(), written.end());
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (std::binary_search(written.begin(), written.end(), pairs[i].src)) {
      return absl::InvalidArgumentError(
          absl::StrCat("pairs[", i, "] copies from block ", pairs[i].src, ", which another pair writes; copy in two calls"));
    }
  }
  CopyPlanes(from, planes, *runs, parallel);
  return absl::OkStatus();
}

absl::Status SwapBlocks(std::span<const ConstBlocks> from, std::span<const MutableBlocks> to, std::span<const BlockPair> pairs,
                        const ParallelFor& parallel, const CopyFunction& copy) {
  if (from.size() != to.size()) return absl::InvalidArgumentError(absl::StrCat("swap from ", from.size(), " planes to ", to.size()));
  if (auto status = CheckPlanes("from", from); !status.ok()) return status;
  if (auto status = CheckPlanes("to", Const(to)); !status.ok()) return status;
  for (size_t i = 0; i < to.size(); ++i) {
    if (from[i].page_bytes != to[i].page_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("swap from pages of ", from[i].page_bytes, " bytes to pages of ", to[i].page_bytes, " in plane ", i));
    }
    if (Overlap(from[i].bytes, to[i].bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("swap within one memory: from[", i, "] and to[", i, "] overlap; CopyBlocks copies within a cache"));
    }
  }
  const auto runs = MergeBlocks(pairs, {from.empty() ? 0 : from[0].num_blocks, to.empty() ? 0 : to[0].num_blocks});
  if (!runs.ok()) return runs.status();
  if (!copy) {
    CopyPlanes(from, to, *runs, parallel);
    return absl::OkStatus();
  }
  absl::Status status;
  for (size_t i = 0; i < to.size(); ++i) {
    ForEachPiece(from[i], to[i], *runs, [&](const Piece& p) {
      if (status.ok()) status = copy(p.to, p.from, p.bytes);
    });
  }
  return status;
}

absl::Status FillBlocks(std::span<const MutableBlocks> planes, int64_t first, int64_t count, std::byte value, const ParallelFor& parallel) {
  if (auto status = CheckPlanes("planes", Const(planes)); !status.ok()) return status;
  const int64_t blocks = planes.empty() ? 0 : planes[0].num_blocks;
  if (first < 0 || count < 0 || first > blocks || count > blocks - first) {
    return absl::InvalidArgumentError(absl::StrCat("fill of ", count, " blocks from ", first, " on; the cache has ", blocks));
  }
  for (const MutableBlocks& plane : planes) {
    if (plane.page_bytes == 0) continue;
    Share(parallel, count, plane.page_bytes, [&](int64_t begin, int64_t end) {
      for (int64_t b = first + begin; b < first + end; ++b) {
        std::memset(plane.page(b), static_cast<int>(value), static_cast<size_t>(plane.page_bytes));
      }
    });
  }
  return absl::OkStatus();
}

}  // namespace jumar::memory::kv
