#include "libs/attention/indexer/hadamard_kernel.h"

#include <algorithm>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/indexer/hadamard_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;
using quant::DType;

using DF = hn::CappedTag<float, 16>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

template <typename Fn>
void WithType(DType type, const Fn& fn) {
  switch (type) {
    case DType::kF32: return fn(float());
    case DType::kF16: return fn(hwy::float16_t());
    case DType::kBF16: return fn(hwy::bfloat16_t());
  }
}

// Each round adds and subtracts pairs that are `half` apart; the order of the rounds is the same for every instruction set.
void Rotate(DType type, const void* in, int64_t dim, float factor, float* HWY_RESTRICT row, DType out_type, void* out) {
  const DF df;
  WithType(type, [&](auto t) HWY_ATTR {
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int64_t count = std::min(kLanes, dim - d);
      hn::StoreN(fv::LoadF32(df, static_cast<const decltype(t)*>(in) + d, count), df, row + d, count);
    }
  });
  for (int64_t half = dim / 2; half >= 1; half /= 2) {
    if (half >= kLanes) {
      for (int64_t base = 0; base < dim; base += 2 * half) {
        for (int64_t d = base; d < base + half; d += kLanes) {
          const auto a = hn::Load(df, row + d), b = hn::Load(df, row + d + half);
          hn::Store(hn::Add(a, b), df, row + d);
          hn::Store(hn::Sub(a, b), df, row + d + half);
        }
      }
    } else {
      for (int64_t base = 0; base < dim; base += 2 * half) {
        for (int64_t d = base; d < base + half; ++d) {
          const float a = row[d], b = row[d + half];
          row[d] = a + b;
          row[d + half] = a - b;
        }
      }
    }
  }
  WithType(out_type, [&](auto t) HWY_ATTR {
    for (int64_t d = 0; d < dim; d += kLanes) {
      const int64_t count = std::min(kLanes, dim - d);
      fv::StoreF32(df, hn::Mul(hn::LoadN(df, row + d, count), hn::Set(df, factor)), static_cast<decltype(t)*>(out) + d, count);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::attention::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(Rotate);

void RotateRow(quant::DType type, const void* in, int64_t dim, float factor, float* row, quant::DType out_type, void* out) {
  HWY_DYNAMIC_DISPATCH(Rotate)(type, in, dim, factor, row, out_type, out);
}

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
