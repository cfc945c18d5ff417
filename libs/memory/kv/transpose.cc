#include "libs/memory/kv/transpose.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/memory/kv/token_copy.h"

namespace jumar::memory::kv {
namespace {

using internal::TokenCopy;

// `length` tokens that stay within one block on both sides.
struct Stretch {
  int64_t from_block, from_token, to_block, to_token, length;
};

// So that threads get even shares, and a tile's pages stay in a core's cache.
constexpr int64_t kStretchTokens = 128;

void RunStretches(const PartRows<const std::byte>& from, const PartRows<std::byte>& to, const TokenCopy& copy,
                  std::span<const Stretch> stretches, const ParallelFor& parallel) {
  int64_t tokens = 0;
  for (const Stretch& s : stretches) tokens += s.length;
  const bool stream = tokens * from.rows.row_bytes >= internal::kStreamBytes;
  Share(parallel, static_cast<int64_t>(stretches.size()), from.rows.row_bytes * std::min(kStretchTokens, from.block_size),
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const Stretch& s = stretches[static_cast<size_t>(i)];
            const std::byte* const source = from.at(s.from_block, s.from_token);
            std::byte* const destination = to.at(s.to_block, s.to_token);
            if (!stream) {
              copy.Run(source, destination, s.length);
              continue;
            }
            const Stretch& next = stretches[static_cast<size_t>(std::min(i + 1, end - 1))];
            copy.Stream(source, destination, s.length, from.at(next.from_block, next.from_token));
          }
        });
}

template <class Byte>
absl::Status CheckPlanes(std::string_view what, const LayoutView<Byte>& view) {
  if (view.layout == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " has no layout"));
  if (auto status = Validate(*view.layout); !status.ok()) return status;
  if (static_cast<int64_t>(view.planes.size()) != view.layout->num_planes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", view.planes.size(), " planes; layout ", view.layout->name, " has ", view.layout->num_planes));
  }
  for (size_t i = 0; i < view.planes.size(); ++i) {
    const auto& plane = view.planes[i];
    if (plane.page_bytes != view.layout->page_bytes[i] || plane.num_blocks != view.planes[0].num_blocks) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": plane ", i, " has ", plane.num_blocks, " pages of ", plane.page_bytes,
                                                     " bytes; layout ", view.layout->name, " needs ", view.planes[0].num_blocks, " of ",
                                                     view.layout->page_bytes[i]));
    }
  }
  return absl::OkStatus();
}

template <class Byte>
absl::StatusOr<PartRows<Byte>> PartOf(const LayoutView<Byte>& view, int64_t part) {
  const auto& plane = view.planes[static_cast<size_t>(view.layout->parts[static_cast<size_t>(part)].plane)];
  return RowsOf(*view.layout, part, plane.bytes, plane.num_blocks, plane.block_stride);
}

}  // namespace

absl::Status TransposeRuns(const PartRows<const std::byte>& from, const PartRows<std::byte>& to, std::span<const CopyRun> runs,
                           const ParallelFor& parallel) {
  if (auto status = Check("from", from); !status.ok()) return status;
  if (auto status = Check("to", to); !status.ok()) return status;
  if (Overlap(from.bytes, to.bytes)) return absl::InvalidArgumentError("transpose within one memory: from and to overlap; give a copy of one");
  const auto copy = TokenCopy::Create(from.rows, to.rows);
  if (!copy.ok()) return copy.status();
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < runs.size(); ++i) {
    const CopyRun& run = runs[i];
    const auto outside = [&](int64_t first, int64_t slots) {
      return first < 0 || run.length < 0 || first > slots || run.length > slots - first;
    };
    if (outside(run.src, from.num_slots()) || outside(run.dst, to.num_slots())) {
      return absl::InvalidArgumentError(absl::StrCat("runs[", i, "] moves ", run.length, " tokens from slot ", run.src, " to slot ",
                                                     run.dst, "; the caches have ", from.num_slots(), " and ", to.num_slots(), " slots"));
    }
  }
  for (const CopyRun& run : runs) {
    for (int64_t done = 0; done < run.length;) {
      const int64_t a = run.src + done, b = run.dst + done;
      const Stretch s = {a / from.block_size, a % from.block_size, b / to.block_size, b % to.block_size, 0};
      const int64_t n = std::min({run.length - done, from.block_size - s.from_token, to.block_size - s.to_token, kStretchTokens});
      stretches.push_back({s.from_block, s.from_token, s.to_block, s.to_token, n});
      done += n;
    }
  }
  RunStretches(from, to, *copy, stretches, parallel);
  return absl::OkStatus();
}

absl::Status TransposeBlocks(const LayoutView<const std::byte>& from, const LayoutView<std::byte>& to, std::span<const BlockPair> pairs,
                             const ParallelFor& parallel) {
  if (auto status = CheckPlanes("from", from); !status.ok()) return status;
  if (auto status = CheckPlanes("to", to); !status.ok()) return status;
  const PageLayout &a = *from.layout, &b = *to.layout;
  if (a.block_size != b.block_size || a.num_parts != b.num_parts) {
    return absl::InvalidArgumentError(absl::StrCat("layout ", a.name, " has ", a.num_parts, " parts and blocks of ", a.block_size,
                                                   " tokens, layout ", b.name, " ", b.num_parts, " and ", b.block_size,
                                                   "; whole blocks need the same (TransposeRuns takes any block size)"));
  }
  const auto blocks = MergeBlocks(pairs, {from.planes[0].num_blocks, to.planes[0].num_blocks});
  if (!blocks.ok()) return blocks.status();
  std::vector<CopyRun> runs;
  for (const CopyRun& run : *blocks) runs.push_back({run.src * a.block_size, run.dst * a.block_size, run.length * a.block_size});
  std::vector<int64_t> twins(static_cast<size_t>(a.num_parts));
  for (int64_t i = 0; i < a.num_parts; ++i) {
    const Part& part = a.parts[static_cast<size_t>(i)];
    const auto twin = FindPart(b, part.name);
    if (!twin.ok()) return absl::InvalidArgumentError(twin.status().message());
    if (const Part& other = b.parts[static_cast<size_t>(*twin)]; other.rows.row_bytes != part.rows.row_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("part ", part.name, " has ", part.rows.row_bytes, " bytes per token in layout ",
                                                     a.name, " and ", other.rows.row_bytes, " in ", b.name));
    }
    twins[static_cast<size_t>(i)] = *twin;
  }
  for (int64_t i = 0; i < a.num_parts; ++i) {
    const auto source = PartOf(from, i);
    const auto destination = PartOf(to, twins[static_cast<size_t>(i)]);
    if (!source.ok()) return source.status();
    if (!destination.ok()) return destination.status();
    if (auto status = TransposeRuns(*source, *destination, runs, parallel); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace jumar::memory::kv
