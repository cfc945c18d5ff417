#ifndef LIBS_ATTENTION_PAGED_TEST_PROBLEM_H_
#define LIBS_ATTENTION_PAGED_TEST_PROBLEM_H_

// Random attention problems for tests and benchmarks.

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "libs/attention/paged/paged_attention.h"

namespace jumar::attention {

struct SequenceShape {
  int64_t queries, keys;
};

enum class TestScales { kNone, kTensor, kHead, kChannel, kStridedChannel, kSlot, kPosition };

// Owns the memory of a PagedAttentionArgs. Every byte that no query may read is NaN: the rest of the last blocks, blocks of no
// sequence, the gap of `gap` elements behind each row; and so are `out` and `lse` before the call.
struct AttentionProblem {
  AttentionProblem(DType type, const std::vector<SequenceShape>& shapes, int64_t heads, int64_t kv_heads, int64_t head_dim,
                   int64_t value_head_dim, int64_t block_size, int64_t window_left, int64_t window_right, uint32_t seed, int64_t gap = 8);

  void* K(int64_t seq, int64_t position, int64_t kv_head);  // address of a key's row
  void* V(int64_t seq, int64_t position, int64_t kv_head);
  // Turns K and V into codes and scales, random ones; scales that belong to no key are NaN, as are codes where the format has one.
  void Quantize(quant::Format format, TestScales k, TestScales v, uint32_t seed);

  // Takes the last `dims` elements of queries and keys to memory of their own, leaving NaN.
  void SplitRope(int64_t dims);

  char* Out(int64_t token, int64_t head);
  void PoisonOutput();

  PagedAttentionArgs args;
  std::vector<SequenceShape> shapes;
  std::vector<char> q, k, v, out, q_rope, k_rope;
  std::vector<float> lse, k_scales, v_scales;
  std::vector<int32_t> block_table;
  std::vector<int64_t> query_ends, kv_lens;
};

// Also of NaNs, and of nothing.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_PAGED_TEST_PROBLEM_H_
