#ifndef LIBS_TILING_COMPRESSOR_H_
#define LIBS_TILING_COMPRESSOR_H_

// The compressor of DeepSeek V4's sparse attention. [kv | gate] = x W for each token; of each group of `ratio` tokens (with overlap: and
// half of the features of the group before), a softmax of the gate over the tokens, per feature, weighs kv into one entry, which is
// normalised and rotated.
//
// Two phases: the cube cores make the FP32 rows [kv | gate] as a product, the vector cores make entries of them. An entry is on one core,
// in slices of features if UB doesn't hold its tokens at once.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/matmul.h"
#include "libs/tiling/row_stream.h"

namespace jumar::tiling {

struct CompressorProblem {
  int64_t tokens = 4096;    // of the call
  int64_t entries = 1024;   // that the call completes: at most tokens / ratio, and one more for each sequence
  int64_t hidden = 7168;
  int64_t head_dim = 512;   // of an entry; 128 for the indexer's keys
  int64_t ratio = 4;        // tokens of a group
  int64_t overlap = 1;      // 1: groups overlap, rows are twice as wide
  DType input = DType::kBf16;
};

struct CompressorTiling {
  MatmulTiling projection;
  RowTiling entries;        // empty (rows_per_step = 0) if the call completes none
  Traffic traffic = {};
  Prediction prediction = {};
  Bound bound = {};
};

std::span<const TypedField<CompressorProblem>> CompressorFields();
absl::StatusOr<CompressorTiling> SolveCompressor(const CompressorProblem& problem, const HardwareSpec& spec);

// The same with a given tiling of the projection: for comparison.
absl::StatusOr<CompressorTiling> EvaluateCompressor(const CompressorProblem& problem, const MatmulChoice& projection,
                                                    const HardwareSpec& spec);

MatmulProblem CompressorProjection(const CompressorProblem& problem);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_COMPRESSOR_H_
