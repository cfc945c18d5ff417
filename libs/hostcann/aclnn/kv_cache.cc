// Writing tokens into a paged KV cache, and gathering them from it.
#include <ATen/ops/clamp.h>

#include <algorithm>
#include <array>
#include <limits>

#include "libs/hostcann/aclnn/kv_rows.h"

namespace jumar::hostcann::aclnn {
namespace {

// Rows of one token each (tokens, then anything), and the cache that they go into or come from.
//   Norm   cache [blocks, block_size, heads, dim]:             a token is one run of bytes
//   PA_NZ  cache [blocks, heads * dim / c0, block_size, c0]:   a token is heads * dim / c0 runs, block_size * c0 apart
struct Side {
  kv::DenseRows<std::byte> rows;
  kv::PartRows<std::byte> cache;
};

Side PlanSide(const char* name, const aclTensor& rows, const aclTensor& cache, bool nz) {
  for (const aclTensor* t : {&rows, &cache}) {
    Require(IsBaseFormat(t->format), "argument `", name, "` or its cache has format ", FormatName(t->format),
            "; they must be ND (2)");
  }
  Require(rows.dtype == cache.dtype, "argument `", name, "` is ", DTypeName(rows.dtype), " but its cache ", DTypeName(cache.dtype));
  Require(rows.sizes.n >= 2 && cache.sizes.n >= 3, "argument `", name, "` has shape ", ToString(rows.sizes), " and its cache ",
          ToString(cache.sizes), "; they must be [tokens, ...] and [blocks, block_size, ...]");
  const auto row = AsRows(rows, rows.sizes.n - 1);
  Require(row.has_value(), "argument `", name, "` has strides ", ToString(rows.strides), "; a token's elements must be contiguous");
  const int64_t size = ItemSize(rows.dtype), row_bytes = row->cols * size;
  kv::RowGeometry geometry = {.row_bytes = row_bytes, .chunk_bytes = row_bytes, .chunk_stride = row_bytes, .token_stride = 0};
  int64_t block_size = 0;
  if (nz) {
    Require(cache.sizes.n == 4 && IsContiguous(cache) && cache.sizes[1] * cache.sizes[3] == row->cols, "the cache of `", name,
            "` has shape ", ToString(cache.sizes), "; mode PA_NZ needs a contiguous [blocks, ", row->cols,
            " / c0, block_size, c0]");
    block_size = cache.sizes[2];
    geometry.token_stride = geometry.chunk_bytes = cache.sizes[3] * size;
    geometry.chunk_stride = cache.strides[1] * size;
  } else {
    const auto token = Merge(cache, 2, cache.sizes.n);
    Require(token && token->size == row->cols && (token->stride == 1 || token->size <= 1), "the cache of `", name, "` has shape ",
            ToString(cache.sizes), " and strides ", ToString(cache.strides), "; a token must be ", row->cols,
            " contiguous elements (cache_mode \"Norm\")");
    block_size = cache.sizes[1];
    geometry.token_stride = cache.strides[1] * size;
  }
  return {KvDenseRows(rows.data(), row->rows, row_bytes, row->stride * size),
          KvCache(name, cache.data(), cache.sizes[0], block_size, cache.strides[0] * size, geometry)};
}

Task ScatterTask(std::vector<Side> sides, const aclTensor& slots, int64_t tokens) {
  Require(slots.dtype == DType::kI32 || slots.dtype == DType::kI64, "slot_mapping is ", DTypeName(slots.dtype),
          "; it must be int32 or int64");
  Require(IsContiguous(slots) && slots.numel() <= tokens, "slot_mapping has shape ", ToString(slots.sizes), " and strides ",
          ToString(slots.strides), "; it must be contiguous with at most ", tokens, " entries, one per token");
  return [sides = std::move(sides), data = slots.data(), wide = slots.dtype == DType::kI64, count = static_cast<size_t>(slots.numel())] {
    for (const Side& s : sides) {
      Check(wide ? kv::StoreRows(s.rows, std::span(static_cast<const int64_t*>(data), count), s.cache, KvParallel())
                 : kv::StoreRows(s.rows, std::span(static_cast<const int32_t*>(data), count), s.cache, KvParallel()));
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
  return ScatterTask({PlanSide("key", key, key_cache, nz), PlanSide("value", value, value_cache, nz)}, slot_mapping,
                     std::min(key.sizes[0], value.sizes[0]));
}
ACLNN_PLAN(ScatterPaCache, Raw(key), Raw(key_cache), Raw(slot_mapping), OptRaw(compress_lens), OptRaw(compress_seq_offsets),
           OptRaw(seq_lens), OptText(cache_mode)) {
  Require(!compress_lens && !compress_seq_offsets && !seq_lens,
          "compress_lens, compress_seq_offsets or seq_lens is given; hostcann's cache isn't compressed");
  return ScatterTask({PlanSide("key", key, key_cache, IsNzMode(cache_mode))}, slot_mapping, key.sizes[0]);
}

// key and value [tokens, heads, dim] receive, sequence after sequence, the cached tokens from seq_offset[s] on.
ACLNN_PLAN(GatherPaKvCache, Raw(key_cache), Raw(value_cache), In(block_tables), In(seq_lens), Raw(key), Raw(value),
           OptIn(seq_offset), OptText(cache_mode), Flag(is_seq_lens_cumsum)) {
  const bool nz = IsNzMode(cache_mode);
  const std::array<Side, 2> sides = {PlanSide("key", key, key_cache, nz), PlanSide("value", value, value_cache, nz)};
  const int64_t sequences = block_tables.size(0), width = block_tables.size(1);
  Require(seq_lens.numel() == sequences + (is_seq_lens_cumsum ? 1 : 0), "seq_lens has ", seq_lens.numel(), " entries; it must have ",
          sequences + (is_seq_lens_cumsum ? 1 : 0));
  Require(!seq_offset || seq_offset->numel() == sequences, "seq_offset must have ", sequences, " entries");
  return [=] {
    // A number that int32 can't hold is no block either way.
    const Tensor table = at::clamp(block_tables, -1, std::numeric_limits<int32_t>::max()).to(at::kInt).contiguous();
    const Tensor lens = seq_lens.to(at::kLong).contiguous(), first = seq_offset ? seq_offset->to(at::kLong).contiguous() : Tensor();
    std::vector<int64_t> count(lens.const_data_ptr<int64_t>(), lens.const_data_ptr<int64_t>() + sequences);
    for (int64_t s = 0; s < sequences && is_seq_lens_cumsum; ++s)
      count[static_cast<size_t>(s)] = lens.const_data_ptr<int64_t>()[s + 1] - count[static_cast<size_t>(s)];
    const kv::Stretches stretches = {
        .block_table = {{table.const_data_ptr<int32_t>(), static_cast<size_t>(table.numel())}, sequences, width, width},
        .first = first.defined() ? std::span(first.const_data_ptr<int64_t>(), static_cast<size_t>(sequences)) : std::span<const int64_t>(),
        .count = count};
    for (const Side& side : sides) Check(kv::LoadStretches(side.cache, stretches, side.rows, KvParallel()));
  };
}

}  // namespace jumar::hostcann::aclnn
