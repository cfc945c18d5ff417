#ifndef LIBS_ATTENTION_INDEXER_INDEXER_KEYS_H_
#define LIBS_ATTENTION_INDEXER_INDEXER_KEYS_H_

// The indexer's keys in packed pages (libs/quant/packed): 128 E4M3 and an fp32 scale, or 128 int8 and an fp16 scale, split over the page.

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/attention/indexer/lightning_indexer.h"
#include "libs/memory/kv/views.h"
#include "libs/quant/packed/row_codec.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

// Key i to slot slots[i] of the pages, -1: nowhere; `rotate`: through the Hadamard rotation (hadamard.h) in fp32, not rounded in between.
// InvalidArgument as of WriteRows, and for a rotation whose dims aren't a power of two.
absl::Status WriteIndexerKeys(const quant::RowCodec& codec, const quant::TokenRows& keys, bool rotate, std::span<const int64_t> slots,
                              const memory::kv::MutableBlocks& pages, tiling::Executor& executor);

// Sets the format, k, its scales, their strides, block_size and num_blocks of `args` to the pages. InvalidArgument for a codec whose scales
// aren't one fp32 or fp16 a token, or pages whose stride isn't a multiple of a scale.
absl::Status ReadKeysFrom(const quant::RowCodec& codec, const memory::kv::ConstBlocks& pages, LightningIndexerArgs& args);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_INDEXER_INDEXER_KEYS_H_
