// Prefill: many rows. The weights of a group of panels are packed once, in the order in which the tiles read them and as the multiplication
// wants them, and all rows go over them. A block of rows goes over all panels of the group before the next, one part of k at a time: the packed
// weights of a panel's part stay in the first-level cache, the activations of the part and the sums that wait in the second.
#include <algorithm>
#include <cstring>

#include "libs/quant/gemm_kernel.h"
#include "libs/quant/scratch_buffer.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/gemm_prefill.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/gemm_step-inl.h"
#include "libs/quant/gemm_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kRowsOfTile = 6, kColumnsOfTile = kManyRegisters ? 4 : 2, kTilesOfPanel = kPanel / kColumnsOfTile;
constexpr int64_t kGroup = 4;                                    // panels
constexpr int64_t kPartBytes = 2400;                             // of a row in a part of k: more carries fewer sums over, and leaves the first-level cache
constexpr int64_t kBlockRows = kLanes <= 8 ? 96 : 48;            // whose sums wait together
constexpr int64_t kCarryFloats = kRowsOfTile * kPanel * kLanes;  // of a tile of rows in a panel
constexpr int64_t kStepsAhead = 8;                               // of prefetch

// packed[tile of columns][vector of k][kColumnsOfTile columns]; columns behind the last are zero.
template <class Step>
HWY_INLINE void PackStep(const GemmArgs& args, int64_t panel, int64_t s, typename Step::Activation* HWY_RESTRICT packed) {
  using T = typename Step::Weight;
  constexpr int64_t kBlocks = Step::kDepth / 16;
  constexpr int64_t kVectorOfTile = kColumnsOfTile * Step::kVectorSize;
  const int64_t steps = (args.k + Step::kDepth - 1) / Step::kDepth, k_left = args.k - s * Step::kDepth;
  const int64_t columns = std::min(kPanel, args.n - panel * kPanel);
  const bool ahead = s + kStepsAhead < steps;
  alignas(64) T fractals[kBlocks * 256];
  Strides strides = {16, 256};
  const T* w = fractals;
  if (IsAlongK(args.layout)) {
    strides = StridesOf(args);
    w = FirstOfPanel<T>(args, panel) + s * kBlocks * strides.block;
  } else {
    for (int64_t b = 0; b < kBlocks && b * 16 < k_left; ++b) TransposeFractal(args, panel, s * kBlocks + b, fractals + b * 256);
  }
  for (int64_t j = 0; j < kPanel; ++j) {
    const T* column = w + j * strides.column;
    size_t block_stride = strides.block;
    T padded[Step::kDepth];
    if (k_left < Step::kDepth || j >= columns) {
      // Only the weights that exist are read: what lies behind them may be NaN, and 0 * NaN is not 0.
      std::fill_n(padded, Step::kDepth, T{});
      for (int64_t b = 0; j < columns && b < kBlocks && b * 16 < k_left; ++b) {
        std::memcpy(padded + b * 16, column + b * strides.block, std::min<int64_t>(16, k_left - b * 16) * sizeof(T));
      }
      column = padded;
      block_stride = 16;
    } else if (ahead && w != fractals) {
      for (int64_t b = 0; b < kBlocks; ++b) hwy::Prefetch(column + (kStepsAhead * kBlocks + b) * strides.block);
    }
    auto* out = packed + ((j / kColumnsOfTile * steps + s) * Step::kVectors * kColumnsOfTile + j % kColumnsOfTile) * Step::kVectorSize;
#pragma GCC unroll 16
    for (int v = 0; v < Step::kVectors; ++v) Step::StoreActivations(Step::LoadWeights(column, block_stride, v), out + v * kVectorOfTile);
  }
}

// `vectors` vectors of k of kRows x kColumnsOfTile sums, which start at zero or in `carry`, and end there or, added, in `result`.
template <class Math, int kRows>
HWY_INLINE void Tile(const typename Math::Activation* HWY_RESTRICT a, size_t a_stride, const typename Math::Activation* HWY_RESTRICT w,
                     int64_t vectors, bool first, bool last, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
  const DF df;
  VF sums[kRows][kColumnsOfTile];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumnsOfTile; ++j) sums[i][j] = first ? hn::Zero(df) : hn::Load(df, carry + (i * kColumnsOfTile + j) * kLanes);
  }
  for (int64_t v = 0; v < vectors; ++v) {
    decltype(Math::LoadActivations(w)) weights[kColumnsOfTile];
#pragma GCC unroll 16
    for (int j = 0; j < kColumnsOfTile; ++j) weights[j] = Math::LoadActivations(w + j * Math::kVectorSize);
    MultiplyTile<Math, kRows, kColumnsOfTile>(a, a_stride, weights, sums);
    a += Math::kVectorSize;
    w += kColumnsOfTile * Math::kVectorSize;
  }
  if (last) return AddLanesOfTile<kRows, kColumnsOfTile>(sums, result);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumnsOfTile; ++j) hn::Store(sums[i][j], df, carry + (i * kColumnsOfTile + j) * kLanes);
  }
}

struct Part {
  int64_t first_vector, vectors, row_vectors;  // of k: this part's, and all
  bool first, last;
};

template <class Math, int kRows>
void RowsOfPart(const typename Math::Activation* a, size_t a_stride, const typename Math::Activation* packed, const Part& part, float* carry,
                float* result) {
  a += part.first_vector * Math::kVectorSize;
  for (int t = 0; t < kTilesOfPanel; ++t) {
    const auto* w = packed + (t * part.row_vectors + part.first_vector) * (kColumnsOfTile * Math::kVectorSize);
    Tile<Math, kRows>(a, a_stride, w, part.vectors, part.first, part.last, carry + t * (kRowsOfTile * kColumnsOfTile * kLanes),
                      result + t * kColumnsOfTile);
  }
}

template <class Math, typename... Args>
void RowsOfPartOf(int rows, Args&&... args) {
  switch (rows) {
    case 1: return RowsOfPart<Math, 1>(args...);
    case 2: return RowsOfPart<Math, 2>(args...);
    case 3: return RowsOfPart<Math, 3>(args...);
    case 4: return RowsOfPart<Math, 4>(args...);
    case 5: return RowsOfPart<Math, 5>(args...);
    default: return RowsOfPart<Math, 6>(args...);
  }
}

// Rows [begin, begin + rows) with the packed panels [panel_begin, panel_end), packed_panel apart.
template <class Step>
void BlockOfRows(const GemmArgs& args, const void* activations, int64_t begin, int64_t rows, int64_t panel_begin, int64_t panel_end,
                 const typename Step::Activation* packed, int64_t packed_panel, float* carry) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const int64_t vectors = (args.k + Step::kDepth - 1) / Step::kDepth * Step::kVectors;
  const int64_t parts = std::max<int64_t>(1, (vectors * Step::kVectorSize * sizeof(A) + kPartBytes - 1) / kPartBytes);
  const int64_t tiles = (rows + kRowsOfTile - 1) / kRowsOfTile;  // of nearly equal size: 8 rows are 4 + 4, not 6 + 2
  alignas(64) float result[kRowsOfTile * kPanel];
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t first = vectors * p / parts;
    const Part part = {first, vectors * (p + 1) / parts - first, vectors, p == 0, p + 1 == parts};
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const int64_t n0 = panel * kPanel;
      const int columns = static_cast<int>(std::min(kPanel, args.n - n0));
      const T* bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + n0;
      const A* weights = packed + (panel - panel_begin) * packed_panel;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = begin + rows * tile / tiles;
        const int tile_rows = static_cast<int>(begin + rows * (tile + 1) / tiles - row);
        const A* a = static_cast<const A*>(activations) + row * a_stride;
        float* tile_carry = carry + ((panel - panel_begin) * (kBlockRows / kRowsOfTile) + tile) * kCarryFloats;
        RowsOfPartOf<typename Step::Math>(tile_rows, a, a_stride, weights, part, tile_carry, result);
        if (!part.last) continue;
        for (int i = 0; i < tile_rows; ++i) WriteRow(result + i * kPanel, bias, columns, static_cast<T*>(args.out) + (row + i) * args.ldo + n0);
      }
    }
  }
}

constexpr int64_t kCarryOfGroup = kGroup * (kBlockRows / kRowsOfTile) * kCarryFloats;

int64_t PrefillScratch(int64_t row_bytes) { return kCarryOfGroup * sizeof(float) + kGroup * kPanel * row_bytes; }

void PrefillRange(const GemmArgs& args, const void* activations, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                  void* scratch) {
  WithStep(args.type, [&](auto step) HWY_ATTR {
    using Step = decltype(step);
    auto* carry = static_cast<float*>(scratch);
    auto* packed = reinterpret_cast<typename Step::Activation*>(carry + kCarryOfGroup);
    const int64_t steps = (args.k + Step::kDepth - 1) / Step::kDepth, packed_panel = steps * Step::kDepth * kPanel;
    const int64_t rows = row_end - row_begin, blocks = (rows + kBlockRows - 1) / kBlockRows;
    for (int64_t first = panel_begin; first < panel_end; first += kGroup) {
      const int64_t end = std::min(first + kGroup, panel_end);
      for (int64_t s = 0; s < steps; ++s) {
        for (int64_t panel = first; panel < end; ++panel) PackStep<Step>(args, panel, s, packed + (panel - first) * packed_panel);
      }
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = row_begin + rows * block / blocks;
        BlockOfRows<Step>(args, activations, begin, row_begin + rows * (block + 1) / blocks - begin, first, end, packed, packed_panel, carry);
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(PrefillRange);
HWY_EXPORT(PrefillScratch);

void PrefillPanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  static thread_local ScratchBuffer scratch;
  char* buffer = scratch.Get(HWY_DYNAMIC_DISPATCH(PrefillScratch)(PackedRowBytes(args.type, args.k)));
  HWY_DYNAMIC_DISPATCH(PrefillRange)(args, packed, row_begin, row_end, panel_begin, panel_end, buffer);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
