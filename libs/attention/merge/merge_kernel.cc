#include "libs/attention/merge/merge_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/merge/merge_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// weights[i] = exp(lse_i - lse), 0 for a part without keys. Returns lse.
float Weigh(const MergeAttentionArgs& args, int64_t token, int64_t head, float* weights) {
  const float sink = args.sinks == nullptr ? -kInfinity : args.sinks[head];
  float max = sink;
  for (size_t i = 0; i < args.parts.size(); ++i) {
    const AttentionPart& part = args.parts[i];
    weights[i] = part.lse[token * part.lse_token_stride + head * part.lse_head_stride];
    if (weights[i] != kInfinity) max = std::max(max, weights[i]);
  }
  if (max == -kInfinity) {
    std::fill_n(weights, args.parts.size(), 0.0f);
    return kInfinity;
  }
  float sum = sink == -kInfinity ? 0.0f : std::exp(sink - max);
  for (size_t i = 0; i < args.parts.size(); ++i) {
    weights[i] = weights[i] == kInfinity ? 0.0f : std::exp(weights[i] - max);
    sum += weights[i];
  }
  for (size_t i = 0; i < args.parts.size(); ++i) weights[i] /= sum;
  return max + std::log(sum);
}

template <typename T, typename Out>
void Merge(const MergeAttentionArgs& args, int64_t begin, int64_t end) {
  const DF df;
  static thread_local std::vector<float> weights;
  weights.resize(args.parts.size());
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = row / args.num_heads, head = row % args.num_heads;
    const float lse = Weigh(args, token, head, weights.data());
    Out* out = static_cast<Out*>(args.out) + token * args.out_token_stride + head * args.out_head_stride;
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      const size_t count = static_cast<size_t>(std::min(kLanes, args.head_dim - d));
      VF sum = hn::Zero(df);
      for (size_t i = 0; i < args.parts.size(); ++i) {
        if (weights[i] == 0.0f) continue;  // what no key gave may be NaN
        const AttentionPart& part = args.parts[i];
        const T* p = static_cast<const T*>(part.out) + token * part.token_stride + head * part.head_stride + d;
        sum = hn::MulAdd(hn::Set(df, weights[i]), count == static_cast<size_t>(kLanes) ? fv::LoadF32(df, p) : fv::LoadF32(df, p, count), sum);
      }
      fv::StoreF32(df, sum, out + d, count);
    }
    if (args.lse != nullptr) args.lse[token * args.lse_token_stride + head * args.lse_head_stride] = lse;
  }
}

template <typename T>
void MergeFrom(const MergeAttentionArgs& args, int64_t begin, int64_t end) {
  switch (args.out_type) {
    case DType::kF32: return Merge<T, float>(args, begin, end);
    case DType::kF16: return Merge<T, hwy::float16_t>(args, begin, end);
    case DType::kBF16: return Merge<T, hwy::bfloat16_t>(args, begin, end);
  }
}

void MergeSome(const MergeAttentionArgs& args, int64_t begin, int64_t end) {
  switch (args.type) {
    case DType::kF32: return MergeFrom<float>(args, begin, end);
    case DType::kF16: return MergeFrom<hwy::float16_t>(args, begin, end);
    case DType::kBF16: return MergeFrom<hwy::bfloat16_t>(args, begin, end);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(MergeSome);

void MergeRows(const MergeAttentionArgs& args, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(MergeSome)(args, begin, end); }

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
