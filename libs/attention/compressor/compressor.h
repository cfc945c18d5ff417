#ifndef LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_H_
#define LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_H_

// DeepSeek V4's compression of the sequence: every `ratio` tokens become one entry. Of each token come, by a product with the hidden state
// before this call, two rows of W features: kv and gate. W = D = head_dim, or 2 D with overlap.
//
//   score[p] = gate[p] + ape[p % ratio]                            group g: positions g * ratio .. (g + 1) * ratio - 1
//   entry[g] = sum over j of softmax_j(score[j]) * kv[j]           for each of the D features by itself
//   out      = rope(entry[g] / rms(entry[g]) * norm_weight)        its last rope_dim features, interleaved, by position g * ratio
//
// Without overlap j runs over group g. With overlap over 2 * ratio terms: the left halves (features 0 .. D - 1) of the tokens of group
// g - 1, of which there are none for g = 0, and the right halves (D .. 2 D - 1) of those of group g.
//
// The call takes any mix of sequences, each with tokens at consecutive positions, and gives the entries of the groups that they complete. What later
// calls need of a token, [kv | score] in fp32, goes to a paged state cache by its position and is read from there. A sequence in
// chunks of any lengths gives bit by bit what it gives at once: sums run in the order of the positions, in fp32, and what is in the state
// equals what is computed from the rows. State of other positions, freed pages and padding may hold NaN.
//
// Uses: C4A and the indexer's keys (ratio 4, overlap, D = 512 and 128), C128A (ratio 128, no overlap, D = 512). To quantise the entries and put them
// into a cache: WriteRows of libs/quant/packed/row_codec.h.
// Source: DeepSeek V4's report, section 2.3, equations 9 to 23.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

inline constexpr int64_t kMaxCompressionRatio = 1024, kMaxCompressedDim = 1024;

struct CompressorArgs {
  DType type = DType::kF32;  // of kv, gate and out
  int64_t num_seqs = 0;
  int64_t head_dim = 0;  // D: 1 .. kMaxCompressedDim
  int64_t ratio = 4;     // 1 .. kMaxCompressionRatio
  bool overlap = false;

  // Tokens of sequence s: rows [query_ends[s - 1], query_ends[s]) of kv and gate, at positions starts[s], starts[s] + 1, ...
  const int64_t* query_ends = nullptr;  // [num_seqs], cumulative
  const int64_t* starts = nullptr;      // [num_seqs], tokens of the sequence before this call
  const void* kv = nullptr;             // [tokens, W], rows kv_stride elements apart
  int64_t kv_stride = 0;
  const void* gate = nullptr;  // [tokens, W]
  int64_t gate_stride = 0;
  const float* ape = nullptr;  // [ratio, W], dense

  // State of position p of sequence s: 2 W floats at state_block_table[s][p / state_block_size] * state_block_stride + p % state_block_size * 2 W.
  // A new token's is not kept where the entry is negative; what is read of earlier tokens must be there.
  float* state = nullptr;
  int64_t state_block_stride = 0;             // elements, >= state_block_size * 2 W
  int64_t state_block_size = 0;               // tokens
  int64_t num_state_blocks = 0;
  const int32_t* state_block_table = nullptr;  // [num_seqs, state_table_stride]
  int64_t state_table_stride = 0;

  const float* norm_weight = nullptr;  // [D]
  float epsilon = 1e-6f;
  int64_t rope_dim = 0;        // even, <= D; 0 = none
  const float* cos = nullptr;  // [table_rows, rope_dim / 2], rows table_stride apart: of positions
  const float* sin = nullptr;
  int64_t table_stride = 0, table_rows = 0;

  void* out = nullptr;  // [entries, D], sequence by sequence, group by group; rows out_stride elements apart
  int64_t out_stride = 0;
};

// Groups that `tokens` tokens from position `start` on complete: (start + tokens) / ratio - start / ratio, the first of which is start / ratio.
int64_t CompletedGroups(int64_t start, int64_t tokens, int64_t ratio);

// InvalidArgument names the field, the value and the limit; nothing is written then. Thread safe. Scratch memory is kept per calling thread.
absl::Status Compress(const CompressorArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_COMPRESSOR_COMPRESSOR_H_
