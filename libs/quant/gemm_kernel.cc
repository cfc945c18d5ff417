#include "libs/quant/gemm_kernel.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <type_traits>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/gemm_kernel.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"

// How the sum is ordered. A row of 16 weights that are neighbours in k fills one or more vectors of L lanes, and lane l of an
// accumulator sums its share of every such row, from k = 0 up. At the end the lanes are added in a fixed tree. Nothing in this
// order knows m, the tile or the thread, and tiles differ only in how many of these independent sums are in flight.

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kMaxRows = 6;  // rows of `out` per tile

#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr bool kManyRegisters = true;  // 32 vector registers, else 16
#else
constexpr bool kManyRegisters = false;
#endif

// Columns per tile: as many as leave a few registers beside the accumulators, and a divisor of the panel.
constexpr int TileColumns(int rows) {
  if (kManyRegisters) return rows <= 3 ? 8 : 4;
  return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

// ---------------------------------------------------------------------------------------------------------------------
// Loading weights. `Step` says how one step along k of a row of weights becomes vectors, and in which order the activations lie.

template <typename T>
struct WideStep {  // the weight is widened to fp32
  using Weight = T;
  using Activation = float;
  static constexpr int kDepth = 16;  // along k
  static constexpr int kVectors = kDepth / kLanes;
  // bf16 widens cheaper by taking the even and the odd elements than in order.
  static constexpr bool kEvenOdd = sizeof(T) == 2 && std::is_same_v<T, hwy::bfloat16_t> && kLanes > 1 && kLanes <= 8;

  static HWY_INLINE VF LoadWeights(const T* HWY_RESTRICT w, size_t /*block_stride*/, int vector) {
    const DF df;
    if constexpr (kEvenOdd) {
      const hn::Repartition<T, DF> dt;
      const auto raw = hn::LoadU(dt, w + 2 * kLanes * (vector / 2));
      return vector % 2 == 0 ? hn::PromoteEvenTo(df, raw) : hn::PromoteOddTo(df, raw);
    } else {
      return quant::HWY_NAMESPACE::LoadF32(df, w + vector * kLanes);
    }
  }
  static HWY_INLINE VF LoadActivations(const float* a, int vector) { return hn::LoadU(DF(), a + vector * kLanes); }
  static HWY_INLINE VF MultiplyAdd(VF a, VF w, VF sum) { return hn::MulAdd(a, w, sum); }

  static HWY_INLINE void PackGroup(const T* in, float* out) {  // kDepth elements
    for (int v = 0; v < kVectors; ++v) hn::StoreU(LoadWeights(in, 0, v), DF(), out + v * kLanes);
  }
};

#if HWY_NATIVE_DOT_BF16
struct DotStep {  // pairs of bf16 products are summed by one instruction
  using Weight = hwy::bfloat16_t;
  using Activation = hwy::bfloat16_t;
  using DB = hn::Repartition<hwy::bfloat16_t, DF>;
  static constexpr int kDepth = 32;
  static constexpr int kVectors = kDepth / (2 * kLanes);

  static HWY_INLINE hn::Vec<DB> LoadWeights(const Weight* HWY_RESTRICT w, size_t block_stride, int vector) {
    if constexpr (kVectors == 1) {  // one vector spans two fractals
      const hn::Half<DB> dh;
      return hn::Combine(DB(), hn::LoadU(dh, w + block_stride), hn::LoadU(dh, w));
    } else {
      constexpr int kPerBlock = kVectors / 2;
      return hn::LoadU(DB(), w + (vector / kPerBlock) * block_stride + (vector % kPerBlock) * 2 * kLanes);
    }
  }
  static HWY_INLINE hn::Vec<DB> LoadActivations(const Activation* a, int vector) { return hn::LoadU(DB(), a + vector * 2 * kLanes); }
  static HWY_INLINE VF MultiplyAdd(hn::Vec<DB> a, hn::Vec<DB> w, VF sum) {
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), a, w, sum, unused);
  }
  static HWY_INLINE void PackGroup(const Weight* in, Activation* out) { std::memcpy(out, in, kDepth * sizeof(Weight)); }
};
#endif

// ---------------------------------------------------------------------------------------------------------------------
// One tile.

struct Weights {  // in elements: column j, step block b at b * block_stride + j * column_stride
  size_t column_stride;
  size_t block_stride;  // from 16 k's to the next 16
};

// Where the next tile's weights lie. The processor's own prefetch does not guess it: a tile reads several short streams.
enum class Prefetch { kNone, kNextPanel, kNextColumns };

// Adds the products of `steps` steps to the sums of kRows x kColumns elements.
template <class Step, int kRows, int kColumns>
HWY_INLINE void Accumulate(const typename Step::Activation* HWY_RESTRICT a, size_t a_stride,
                           const typename Step::Weight* HWY_RESTRICT w, const Weights& layout, Prefetch prefetch, size_t steps,
                           VF (&sums)[kRows][kColumns]) {
  constexpr int kBlocks = Step::kDepth / 16;
  for (size_t step = 0; step < steps; ++step) {
    if (prefetch == Prefetch::kNextPanel) {
      // The fractals of the next panel lie directly behind, in the same block row.
      constexpr int kBytes = kColumns * 16 * sizeof(typename Step::Weight);
      for (int block = 0; block < kBlocks; ++block) {
        for (int byte = 0; byte < kBytes; byte += 64) {
          hwy::Prefetch(reinterpret_cast<const char*>(w + block * layout.block_stride + kPanel * 16) + byte);
        }
      }
    } else if (prefetch == Prefetch::kNextColumns) {
      for (int j = 0; j < kColumns; ++j) hwy::Prefetch(w + (j + kColumns) * layout.column_stride);
    }
#pragma GCC unroll 16
    for (int v = 0; v < Step::kVectors; ++v) {
      decltype(Step::LoadWeights(w, 0, 0)) weights[kColumns];
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) weights[j] = Step::LoadWeights(w + j * layout.column_stride, layout.block_stride, v);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        auto activations = Step::LoadActivations(a + i * a_stride, v);
#if HWY_ARCH_X86
        // Without this, GCC reads the activations from memory again for each column, and the load ports become the limit.
        if constexpr (kColumns > 1) asm("" : "+v"(activations.raw));
#endif
#pragma GCC unroll 16
        for (int j = 0; j < kColumns; ++j) sums[i][j] = Step::MultiplyAdd(activations, weights[j], sums[i][j]);
      }
    }
    a += Step::kDepth;
    w += kBlocks * layout.block_stride;
  }
}

template <class D>
HWY_INLINE void AddBlocks(D d, hn::Vec<D> v, float* HWY_RESTRICT totals) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::Store(v, d, totals);
  } else {
    const hn::Half<D> dh;
    AddBlocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)), totals);
  }
}

// totals = the sums of the lanes of a, b, c and d: in each block of four (0 + 2) + (1 + 3), then the blocks as a tree.
HWY_INLINE void AddLanes(VF a, VF b, VF c, VF d, float* HWY_RESTRICT totals) {
  const DF df;
  if constexpr (kLanes < 4) {
    const VF sums[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) totals[i] = hn::ReduceSum(df, sums[i]);
  } else {
    const hn::Repartition<double, DF> d64;  // pairs of floats
    const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
    const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
    const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
    AddBlocks(df, hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)), hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64))), totals);
  }
}

// Steps [first_step, last_step) of the k axis. The sums between two such parts wait in `carry`; after the last part the results
// go to `result` [kRows][kPanel].
struct Part {
  size_t first_step, last_step, tail;  // tail: elements of k behind the last whole step, 0 unless this is the last part
  bool first, last;
};

template <class Step, int kRows, int kColumns>
HWY_INLINE void Tile(const typename Step::Activation* a, size_t a_stride, const typename Step::Weight* w,
                     const Weights& layout, Prefetch prefetch, const Part& part, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
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
  Accumulate<Step, kRows, kColumns>(a + part.first_step * Step::kDepth, a_stride, w + part.first_step * kBlocks * layout.block_stride, layout,
                                    prefetch, part.last_step - part.first_step, sums);
  if (part.tail != 0) {
    // Only the elements of k that exist are read: what lies behind them may be NaN, and 0 * NaN is not 0.
    T padded[kColumns][Step::kDepth] = {};
    for (int j = 0; j < kColumns; ++j) {
      for (size_t block = 0; block * 16 < part.tail; ++block) {
        std::memcpy(padded[j] + block * 16,
                    w + (part.last_step * kBlocks + block) * layout.block_stride + j * layout.column_stride,
                    std::min<size_t>(16, part.tail - block * 16) * sizeof(T));
      }
    }
    Accumulate<Step, kRows, kColumns>(a + part.last_step * Step::kDepth, a_stride, padded[0], {Step::kDepth, 16}, Prefetch::kNone, 1, sums);
  }
  if (!part.last) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) hn::Store(sums[i][j], df, carry + (i * kPanel + j) * kLanes);
    }
    return;
  }
  const VF zero = hn::Zero(df);
  constexpr int kSums = kRows * kColumns;
#pragma GCC unroll 16
  for (int s = 0; s < kSums; s += 4) {
    const auto sum = [&](int t) HWY_ATTR { return t < kSums ? sums[t / kColumns][t % kColumns] : zero; };
    alignas(16) float totals[4];
    AddLanes(sum(s), sum(s + 1), sum(s + 2), sum(s + 3), totals);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
      if (s + t < kSums) result[(s + t) / kColumns * kPanel + (s + t) % kColumns] = totals[t];
    }
  }
}

// One part of kRows rows of a panel of `columns` columns.
template <class Step, int kRows>
void PanelPart(const typename Step::Activation* a, size_t a_stride, const typename Step::Weight* w, const Weights& layout,
               int columns, Prefetch prefetch, const Part& part, float* carry, float* result) {
  constexpr int kColumns = TileColumns(kRows);
  int j = 0;
  for (; j + kColumns <= columns; j += kColumns) {
    Tile<Step, kRows, kColumns>(a, a_stride, w + j * layout.column_stride, layout, prefetch, part, carry + j * kLanes, result + j);
  }
  for (; j < columns; ++j) {
    Tile<Step, kRows, 1>(a, a_stride, w + j * layout.column_stride, layout, Prefetch::kNone, part, carry + j * kLanes, result + j);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Panels.

template <typename T>
void WriteRow(const float* result, const T* bias, int columns, T* out) {
  namespace fv = quant::HWY_NAMESPACE;
  const DF df;
  for (int j = 0; j < columns; j += kLanes) {
    const size_t count = std::min(kLanes, columns - j);
    VF sum = hn::Load(df, result + j);
    if (bias != nullptr) sum = hn::Add(sum, fv::LoadF32(df, bias + j, count));
    fv::StoreF32(df, sum, out + j, count);
  }
}

// The columns [first, first + columns) of a row-major [k, n] matrix, as a panel of fractals.
template <typename T>
void GatherPanel(const T* w, int64_t ldw, int64_t k, int columns, T* panel) {
  for (int64_t kk = 0; kk < k; ++kk) {
    T* out = panel + (kk / 16) * (16 * kPanel) + kk % 16;
    for (int j = 0; j < columns; ++j) out[j * 16] = w[kk * ldw + j];
  }
}

template <class Step, typename... Args>
void PanelPartOf(int rows, Args&&... args) {
  switch (rows) {
    case 1: return PanelPart<Step, 1>(args...);
    case 2: return PanelPart<Step, 2>(args...);
    case 3: return PanelPart<Step, 3>(args...);
    case 4: return PanelPart<Step, 4>(args...);
    case 5: return PanelPart<Step, 5>(args...);
    default: return PanelPart<Step, 6>(args...);
  }
}

// A range of rows and how it is cut: rows in tiles, and k in parts, of nearly equal size (8 rows are 4 + 4, not 6 + 2).
template <class Step>
struct Blocking {
  Blocking(const GemmArgs& args, int64_t row_begin, int64_t row_end, size_t max_part_depth)
      : row_begin(row_begin), rows(row_end - row_begin), num_tiles((rows + kMaxRows - 1) / kMaxRows), steps(args.k / Step::kDepth),
        tail(args.k % Step::kDepth), num_parts(std::max<size_t>(1, (args.k + max_part_depth - 1) / max_part_depth)) {}
  int64_t TileBegin(int64_t tile) const { return row_begin + rows * tile / num_tiles; }
  Part KPart(size_t part) const {
    const bool last = part + 1 == num_parts;
    return {steps * part / num_parts, steps * (part + 1) / num_parts, last ? tail : 0, part == 0, last};
  }
  const int64_t row_begin, rows, num_tiles;
  const size_t steps, tail, num_parts;
};

// Decode: few rows, and weights that come from memory. A panel of fractals lies in many short pieces, one for each 16 of k, but the pieces
// of neighbouring panels are contiguous. So some panels are computed side by side, a small part of k at a time: the memory sees a
// few long streams. The sums of all these panels wait in the first-level cache.
constexpr int64_t kStreamRows = 16;
template <class Step>
void StreamFractals(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const Blocking<Step> blocking(args, row_begin, row_end, 256 / sizeof(T));
  const Weights layout = {16, static_cast<size_t>((args.n + 15) / 16 * (16 * kPanel))};
  constexpr int64_t kCarryFloats = 4096;
  alignas(64) float carry[kStreamRows * kPanel * kLanes + kCarryFloats];
  alignas(64) float result[kMaxRows * kPanel];
  const int64_t carry_of_row = kPanel * kLanes, carry_of_panel = blocking.rows * carry_of_row;
  const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(std::size(carry)) / carry_of_panel);
  for (int64_t first = panel_begin; first < panel_end; first += group) {
    const int64_t end = std::min(panel_end, first + group);
    for (size_t p = 0; p < blocking.num_parts; ++p) {
      const Part part = blocking.KPart(p);
      for (int64_t panel = first; panel < end; ++panel) {
        const int64_t n0 = panel * kPanel;
        const int columns = static_cast<int>(std::min(kPanel, args.n - n0));
        const T* w = static_cast<const T*>(args.w) + panel * (kPanel * 16);
        for (int64_t tile = 0; tile < blocking.num_tiles; ++tile) {
          const int64_t row0 = blocking.TileBegin(tile);
          const int tile_rows = static_cast<int>(blocking.TileBegin(tile + 1) - row0);
          const A* a = static_cast<const A*>(packed) + row0 * a_stride;
          PanelPartOf<Step>(tile_rows, a, a_stride, w, layout, columns, tile == 0 ? Prefetch::kNextPanel : Prefetch::kNone, part,
                            carry + (panel - first) * carry_of_panel + (row0 - row_begin) * carry_of_row, result);
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

// Prefill, and the other layouts: one panel after the other; the tiles of rows go over it while it stays in the caches.
template <class Step>
void BlockPanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  const size_t a_stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  // A tile's activations stay in the first-level cache, with room for the weights to pass through.
  const Blocking<Step> blocking(args, row_begin, row_end, sizeof(T) == 4 ? 320 : 640);

  static thread_local std::unique_ptr<T[]> gathered;
  static thread_local int64_t gathered_size = 0;
  if (args.layout == WeightLayout::kKN && gathered_size < (args.k + 15) / 16 * 16 * kPanel) {
    gathered_size = (args.k + 15) / 16 * 16 * kPanel;
    gathered.reset(new T[gathered_size]);
  }

  alignas(64) float carry[kMaxRows * kPanel * kLanes];
  alignas(64) float result[kMaxRows * kPanel];
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t n0 = panel * kPanel;
    const int columns = static_cast<int>(std::min(kPanel, args.n - n0));
    const T* w = static_cast<const T*>(args.w);
    Weights layout;
    if (args.layout == WeightLayout::kNK) {
      w += n0 * args.ldw;
      layout = {static_cast<size_t>(args.ldw), 16};
    } else if (args.layout == WeightLayout::kFractalNz) {
      w += panel * (kPanel * 16);
      layout = {16, static_cast<size_t>((args.n + 15) / 16 * (16 * kPanel))};
    } else {
      GatherPanel(w + n0, args.ldw, args.k, columns, gathered.get());
      w = gathered.get();
      layout = {16, 16 * kPanel};
    }
    const T* bias = args.bias == nullptr ? nullptr : static_cast<const T*>(args.bias) + n0;

    for (int64_t tile = 0; tile < blocking.num_tiles; ++tile) {
      const int64_t row0 = blocking.TileBegin(tile);
      const int tile_rows = static_cast<int>(blocking.TileBegin(tile + 1) - row0);
      const A* a = static_cast<const A*>(packed) + row0 * a_stride;
      const Prefetch prefetch = tile != 0 || args.layout == WeightLayout::kKN ? Prefetch::kNone
                                : args.layout == WeightLayout::kNK            ? Prefetch::kNextColumns
                                                                              : Prefetch::kNextPanel;
      for (size_t p = 0; p < blocking.num_parts; ++p) {
        PanelPartOf<Step>(tile_rows, a, a_stride, w, layout, columns, prefetch, blocking.KPart(p), carry, result);
      }
      for (int i = 0; i < tile_rows; ++i) {
        WriteRow(result + i * kPanel, bias, columns, static_cast<T*>(args.out) + (row0 + i) * args.ldo + n0);
      }
    }
  }
}

template <class Step>
void Panels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  const bool stream = args.layout == WeightLayout::kFractalNz && row_end - row_begin <= kStreamRows;
  (stream ? StreamFractals<Step> : BlockPanels<Step>)(args, packed, row_begin, row_end, panel_begin, panel_end);
}

template <class Step>
void Pack(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  using T = typename Step::Weight;
  using A = typename Step::Activation;
  const int64_t stride = PackedRowBytes(args.type, args.k) / sizeof(A);
  const int64_t whole = args.k / Step::kDepth * Step::kDepth;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const T* in = static_cast<const T*>(args.a) + row * args.lda;
    A* out = static_cast<A*>(packed) + row * stride;
    for (int64_t k = 0; k < whole; k += Step::kDepth) Step::PackGroup(in + k, out + k);
    if (whole != args.k) {
      T padded[Step::kDepth] = {};
      std::memcpy(padded, in + whole, (args.k - whole) * sizeof(T));
      Step::PackGroup(padded, out + whole);
    }
  }
}

#if HWY_NATIVE_DOT_BF16
using BF16Step = DotStep;
#else
using BF16Step = WideStep<hwy::bfloat16_t>;
#endif

void PackRows(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  switch (args.type) {
    case DType::kF32: return Pack<WideStep<float>>(args, row_begin, row_end, packed);
    case DType::kF16: return Pack<WideStep<hwy::float16_t>>(args, row_begin, row_end, packed);
    case DType::kBF16: return Pack<BF16Step>(args, row_begin, row_end, packed);
  }
}

void PanelRange(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  switch (args.type) {
    case DType::kF32: return Panels<WideStep<float>>(args, packed, row_begin, row_end, panel_begin, panel_end);
    case DType::kF16: return Panels<WideStep<hwy::float16_t>>(args, packed, row_begin, row_end, panel_begin, panel_end);
    case DType::kBF16: return Panels<BF16Step>(args, packed, row_begin, row_end, panel_begin, panel_end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(PackRows);
HWY_EXPORT(PanelRange);

int64_t PackedRowBytes(DType, int64_t k) {
  // Room for fp32 and a whole step; not a multiple of 4 KiB, so that the rows of a tile fall into different cache sets.
  return ((k + 31) / 32 * 32 + 16) * static_cast<int64_t>(sizeof(float));
}

void PackActivations(const GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  HWY_DYNAMIC_DISPATCH(PackRows)(args, row_begin, row_end, packed);
}

void ComputePanels(const GemmArgs& args, const void* packed, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                   int64_t panel_end) {
  HWY_DYNAMIC_DISPATCH(PanelRange)(args, packed, row_begin, row_end, panel_begin, panel_end);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
