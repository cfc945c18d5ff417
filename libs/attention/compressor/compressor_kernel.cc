#include "libs/attention/compressor/compressor_kernel.h"

#include <algorithm>
#include <limits>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/compressor/compressor_kernel.cc"
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
constexpr int64_t kVectors = 4;  // features at once: a piece of a row that is worth a cache line

// One term of a group's sum, at the half that counts.
template <typename T>
struct Term {
  const T *kv, *gate;  // of a new token; else null
  const float* ape;
  const float *state_kv, *state_score;
};

template <typename T>
HWY_INLINE VF Load(const T* p, size_t count) {
  return count == static_cast<size_t>(kLanes) ? fv::LoadF32(DF(), p) : fv::LoadF32(DF(), p, count);
}

template <typename T>
HWY_INLINE VF Score(const Term<T>& term, int64_t d, size_t count) {
  if (term.gate == nullptr) return Load(term.state_score + d, count);
  return hn::Add(Load(term.gate + d, count), Load(term.ape + d, count));
}

template <typename T>
HWY_INLINE VF Value(const Term<T>& term, int64_t d, size_t count) {
  return term.kv == nullptr ? Load(term.state_kv + d, count) : Load(term.kv + d, count);
}

// Features [d, d + kVectors * kLanes), of which `counts` per vector exist.
template <typename T>
HWY_INLINE void WeighFeatures(const Term<T>* terms, int64_t num_terms, int64_t d, const size_t (&counts)[kVectors], float* HWY_RESTRICT entry) {
  const DF df;
  VF max[kVectors], sum[kVectors], total[kVectors];
#pragma GCC unroll 4
  for (int64_t v = 0; v < kVectors; ++v) {
    max[v] = hn::Set(df, -std::numeric_limits<float>::infinity());
    sum[v] = total[v] = hn::Zero(df);
  }
  for (int64_t j = 0; j < num_terms; ++j) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      if (counts[v] > 0) max[v] = hn::Max(max[v], Score(terms[j], d + v * kLanes, counts[v]));
    }
  }
  for (int64_t j = 0; j < num_terms; ++j) {
#pragma GCC unroll 4
    for (int64_t v = 0; v < kVectors; ++v) {
      if (counts[v] == 0) continue;
      const VF p = ExpNonpositive(df, hn::Sub(Score(terms[j], d + v * kLanes, counts[v]), max[v]));
      sum[v] = hn::Add(sum[v], p);
      total[v] = hn::MulAdd(p, Value(terms[j], d + v * kLanes, counts[v]), total[v]);
    }
  }
#pragma GCC unroll 4
  for (int64_t v = 0; v < kVectors; ++v) {
    if (counts[v] > 0) hn::StoreN(hn::Div(total[v], sum[v]), df, entry + d + v * kLanes, counts[v]);
  }
}

template <typename T>
void Weigh(const CompressorArgs& args, const CompressedGroup& group, float* entry) {
  const int64_t dim = args.head_dim, width = (args.overlap ? 2 : 1) * dim, start = args.starts[group.seq];
  const int64_t first_token = FirstToken(args, group.seq), first = group.group * args.ratio;
  Term<T> terms[2 * kMaxCompressionRatio];
  int64_t num_terms = 0;
  for (int64_t p = args.overlap ? std::max<int64_t>(0, first - args.ratio) : first; p < first + args.ratio; ++p) {
    const int64_t half = args.overlap && p >= first ? dim : 0;
    Term<T>& term = terms[num_terms++];
    if (p >= start) {
      const int64_t token = first_token + p - start;
      term = {static_cast<const T*>(args.kv) + token * args.kv_stride + half, static_cast<const T*>(args.gate) + token * args.gate_stride + half,
              args.ape + p % args.ratio * width + half, nullptr, nullptr};
    } else {
      const float* row = StateRow(args, group.seq, p);
      term = {nullptr, nullptr, nullptr, row + half, row + width + half};
    }
  }
  for (int64_t d = 0; d < dim; d += kVectors * kLanes) {
    size_t counts[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) counts[v] = static_cast<size_t>(std::clamp<int64_t>(dim - d - v * kLanes, 0, kLanes));
    WeighFeatures(terms, num_terms, d, counts, entry);
  }
}

template <typename T>
void Keep(const CompressorArgs& args, const StateRun& run) {
  const DF df;
  const int64_t width = (args.overlap ? 2 : 1) * args.head_dim;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t position = run.position + i;
    if (args.state_block_table[run.seq * args.state_table_stride + position / args.state_block_size] < 0) continue;
    const T* kv = static_cast<const T*>(args.kv) + (run.token + i) * args.kv_stride;
    const T* gate = static_cast<const T*>(args.gate) + (run.token + i) * args.gate_stride;
    const float* ape = args.ape + position % args.ratio * width;
    float* row = StateRow(args, run.seq, position);
    for (int64_t d = 0; d < width; d += kLanes) {
      const size_t count = static_cast<size_t>(std::min(kLanes, width - d));
      hn::StoreN(Load(kv + d, count), df, row + d, count);
      hn::StoreN(hn::Add(Load(gate + d, count), Load(ape + d, count)), df, row + width + d, count);
    }
  }
}

void WeighAny(const CompressorArgs& args, const CompressedGroup& group, float* entry) {
  switch (args.type) {
    case DType::kF32: return Weigh<float>(args, group, entry);
    case DType::kF16: return Weigh<hwy::float16_t>(args, group, entry);
    case DType::kBF16: return Weigh<hwy::bfloat16_t>(args, group, entry);
  }
}

void KeepAny(const CompressorArgs& args, const StateRun& run) {
  switch (args.type) {
    case DType::kF32: return Keep<float>(args, run);
    case DType::kF16: return Keep<hwy::float16_t>(args, run);
    case DType::kBF16: return Keep<hwy::bfloat16_t>(args, run);
  }
}

}  // namespace jumar::attention::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention::internal {

HWY_EXPORT(WeighAny);
HWY_EXPORT(KeepAny);

void WeighGroup(const CompressorArgs& args, const CompressedGroup& group, float* entry) {
  HWY_DYNAMIC_DISPATCH(WeighAny)(args, group, entry);
}

void KeepState(const CompressorArgs& args, const StateRun& run) { HWY_DYNAMIC_DISPATCH(KeepAny)(args, run); }

}  // namespace jumar::attention::internal
#endif  // HWY_ONCE
