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
#include "libs/quant/weight_gemm/many_rows-inl.h"
#include "libs/quant/weight_gemm/panel-inl.h"
#include "libs/quant/weight_gemm/scale_rows-inl.h"

// How the sum is ordered: see the header. A sum has kLanes lanes, which a fixed tree adds at the end. Few rows are multiplied while the
// weight is in registers; for more, a panel is decoded into the caches and tiles of rows go over it (many_rows-inl.h). Both do the same operations
// on an element in the same order.

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {

constexpr int64_t kPrefetchBytes = 4096;

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
  const int64_t chunks = kVary || Decoder::kChunk == kMaxUnit ? 1 : plan.segment / Decoder::kChunk;
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
// A panel.

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
void MultiplyPanel(const Decoder& decoder, const WeightPlan& plan, const Codes& codes, const PanelScales& tables, const char* packed, int64_t rows,
                   float* result) {
  const bool only_scale = tables.scale.data != nullptr && tables.offset.data == nullptr && !plan.rows_vary;
  switch (rows) {
    case 1: return (only_scale ? FewRows<Decoder, 1, kVary, true> : FewRows<Decoder, 1, kVary, false>)(decoder, plan, codes, tables, packed, result);
    case 2: return (only_scale ? FewRows<Decoder, 2, kVary, true> : FewRows<Decoder, 2, kVary, false>)(decoder, plan, codes, tables, packed, result);
    default: return ManyRows<Decoder, kVary>(decoder, plan, codes, tables, packed, rows, result);
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
      std::memset(copies[c], 0, static_cast<size_t>(segment_codes));
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

  WithDecoder(args.format, plan.dot, [&](const auto& decoder) {
    using Decoder = std::decay_t<decltype(decoder)>;
    if constexpr (Decoder::kChunk > kLeastUnit) {
      if (plan.lanes_vary) return MultiplyPanel<Decoder, true>(decoder, plan, codes, tables, packed, rows, result);
    }
    MultiplyPanel<Decoder, false>(decoder, plan, codes, tables, packed, rows, result);
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
  plan.segment = std::max(plan.chunk, plan.unit);
  if (plan.unit == 0 && plan.chunk < kMaxUnit) {  // nearly equal segments, so that little is padded
    const int64_t usual = plan.dot ? kUsualDotSegment : kUsualSegment, segments = std::max<int64_t>(1, (args.k + usual / 2) / usual);
    plan.segment = std::max(plan.chunk, RoundUp((args.k + segments - 1) / segments, plan.chunk));
  }
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
