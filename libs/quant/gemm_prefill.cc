// Prefill: many rows. The weights of a panel are packed once, in the order in which the tiles read them and as the multiplication wants
// them, and all rows go over them. A part of k is computed for all rows before the next, so that the packed weights of the part stay in the
// first-level cache; the sums wait in the second.
#include <algorithm>
#include <cstring>

#include "libs/quant/gemm_kernel.h"
#include "libs/quant/scratch_buffer.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/gemm_prefill.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/gemm_step-inl.h"
#include "libs/quant/gemm_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kRowsOfTile = 6, kColumnsOfTile = kManyRegisters ? 4 : 2, kTilesOfPanel = kPanel / kColumnsOfTile;
constexpr int64_t kPartBytes = 1280;     // of a row of k in a part: 16 packed columns and 6 rows are 28 KB
constexpr int64_t kBlockRows = 96;       // whose sums wait together
constexpr int64_t kCarryFloats = kRowsOfTile * kPanel * kLanes;  // of a tile of rows

// packed[tile of columns][vector of k][kColumnsOfTile columns]; columns behind the last are zero.
template <class Step>
void PackPanel(const GemmArgs& args, int64_t panel, typename Step::Activation* HWY_RESTRICT packed) {
  using T = typename Step::Weight;
  constexpr int64_t kBlocks = Step::kDepth / 16;
  constexpr int64_t kVectorOfTile = kColumnsOfTile * Step::kVectorSize;
  const int64_t steps = (args.k + Step::kDepth - 1) / Step::kDepth, whole = args.k / Step::kDepth;
  const int64_t columns = std::min(kPanel, args.n - panel * kPanel);
  const bool along_k = IsAlongK(args.layout);
  const Strides strides = along_k ? StridesOf(args) : Strides{16, 256};
  const T* base = static_cast<const T*>(args.w) + (args.layout == WeightLayout::kNK ? panel * kPanel * args.ldw : panel * 256);
  alignas(64) T fractals[kBlocks * 256];
  for (int64_t s = 0; s < steps; ++s) {
    const T* w = base + s * kBlocks * strides.block;
    if (!along_k) {
      for (int64_t b = 0; b < kBlocks && (s * kBlocks + b) * 16 < args.k; ++b) TransposeFractal(args, panel, s * kBlocks + b, fractals + b * 256);
      w = fractals;
    }
    for (int64_t j = 0; j < kPanel; ++j) {
      auto* out = packed + ((j / kColumnsOfTile * steps + s) * Step::kVectors * kColumnsOfTile + j % kColumnsOfTile) * Step::kVectorSize;
      const T* column = w + j * strides.column;
      size_t block_stride = strides.block;
      T padded[Step::kDepth];
      if (s == whole || j >= columns) {
        // Only the weights that exist are read: what lies behind them may be NaN, and 0 * NaN is not 0.
        std::fill_n(padded, Step::kDepth, T{});
        for (int64_t b = 0; j < columns && (s * kBlocks + b) * 16 < args.k && b < kBlocks; ++b) {
          std::memcpy(padded + b * 16, column + b * strides.block, std::min<int64_t>(16, args.k - (s * kBlocks + b) * 16) * sizeof(T));
        }
        column = padded;
        block_stride = 16;
      }
#pragma GCC unroll 16
      for (int v = 0; v < Step::kVectors; ++v) Step::StoreActivations(Step::LoadWeights(column, block_stride, v), out + v * kVectorOfTile);
    }
  }
}

// `vectors` vectors of k of kRows x kColumnsOfTile sums, which start at zero or in `carry`, and end there or, added, in `result`.
template <class Step, int kRows>
HWY_INLINE void Tile(const typename Step::Activation* HWY_RESTRICT a, size_t a_stride, const typename Step::Activation* HWY_RESTRICT w,
                     int64_t vectors, bool first, bool last, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
  const DF df;
  VF sums[kRows][kColumnsOfTile];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumnsOfTile; ++j) sums[i][j] = first ? hn::Zero(df) : hn::Load(df, carry + (i * kColumnsOfTile + j) * kLanes);
  }
  for (int64_t v = 0; v < vectors; ++v) {
    decltype(Step::LoadActivations(w)) weights[kColumnsOfTile];
#pragma GCC unroll 16
    for (int j = 0; j < kColumnsOfTile; ++j) weights[j] = Step::LoadActivations(w + j * Step::kVectorSize);
    MultiplyTile<Step, kRows, kColumnsOfTile>(a, a_stride, weights, sums);
    a += Step::kVectorSize;
    w += kColumnsOfTile * Step::kVectorSize;
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

template <class Step, int kRows>
void RowsOfPart(const typename Step::Activation* a, size_t a_stride, const typename Step::Activation* packed, const Part& part, float* carry,
                float* result) {
  a += part.first_vector * Step::kVectorSize;
  for (int t = 0; t < kTilesOfPanel; ++t) {
    const auto* w = packed + (t * part.row_vectors + part.first_vector) * (kColumnsOfTile * Step::kVectorSize);
    Tile<Step, kRows>(a, a_stride, w, part.vectors, part.first, part.last, carry + t * (kRowsOfTile * kColumnsOfTile * kLanes),
                      result + t * kColumnsOfTile);
  }
}

template <class Step, typename... Args>
void RowsOfPartOf(int rows, Args&&... args) {
  switch (rows) {
    case 1: return RowsOfPart<Step, 1>(args...);
    case 2: return RowsOfPart<Step, 2>(args...);
    case 3: return RowsOfPart<Step, 3>(args...);
    case 4: return RowsOfPart<Step, 4>(args...);
    case 5: return RowsOfPart<Step, 5>(args...);
    default: return RowsOfPart<Step, 6>(args...);
  }
}

// Rows [begin, begin + rows) with a packed panel.
template <class Step>
void BlockOfRows(const GemmArgs& args, const void* activations, int64_t begin, int64_t rows, int64_t panel,
                 const typename Step::Activation* packed, float* carry) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const int64_t vectors = (args.k + Step::kDepth - 1) / Step::kDepth * Step::kVectors;
  const int64_t parts = std::max<int64_t>(1, (vectors * Step::kVectorSize * sizeof(A) + kPartBytes - 1) / kPartBytes);
  const int64_t tiles = (rows + kRowsOfTile - 1) / kRowsOfTile;  // of nearly equal size: 8 rows are 4 + 4, not 6 + 2
  const int64_t n0 = panel * kPanel;
  const int columns = static_cast<int>(std::min(kPanel, args.n - n0));
  const T* bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + n0;
  alignas(64) float result[kRowsOfTile * kPanel];
  for (int64_t p = 0; p < parts; ++p) {
    const int64_t first = vectors * p / parts;
    const Part part = {first, vectors * (p + 1) / parts - first, vectors, p == 0, p + 1 == parts};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = begin + rows * tile / tiles;
      const int tile_rows = static_cast<int>(begin + rows * (tile + 1) / tiles - row);
      RowsOfPartOf<Step>(tile_rows, static_cast<const A*>(activations) + row * a_stride, a_stride, packed, part, carry + tile * kCarryFloats, result);
      if (!part.last) continue;
      for (int i = 0; i < tile_rows; ++i) WriteRow(result + i * kPanel, bias, columns, static_cast<T*>(args.out) + (row + i) * args.ldo + n0);
    }
  }
}

void PrefillRange(const GemmArgs& args, const void* activations, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end,
                  void* scratch) {
  WithStep(args.type, [&](auto step) HWY_ATTR {
    using Step = decltype(step);
    auto* carry = static_cast<float*>(scratch);
    auto* packed = reinterpret_cast<typename Step::Activation*>(carry + kBlockRows / kRowsOfTile * kCarryFloats);
    const int64_t rows = row_end - row_begin, blocks = (rows + kBlockRows - 1) / kBlockRows;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      PackPanel<Step>(args, panel, packed);
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t begin = row_begin + rows * block / blocks;
        BlockOfRows<Step>(args, activations, begin, row_begin + rows * (block + 1) / blocks - begin, panel, packed, carry);
      }
    }
  });
}

int64_t PrefillScratch(int64_t row_bytes) { return kBlockRows / kRowsOfTile * kCarryFloats * sizeof(float) + kPanel * row_bytes; }

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
