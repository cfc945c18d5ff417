// What the loops over a panel of columns share: its codes, scales and packed rows, and how a sum ends. Included once per SIMD target.

#if defined(LIBS_QUANT_WEIGHT_GEMM_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_WEIGHT_GEMM_PANEL_INL_H_
#undef LIBS_QUANT_WEIGHT_GEMM_PANEL_INL_H_
#else
#define LIBS_QUANT_WEIGHT_GEMM_PANEL_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "hwy/highway.h"
#include "libs/quant/weight_gemm/decoders-inl.h"
#include "libs/quant/weight_gemm/scale_rows-inl.h"
#include "libs/quant/weight_gemm/weight_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {

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

struct Buffers {  // of a thread, kept for the next call
  std::vector<uint8_t> codes;
  std::vector<float> scales, offsets, result, gate;
  hwy::AlignedVector<char> carry, decoded;
};
inline Buffers& ThreadBuffers() {
  static thread_local Buffers buffers;
  return buffers;
}
template <class Vector>
auto* Reserve(Vector& v, size_t size) {
  if (v.size() < size) v.resize(size);
  return v.data();
}

struct Codes {
  const uint8_t* data;  // column c at data + c * stride
  int64_t stride, columns;
  int64_t whole;        // segments before the one that ends behind k: tails[c]
  const uint8_t* tails[kPanelColumns];
};

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
