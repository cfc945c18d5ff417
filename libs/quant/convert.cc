#include "libs/quant/convert.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/convert.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {

template <typename In, typename Out>
void ConvertAs(const void* in_data, void* out_data, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> df;
  const In* in = static_cast<const In*>(in_data);
  Out* out = static_cast<Out*>(out_data);
  const int64_t lanes = hn::Lanes(df);
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) StoreF32(df, LoadF32(df, in + i), out + i);
  if (i < end) StoreF32(df, LoadF32(df, in + i, end - i), out + i, end - i);
}

template <typename In>
void ConvertFrom(const void* in, DType out_type, void* out, int64_t begin, int64_t end) {
  switch (out_type) {
    case DType::kF32: return ConvertAs<In, float>(in, out, begin, end);
    case DType::kF16: return ConvertAs<In, hwy::float16_t>(in, out, begin, end);
    case DType::kBF16: return ConvertAs<In, hwy::bfloat16_t>(in, out, begin, end);
  }
}

void ConvertRange(DType in_type, const void* in, DType out_type, void* out, int64_t begin, int64_t end) {
  switch (in_type) {
    case DType::kF32: return ConvertFrom<float>(in, out_type, out, begin, end);
    case DType::kF16: return ConvertFrom<hwy::float16_t>(in, out_type, out, begin, end);
    case DType::kBF16: return ConvertFrom<hwy::bfloat16_t>(in, out_type, out, begin, end);
  }
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant {
namespace {
HWY_EXPORT(ConvertRange);
constexpr int64_t kGrain = 16384;  // elements that are worth another thread
}  // namespace

absl::Status Convert(DType in_type, const void* in, DType out_type, void* out, int64_t count, tiling::Executor& executor) {
  if (count < 0) return absl::InvalidArgumentError(absl::StrCat("convert: count ", count, " is negative"));
  if (count == 0) return absl::OkStatus();
  if (in == nullptr || out == nullptr) return absl::InvalidArgumentError("convert: in or out is null");
  if (in_type == out_type) {
    if (in != out) std::memcpy(out, in, count * SizeOf(in_type));
    return absl::OkStatus();
  }
  executor.ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(ConvertRange)(in_type, in, out_type, out, begin, end);
  });
  return absl::OkStatus();
}

}  // namespace jumar::quant
#endif  // HWY_ONCE
