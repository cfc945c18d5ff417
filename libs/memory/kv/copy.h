#ifndef LIBS_MEMORY_KV_COPY_H_
#define LIBS_MEMORY_KV_COPY_H_

// Whole blocks: copied within a cache (copy on write), swapped between two memories, filled.
//
// A cache is a list of planes (one or two per layer), all with the same number of blocks and each with its own page size: block b of a
// request is block b of every plane.

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "libs/memory/kv/runs.h"
#include "libs/memory/kv/views.h"

namespace jumar::memory::kv {

// planes[i].page(dst) = planes[i].page(src) for all planes and pairs. InvalidArgument, before a byte is written, for a block outside, a
// destination that occurs twice, or one that is another pair's source (the result would depend on the order). src == dst is allowed.
absl::Status CopyBlocks(std::span<const MutableBlocks> planes, std::span<const BlockPair> pairs, const ParallelFor& parallel = {});

// One piece of a swap, such as aclrtMemcpyAsync on a stream: it may return before the bytes have moved.
using CopyFunction = std::function<absl::Status(std::byte* to, const std::byte* from, int64_t bytes)>;

// to[i].page(pair.dst) = from[i].page(pair.src): between device and host, either way. Planes must agree in page size; they may differ in
// stride and number of blocks, and must not overlap. Pairs that follow each other become one copy where neither plane has gaps.
// With `copy`, it gets each piece, in order, from this thread; its first error ends the swap and is returned. Without: memcpy, shared out.
absl::Status SwapBlocks(std::span<const ConstBlocks> from, std::span<const MutableBlocks> to, std::span<const BlockPair> pairs,
                        const ParallelFor& parallel = {}, const CopyFunction& copy = {});

// Every byte is 1s: NaN in fp32, fp16, bf16, E4M3 and E8M0, -1 in int8.
inline constexpr std::byte kPoison{0xff};

// Blocks [first, first + count) of every plane, all their bytes. InvalidArgument for a range outside.
absl::Status FillBlocks(std::span<const MutableBlocks> planes, int64_t first, int64_t count, std::byte value,
                        const ParallelFor& parallel = {});
inline absl::Status ZeroBlocks(std::span<const MutableBlocks> planes, int64_t first, int64_t count, const ParallelFor& parallel = {}) {
  return FillBlocks(planes, first, count, std::byte{0}, parallel);
}
inline absl::Status PoisonBlocks(std::span<const MutableBlocks> planes, int64_t first, int64_t count, const ParallelFor& parallel = {}) {
  return FillBlocks(planes, first, count, kPoison, parallel);
}

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_COPY_H_
