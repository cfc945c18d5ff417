#ifndef LIBS_ATTENTION_PAGED_PAGED_KERNEL_H_
#define LIBS_ATTENTION_PAGED_PAGED_KERNEL_H_

// The SIMD part of paged_attention.h. Internal to this folder.

#include <cstdint>

#include "libs/attention/paged/paged_attention.h"

namespace jumar::attention::internal {

// The KV axis is cut at multiples of kTile (scores of one tile are softmaxed together) and of kChunk (partial results of chunks are
// merged from left to right). Both are fixed: results depend on nothing else.
inline constexpr int64_t kTile = 32;
inline constexpr int64_t kChunk = 256;
inline constexpr int64_t kMaxRows = 48;  // query rows that share the reading of K and V

// Query rows of one sequence and one KV head. Row r is query r / group of the sequence and head kv_head * group + r % group.
struct RowTile {
  int64_t seq, kv_head;
  int64_t row_begin, row_end;      // at most kMaxRows
  int64_t query_begin, num_queries;  // of the sequence, as a token index
  int64_t kv_begin, kv_len;        // first key of the sequence (contiguous layout)
};

// The addresses of a tile's keys, values and second parts of keys.
struct TileRows {
  const char *keys[kTile] = {}, *values[kTile] = {}, *ropes[kTile] = {};
};

struct KeyRange {
  int64_t begin, end;  // empty if begin >= end
};
KeyRange VisibleKeys(const PagedAttentionArgs& args, const RowTile& tile, int64_t row);  // without the explicit mask
KeyRange VisibleKeys(const PagedAttentionArgs& args, const RowTile& tile);               // the union over its rows

// The state of a row after some of its keys: the greatest score, sum of exp(score - max), and the sum of exp(score - max) * v.
// Of a tile: max[rows], sum[rows], values[rows][stride]; max = -infinity where no key was visible.
struct Partial {
  float* max;
  float* sum;
  float* values;
};
int64_t ValueStride(int64_t value_head_dim);                       // in floats
int64_t PartialFloats(int64_t rows, int64_t value_head_dim);
Partial PartialAt(float* memory, int64_t rows, int64_t value_head_dim);  // of PartialFloats floats, 64-byte aligned

// Chunks [chunk_begin, chunk_end) of the tile's keys. With `partials`, the state of each chunk goes to partials + i * PartialFloats;
// without, they are merged and the tile's output is written.
void ComputeChunks(const PagedAttentionArgs& args, const RowTile& tile, int64_t chunk_begin, int64_t chunk_end, float* partials);

// Merges the partials of all chunks, from left to right, and writes the tile's output. Overwrites the first one.
void MergeChunks(const PagedAttentionArgs& args, const RowTile& tile, int64_t num_chunks, float* partials);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_PAGED_PAGED_KERNEL_H_
