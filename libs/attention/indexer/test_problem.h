#ifndef LIBS_ATTENTION_INDEXER_TEST_PROBLEM_H_
#define LIBS_ATTENTION_INDEXER_TEST_PROBLEM_H_

// Random problems of the lightning indexer for tests and benchmarks.

#include <cstdint>
#include <string>
#include <vector>

#include "libs/attention/indexer/lightning_indexer.h"

namespace jumar::attention {

struct SequenceShape {
  int64_t queries, tokens;
};

struct IndexerCase {
  std::string name;
  std::vector<SequenceShape> sequences;
  int64_t heads, head_dim, top_k, block_size, cmp_ratio;
  bool causal;
};

// What q and k are: fp32, fp16, bf16; int8 with fp16 scales; E4M3 with fp32 scales.
enum class Keys { kF32, kF16, kBF16, kI8, kE4M3 };
inline constexpr Keys kAllKeys[] = {Keys::kF32, Keys::kF16, Keys::kBF16, Keys::kI8, Keys::kE4M3};
const char* Name(Keys keys);

// Owns the memory of a LightningIndexerArgs. Every byte that no query may read is NaN: the rest of the last blocks, blocks of no sequence,
// the gap behind each row. `small_integers`: every number is a small integer or power of two, so that scores are exact in fp32 and often
// equal.
struct IndexerProblem {
  IndexerProblem(const IndexerCase& c, Keys keys, uint32_t seed, bool small_integers = false);
  IndexerProblem(const IndexerProblem&) = delete;

  int64_t KeyRow(int64_t seq, int64_t entry) const;  // element offset of its row in k
  void SetKey(int64_t seq, int64_t entry, int64_t d, float value);

  LightningIndexerArgs args;
  std::vector<char> q, k, weights, q_scales, k_scales;
  std::vector<int32_t> block_table, indices;
  std::vector<float> scores;
  std::vector<int64_t> query_ends, kv_lens;
};

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_INDEXER_TEST_PROBLEM_H_
