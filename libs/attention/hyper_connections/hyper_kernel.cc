#include "libs/attention/hyper_connections/hyper_kernel.h"

#include <algorithm>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/hyper_connections/hyper_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/attention/exp-inl.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using attention::HWY_NAMESPACE::ExpNonpositive;
using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

template <typename T>
HWY_INLINE VF Load(const T* p, size_t count) {
  return count == static_cast<size_t>(kLanes) ? fv::LoadF32(DF(), p) : fv::LoadF32(DF(), p, count);
}

HWY_INLINE size_t Count(int64_t size, int64_t at) { return static_cast<size_t>(std::min(kLanes, size - at)); }

template <typename T>
float Scale(const HyperConnectionPreArgs& args, int64_t token, float* HWY_RESTRICT scaled) {
  const DF df;
  const int64_t size = args.streams * args.dim;
  const T* x = static_cast<const T*>(args.x) + token * size;
  VF squares = hn::Zero(df);
  for (int64_t d = 0; d < size; d += kLanes) {
    const size_t count = Count(size, d);
    const VF value = Load(x + d, count);
    squares = hn::MulAdd(value, value, squares);
    hn::StoreN(args.gamma == nullptr ? value : hn::Mul(value, Load(args.gamma + d, count)), df, scaled + d, count);
  }
  return hn::ReduceSum(df, squares);
}

template <typename T>
void Collapse(const HyperConnectionPreArgs& args, int64_t token, const float* pre) {
  const DF df;
  const T* x = static_cast<const T*>(args.x) + token * args.streams * args.dim;
  T* in = static_cast<T*>(args.in) + token * args.dim;
  for (int64_t d = 0; d < args.dim; d += kLanes) {
    const size_t count = Count(args.dim, d);
    VF sum = hn::Zero(df);
    for (int64_t j = 0; j < args.streams; ++j) sum = hn::MulAdd(hn::Set(df, pre[j]), Load(x + j * args.dim + d, count), sum);
    fv::StoreF32(df, sum, in + d, count);
  }
}

template <typename T>
void Spread(const HyperConnectionPostArgs& args, int64_t begin, int64_t end) {
  const DF df;
  const int64_t n = args.streams, dim = args.dim;
  for (int64_t token = begin; token < end; ++token) {
    const T* x = static_cast<const T*>(args.x) + token * n * dim;
    const T* out = static_cast<const T*>(args.out) + token * dim;
    T* y = static_cast<T*>(args.y) + token * n * dim;
    const float* mix = args.mix == nullptr ? nullptr : args.mix + token * n * n;
    for (int64_t d = 0; d < dim; d += kLanes) {
      const size_t count = Count(dim, d);
      VF streams[kMaxStreams];
      for (int64_t j = 0; j < n; ++j) streams[j] = Load(x + j * dim + d, count);
      const VF layer = Load(out + d, count);
      for (int64_t k = 0; k < n; ++k) {
        VF sum = hn::Mul(hn::Set(df, args.post[token * n + k]), layer);
        if (mix == nullptr) {
          sum = hn::Add(sum, streams[k]);
        } else {
          for (int64_t j = 0; j < n; ++j) sum = hn::MulAdd(hn::Set(df, mix[j * n + k]), streams[j], sum);
        }
        fv::StoreF32(df, sum, y + k * dim + d, count);
      }
    }
  }
}

// A token in each lane.
void SinkhornLanes(const SinkhornArgs& args, int64_t begin, int64_t end) {
  const DF df;
  const int64_t n = args.streams;
  const VF epsilon = hn::Set(df, args.epsilon);
  for (int64_t token = begin; token < end; token += kLanes) {
    const int64_t count = std::min(kLanes, end - token);
    HWY_ALIGN float lanes[kMaxStreams * kMaxStreams][kLanes];
    for (int64_t i = 0; i < n * n; ++i) {
      for (int64_t t = 0; t < kLanes; ++t) lanes[i][t] = args.logits[(token + std::min(t, count - 1)) * n * n + i];
    }
    VF m[kMaxStreams][kMaxStreams];
    for (int64_t i = 0; i < n; ++i) {
      VF greatest = hn::Load(df, lanes[i * n]), sum = hn::Zero(df);
      for (int64_t j = 1; j < n; ++j) greatest = hn::Max(greatest, hn::Load(df, lanes[i * n + j]));
      for (int64_t j = 0; j < n; ++j) {
        m[i][j] = ExpNonpositive(df, hn::Sub(hn::Load(df, lanes[i * n + j]), greatest));
        sum = hn::Add(sum, m[i][j]);
      }
      for (int64_t j = 0; j < n; ++j) m[i][j] = hn::Add(hn::Div(m[i][j], sum), epsilon);
    }
    for (int64_t iteration = 0; iteration < args.iterations; ++iteration) {
      for (int64_t i = 0; i < n && iteration > 0; ++i) {
        VF sum = epsilon;
        for (int64_t j = 0; j < n; ++j) sum = hn::Add(sum, m[i][j]);
        for (int64_t j = 0; j < n; ++j) m[i][j] = hn::Div(m[i][j], sum);
      }
      for (int64_t j = 0; j < n; ++j) {
        VF sum = epsilon;
        for (int64_t i = 0; i < n; ++i) sum = hn::Add(sum, m[i][j]);
        for (int64_t i = 0; i < n; ++i) m[i][j] = hn::Div(m[i][j], sum);
      }
    }
    for (int64_t i = 0; i < n * n; ++i) hn::Store(m[i / n][i % n], df, lanes[i]);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t i = 0; i < n * n; ++i) args.out[(token + t) * n * n + i] = lanes[i][t];
    }
  }
}

float ScaleAny(const HyperConnectionPreArgs& args, int64_t token, float* scaled) {
  switch (args.type) {
    case DType::kF32: return Scale<float>(args, token, scaled);
    case DType::kF16: return Scale<hwy::float16_t>(args, token, scaled);
    case DType::kBF16: return Scale<hwy::bfloat16_t>(args, token, scaled);
  }
  return 0;
}

void CollapseAny(const HyperConnectionPreArgs& args, int64_t token, const float* pre) {
  switch (args.type) {
    case DType::kF32: return Collapse<float>(args, token, pre);
    case DType::kF16: return Collapse<hwy::float16_t>(args, token, pre);
    case DType::kBF16: return Collapse<hwy::bfloat16_t>(args, token, pre);
  }
}

void SpreadAny(const HyperConnectionPostArgs& args, int64_t begin, int64_t end) {
  switch (args.type) {
    case DType::kF32: return Spread<float>(args, begin, end);
    case DType::kF16: return Spread<hwy::float16_t>(args, begin, end);
    case DType::kBF16: return Spread<hwy::bfloat16_t>(args, begin, end);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(ScaleAny);
HWY_EXPORT(CollapseAny);
HWY_EXPORT(SpreadAny);
HWY_EXPORT(SinkhornLanes);

float ScaleStreams(const HyperConnectionPreArgs& args, int64_t token, float* scaled) {
  return HWY_DYNAMIC_DISPATCH(ScaleAny)(args, token, scaled);
}

void CollapseStreams(const HyperConnectionPreArgs& args, int64_t token, const float* pre) {
  HWY_DYNAMIC_DISPATCH(CollapseAny)(args, token, pre);
}

void SinkhornTokens(const SinkhornArgs& args, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(SinkhornLanes)(args, begin, end); }

void SpreadStreams(const HyperConnectionPostArgs& args, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SpreadAny)(args, begin, end);
}

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
