#include "libs/quant/weight_gemm/weight_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/weight_gemm/weight_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/weight_gemm/decoders-inl.h"
#include "libs/quant/weight_gemm/scale_rows-inl.h"

// How the sum is ordered: see the header. A sum has kLanes lanes, which a fixed tree adds at the end. Few rows are multiplied while the
// weight is in registers; for more, some columns are decoded into the first-level cache and tiles of rows go over them. Both do the same
// operations on an element in the same order.

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {

constexpr int kFewRows = 2, kTileRows = 3;
constexpr int kTileColumns = kLanes == 16 ? 4 : 2;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kDecodedDepth = 1024;  // k's that are decoded into the first-level cache; a multiple of kMaxSegment

template <class D>
HWY_INLINE void AddBlocks(D d, hn::Vec<D> v, float* HWY_RESTRICT totals) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, totals);
  } else {
    const hn::Half<D> dh;
    AddBlocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)), totals);
  }
}
// totals = the sums of the lanes of a, b, c and d: in each block of four (0 + 2) + (1 + 3), then the blocks as a tree.
HWY_INLINE void AddLanes(VF a, VF b, VF c, VF d, float* HWY_RESTRICT totals) {
  const DF df;
  const hn::Repartition<double, DF> d64;  // pairs of floats
  const VF ab = hn::Add(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = hn::Add(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(d64, ab), cd64 = hn::BitCast(d64, cd);
  AddBlocks(df, hn::Add(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)), hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64))), totals);
}

// The tables of a panel, and how a segment's entry becomes a vector.
struct PanelScales {
  ScaleRows scale, offset;  // data may be null
  alignas(64) int32_t lane_unit[16] = {};
};
template <bool kVary>
struct EntryLoader {
  HWY_INLINE explicit EntryLoader(const PanelScales& scales) : lanes(hn::SetTableIndices(DF(), scales.lane_unit)) {}
  HWY_INLINE VF operator()(const float* p) const { return kVary ? hn::TableLookupLanes(hn::LoadU(DF(), p), lanes) : hn::Set(DF(), *p); }
  decltype(hn::SetTableIndices(DF(), static_cast<const int32_t*>(nullptr))) lanes;
};

// The parts of a packed row.
template <typename E>
struct PackedRow {
  const E* elements;
  const float* sums;
  const float* scales;  // null if they don't vary along k
};
template <typename E>
HWY_INLINE PackedRow<E> RowAt(const WeightPlan& plan, const char* packed, int64_t row) {
  const char* p = packed + row * plan.row_bytes;
  return {reinterpret_cast<const E*>(p), reinterpret_cast<const float*>(p + plan.sums_at),
          plan.rows_vary ? reinterpret_cast<const float*>(p + plan.scales_at) : nullptr};
}

// total + (part + offset * sum of activations) * scales, of one segment.
template <bool kVary, typename E>
HWY_INLINE VF AddSegment(const EntryLoader<kVary>& entry, VF part, VF scale, const float* offset, const PackedRow<E>& row, int64_t segment,
                         size_t row_entry, VF total) {
  if (offset != nullptr) part = hn::MulAdd(hn::LoadU(DF(), row.sums + segment * kLanes), entry(offset), part);
  if (row.scales != nullptr) scale = hn::Mul(scale, entry(row.scales + row_entry));
  return hn::MulAdd(part, scale, total);
}

// ---------------------------------------------------------------------------------------------------------------------
// Few rows: a column's sums while its codes are decoded.

// kOnlyScale: the weight has scales, and nothing else varies along k.
template <class Decoder, int kRows, bool kVary, bool kOnlyScale>
HWY_INLINE void Column(const Decoder& decoder, const WeightPlan& plan, const uint8_t* HWY_RESTRICT codes, const uint8_t* HWY_RESTRICT tail,
                       int64_t whole, const float* scale, const float* offset, const PanelScales& tables,
                       const PackedRow<typename Decoder::Element>* rows, VF (&totals)[kRows]) {
  using E = typename Decoder::Element;
  const hn::Repartition<E, DF> de;
  constexpr size_t kPer = hn::MaxLanes(de);
  const EntryLoader<kVary> entry(tables);
  const int64_t chunks = kVary || Decoder::kChunk == kMaxSegment ? 1 : plan.segment / Decoder::kChunk;
  const size_t row_stride = plan.unit == 0 ? 0 : static_cast<size_t>(plan.segment / plan.unit);
  const size_t scale_stride = tables.scale.segment_stride, offset_stride = tables.offset.segment_stride;
  size_t at = 0;
  for (int r = 0; r < kRows; ++r) totals[r] = hn::Zero(DF());
  const uint8_t* p = codes;
  for (int64_t s = 0; s < plan.segments; ++s, p += chunks * Decoder::kBytes) {
    if (s == whole) p = tail;
    // The columns that follow lie behind. The processor's own prefetch starts anew at each page and is too late for so little work per byte.
    // Into the second-level cache: the misses that the first may wait for are too few to keep the memory busy.
    for (int64_t byte = 0; byte < chunks * Decoder::kBytes; byte += 64) __builtin_prefetch(p + byte + kPrefetchBytes, /*rw=*/0, /*locality=*/2);
    VF parts[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) parts[r] = hn::Zero(DF());
#pragma GCC unroll 4
    for (int64_t c = 0; c < chunks; ++c) {
      hn::Vec<decltype(de)> w[Decoder::kVectors];
      decoder.Decode(p + c * Decoder::kBytes, w);
#pragma GCC unroll 8
      for (int v = 0; v < Decoder::kVectors; ++v) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) parts[r] = MultiplyAdd<E>(hn::LoadU(de, rows[r].elements + at), w[v], parts[r]);
        at += kPer;
      }
    }
    if constexpr (kOnlyScale) {
      const VF by = entry(scale);
      scale += scale_stride;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) totals[r] = hn::MulAdd(parts[r], by, totals[r]);
    } else {
      const VF by = scale == nullptr ? hn::Set(DF(), 1.0f) : entry(scale + static_cast<size_t>(s) * scale_stride);
      const float* o = offset == nullptr ? nullptr : offset + static_cast<size_t>(s) * offset_stride;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) totals[r] = AddSegment<kVary, E>(entry, parts[r], by, o, rows[r], s, static_cast<size_t>(s) * row_stride, totals[r]);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Many rows: columns are decoded into `decoded`, and tiles of rows go over them.

struct Part {  // segments [first, last)
  int64_t first, last;
  bool is_first, is_last;
};

template <typename E, int kRows, bool kVary>
HWY_INLINE void Tile(const WeightPlan& plan, const Part& part, const E* HWY_RESTRICT decoded, const PanelScales& tables, int column, const char* packed,
                     int64_t row, float* HWY_RESTRICT carry, float* HWY_RESTRICT result) {
  const hn::Repartition<E, DF> de;
  const DF df;
  constexpr size_t kPer = hn::MaxLanes(de);
  const EntryLoader<kVary> entry(tables);
  const size_t vectors = static_cast<size_t>(plan.segment) / kPer, row_stride = plan.unit == 0 ? 0 : static_cast<size_t>(plan.segment / plan.unit);
  PackedRow<E> rows[kRows];
  VF totals[kRows][kTileColumns];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    rows[r] = RowAt<E>(plan, packed, row + r);
#pragma GCC unroll 4
    for (int c = 0; c < kTileColumns; ++c) {
      totals[r][c] = part.is_first ? hn::Zero(df) : hn::LoadU(df, carry + (r * kTileColumns + c) * kLanes);
    }
  }
  const float* scale = tables.scale.data == nullptr ? nullptr : tables.scale.data + static_cast<size_t>(column) * tables.scale.row_stride;
  const float* offset = tables.offset.data == nullptr ? nullptr : tables.offset.data + static_cast<size_t>(column) * tables.offset.row_stride;
  size_t at = static_cast<size_t>(part.first * plan.segment);
  const E* w = decoded;
  for (int64_t s = part.first; s < part.last; ++s) {
    VF parts[kRows][kTileColumns];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) parts[r][c] = hn::Zero(df);
    }
    for (size_t v = 0; v < vectors; ++v) {
      hn::Vec<decltype(de)> numbers[kTileColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) numbers[c] = hn::Load(de, w + c * kDecodedDepth);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        auto activations = hn::LoadU(de, rows[r].elements + at);
#if HWY_ARCH_X86
        // Without this, GCC reads the activations from memory again for each column, and the load ports become the limit.
        asm("" : "+v"(activations.raw));
#endif
#pragma GCC unroll 4
        for (int c = 0; c < kTileColumns; ++c) parts[r][c] = MultiplyAdd<E>(activations, numbers[c], parts[r][c]);
      }
      at += kPer;
      w += kPer;
    }
    const size_t segment = static_cast<size_t>(s);
#pragma GCC unroll 4
    for (int c = 0; c < kTileColumns; ++c) {
      const size_t column_at = static_cast<size_t>(c);
      const VF by = scale == nullptr ? hn::Set(df, 1.0f) : entry(scale + column_at * tables.scale.row_stride + segment * tables.scale.segment_stride);
      const float* o = offset == nullptr ? nullptr : offset + column_at * tables.offset.row_stride + segment * tables.offset.segment_stride;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) totals[r][c] = AddSegment<kVary, E>(entry, parts[r][c], by, o, rows[r], s, segment * row_stride, totals[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    if (!part.is_last) {
#pragma GCC unroll 4
      for (int c = 0; c < kTileColumns; ++c) hn::StoreU(totals[r][c], df, carry + (r * kTileColumns + c) * kLanes);
    } else if constexpr (kTileColumns == 4) {
      AddLanes(totals[r][0], totals[r][1], totals[r][2], totals[r][3], result + r * kPanelColumns);
    } else {
      float sums[4];
      AddLanes(totals[r][0], totals[r][1], hn::Zero(df), hn::Zero(df), sums);
      std::memcpy(result + r * kPanelColumns, sums, 2 * sizeof(float));
    }
  }
}

template <class Decoder>
HWY_INLINE void DecodeColumn(const Decoder& decoder, const WeightPlan& plan, const Part& part, const uint8_t* HWY_RESTRICT codes,
                             const uint8_t* HWY_RESTRICT tail, int64_t whole, typename Decoder::Element* HWY_RESTRICT out) {
  const hn::Repartition<typename Decoder::Element, DF> de;
  const int64_t chunks = plan.segment / Decoder::kChunk;
  for (int64_t s = part.first; s < part.last; ++s) {
    const uint8_t* p = s < whole ? codes + s * chunks * Decoder::kBytes : tail;
    for (int64_t c = 0; c < chunks; ++c) {
      hn::Vec<decltype(de)> w[Decoder::kVectors];
      decoder.Decode(p + c * Decoder::kBytes, w);
#pragma GCC unroll 8
      for (int v = 0; v < Decoder::kVectors; ++v) hn::Store(w[v], de, out + v * static_cast<int>(hn::MaxLanes(de)));
      out += Decoder::kChunk;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// A panel.

struct Buffers {  // of a thread, kept for the next call
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets, carry, result, gate;
};
Buffers& ThreadBuffers() {
  static thread_local Buffers buffers;
  return buffers;
}
template <typename T>
T* Reserve(std::vector<T>& v, size_t size) {
  if (v.size() < size) v.resize(size);
  return v.data();
}

struct Codes {
  const uint8_t* data;  // column c at data + c * stride
  int64_t stride, columns;
  int64_t whole;        // segments before the one that ends behind k: tails[c]
  const uint8_t* tails[kPanelColumns];
};

template <class Decoder, int kRows, bool kVary, bool kOnlyScale>
void FewRows(const Decoder& decoder, const WeightPlan& plan, const Codes& codes, const PanelScales& tables, const char* packed, float* result) {
  using E = typename Decoder::Element;
  PackedRow<E> rows[kRows];
  for (int r = 0; r < kRows; ++r) rows[r] = RowAt<E>(plan, packed, r);
  for (int64_t c = 0; c < codes.columns; c += 4) {
    VF totals[4][kRows];
    for (int64_t i = 0; i < 4; ++i) {
      if (c + i >= codes.columns) {
        for (int r = 0; r < kRows; ++r) totals[i][r] = hn::Zero(DF());
        continue;
      }
      const size_t column = static_cast<size_t>(c + i);
      const float* scale = tables.scale.data == nullptr ? nullptr : tables.scale.data + column * tables.scale.row_stride;
      const float* offset = tables.offset.data == nullptr ? nullptr : tables.offset.data + column * tables.offset.row_stride;
      const uint8_t* data = codes.data + (c + i) * codes.stride;
      Column<Decoder, kRows, kVary, kOnlyScale>(decoder, plan, data, codes.tails[column], codes.whole, scale, offset, tables, rows, totals[i]);
    }
    for (int r = 0; r < kRows; ++r) AddLanes(totals[0][r], totals[1][r], totals[2][r], totals[3][r], result + r * kPanelColumns + c);
  }
}

template <class Decoder, bool kVary>
void ManyRows(const Decoder& decoder, const WeightPlan& plan, const Codes& codes, const PanelScales& tables, const char* packed, int64_t rows,
              float* carry, float* result) {
  using E = typename Decoder::Element;
  alignas(64) E decoded[kTileColumns * kDecodedDepth];
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows, per_part = kDecodedDepth / plan.segment;
  for (int column = 0; column < codes.columns; column += kTileColumns) {
    for (int64_t first = 0; first == 0 || first < plan.segments; first += per_part) {
      const int64_t last = std::min(plan.segments, first + per_part);
      const Part part = {first, last, first == 0, last == plan.segments};
      for (int c = 0; c < kTileColumns; ++c) {
        // Columns behind the last are repeated: their sums are not written.
        const int64_t source = std::min<int64_t>(column + c, codes.columns - 1);
        DecodeColumn(decoder, plan, part, codes.data + source * codes.stride, codes.tails[source], codes.whole, decoded + c * kDecodedDepth);
      }
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = rows * tile / tiles, count = rows * (tile + 1) / tiles - row;
        float* tile_carry = carry + row * kTileColumns * kLanes;
        float* to = result + row * kPanelColumns + column;
        switch (count) {
          case 1: Tile<E, 1, kVary>(plan, part, decoded, tables, column, packed, row, tile_carry, to); break;
          case 2: Tile<E, 2, kVary>(plan, part, decoded, tables, column, packed, row, tile_carry, to); break;
          default: Tile<E, 3, kVary>(plan, part, decoded, tables, column, packed, row, tile_carry, to); break;
        }
      }
    }
  }
}

template <class Decoder, bool kVary>
void MultiplyPanel(const Decoder& decoder, const WeightPlan& plan, const Codes& codes, const PanelScales& tables, const char* packed, int64_t rows,
                   float* carry, float* result) {
  const bool only_scale = tables.scale.data != nullptr && tables.offset.data == nullptr && !plan.rows_vary;
  switch (rows) {
    case 1: return (only_scale ? FewRows<Decoder, 1, kVary, true> : FewRows<Decoder, 1, kVary, false>)(decoder, plan, codes, tables, packed, result);
    case 2: return (only_scale ? FewRows<Decoder, 2, kVary, true> : FewRows<Decoder, 2, kVary, false>)(decoder, plan, codes, tables, packed, result);
    default: return ManyRows<Decoder, kVary>(decoder, plan, codes, tables, packed, rows, carry, result);
  }
}

// result[rows][16]: the scaled sums over k of the columns [first, first + columns).
void SumPanel(const WeightGemmArgs& args, const WeightPlan& plan, int64_t first, int64_t columns, const char* packed, int64_t rows, float* result) {
  Buffers& buffers = ThreadBuffers();
  const int64_t row_codes = (args.k * Bits(args.format) + 7) / 8, segment_codes = plan.segment * Bits(args.format) / 8;
  Codes codes{nullptr, 0, columns, row_codes / segment_codes, {}};
  if (args.k % 2 != 0 && Bits(args.format) == 4) codes.whole = args.k / plan.segment;
  if (args.layout == CodeLayout::kNK) {
    codes.data = static_cast<const uint8_t*>(args.w) + first * args.ldw;
    codes.stride = args.ldw;
  } else {
    codes.stride = (row_codes + 63) / 64 * 64;
    uint8_t* out = Reserve(buffers.codes, static_cast<size_t>(codes.stride * kPanelColumns + kMaxSegment));
    GatherCodes(args, first, columns, out, codes.stride);
    codes.data = out;
  }
  alignas(64) uint8_t copies[kPanelColumns][kMaxSegment];
  if (codes.whole < plan.segments) {
    const int64_t done = codes.whole * segment_codes, padded = plan.segments * segment_codes;
    // Behind k the activations are 0. Numbers without NaN may be read there as they are, as long as they belong to the matrix.
    const bool any_number = args.format == Format::kI4 || args.format == Format::kE2M1 || args.format == Format::kI8;
    for (int64_t c = 0; c < columns; ++c) {
      const uint8_t* from = codes.data + c * codes.stride + done;
      const bool inside = args.layout != CodeLayout::kNK || padded <= (args.n - 1 - first - c) * args.ldw + row_codes;
      codes.tails[c] = from;
      if (any_number && inside) continue;
      std::memset(copies[c], 0, kMaxSegment);
      std::memcpy(copies[c], from, static_cast<size_t>(row_codes - done));
      if (args.k % 2 != 0 && Bits(args.format) == 4) copies[c][row_codes - done - 1] &= 15;
      codes.tails[c] = copies[c];
    }
  }

  PanelScales tables;
  const size_t floats = ScaleRowsFloats(plan, kPanelColumns);
  tables.scale = MakeScaleRows(args.w_scale, args.k, plan, first, columns, Reserve(buffers.scales, floats));
  tables.offset = MakeScaleRows(args.w_offset, args.k, plan, first, columns, Reserve(buffers.offsets, floats));
  for (int l = 0; plan.lanes_vary && l < kLanes; ++l) tables.lane_unit[l] = static_cast<int32_t>(l * plan.chunk / kLanes / plan.unit);

  float* carry = rows <= kFewRows ? nullptr : Reserve(buffers.carry, static_cast<size_t>(rows) * kTileColumns * kLanes);
  WithDecoder(args.format, plan.dot, [&](const auto& decoder) {
    using Decoder = std::decay_t<decltype(decoder)>;
    if constexpr (Decoder::kChunk > kLeastUnit) {
      if (plan.lanes_vary) return MultiplyPanel<Decoder, true>(decoder, plan, codes, tables, packed, rows, carry, result);
    }
    MultiplyPanel<Decoder, false>(decoder, plan, codes, tables, packed, rows, carry, result);
  });
}

template <typename T>
void WriteRow(const float* result, int64_t columns, T* out) {
  for (int64_t j = 0; j < columns; j += kLanes) {
    const size_t count = static_cast<size_t>(std::min<int64_t>(kLanes, columns - j));
    quant::HWY_NAMESPACE::StoreF32(DF(), hn::LoadU(DF(), result + j), out + j, count);
  }
}

// Scales of rows that don't vary along k, then the bias. result[rows][16]
void FinishSums(const WeightGemmArgs& args, const WeightPlan& plan, int64_t row_begin, int64_t rows, int64_t first, int64_t columns, float* result) {
  const DF df;
  alignas(64) float bias[kPanelColumns] = {};
  if (args.bias != nullptr) {
    const Scales as_scales = {.data = args.bias,
                              .type = args.bias_type == DType::kF32   ? ScaleType::kF32
                                      : args.bias_type == DType::kF16 ? ScaleType::kF16
                                                                      : ScaleType::kBF16};
    WeightPlan one = plan;
    one.lanes_vary = false;
    MakeScaleRows(as_scales, args.k, one, first, columns, bias);
  }
  const bool scaled = args.a_scale.data != nullptr && !Varies(args.a_scale, args.k);
  if (!scaled && args.bias == nullptr) return;
  std::vector<float>& scales = ThreadBuffers().scales;
  WeightPlan one = plan;
  one.lanes_vary = false;
  const ScaleRows table = scaled ? MakeScaleRows(args.a_scale, args.k, one, row_begin, rows, Reserve(scales, ScaleRowsFloats(one, rows))) : ScaleRows();
  for (int64_t r = 0; r < rows; ++r) {
    const VF scale = hn::Set(df, scaled ? table.data[r] : 1.0f);
    for (int64_t j = 0; j < kPanelColumns; j += kLanes) {
      float* p = result + r * kPanelColumns + j;
      hn::StoreU(hn::MulAdd(hn::LoadU(df, p), scale, hn::Load(df, bias + j)), df, p);
    }
  }
}

void ComputePanel(const WeightGemmArgs& args, const WeightPlan& plan, int64_t row_begin, int64_t row_end, int64_t column, const char* packed) {
  Buffers& buffers = ThreadBuffers();
  const int64_t rows = row_end - row_begin, width = args.epilogue == Epilogue::kSwiGlu ? args.n / 2 : args.n;
  const int64_t columns = std::min(kPanelColumns, width - column);
  float* result = Reserve(buffers.result, static_cast<size_t>(rows * kPanelColumns));
  SumPanel(args, plan, column, columns, packed, rows, result);
  FinishSums(args, plan, row_begin, rows, column, columns, result);
  if (args.epilogue == Epilogue::kSwiGlu) {
    float* up = Reserve(buffers.gate, static_cast<size_t>(rows * kPanelColumns));
    SumPanel(args, plan, width + column, columns, packed, rows, up);
    FinishSums(args, plan, row_begin, rows, width + column, columns, up);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) {
        const float gate = result[r * kPanelColumns + j];
        result[r * kPanelColumns + j] = gate / (1.0f + std::exp(-gate)) * up[r * kPanelColumns + j];
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    char* out = static_cast<char*>(args.out) + (row_begin + r) * args.ldo + column * SizeOf(args.out_type);
    const float* from = result + r * kPanelColumns;
    switch (args.out_type) {
      case DType::kF32: WriteRow(from, columns, reinterpret_cast<float*>(out)); break;
      case DType::kF16: WriteRow(from, columns, reinterpret_cast<hwy::float16_t*>(out)); break;
      case DType::kBF16: WriteRow(from, columns, reinterpret_cast<hwy::bfloat16_t*>(out)); break;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Activations.

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

void FinishPlan(const WeightGemmArgs& args, WeightPlan& plan) {
  plan.dot = JUMAR_WEIGHT_GEMM_DOT && (args.activations.is_format || args.activations.type == DType::kBF16);
  int64_t element = 4;
  WithDecoder(args.format, plan.dot, [&](const auto& decoder) {
    plan.chunk = std::decay_t<decltype(decoder)>::kChunk;
    element = sizeof(typename std::decay_t<decltype(decoder)>::Element);
  });
  plan.lanes_vary = plan.unit != 0 && plan.unit < plan.chunk;
  plan.segment = std::max(plan.chunk, plan.unit == 0 ? kMaxSegment : plan.unit);
  // Rather more segments than one that ends behind k.
  while (plan.unit == 0 && args.k % plan.segment != 0 && plan.segment / 2 >= plan.chunk) plan.segment /= 2;
  if (args.k % plan.segment != 0) plan.segment = std::max(plan.chunk, plan.unit == 0 ? kMaxSegment : plan.unit);
  plan.segments = (args.k + plan.segment - 1) / plan.segment;
  plan.sums_at = RoundUp(plan.segments * plan.segment * element, 64);
  plan.scales_at = plan.sums_at + (args.w_offset.data == nullptr ? 0 : plan.segments * kLanes * 4);
  plan.scales_at = RoundUp(plan.scales_at, 64);
  // A multiple of 64, but for rows' sake not of 4 KiB: the rows of a tile fall into different cache sets.
  plan.row_bytes = plan.scales_at + 64;
  plan.rows_vary = Varies(args.a_scale, args.k);
  if (plan.rows_vary) plan.row_bytes += RoundUp((plan.units() + static_cast<int64_t>(kScalePad)) * 4, 64);
  if (plan.row_bytes % 4096 == 0) plan.row_bytes += 64;
}

template <typename E>
E FromFloat(float value) {
  if constexpr (sizeof(E) == 4) {
    return value;
  } else {  // exact: the activations are bf16, or codes
    return hwy::BitCastScalar<E>(static_cast<uint16_t>(hwy::BitCastScalar<uint32_t>(value) >> 16));
  }
}

// in[k] in order, zero behind k up to `padded`.
template <typename E>
void LoadRow(const WeightGemmArgs& args, int64_t row, int64_t padded, E* out) {
  const char* in = static_cast<const char*>(args.a) + row * args.lda;
  std::fill(out + args.k, out + padded, E{});
  if (args.activations.is_format) {
    const std::array<float, 256>& table = Decoded(args.activations.format).f32;
    const auto* codes = reinterpret_cast<const uint8_t*>(in);
    const bool nibbles = Bits(args.activations.format) == 4;
    for (int64_t i = 0; i < args.k; ++i) out[i] = FromFloat<E>(table[nibbles ? codes[i / 2] >> i % 2 * 4 & 15 : codes[i]]);
    return;
  }
  if constexpr (sizeof(E) == 2) {
    std::memcpy(out, in, static_cast<size_t>(args.k) * sizeof(E));
  } else {
    switch (args.activations.type) {
      case DType::kF32: std::memcpy(out, in, static_cast<size_t>(args.k) * sizeof(E)); break;
      case DType::kF16: Widen(reinterpret_cast<const hwy::float16_t*>(in), args.k, out); break;
      case DType::kBF16: Widen(reinterpret_cast<const hwy::bfloat16_t*>(in), args.k, out); break;
    }
  }
}

HWY_INLINE VF Value(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF Value(const hwy::bfloat16_t* p) {  // the sums of pairs
  const auto pairs = hn::LoadU(DB(), p);
  return hn::Add(hn::PromoteEvenTo(DF(), pairs), hn::PromoteOddTo(DF(), pairs));
}

template <class Decoder>
void PackRow(const WeightGemmArgs& args, const WeightPlan& plan, int64_t row, char* packed) {
  using E = typename Decoder::Element;
  static constexpr int kCount = Decoder::kChunk;
  static constexpr auto kSource = [] {
    std::array<uint8_t, kCount> sources = {};
    for (int i = 0; i < kCount; ++i) sources[static_cast<size_t>(i)] = static_cast<uint8_t>(Decoder::Source(i));
    return sources;
  }();
  const int64_t padded = plan.segments * plan.segment;
  E* out = reinterpret_cast<E*>(packed);
  if constexpr (Decoder::kVectors == 1) {
    LoadRow(args, row, padded, out);
  } else {
    static thread_local std::vector<E> ordered;
    E* in = Reserve(ordered, static_cast<size_t>(padded));
    LoadRow(args, row, padded, in);
    for (int64_t k = 0; k < padded; k += kCount) {
      for (size_t i = 0; i < kCount; ++i) out[k + static_cast<int64_t>(i)] = in[k + kSource[i]];
    }
  }
  if (args.w_offset.data != nullptr) {
    constexpr int64_t kPer = hn::MaxLanes(hn::Repartition<E, DF>());
    float* sums = reinterpret_cast<float*>(packed + plan.sums_at);
    for (int64_t s = 0; s < plan.segments; ++s) {
      VF sum = hn::Zero(DF());
      for (int64_t i = 0; i < plan.segment; i += kPer) sum = hn::Add(sum, Value(out + s * plan.segment + i));
      hn::StoreU(sum, DF(), sums + s * kLanes);
    }
  }
}

void PackRows(const WeightGemmArgs& args, const WeightPlan& plan, int64_t first, int64_t end, char* packed) {
  WithDecoder(args.format, plan.dot, [&](const auto& decoder) {
    for (int64_t row = first; row < end; ++row) PackRow<std::decay_t<decltype(decoder)>>(args, plan, row, packed + (row - first) * plan.row_bytes);
  });
  if (!plan.rows_vary) return;
  std::vector<float>& buffer = ThreadBuffers().scales;
  for (int64_t row = first; row < end; ++row) {
    const ScaleRows table = MakeScaleRows(args.a_scale, args.k, plan, row, 1, Reserve(buffer, ScaleRowsFloats(plan, 1)));
    float* out = reinterpret_cast<float*>(packed + (row - first) * plan.row_bytes + plan.scales_at);
    std::copy_n(table.data, plan.units(), out);
    std::fill_n(out + plan.units(), kScalePad, 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(FinishPlan);
HWY_EXPORT(PackRows);
HWY_EXPORT(ComputePanel);

void FinishWeightPlan(const WeightGemmArgs& args, WeightPlan& plan) { HWY_DYNAMIC_DISPATCH(FinishPlan)(args, plan); }
void PackActivationRows(const WeightGemmArgs& args, const WeightPlan& plan, int64_t first, int64_t end, char* packed) {
  HWY_DYNAMIC_DISPATCH(PackRows)(args, plan, first, end, packed);
}
void ComputeWeightPanel(const WeightGemmArgs& args, const WeightPlan& plan, int64_t row_begin, int64_t row_end, int64_t column, const char* packed) {
  HWY_DYNAMIC_DISPATCH(ComputePanel)(args, plan, row_begin, row_end, column, packed);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
