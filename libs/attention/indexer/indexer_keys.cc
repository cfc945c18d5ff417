#include "libs/attention/indexer/indexer_keys.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/attention/indexer/hadamard.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {

absl::Status WriteIndexerKeys(const quant::RowCodec& codec, const quant::TokenRows& keys, bool rotate, std::span<const int64_t> slots,
                              const memory::kv::MutableBlocks& pages, tiling::Executor& executor) {
  if (!rotate) return quant::WriteRows(codec, keys, slots, pages, executor);
  const int64_t count = static_cast<int64_t>(slots.size());
  if (count > 1 && keys.stride < codec.dims) {
    return absl::InvalidArgumentError(absl::StrCat("indexer keys: stride = ", keys.stride, " is less than the row's ", codec.dims, " elements"));
  }
  static thread_local quant::ScratchBuffer buffer;
  float* rotated = reinterpret_cast<float*>(buffer.Get(std::max<int64_t>(1, count) * codec.dims * static_cast<int64_t>(sizeof(float))));
  const HadamardArgs rotation = {.rows = count, .dim = codec.dims, .type = keys.type, .in = keys.values, .in_stride = keys.stride,
                                 .out_type = DType::kF32, .out = rotated, .out_stride = codec.dims};
  if (auto status = HadamardRotate(rotation, executor); !status.ok()) return status;
  quant::TokenRows rows = keys;
  rows.type = DType::kF32, rows.values = rotated, rows.stride = codec.dims;
  return quant::WriteRows(codec, rows, slots, pages, executor);
}

absl::Status ReadKeysFrom(const quant::RowCodec& codec, const memory::kv::ConstBlocks& pages, LightningIndexerArgs& args) {
  using memory::kv::Element;
  const int64_t scale_bytes = memory::kv::ElementBytes(codec.scales.element);
  if (codec.groups != 1 || (codec.scales.element != Element::kFloat32 && codec.scales.element != Element::kFloat16)) {
    return absl::InvalidArgumentError(absl::StrCat("indexer keys: layout ", codec.layout.name, " has ", codec.groups, " scales of ",
                                                   memory::kv::ElementName(codec.scales.element), " a token, not one of float32 or float16"));
  }
  if (codec.dims != args.head_dim) {
    return absl::InvalidArgumentError(absl::StrCat("indexer keys: rows have ", codec.dims, " values, head_dim = ", args.head_dim));
  }
  if (pages.block_stride % scale_bytes != 0 || codec.scales.rows.token_stride % scale_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("indexer keys: pages lie ", pages.block_stride, " bytes apart, not a multiple of a scale's ", scale_bytes));
  }
  args.format = codec.format;
  args.k = pages.bytes.data() + codec.values.offset;
  args.k_block_stride = pages.block_stride;
  args.k_token_stride = codec.values.rows.token_stride;
  args.k_scales = pages.bytes.data() + codec.scales.offset;
  args.scales_type = codec.scales.element == Element::kFloat32 ? DType::kF32 : DType::kF16;
  args.k_scales_block_stride = pages.block_stride / scale_bytes;
  args.k_scales_token_stride = codec.scales.rows.token_stride / scale_bytes;
  args.block_size = codec.layout.block_size;
  args.num_blocks = pages.num_blocks;
  return absl::OkStatus();
}

}  // namespace jumar::attention
