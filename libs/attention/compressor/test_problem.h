#ifndef LIBS_ATTENTION_COMPRESSOR_TEST_PROBLEM_H_
#define LIBS_ATTENTION_COMPRESSOR_TEST_PROBLEM_H_

// Random sequences to compress, whole or in chunks, for tests and benchmarks.

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "libs/attention/compressor/compressor.h"

namespace jumar::attention {

// Tokens of a sequence from `start` on that one call brings.
struct Chunk {
  int64_t seq, start, tokens;
};

class CompressorProblem {
 public:
  struct Shape {
    DType type = DType::kBF16;
    int64_t head_dim = 512, ratio = 4;
    bool overlap = true;
    int64_t rope_dim = 64, state_block_size = 8;
  };

  // Whole sequences of `lengths` tokens. State blocks lie in random order, their memory and the gaps between rows are NaN.
  CompressorProblem(const Shape& shape, std::vector<int64_t> lengths, uint32_t seed);

  // One call with those chunks; the entries, in order, as bytes of `shape.type` [entries, D].
  absl::Status Run(std::span<const Chunk> chunks, tiling::Executor& executor, std::vector<char>& entries);

  // All state becomes NaN again.
  void ForgetState();
  // Gives up the block of that position; its memory becomes NaN.
  void FreeState(int64_t seq, int64_t position);

  int64_t width() const { return (shape.overlap ? 2 : 1) * shape.head_dim; }
  int64_t out_bytes() const { return shape.head_dim * quant::SizeOf(shape.type); }
  int64_t table_width() const { return table_width_; }

  Shape shape;
  std::vector<int64_t> lengths;
  CompressorArgs args;                        // all but the tokens of a call
  std::vector<std::vector<char>> kv, gate;    // [length, W] of each sequence, dense
  std::vector<float> state;
  std::vector<int32_t> block_table;

 private:
  int64_t table_width_ = 0;
  std::vector<float> ape_, norm_weight_, cos_, sin_;
  std::vector<char> call_kv_, call_gate_, call_out_;
};

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_COMPRESSOR_TEST_PROBLEM_H_
