// What is done with the int32 sums of a stripe, see int8_gemm.h for the formula. Included once per SIMD target.

#if defined(LIBS_QUANT_INT8_GEMM_INT8_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_INT8_GEMM_INT8_EPILOGUE_INL_H_
#undef LIBS_QUANT_INT8_GEMM_INT8_EPILOGUE_INL_H_
#else
#define LIBS_QUANT_INT8_GEMM_INT8_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/int8_gemm/int8_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

template <typename T>
HWY_INLINE float NumberAt(const void* data, int64_t index) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(fv::LoadF32(d1, static_cast<const T*>(data) + index));
}
HWY_INLINE float NumberAt(const Numbers& numbers, int64_t index, float absent) {
  if (numbers.data == nullptr) return absent;
  switch (numbers.type) {
    case DType::kF32: return NumberAt<float>(numbers.data, index * numbers.step);
    case DType::kF16: return NumberAt<hwy::float16_t>(numbers.data, index * numbers.step);
    case DType::kBF16: return NumberAt<hwy::bfloat16_t>(numbers.data, index * numbers.step);
  }
  return absent;
}

// Numbers [n0, n0 + columns) to `out`, which has room for kInt8Stripe.
template <typename T>
HWY_INLINE void LoadNumbers(const T* HWY_RESTRICT from, int64_t columns, float* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  constexpr int64_t kLanes = hn::MaxLanes(df);
  for (int64_t j = 0; j < columns; j += kLanes) {
    hn::Store(fv::LoadF32(df, from + j, static_cast<size_t>(std::min(kLanes, columns - j))), df, out + j);
  }
}
HWY_INLINE void LoadNumbers(const Numbers& numbers, int64_t n0, int64_t columns, float absent, float* HWY_RESTRICT out) {
  if (numbers.data != nullptr && numbers.step == 1) {
    switch (numbers.type) {
      case DType::kF32: return LoadNumbers(static_cast<const float*>(numbers.data) + n0, columns, out);
      case DType::kF16: return LoadNumbers(static_cast<const hwy::float16_t*>(numbers.data) + n0, columns, out);
      case DType::kBF16: return LoadNumbers(static_cast<const hwy::bfloat16_t*>(numbers.data) + n0, columns, out);
    }
  }
  if (numbers.data == nullptr || numbers.step == 0) {
    std::fill_n(out, kInt8Stripe, NumberAt(numbers, 0, absent));
  } else {
    for (int64_t j = 0; j < columns; ++j) out[j] = NumberAt(numbers, n0 + j, absent);
  }
}

// The numbers of a stripe's columns as fp32.
struct StripeNumbers {
  StripeNumbers(const Int8Group& group, int64_t n0, int64_t columns) {
    std::fill_n(int_bias, kInt8Stripe, 0);
    if (group.int_bias != nullptr) std::copy_n(group.int_bias + n0, columns, int_bias);
    LoadNumbers(group.scale, n0, columns, 0.0f, scale);
    LoadNumbers(group.bias, n0, columns, -0.0f, bias);  // adding -0 changes nothing
    LoadNumbers(group.offset, n0, columns, 0.0f, offset);
  }
  HWY_ALIGN int32_t int_bias[kInt8Stripe];
  HWY_ALIGN float scale[kInt8Stripe] = {};
  HWY_ALIGN float bias[kInt8Stripe] = {};
  HWY_ALIGN float offset[kInt8Stripe] = {};
};

// Saturated, rounded to the nearest, a half to the even; NaN is 0.
template <class DF>
HWY_INLINE hn::Vec<hn::Rebind<int8_t, DF>> ToInt8(DF df, hn::Vec<DF> value, hn::Vec<DF> offset) {
  const auto whole = hn::Add(hn::Round(value), offset);
  const auto inside = hn::Min(hn::Max(whole, hn::Set(df, -128.0f)), hn::Set(df, 127.0f));
  return hn::DemoteTo(hn::Rebind<int8_t, DF>(), hn::ConvertTo(hn::RebindToSigned<DF>(), hn::IfThenZeroElse(hn::IsNaN(value), inside)));
}

template <typename T>
HWY_INLINE void WriteRow(const int32_t* HWY_RESTRICT sums, const StripeNumbers& numbers, float token_scale, int64_t columns, T* HWY_RESTRICT out) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  constexpr int64_t kLanes = hn::MaxLanes(df);
  const auto token = hn::Set(df, token_scale);
  for (int64_t j = 0; j < columns; j += kLanes) {
    const size_t count = std::min(kLanes, columns - j);
    const auto sum = hn::Add(hn::Load(di, sums + j), hn::Load(di, numbers.int_bias + j));
    if constexpr (std::is_same_v<T, int32_t>) {
      hn::StoreN(sum, di, out + j, count);
    } else {
      const auto scaled = hn::Mul(hn::Mul(hn::ConvertTo(df, sum), hn::Load(df, numbers.scale + j)), token);
      const auto value = hn::Add(scaled, hn::Load(df, numbers.bias + j));
      if constexpr (std::is_same_v<T, int8_t>) {
        hn::StoreN(ToInt8(df, value, hn::Load(df, numbers.offset + j)), hn::Rebind<int8_t, decltype(df)>(), out + j, count);
      } else {
        fv::StoreF32(df, value, out + j, count);
      }
    }
  }
}

// sums: [rows][kInt8Stripe], of the rows from row_begin on.
template <typename T>
void WriteRows(const Int8GemmArgs& args, const StripeNumbers& numbers, const int32_t* sums, int64_t row_begin, int64_t row_end, int64_t n0, int64_t columns) {
  for (int64_t row = row_begin; row < row_end; ++row) {
    WriteRow(sums + (row - row_begin) * kInt8Stripe, numbers, NumberAt(args.token_scale, row, 1.0f), columns,
             static_cast<T*>(args.out) + row * args.ldo + n0);
  }
}

inline void WriteStripe(const Int8GemmArgs& args, const Int8Group& group, const int32_t* sums, int64_t row_begin, int64_t row_end, int64_t stripe) {
  const int64_t n0 = stripe * kInt8Stripe, columns = std::min(kInt8Stripe, args.n - n0);
  const StripeNumbers numbers(group, n0, columns);
  switch (args.out_type) {
    case Int8GemmOut::kI32: return WriteRows<int32_t>(args, numbers, sums, row_begin, row_end, n0, columns);
    case Int8GemmOut::kI8: return WriteRows<int8_t>(args, numbers, sums, row_begin, row_end, n0, columns);
    case Int8GemmOut::kF32: return WriteRows<float>(args, numbers, sums, row_begin, row_end, n0, columns);
    case Int8GemmOut::kF16: return WriteRows<hwy::float16_t>(args, numbers, sums, row_begin, row_end, n0, columns);
    case Int8GemmOut::kBF16: return WriteRows<hwy::bfloat16_t>(args, numbers, sums, row_begin, row_end, n0, columns);
  }
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
