// Decode: few rows, and weights that come from memory, each used where it lies. The memory is to see a few long streams.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "libs/quant/gemm_kernel.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/gemm_decode.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/gemm_step-inl.h"
#include "libs/quant/gemm_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kMaxRows = 6;  // of a tile

// Columns per tile: as many as leave a few registers beside the accumulators, and a divisor of the panel.
constexpr int TileColumns(int rows) {
  if (kManyRegisters) return rows <= 3 ? 8 : 4;
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

// Steps [first_step, last_step) of the k axis. The sums between two such parts wait in `carry`; after the last part the results
// go to `result` [kRows][kPanel].
struct Part {
  size_t first_step, last_step, tail;  // tail: elements of k behind the last whole step, 0 unless this is the last part
  bool first, last;
};

// Adds the products of `steps` steps to the sums. `next_panel`: asks for the next panel's weights, which lie directly behind in the same block
// row; the processor's own prefetch does not guess them, as a tile reads several short streams.
template <class Step, int kRows, int kColumns>
HWY_INLINE void Accumulate(const typename Step::Activation* HWY_RESTRICT a, size_t a_stride, const typename Step::Weight* HWY_RESTRICT w,
                           const Strides& strides, bool next_panel, size_t steps, VF (&sums)[kRows][kColumns]) {
  constexpr int kBlocks = Step::kDepth / 16;
  for (size_t step = 0; step < steps; ++step) {
    if (next_panel) {
      constexpr int kBytes = kColumns * 16 * sizeof(typename Step::Weight);
      for (int block = 0; block < kBlocks; ++block) {
        for (int byte = 0; byte < kBytes; byte += 64) {
          hwy::Prefetch(reinterpret_cast<const char*>(w + block * strides.block + kPanel * 16) + byte);
        }
      }
    }
#pragma GCC unroll 16
    for (int v = 0; v < Step::kVectors; ++v) {
      decltype(Step::LoadWeights(w, 0, 0)) weights[kColumns];
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) weights[j] = Step::LoadWeights(w + j * strides.column, strides.block, v);
      MultiplyTile<typename Step::Math, kRows, kColumns>(a + v * Step::kVectorSize, a_stride, weights, sums);
    }
    a += Step::kDepth;
    w += kBlocks * strides.block;
  }
}

// kColumns columns, `strides.column` apart. Not inline: two callers share each, and compile in half the time.
template <class Step, int kRows, int kColumns>
HWY_NOINLINE void Tile(const typename Step::Activation* a, size_t a_stride, const typename Step::Weight* w, const Strides& strides,
                     bool next_panel, const Part& part, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
  using T = typename Step::Weight;
  constexpr size_t kBlocks = Step::kDepth / 16;
  const DF df;
  VF sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      sums[i][j] = part.first ? hn::Zero(df) : hn::Load(df, carry + (i * kPanel + j) * kLanes);
    }
  }
  T padded[kColumns][Step::kDepth];
  size_t first = part.first_step, steps = part.last_step - first;
  const T* from = w + first * kBlocks * strides.block;
  Strides steps_strides = strides;
  for (bool tail = part.tail != 0;; tail = false) {
    Accumulate<Step, kRows, kColumns>(a + first * Step::kDepth, a_stride, from, steps_strides, next_panel, steps, sums);
    if (!tail) break;
    // Only the elements of k that exist are read: what lies behind them may be NaN, and 0 * NaN is not 0.
    std::fill_n(padded[0], kColumns * Step::kDepth, T{});
    for (int j = 0; j < kColumns; ++j) {
      for (size_t block = 0; block * 16 < part.tail; ++block) {
        std::memcpy(padded[j] + block * 16, w + (part.last_step * kBlocks + block) * strides.block + j * strides.column,
                    std::min<size_t>(16, part.tail - block * 16) * sizeof(T));
      }
    }
    first = part.last_step;
    steps = 1;
    from = padded[0];
    steps_strides = {Step::kDepth, 16};
    next_panel = false;
  }
  if (part.last) return AddLanesOfTile<kRows, kColumns>(sums, result);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) hn::Store(sums[i][j], df, carry + (i * kPanel + j) * kLanes);
  }
}

// One part of kRows rows of a panel of `columns` columns.
template <class Step, int kRows>
void PanelPart(const typename Step::Activation* a, size_t a_stride, const typename Step::Weight* w, const Strides& strides, int columns,
               bool next_panel, const Part& part, float* carry, float* result) {
  constexpr int kColumns = TileColumns(kRows);
  int j = 0;
  for (; j + kColumns <= columns; j += kColumns) {
    Tile<Step, kRows, kColumns>(a, a_stride, w + j * strides.column, strides, next_panel, part, carry + j * kLanes, result + j);
  }
  for (; j < columns; ++j) {
    Tile<Step, kRows, 1>(a, a_stride, w + j * strides.column, strides, false, part, carry + j * kLanes, result + j);
  }
}

// Calls fn with `rows` as a constant of at most kMaxRows.
template <class Fn>
HWY_INLINE void WithRows(int rows, const Fn& fn) {
  switch (rows) {
    case 1: return fn(std::integral_constant<int, 1>());
    case 2: return fn(std::integral_constant<int, 2>());
    case 3: return fn(std::integral_constant<int, 3>());
    case 4: return fn(std::integral_constant<int, 4>());
    case 5: return fn(std::integral_constant<int, 5>());
    default: return fn(std::integral_constant<int, kMaxRows>());
  }
}

// A panel of fractals lies in many short pieces, one for each 16 of k, but the pieces of neighbouring panels are contiguous. So some panels are
// computed side by side, a small part of k at a time. The sums of all these panels wait in the first-level cache. Weights that are not
// neighbours along k are transposed into fractals, a part of the panels at a time.
template <class Step>
void StreamFractals(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  constexpr size_t kPartDepth = 256 / sizeof(T), kBlocks = Step::kDepth / 16;
  constexpr int64_t kTransposedPanels = 16;  // at a time
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const int64_t rows = row_end - row_begin, tiles = (rows + kMaxRows - 1) / kMaxRows;  // of nearly equal size: 8 rows are 4 + 4, not 6 + 2
  const size_t steps = args.k / Step::kDepth, tail = args.k % Step::kDepth;
  const size_t parts = std::max<size_t>(1, (args.k + kPartDepth - 1) / kPartDepth);
  const bool along_k = IsAlongK(args.layout);

  constexpr int64_t kCarryFloats = 4096;
  alignas(64) float carry[kDecodeRows * kPanel * kLanes + kCarryFloats];
  alignas(64) float result[kMaxRows * kPanel];
  alignas(64) T fractals[kTransposedPanels * kPanel * kPartDepth];  // of layouts across k: [block of k][panel][16][16]
  const int64_t carry_of_row = kPanel * kLanes, carry_of_panel = rows * carry_of_row;
  const int64_t group = std::clamp<int64_t>(static_cast<int64_t>(std::size(carry)) / carry_of_panel, 1, along_k ? INT64_MAX : kTransposedPanels);
  for (int64_t first = panel_begin; first < panel_end; first += group) {
    const int64_t end = std::min(panel_end, first + group);
    for (size_t p = 0; p < parts; ++p) {
      const bool last = p + 1 == parts;
      Part part = {steps * p / parts, steps * (p + 1) / parts, last ? tail : 0, p == 0, last};
      const T* w = static_cast<const T*>(args.w) + first * 256;
      Strides strides = StridesOf(args);
      if (!along_k) {
        const int64_t block = part.first_step * kBlocks, blocks = (part.last_step - part.first_step) * kBlocks + (part.tail + 15) / 16;
        for (int64_t b = 0; b < blocks; ++b) {
          for (int64_t panel = first; panel < end; ++panel) {
            TransposeFractal(args, panel, block + b, fractals + (b * (end - first) + panel - first) * 256);
          }
        }
        strides = {16, static_cast<size_t>(end - first) * 256};
        w = fractals - part.first_step * kBlocks * strides.block;
      }
      for (int64_t panel = first; panel < end; ++panel, w += 256) {
        const int64_t n0 = panel * kPanel;
        const int columns = static_cast<int>(std::min(kPanel, args.n - n0));
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t row0 = row_begin + rows * tile / tiles;
          const int tile_rows = static_cast<int>(row_begin + rows * (tile + 1) / tiles - row0);
          const A* a = static_cast<const A*>(packed) + row0 * a_stride;
          float* tile_carry = carry + (panel - first) * carry_of_panel + (row0 - row_begin) * carry_of_row;
          WithRows(tile_rows, [&](auto r) {
            PanelPart<Step, decltype(r)::value>(a, a_stride, w, strides, columns, along_k && tile == 0, part, tile_carry, result);
          });
          if (!part.last) continue;
          const T* bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + n0;
          for (int i = 0; i < tile_rows; ++i) {
            WriteRow(result + i * kPanel, bias, columns, static_cast<T*>(args.out) + (row0 + i) * args.ldo + n0);
          }
        }
      }
    }
  }
}

// `count` columns of each of kColumns streams of a row-major weight, which are `stream` columns apart; w is the first.
template <class Step, int kRows, int kColumns>
void ColumnsOfStreams(const GemmArgs& args, const typename Step::Activation* a, const typename Step::Weight* w, int64_t stream, int count,
                      int64_t row, int64_t n0) {
  using T = typename Step::Weight;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(typename Step::Activation);
  const Strides strides = {static_cast<size_t>(stream * args.ldw), 16};
  const Part whole = {0, static_cast<size_t>(args.k / Step::kDepth), static_cast<size_t>(args.k % Step::kDepth), true, true};
  alignas(64) float result[kRows * kPanel], results[kColumns][kRows][kPanel];
  for (int t = 0; t < count; ++t) {
    Tile<Step, kRows, kColumns>(a, a_stride, w + t * args.ldw, strides, false, whole, nullptr, result);
    for (int j = 0; j < kColumns; ++j) {
      for (int i = 0; i < kRows; ++i) results[j][i][t] = result[i * kPanel + j];
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    const T* bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + n0 + j * stream;
    for (int i = 0; i < kRows; ++i) {
      WriteRow(results[j][i], bias, count, static_cast<T*>(args.out) + (row + i) * args.ldo + n0 + j * stream);
    }
  }
}

// Columns [begin, end) of a row-major weight, as kColumns long streams, 16 columns of each at a time: a tile takes one column of every stream.
template <class Step, int kColumns>
void StreamColumns(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t begin, int64_t end) {
  using A = typename Step::Activation;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const int64_t stream = (end - begin) / kColumns, rows = row_end - row_begin, tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (int64_t c = 0; c < stream; c += kPanel) {
    const int count = static_cast<int>(std::min(kPanel, stream - c));
    const auto* w = static_cast<const typename Step::Weight*>(args.w) + (begin + c) * args.ldw;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = row_begin + rows * tile / tiles;
      const A* a = static_cast<const A*>(packed) + row * a_stride;
      WithRows(static_cast<int>(row_begin + rows * (tile + 1) / tiles - row), [&](auto r) {
        constexpr int kRows = decltype(r)::value;
        constexpr bool kUsed = kColumns == 1 || kColumns == TileColumns(kRows) || (kRows == 3 && kColumns == TileColumns(4));  // 7 rows: 3 + 4
        if constexpr (kUsed) ColumnsOfStreams<Step, kRows, kColumns>(args, a, w, stream, count, row, begin + c);
      });
    }
  }
  if constexpr (kColumns > 1) StreamColumns<Step, 1>(args, packed, row_begin, row_end, begin + stream * kColumns, end);
}

template <class Step>
void StreamRowMajor(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  const int64_t begin = panel_begin * kPanel, end = std::min(args.n, panel_end * kPanel), rows = row_end - row_begin;
  if (rows == 1) return StreamColumns<Step, TileColumns(1)>(args, packed, row_begin, row_end, begin, end);
  if (rows <= 3) return StreamColumns<Step, TileColumns(3)>(args, packed, row_begin, row_end, begin, end);
  return StreamColumns<Step, TileColumns(kMaxRows)>(args, packed, row_begin, row_end, begin, end);
}

void DecodeRange(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  WithStep(args.type, [&](auto step) {
    using Step = decltype(step);
    (args.layout == WeightLayout::kNK ? StreamRowMajor<Step> : StreamFractals<Step>)(args, packed, row_begin, row_end, panel_begin, panel_end);
  });
}

template <class Step>
void PackRow(const typename Step::Weight* in, int64_t k, typename Step::Activation* out) {
  using T = typename Step::Weight;
  const int64_t whole = k / Step::kDepth * Step::kDepth;
  const auto pack = [](const T* from, typename Step::Activation* to) HWY_ATTR {
    for (int v = 0; v < Step::kVectors; ++v) Step::StoreActivations(Step::LoadWeights(from, 16, v), to + v * Step::kVectorSize);
  };
  for (int64_t kk = 0; kk < whole; kk += Step::kDepth) pack(in + kk, out + kk);
  if (whole != k) {
    T padded[Step::kDepth] = {};
    std::memcpy(padded, in + whole, (k - whole) * sizeof(T));
    pack(padded, out + whole);
  }
}

void PackRows(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  WithStep(args.type, [&](auto step) {
    using Step = decltype(step);
    using A = typename Step::Activation;
    for (int64_t row = row_begin; row < row_end; ++row) {
      const auto* in = static_cast<const typename Step::Weight*>(args.a) + row * args.lda;
      PackRow<Step>(in, args.k, static_cast<A*>(packed) + row * (PackedRowBytes(args.type, args.k) / sizeof(A)));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(PackRows);
HWY_EXPORT(DecodeRange);

int64_t PackedRowBytes(DType, int64_t k) {
  // Room for fp32 and a whole step; not a multiple of 4 KiB, so that the rows of a tile fall into different cache sets.
  return ((k + 31) / 32 * 32 + 16) * static_cast<int64_t>(sizeof(float));
}

void PackActivations(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  HWY_DYNAMIC_DISPATCH(PackRows)(args, row_begin, row_end, packed);
}

void DecodePanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  HWY_DYNAMIC_DISPATCH(DecodeRange)(args, packed, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
