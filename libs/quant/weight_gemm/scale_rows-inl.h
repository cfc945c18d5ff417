// Tables of scales as fp32, one entry for each unit of k. Included once per SIMD target.

#if defined(LIBS_QUANT_WEIGHT_GEMM_SCALE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_WEIGHT_GEMM_SCALE_ROWS_INL_H_
#undef LIBS_QUANT_WEIGHT_GEMM_SCALE_ROWS_INL_H_
#else
#define LIBS_QUANT_WEIGHT_GEMM_SCALE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/weight_gemm/decoders-inl.h"
#include "libs/quant/weight_gemm/weight_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {

// Neighbouring entries of each type as a vector; of `count` at most, the rest is not read.
template <typename T>
struct ScaleLoader {
  static HWY_INLINE VF Load(const T* p) { return quant::HWY_NAMESPACE::LoadF32(DF(), p); }
  static HWY_INLINE VF Load(const T* p, size_t count) { return quant::HWY_NAMESPACE::LoadF32(DF(), p, count); }
};
template <>
struct ScaleLoader<uint8_t> {  // E8M0
  using DU = hn::Rebind<uint8_t, DF>;
  static HWY_INLINE VF Widen(hn::Vec<DU> codes) {
    const D32 du;
    const auto wide = hn::PromoteTo(du, codes);
    const auto bits = hn::Max(hn::ShiftLeft<23>(wide), hn::Set(du, 0x400000));  // 2^-127 is subnormal
    return hn::BitCast(DF(), hn::IfThenElse(hn::Eq(wide, hn::Set(du, 255)), hn::Set(du, 0x7FC00000), bits));
  }
  static HWY_INLINE VF Load(const uint8_t* p) { return Widen(hn::LoadU(DU(), p)); }
  static HWY_INLINE VF Load(const uint8_t* p, size_t count) { return Widen(hn::LoadN(DU(), p, count)); }
};
template <>
struct ScaleLoader<int32_t> {
  static HWY_INLINE VF Load(const int32_t* p) { return hn::ConvertTo(DF(), hn::LoadU(DI32(), p)); }
  static HWY_INLINE VF Load(const int32_t* p, size_t count) { return hn::ConvertTo(DF(), hn::LoadN(DI32(), p, count)); }
};

// How the entries of some rows lie: that of row r for segment s at data[r * row_stride + s * segment_stride]; with plan.lanes_vary, those of the
// segment's units from there on.
struct ScaleRows {
  const float* data = nullptr;
  size_t row_stride = 0, segment_stride = 0;
};
constexpr size_t kScalePad = 16;  // a whole vector is read from the last entry on

inline size_t ScaleRowsFloats(const WeightPlan& plan, int64_t rows) {
  return static_cast<size_t>(rows) * (static_cast<size_t>(plan.units()) + kScalePad) + kPanelColumns * static_cast<size_t>(plan.units());
}

template <typename T>
HWY_INLINE void Widen(const T* in, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(ScaleLoader<T>::Load(in + i), DF(), out + i);
  if (i < count) hn::StoreN(ScaleLoader<T>::Load(in + i, static_cast<size_t>(count - i)), DF(), out + i, static_cast<size_t>(count - i));
}
template <typename T>
HWY_INLINE float Widen(const T* in) {
  return hn::GetLane(ScaleLoader<T>::Load(in, 1));
}

template <typename T>
ScaleRows FillScaleRows(const Scales& s, int64_t k, const WeightPlan& plan, int64_t first, int64_t rows, float* out) {
  const T* data = static_cast<const T*>(s.data);
  const auto row_entry = [&](int64_t r) { return data + (s.rows == 0 ? 0 : (first + r) / s.rows) * s.row_stride; };
  const size_t units = static_cast<size_t>(plan.units());
  if (!Varies(s, k)) {
    const bool contiguous = s.rows == 1 && s.row_stride == 1;
    if (contiguous) Widen(row_entry(0), rows, out);
    if (!plan.lanes_vary) {
      for (int64_t r = 0; !contiguous && r < rows; ++r) out[r] = Widen(row_entry(r));
      return {out, 1, 0};
    }
    for (int64_t r = rows - 1; r >= 0; --r) std::fill_n(out + static_cast<size_t>(r) * kScalePad, kScalePad, contiguous ? out[r] : Widen(row_entry(r)));
    return {out, kScalePad, 0};
  }
  const int64_t entries = (k + s.depth - 1) / s.depth, per_entry = s.depth / plan.unit;
  const auto at = [&](int64_t entry) { return s.run == 1 ? entry * s.depth_stride : entry / s.run * s.depth_stride + entry % s.run; };
  const size_t segment_stride = static_cast<size_t>(plan.segment / plan.unit);
  if (!plan.lanes_vary && s.rows == 1 && s.row_stride == 1) {  // entries of a group lie along the rows: keep them so
    for (int64_t e = 0; e < entries; ++e) {
      float* to = out + static_cast<size_t>(e * per_entry * rows);
      Widen(row_entry(0) + at(e), rows, to);
      for (int64_t i = 1; i < per_entry && e * per_entry + i < static_cast<int64_t>(units); ++i) std::copy_n(to, rows, to + i * rows);
    }
    return {out, 1, static_cast<size_t>(rows) * segment_stride};
  }
  const size_t row_floats = units + kScalePad;
  for (int64_t r = 0; r < rows; ++r) {
    float* to = out + static_cast<size_t>(r) * row_floats;
    const T* from = row_entry(r);
    if (r > 0 && from == row_entry(r - 1)) {
      std::copy_n(to - row_floats, row_floats, to);
      continue;
    }
    if (per_entry == 1 && s.depth_stride == s.run) {
      Widen(from, entries, to);
    } else {
      for (int64_t e = 0; e < entries; ++e) {
        const int64_t last = std::min(static_cast<int64_t>(units), (e + 1) * per_entry);
        std::fill(to + e * per_entry, to + last, Widen(from + at(e)));
      }
    }
    // Behind k, where activations are zero: any number.
    const size_t filled = static_cast<size_t>(std::min<int64_t>(entries * per_entry, static_cast<int64_t>(units)));
    for (size_t i = filled; i < row_floats; i += kLanes) hn::StoreN(hn::Zero(DF()), DF(), to + i, row_floats - i);
  }
  return {out, row_floats, segment_stride};
}

// Of rows [first, first + rows); `out` has room for ScaleRowsFloats. Null data gives no table.
inline ScaleRows MakeScaleRows(const Scales& s, int64_t k, const WeightPlan& plan, int64_t first, int64_t rows, float* out) {
  if (s.data == nullptr) return {};
  switch (s.type) {
    case ScaleType::kF32: return FillScaleRows<float>(s, k, plan, first, rows, out);
    case ScaleType::kF16: return FillScaleRows<hwy::float16_t>(s, k, plan, first, rows, out);
    case ScaleType::kBF16: return FillScaleRows<hwy::bfloat16_t>(s, k, plan, first, rows, out);
    case ScaleType::kE8M0: return FillScaleRows<uint8_t>(s, k, plan, first, rows, out);
    case ScaleType::kI32: return FillScaleRows<int32_t>(s, k, plan, first, rows, out);
  }
  return {};
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
