#ifndef LIBS_MEMORY_KV_TRANSPOSE_H_
#define LIBS_MEMORY_KV_TRANSPOSE_H_

// The same tokens in another layout: token-major, head-major, fractal NZ, or other strides; block sizes may differ.

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/memory/kv/runs.h"
#include "libs/memory/kv/views.h"

namespace jumar::memory::kv {

// Tokens [run.src, run.src + run.length) of `from` (slots) go to slots [run.dst, ...) of `to`. InvalidArgument, before a byte is written,
// for a run outside either cache, or rows of different bytes. The two must not overlap (InvalidArgument), nor the destinations of two runs.
absl::Status TransposeRuns(const PartRows<const std::byte>& from, const PartRows<std::byte>& to, std::span<const CopyRun> runs,
                           const ParallelFor& parallel = {});

// One side of TransposeBlocks.
template <class Byte>
struct LayoutView {
  const PageLayout* layout = nullptr;
  std::span<const Blocks<Byte>> planes;  // [layout->num_planes], all with the same number of blocks
};

// Whole blocks, all parts. The layouts must have the same block size and the same parts (name and bytes of a token, in any order).
absl::Status TransposeBlocks(const LayoutView<const std::byte>& from, const LayoutView<std::byte>& to, std::span<const BlockPair> pairs,
                             const ParallelFor& parallel = {});

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_TRANSPOSE_H_
