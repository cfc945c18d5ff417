#include "libs/quant/machine_limits.h"

#include <atomic>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/machine_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t SumRange(const uint8_t* data, int64_t begin, int64_t end) {
  const hn::ScalableTag<int64_t> d;
  const int64_t step = 4 * hn::Lanes(d) * 8;
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  for (; begin + step <= end; begin += step) {
    const auto* p = reinterpret_cast<const int64_t*>(data + begin);
    s0 = hn::Add(s0, hn::LoadU(d, p));
    s1 = hn::Add(s1, hn::LoadU(d, p + hn::Lanes(d)));
    s2 = hn::Add(s2, hn::LoadU(d, p + 2 * hn::Lanes(d)));
    s3 = hn::Add(s3, hn::LoadU(d, p + 3 * hn::Lanes(d)));
  }
  return hn::ReduceSum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

constexpr int kChains = 12, kRounds = 4096;

double Burst(float seed) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, seed);
  hn::Vec<decltype(d)> x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = hn::Set(d, seed + c);
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) x[c] = hn::MulAdd(x[c], a, b);
  }
  double sum = 0;
  for (int c = 0; c < kChains; ++c) sum += hn::ReduceSum(d, x[c]);
  return sum == seed ? 0 : 2.0 * hn::Lanes(d) * kChains * kRounds;  // reads the sum, so that the loop stays
}

}  // namespace jumar::quant::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant {
HWY_EXPORT(SumRange);
HWY_EXPORT(Burst);

int64_t SumBytes(const void* data, int64_t bytes, tiling::Executor& executor) {
  std::atomic<int64_t> sum{0};
  executor.ParallelFor(bytes, 1 << 20, [&](int64_t begin, int64_t end) {
    sum += HWY_DYNAMIC_DISPATCH(SumRange)(static_cast<const uint8_t*>(data), begin, end);
  });
  return sum;
}

double MultiplyAdds(tiling::Executor& executor) {
  std::atomic<int64_t> flops{0};
  executor.ParallelFor(16 * executor.num_workers(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) flops += static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(Burst)(0.5f + i));
  });
  return static_cast<double>(flops);
}

}  // namespace jumar::quant
#endif  // HWY_ONCE
