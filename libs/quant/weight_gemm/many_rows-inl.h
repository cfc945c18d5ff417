// Prefill: a panel of columns is decoded into the caches, and tiles of rows go over it. Included once per SIMD target.

#if defined(LIBS_QUANT_WEIGHT_GEMM_MANY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_WEIGHT_GEMM_MANY_ROWS_INL_H_
#undef LIBS_QUANT_WEIGHT_GEMM_MANY_ROWS_INL_H_
#else
#define LIBS_QUANT_WEIGHT_GEMM_MANY_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "libs/quant/weight_gemm/decoders-inl.h"
#include "libs/quant/weight_gemm/panel-inl.h"
#include "libs/quant/weight_gemm/weight_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {

// Rows of a tile and columns of a tile: their sums fill the registers. Where segments are short, half the rows, and the sums of the segments before
// stay in registers, too: with 6, storing and loading them would take as long as the products.
constexpr int kTileRows = 6, kShortTileRows = 3, kTileColumns = kLanes == 16 ? 4 : 2;
constexpr bool KeepsTotals(int rows) { return kLanes == 16 && rows <= kShortTileRows; }
constexpr int64_t kShortVectors = 8;
constexpr int64_t kPartBytes = 2400;  // of a decoded column in a part of k: more carries fewer sums over, and leaves the first-level cache
constexpr int64_t kCarryFloats = kPanelColumns * kLanes;  // of a row

struct Part {  // segments [first, last)
  int64_t first, last;
};

// decoded[tile of columns][vector of the part][kTileColumns]: a column's vectors, kTileColumns apart.
template <class Decoder>
HWY_INLINE void DecodeColumn(const Decoder& decoder, const WeightPlan& plan, const Part& part, const uint8_t* HWY_RESTRICT codes,
                             const uint8_t* HWY_RESTRICT tail, int64_t whole, typename Decoder::Element* HWY_RESTRICT out) {
  const hn::Repartition<typename Decoder::Element, DF> de;
  constexpr int kStride = kTileColumns * static_cast<int>(hn::MaxLanes(de));
  const int64_t chunks = plan.segment / Decoder::kChunk;
  for (int64_t s = part.first; s < part.last; ++s) {
    const uint8_t* p = s < whole ? codes + s * chunks * Decoder::kBytes : tail;
    for (int64_t c = 0; c < chunks; ++c) {
      hn::Vec<decltype(de)> w[Decoder::kVectors];
      decoder.Decode(p + c * Decoder::kBytes, w);
#pragma GCC unroll 8
      for (int v = 0; v < Decoder::kVectors; ++v) hn::Store(w[v], de, out + v * kStride);
      out += Decoder::kVectors * kStride;
    }
  }
}

// kRows x kTileColumns sums over a part of k. Each segment's products are summed in registers; its scaled sums join those of the segments before,
// which wait in `carry` [kRows][kTileColumns][lanes] if not in registers. After the last segment the sums go to `result` [kRows][kPanelColumns].
template <typename E, int kRows, bool kVary>
HWY_INLINE void Tile(const WeightPlan& plan, const Part& part, const E* HWY_RESTRICT w, const PanelScales& tables, size_t column, const char* packed,
                     int64_t row, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
  const hn::Repartition<E, DF> de;
  const DF df;
  constexpr size_t kPer = hn::MaxLanes(de);
  const EntryLoader<kVary> entry(tables);
  const size_t vectors = static_cast<size_t>(plan.segment) / kPer, row_stride = plan.unit == 0 ? 0 : static_cast<size_t>(plan.segment / plan.unit);
  const size_t row_elements = static_cast<size_t>(plan.row_bytes) / sizeof(E);
  const E* a = RowAt<E>(plan, packed, row).elements + part.first * plan.segment;
  VF totals[kRows][kTileColumns];
  const auto load_totals = [&](bool zero) HWY_ATTR {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) totals[r][c] = zero ? hn::Zero(df) : hn::Load(df, carry + (r * kTileColumns + c) * kLanes);
    }
  };
  const auto store_totals = [&] HWY_ATTR {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) hn::Store(totals[r][c], df, carry + (r * kTileColumns + c) * kLanes);
    }
  };
  const bool is_last = part.last == plan.segments;
  if (KeepsTotals(kRows)) load_totals(part.first == 0);
  for (int64_t s = part.first; s < part.last; ++s) {
    VF sums[kRows][kTileColumns];
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) sums[r][c] = hn::Zero(df);
    }
    for (size_t v = 0; v < vectors; ++v) {
      hn::Vec<decltype(de)> numbers[kTileColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) numbers[c] = hn::Load(de, w + static_cast<size_t>(c) * kPer);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        auto activations = hn::LoadU(de, a + static_cast<size_t>(r) * row_elements);
#if HWY_ARCH_X86
        // Without this, GCC reads the activations from memory again for each column, and the load ports become the limit.
        asm("" : "+v"(activations.raw));
#endif
#pragma GCC unroll 4
        for (int c = 0; c < kTileColumns; ++c) sums[r][c] = MultiplyAdd<E>(activations, numbers[c], sums[r][c]);
      }
      a += kPer;
      w += kTileColumns * kPer;
    }
    const size_t segment = static_cast<size_t>(s);
    if (tables.offset.data != nullptr) {
      const float* offset = tables.offset.data + column * tables.offset.row_stride + segment * tables.offset.segment_stride;
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const VF row_sums = hn::LoadU(df, RowAt<E>(plan, packed, row + r).sums + s * kLanes);
#pragma GCC unroll 4
        for (int c = 0; c < kTileColumns; ++c) {
          sums[r][c] = hn::MulAdd(row_sums, entry(offset + static_cast<size_t>(c) * tables.offset.row_stride), sums[r][c]);
        }
      }
    }
    const float* scale = tables.scale.data == nullptr ? nullptr : tables.scale.data + column * tables.scale.row_stride + segment * tables.scale.segment_stride;
    if (!KeepsTotals(kRows)) load_totals(s == 0);
#pragma GCC unroll 4
    for (int c = 0; c < kTileColumns; ++c) {
      const VF column_scale = scale == nullptr ? hn::Set(df, 1.0f) : entry(scale + static_cast<size_t>(c) * tables.scale.row_stride);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        VF by = column_scale;
        if (plan.rows_vary) by = hn::Mul(by, entry(RowAt<E>(plan, packed, row + r).scales + segment * row_stride));
        totals[r][c] = hn::MulAdd(sums[r][c], by, totals[r][c]);
      }
    }
    if (!KeepsTotals(kRows) && s + 1 < plan.segments) store_totals();
  }
  if (KeepsTotals(kRows) && !is_last) store_totals();
  if (!is_last) return;
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kTileColumns == 4) {
      AddLanes(totals[r][0], totals[r][1], totals[r][2], totals[r][3], result + r * kPanelColumns);
    } else {
      alignas(16) float two[4];
      AddLanes(totals[r][0], totals[r][1], hn::Zero(df), hn::Zero(df), two);
      std::memcpy(result + r * kPanelColumns, two, 2 * sizeof(float));
    }
  }
}

template <typename E, bool kVary, typename... Args>
void TileOf(int64_t rows, Args&&... args) {
  switch (rows) {
    case 1: return Tile<E, 1, kVary>(args...);
    case 2: return Tile<E, 2, kVary>(args...);
    case 3: return Tile<E, 3, kVary>(args...);
    case 4: return Tile<E, 4, kVary>(args...);
    case 5: return Tile<E, 5, kVary>(args...);
    default: return Tile<E, 6, kVary>(args...);
  }
}

// result[rows][kPanelColumns]: the scaled sums. One part of k at a time is decoded, and tiles of rows go over it: their activations and sums of the
// part stay in the first-level cache for all columns.
template <class Decoder, bool kVary>
void ManyRows(const Decoder& decoder, const WeightPlan& plan, const Codes& codes, const PanelScales& tables, const char* packed, int64_t rows, float* result) {
  using E = typename Decoder::Element;
  const bool is_short = kLanes == 16 && plan.segment <= kShortVectors * static_cast<int64_t>(hn::MaxLanes(hn::Repartition<E, DF>()));
  const int64_t tile_rows = is_short ? kShortTileRows : kTileRows;
  const int64_t tiles = (rows + tile_rows - 1) / tile_rows;  // of nearly equal size: 8 rows are 4 + 4, not 6 + 2
  const int64_t per_part = std::max<int64_t>(1, kPartBytes / (plan.segment * static_cast<int64_t>(sizeof(E))));
  const size_t depth = static_cast<size_t>(std::min(per_part, plan.segments) * plan.segment);
  Buffers& buffers = ThreadBuffers();
  float* carry = reinterpret_cast<float*>(Reserve(buffers.carry, static_cast<size_t>(rows * kCarryFloats) * sizeof(float)));
  E* decoded = reinterpret_cast<E*>(Reserve(buffers.decoded, depth * kPanelColumns * sizeof(E)));
  if (plan.segments == 0) std::fill_n(result, rows * kPanelColumns, 0.0f);
  const int64_t column_tiles = (codes.columns + kTileColumns - 1) / kTileColumns;
  for (int64_t first = 0; first < plan.segments; first += per_part) {
    const Part part = {first, std::min(plan.segments, first + per_part)};
    const size_t tile_elements = static_cast<size_t>((part.last - part.first) * plan.segment) * kTileColumns;
    for (int64_t c = 0; c < column_tiles * kTileColumns; ++c) {
      // Columns behind the last are repeated: their sums are not written.
      const int64_t source = std::min(c, codes.columns - 1);
      E* out = decoded + static_cast<size_t>(c / kTileColumns) * tile_elements + static_cast<size_t>(c % kTileColumns) * hn::MaxLanes(hn::Repartition<E, DF>());
      DecodeColumn(decoder, plan, part, codes.data + source * codes.stride, codes.tails[source], codes.whole, out);
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = rows * tile / tiles, count = rows * (tile + 1) / tiles - row;
      for (int64_t t = 0; t < column_tiles; ++t) {
        TileOf<E, kVary>(count, plan, part, decoded + static_cast<size_t>(t) * tile_elements, tables, static_cast<size_t>(t * kTileColumns), packed, row,
                         carry + row * kCarryFloats + t * count * kTileColumns * kLanes, result + row * kPanelColumns + t * kTileColumns);
      }
    }
  }
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
