#ifndef LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_KERNEL_H_
#define LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_KERNEL_H_

#include <cstdint>

#include "libs/attention/compressor/compressor.h"

namespace jumar::attention::internal {

// A group that the call completes, or a run of new tokens whose state is to be kept.
struct CompressedGroup {
  int64_t seq, group;
};
struct StateRun {
  int64_t seq, token, position, count;  // `token`: row of kv and gate
};

// entry [D] = the weighted sum of the group, before the norm.
void WeighGroup(const CompressorArgs& args, const CompressedGroup& group, float* entry);

void KeepState(const CompressorArgs& args, const StateRun& run);

// Row of kv and gate of the sequence's first new token.
inline int64_t FirstToken(const CompressorArgs& args, int64_t seq) { return seq == 0 ? 0 : args.query_ends[seq - 1]; }

// The state row of a position whose block is there.
inline float* StateRow(const CompressorArgs& args, int64_t seq, int64_t position) {
  const int64_t width = (args.overlap ? 2 : 1) * args.head_dim;
  const int64_t block = args.state_block_table[seq * args.state_table_stride + position / args.state_block_size];
  return args.state + block * args.state_block_stride + position % args.state_block_size * 2 * width;
}

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_KERNEL_H_
