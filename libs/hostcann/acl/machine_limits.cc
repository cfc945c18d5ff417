#include "libs/hostcann/acl/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/hostcann/acl/machine_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::hostcann::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve independent chains of multiply-adds hide their latency. Returns the operations; `sink` keeps them from being left out.
double MultiplyAdd(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 0.999f), step = hn::Set(d, 0.001f);
  auto a0 = hn::Set(d, 0.1f), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0, a8 = a0, a9 = a0, a10 = a0, a11 = a0;
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, scale, step), a1 = hn::MulAdd(a1, scale, step), a2 = hn::MulAdd(a2, scale, step);
    a3 = hn::MulAdd(a3, scale, step), a4 = hn::MulAdd(a4, scale, step), a5 = hn::MulAdd(a5, scale, step);
    a6 = hn::MulAdd(a6, scale, step), a7 = hn::MulAdd(a7, scale, step), a8 = hn::MulAdd(a8, scale, step);
    a9 = hn::MulAdd(a9, scale, step), a10 = hn::MulAdd(a10, scale, step), a11 = hn::MulAdd(a11, scale, step);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7))),
                           hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)));
  *sink = hn::ReduceSum(d, sum);
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

}  // namespace jumar::hostcann::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::hostcann {
namespace {

HWY_EXPORT(MultiplyAdd);

constexpr uint64_t kCopyBytes = 64 << 20;
constexpr int kCopies = 3;
constexpr int64_t kRounds = 5'000'000;

template <typename F>
double Seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

MachineLimits MeasureMachine(tiling::Executor& pool) {
  MachineLimits limits;
  limits.threads = pool.num_workers();

  const std::unique_ptr<char[]> from(new char[kCopyBytes]), to(new char[kCopyBytes]);
  const auto copy = [&] {
    pool.ParallelFor(kCopyBytes >> 16, 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to.get() + (begin << 16), from.get() + (begin << 16), static_cast<size_t>(end - begin) << 16);
    });
  };
  std::memset(from.get(), 1, kCopyBytes);
  copy();  // maps the pages
  double best = Seconds(copy);
  for (int i = 1; i < kCopies; ++i) best = std::min(best, Seconds(copy));
  limits.bytes_per_s = 2.0 * kCopyBytes / best;

  std::atomic<double> operations{0};
  const double seconds = Seconds([&] {
    pool.ParallelFor(limits.threads, 1, [&](int64_t begin, int64_t end) {
      float sink;
      for (int64_t i = begin; i < end; ++i) operations.fetch_add(HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kRounds, &sink));
    });
  });
  limits.flops_per_s = operations.load() / seconds;
  return limits;
}

}  // namespace jumar::hostcann
#endif  // HWY_ONCE
