// Writing tokens into a paged KV cache, and gathering them from it.
#include <algorithm>
#include <array>
#include <cstring>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

// Rows of one token each (tokens, then anything), and the cache that they go into. Slot s is token s % block_size of block
// s / block_size.
//   Norm   cache [blocks, block_size, heads, dim]:             a token is one run of bytes
//   PA_NZ  cache [blocks, heads * dim / c0, block_size, c0]:   a token is heads * dim / c0 runs, block_size * c0 apart
struct Scatter {
  char* cache = nullptr;
  const char* rows = nullptr;
  int64_t row_stride = 0, block_stride = 0, token_stride = 0;  // in bytes
  int64_t runs = 1, run_bytes = 0, run_stride = 0;
  int64_t slots = 0, block_size = 0;
};

Scatter PlanScatter(const char* name, const aclTensor& rows, const aclTensor& cache, bool nz) {
  for (const aclTensor* t : {&rows, &cache}) {
    Require(IsBaseFormat(t->format), "argument `", name, "` or its cache has format ", FormatName(t->format),
            "; they must be ND (2)");
  }
  Require(rows.dtype == cache.dtype, "argument `", name, "` is ", DTypeName(rows.dtype), " but its cache ", DTypeName(cache.dtype));
  Require(rows.sizes.n >= 2 && cache.sizes.n >= 3, "argument `", name, "` has shape ", ToString(rows.sizes), " and its cache ",
          ToString(cache.sizes), "; they must be [tokens, ...] and [blocks, block_size, ...]");
  const auto row = AsRows(rows, rows.sizes.n - 1);
  Require(row.has_value(), "argument `", name, "` has strides ", ToString(rows.strides), "; a token's elements must be contiguous");
  const int64_t size = ItemSize(rows.dtype);
  Scatter s{.cache = static_cast<char*>(cache.data()),
            .rows = static_cast<const char*>(rows.data()),
            .row_stride = row->stride * size,
            .block_stride = cache.strides[0] * size};
  if (nz) {
    Require(cache.sizes.n == 4 && IsContiguous(cache) && cache.sizes[1] * cache.sizes[3] == row->cols, "the cache of `", name,
            "` has shape ", ToString(cache.sizes), "; mode PA_NZ needs a contiguous [blocks, ", row->cols,
            " / c0, block_size, c0]");
    s.block_size = cache.sizes[2];
    s.token_stride = s.run_bytes = cache.sizes[3] * size;
    s.runs = cache.sizes[1];
    s.run_stride = cache.strides[1] * size;
  } else {
    const auto token = Merge(cache, 2, cache.sizes.n);
    Require(token && token->size == row->cols && (token->stride == 1 || token->size <= 1), "the cache of `", name, "` has shape ",
            ToString(cache.sizes), " and strides ", ToString(cache.strides), "; a token must be ", row->cols,
            " contiguous elements (cache_mode \"Norm\")");
    s.block_size = cache.sizes[1];
    s.token_stride = cache.strides[1] * size;
    s.run_bytes = row->cols * size;
  }
  s.slots = cache.sizes[0] * s.block_size;
  return s;
}

template <class Slot>
void RunScatter(const Scatter& s, const Slot* slots, int64_t count) {
  ComputeExecutor().ParallelFor(count, GrainFor(s.runs * s.run_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = slots[i];
      if (slot < 0) continue;  // padding
      Require(slot < s.slots, "slot_mapping[", i, "] is ", slot, "; the cache has ", s.slots, " slots");
      char* to = s.cache + slot / s.block_size * s.block_stride + slot % s.block_size * s.token_stride;
      const char* from = s.rows + i * s.row_stride;
      for (int64_t r = 0; r < s.runs; ++r)
        std::memcpy(to + r * s.run_stride, from + r * s.run_bytes, static_cast<size_t>(s.run_bytes));
    }
  });
}

Task ScatterTask(std::vector<Scatter> scatters, const aclTensor& slots, int64_t tokens) {
  Require(slots.dtype == DType::kI32 || slots.dtype == DType::kI64, "slot_mapping is ", DTypeName(slots.dtype),
          "; it must be int32 or int64");
  Require(IsContiguous(slots) && slots.numel() <= tokens, "slot_mapping has shape ", ToString(slots.sizes), " and strides ",
          ToString(slots.strides), "; it must be contiguous with at most ", tokens, " entries, one per token");
  const int64_t count = slots.numel();
  return [scatters = std::move(scatters), data = slots.data(), wide = slots.dtype == DType::kI64, count] {
    for (const Scatter& s : scatters) {
      wide ? RunScatter(s, static_cast<const int64_t*>(data), count) : RunScatter(s, static_cast<const int32_t*>(data), count);
    }
  };
}

bool IsNzMode(const char* mode) {
  const std::string m = mode == nullptr ? "Norm" : mode;
  Require(m == "Norm" || m == "PA_NZ" || m.empty(), "cache_mode is \"", m, "\"; it must be \"Norm\" or \"PA_NZ\"");
  return m == "PA_NZ";
}

}  // namespace

ACLNN_PLAN(ScatterPaKvCache, Raw(key), Raw(key_cache), Raw(slot_mapping), Raw(value), Raw(value_cache), OptRaw(compress_lens),
           OptRaw(compress_seq_offsets), OptRaw(seq_lens), OptText(cache_mode), OptText(scatter_mode), OptInts(strides),
           OptInts(offsets)) {
  Require(!compress_lens && !compress_seq_offsets && !seq_lens,
          "compress_lens, compress_seq_offsets or seq_lens is given; hostcann's cache isn't compressed");
  const bool nz = IsNzMode(cache_mode);
  return ScatterTask({PlanScatter("key", key, key_cache, nz), PlanScatter("value", value, value_cache, nz)}, slot_mapping,
                     std::min(key.sizes[0], value.sizes[0]));
}
ACLNN_PLAN(ScatterPaCache, Raw(key), Raw(key_cache), Raw(slot_mapping), OptRaw(compress_lens), OptRaw(compress_seq_offsets),
           OptRaw(seq_lens), OptText(cache_mode)) {
  Require(!compress_lens && !compress_seq_offsets && !seq_lens,
          "compress_lens, compress_seq_offsets or seq_lens is given; hostcann's cache isn't compressed");
  return ScatterTask({PlanScatter("key", key, key_cache, IsNzMode(cache_mode))}, slot_mapping, key.sizes[0]);
}

// key and value [tokens, heads, dim] receive, sequence after sequence, the cached tokens from seq_offset[s] on.
ACLNN_PLAN(GatherPaKvCache, Raw(key_cache), Raw(value_cache), In(block_tables), In(seq_lens), Raw(key), Raw(value),
           OptIn(seq_offset), OptText(cache_mode), Flag(is_seq_lens_cumsum)) {
  Require(!IsNzMode(cache_mode), "cache_mode is PA_NZ; hostcann gathers from a \"Norm\" cache");
  // A gather is a scatter with the roles of its two sides exchanged.
  const std::array<Scatter, 2> sides = {PlanScatter("key", key, key_cache, false), PlanScatter("value", value, value_cache, false)};
  const int64_t room = std::min(key.sizes[0], value.sizes[0]);
  return [=] {
    const Tensor table = block_tables.to(at::kLong).contiguous(), lens = seq_lens.to(at::kLong).contiguous();
    const Tensor offsets = seq_offset ? seq_offset->to(at::kLong).contiguous() : Tensor();
    const int64_t *blocks = table.const_data_ptr<int64_t>(), *len = lens.const_data_ptr<int64_t>();
    int64_t row = 0;
    for (int64_t s = 0; s < table.size(0); ++s) {
      const int64_t count = is_seq_lens_cumsum ? len[s + 1] - len[s] : len[s];
      const int64_t first = offsets.defined() ? offsets.const_data_ptr<int64_t>()[s] : 0;
      Require(count >= 0 && row + count <= room, "seq_lens[", s, "] is ", count, "; key and value have room for ", room,
              " tokens, ", row, " are taken");
      for (int64_t i = 0; i < count; ++i, ++row) {
        const int64_t position = first + i;
        for (const Scatter& side : sides) {
          Require(position / side.block_size < table.size(1), "token ", position, " of sequence ", s,
                  " is past its block table of ", table.size(1), " blocks");
          const int64_t block = blocks[s * table.size(1) + position / side.block_size];
          Require(block >= 0 && block * side.block_size < side.slots, "block_tables[", s, "] names block ", block,
                  "; the cache has ", side.slots / side.block_size);
          std::memcpy(const_cast<char*>(side.rows) + row * side.row_stride,
                      side.cache + block * side.block_stride + position % side.block_size * side.token_stride,
                      static_cast<size_t>(side.run_bytes));
        }
      }
    }
  };
}

}  // namespace jumar::hostcann::aclnn
