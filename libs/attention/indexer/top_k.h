#ifndef LIBS_ATTENTION_INDEXER_TOP_K_H_
#define LIBS_ATTENTION_INDEXER_TOP_K_H_

// The k best of a stream of scores, in memory of O(k): a buffer of candidates that is cut to the k best when it is full, and the score that the
// next one must reach. The order is total (no two candidates are equal), so the result doesn't depend on how the stream is cut.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>

namespace jumar::attention::internal {

// As unsigned numbers, scores in ascending order: NaN (0), -infinity, ..., -0 = +0, ..., +infinity.
constexpr uint32_t OrderedScore(float score) {
  if (score != score) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}
constexpr float ScoreOfOrdered(uint32_t ordered) {
  if (ordered == 0) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(ordered ^ (ordered >> 31 ? 0x80000000u : 0xFFFFFFFFu));
}

// The greater, the better: by score, then the smaller index.
using Candidate = uint64_t;
constexpr Candidate MakeCandidate(uint32_t ordered, int64_t index) {
  return Candidate{ordered} << 32 | static_cast<uint32_t>(~static_cast<uint32_t>(index));
}
constexpr uint32_t OrderedOf(Candidate c) { return static_cast<uint32_t>(c >> 32); }
constexpr int32_t IndexOf(Candidate c) { return static_cast<int32_t>(~static_cast<uint32_t>(c)); }

// Leaves the k best of `count` at the front, in any order; returns how many they are.
inline int64_t CutToBest(Candidate* candidates, int64_t count, int64_t k) {
  if (count <= k) return count;
  std::nth_element(candidates, candidates + (k - 1), candidates + count, std::greater<>());
  return k;
}

struct TopK {
  static constexpr int64_t kBatch = 32;  // scores that may be pushed between two calls of MakeRoom
  static constexpr int64_t Capacity(int64_t k) { return std::max<int64_t>(2 * k, 256) + kBatch; }

  Candidate* candidates = nullptr;  // [Capacity(k)]
  int64_t k = 0, size = 0;
  uint32_t least = 0;  // the ordered score that a candidate must reach

  // Indices must ascend: one that equals the worst candidate's score then comes too late.
  void Push(uint32_t ordered, int64_t index) {
    if (ordered >= least) candidates[size++] = MakeCandidate(ordered, index);
  }
  void MakeRoom() {
    if (size + kBatch <= Capacity(k)) return;
    size = CutToBest(candidates, size, k);
    least = OrderedOf(candidates[k - 1]) + 1;  // the greatest is +infinity's, far from overflow
  }
};

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_INDEXER_TOP_K_H_
