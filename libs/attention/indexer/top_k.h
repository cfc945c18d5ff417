#ifndef LIBS_ATTENTION_INDEXER_TOP_K_H_
#define LIBS_ATTENTION_INDEXER_TOP_K_H_

// The k best of a stream of scores, in memory of O(k): a buffer of candidates that is cut to the k best when it is full, and the score that
// the next one must reach. The order is total (no two candidates are equal), so the result doesn't depend on how the stream is cut.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

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

// Leaves the k best of `count` at the front and in their order, which must be that of ascending indices; returns how many they are. `kth`,
// if that was more than k: the k-th best score, found digit by digit from the top.
inline int64_t CutToBest(Candidate* candidates, int64_t count, int64_t k, uint32_t* kth = nullptr) {
  if (count <= k) return count;
  const int digit = count < 1024 ? 8 : 11;
  uint32_t found = 0;    // the score's digits so far
  int64_t wanted = k;    // of the candidates that share them
  for (int low = 32; low > 0;) {
    const int high = low;
    low = std::max(0, low - digit);
    const uint32_t bins = 1u << (high - low);
    int32_t counts[2048] = {};
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t score = OrderedOf(candidates[i]);
      if (score >> high == uint64_t{found} >> high) ++counts[(score >> low) & (bins - 1)];
    }
    uint32_t bin = bins - 1;
    while (counts[bin] < wanted) wanted -= counts[bin--];
    found |= bin << low;
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Candidate candidate = candidates[i];
    const bool equal = OrderedOf(candidate) == found && wanted > 0;  // the first of equal ones have the smaller indices
    wanted -= equal;
    candidates[kept] = candidate;
    kept += equal || OrderedOf(candidate) > found;
  }
  if (kth != nullptr) *kth = found;
  return kept;
}

// The candidates, whose indices must ascend, from the best to the worst; in place or in `scratch`, also [count].
inline Candidate* SortBestFirst(Candidate* candidates, int64_t count, Candidate* scratch) {
  if (count < 512) {
    std::sort(candidates, candidates + count, std::greater<>());
    return candidates;
  }
  for (int low = 32; low < 64; low += 11) {  // stable passes from the lowest digit of the score to the highest
    int64_t starts[2049] = {};
    const auto place = [low](Candidate c) { return (~c >> low) & 2047; };
    for (int64_t i = 0; i < count; ++i) ++starts[place(candidates[i]) + 1];
    for (int bin = 0; bin < 2048; ++bin) starts[bin + 1] += starts[bin];
    for (int64_t i = 0; i < count; ++i) scratch[starts[place(candidates[i])]++] = candidates[i];
    std::swap(candidates, scratch);
  }
  return candidates;
}

struct TopK {
  static constexpr int64_t kBatch = 32;  // scores that may be pushed between two calls of MakeRoom
  static constexpr int64_t Capacity(int64_t k) { return std::max<int64_t>(2 * k, 256) + kBatch + 1; }

  Candidate* candidates = nullptr;  // [Capacity(k)]
  int64_t k = 0, size = 0;
  uint32_t least = 0;  // the ordered score that a candidate must reach

  // Indices must ascend: one that equals the worst candidate's score then comes too late.
  void Push(uint32_t ordered, int64_t index) {
    candidates[size] = MakeCandidate(ordered, index);
    size += ordered >= least;
  }
  void MakeRoom() {
    if (size + kBatch < Capacity(k)) return;
    size = CutToBest(candidates, size, k, &least);
    ++least;  // the greatest is +infinity's, far from overflow
  }
};

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_INDEXER_TOP_K_H_
