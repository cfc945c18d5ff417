// One tile of keys, from scores to sums of values: softmax with a running maximum, and the products with V. Included once per SIMD target.

#if defined(LIBS_ATTENTION_PAGED_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_PAGED_SOFTMAX_INL_H_
#undef LIBS_ATTENTION_PAGED_SOFTMAX_INL_H_
#else
#define LIBS_ATTENTION_PAGED_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "libs/attention/exp-inl.h"
#include "libs/attention/paged/paged_kernel.h"
#include "libs/attention/paged/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using attention::HWY_NAMESPACE::ExpNonpositive;

constexpr float kNone = -std::numeric_limits<float>::infinity();

// What row `row` may see of [begin, end): a run of keys, or with an explicit mask `hidden` bytes for each.
struct Visible {
  int64_t begin, end;
  bool whole;  // every key of [begin, end)
};

inline Visible VisibleInTile(const PagedAttentionArgs& args, const RowTile& tile, int64_t group, int64_t r, const KeyRange& range,
                      int64_t begin, uint8_t* hidden) {
  Visible visible = {std::max(range.begin, begin) - begin, std::min(range.end, begin + kTile) - begin, true};
  if (args.mask == nullptr || visible.begin >= visible.end) return visible;
  const int64_t row = tile.row_begin + r;
  const uint8_t* mask = args.mask + tile.seq * args.mask_seq_stride + (tile.kv_head * group + row % group) * args.mask_head_stride +
                        row / group * args.mask_query_stride + begin;
  while (visible.begin < visible.end && mask[visible.begin] != 0) ++visible.begin;
  while (visible.begin < visible.end && mask[visible.end - 1] != 0) --visible.end;
  for (int64_t j = visible.begin; j < visible.end; ++j) {
    hidden[j] = mask[j];
    if (mask[j] != 0) visible.whole = false;
  }
  return visible;
}

// Scores of one row to probabilities, in place, 0 where hidden. Updates max and sum, and returns the factor for what was summed before.
HWY_INLINE float SoftmaxRow(float* HWY_RESTRICT scores, const Visible& visible, const uint8_t* hidden, float& max, float& sum) {
  const DF df;
  for (int64_t j = 0; j < visible.begin; ++j) scores[j] = kNone;
  for (int64_t j = visible.end; j < kTile; ++j) scores[j] = kNone;
  if (!visible.whole) {
    for (int64_t j = visible.begin; j < visible.end; ++j) {
      if (hidden[j] != 0) scores[j] = kNone;
    }
  }
  VF greatest = hn::Set(df, max);
  for (int v = 0; v < kVectors; ++v) greatest = hn::Max(greatest, hn::Load(df, scores + v * kLanes));
  const float new_max = hn::ReduceMax(df, greatest);
  const VF subtract = hn::Set(df, new_max);
  VF total = hn::Zero(df);
  for (int v = 0; v < kVectors; ++v) {
    const VF p = ExpNonpositive(df, hn::Sub(hn::Load(df, scores + v * kLanes), subtract));
    hn::Store(p, df, scores + v * kLanes);
    total = hn::Add(total, p);
  }
  const float factor = max == kNone ? 0.0f : hn::GetLane(ExpNonpositive(df, hn::Set(df, max - new_max)));
  sum = sum * factor + hn::ReduceSum(df, total);
  max = new_max;
  return factor;
}

HWY_INLINE void ScaleRow(float* row, int64_t stride, float factor) {
  const DF df;
  const VF f = hn::Set(df, factor);
  for (int64_t d = 0; d < stride; d += kLanes) hn::Store(hn::Mul(hn::Load(df, row + d), f), df, row + d);
}

// values[r] += sum over the keys that row r sees, in the order of the keys. Hidden keys are not multiplied by zero but left out:
// their V may be NaN.
inline void AddValues(int64_t rows, const Visible* visible, const float* probabilities, const uint8_t (*hidden)[kTile], const float* v,
               int64_t stride, float* values) {
  int64_t r = 0;
  while (r < rows) {
    // The longest run of rows, up to a register tile, with the keys that all of them see.
    int64_t count = 0, common_begin = 0, common_end = kTile;
    while (r + count < rows && count < kRegisterRows && visible[r + count].whole && visible[r + count].begin < visible[r + count].end) {
      common_begin = std::max(common_begin, visible[r + count].begin);
      common_end = std::min(common_end, visible[r + count].end);
      ++count;
    }
    const auto add = [&](int64_t row, int64_t num_rows, int64_t begin, int64_t end) HWY_ATTR {
      if (begin >= end) return;
      for (int64_t d = 0; d < stride; d += kTile) {
        MultiplyRows<kRegisterRows>(num_rows, probabilities + row * kTile + begin, kTile, v + begin * stride + d, stride, end - begin,
                                    values + row * stride + d, stride);
      }
    };
    if (count == 0) {  // nothing visible, or holes
      int64_t j = visible[r].begin;
      while (j < visible[r].end) {
        int64_t end = j;
        while (end < visible[r].end && (visible[r].whole || hidden[r][end] == 0)) ++end;
        add(r, 1, j, end);
        for (j = end; j < visible[r].end && hidden[r][j] != 0;) ++j;
      }
      ++r;
      continue;
    }
    if (common_begin >= common_end) common_begin = common_end = kTile;  // then every row takes all of its keys in the first part
    for (int64_t i = r; i < r + count; ++i) add(i, 1, visible[i].begin, std::min(common_begin, visible[i].end));
    add(r, count, common_begin, common_end);
    for (int64_t i = r; i < r + count; ++i) add(i, 1, std::max(common_end, visible[i].begin), visible[i].end);
    r += count;
  }
}

// AddValues for rows that fit one register tile and see the same keys, straight from the cache: what decode needs. The same sums in the same
// order. Meanwhile the rows of the next tile, of kBytes an element, are asked for.
template <typename K, int kBytes, int kRows>
HWY_INLINE void AddValuesDirect(const float* HWY_RESTRICT probabilities, const char* const* value_rows, int64_t begin, int64_t end, int64_t stride,
                                const TileRows& next, float* HWY_RESTRICT values) {
  const DF df;
  for (int64_t d = 0; d < stride; d += kTile) {
    VF sums[kRows][kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::Load(df, values + i * stride + d + v * kLanes);
    }
    for (int64_t j = begin; j < end; ++j) {
      const K* HWY_RESTRICT row = reinterpret_cast<const K*>(value_rows[j]) + d;
      for (int64_t byte = d * kBytes; byte < (d + kTile) * kBytes; byte += 64) {
        hwy::Prefetch(next.keys[j] + byte);
        hwy::Prefetch(next.values[j] + byte);
      }
      VF right[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) right[v] = LoadKv(df, row + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const VF left = hn::Set(df, probabilities[i * kTile + j]);
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) hn::Store(sums[i][v], df, values + i * stride + d + v * kLanes);
    }
  }
}

template <typename K, int kBytes, int kRows = kRegisterRows>
void AddValuesDirect(int64_t rows, const float* probabilities, const char* const* value_rows, int64_t begin, int64_t end, int64_t stride,
                     const TileRows& next, float* values) {
  if (rows == kRows) return AddValuesDirect<K, kBytes, kRows>(probabilities, value_rows, begin, end, stride, next, values);
  if constexpr (kRows > 1) AddValuesDirect<K, kBytes, kRows - 1>(rows, probabilities, value_rows, begin, end, stride, next, values);
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
