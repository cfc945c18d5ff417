#include "libs/tiling/machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>

#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/tiling/machine_limits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::tiling::HWY_NAMESPACE {
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

}  // namespace jumar::tiling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::tiling {
namespace {

HWY_EXPORT(SumRange);
HWY_EXPORT(Burst);

constexpr int kRuns = 4;
constexpr int64_t kCopyBytes = int64_t{64} << 20, kBlock = int64_t{1} << 16;

// The shortest of a few runs after a first one, which maps pages and starts threads.
template <typename Run>
double BestSeconds(const Run& run) {
  run();
  double best = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return std::max(best, 1e-9);
}

// 16 additions a round, each of which waits for the one before. On registers: a chain through memory would take several cycles each.
uint64_t AddChain(int64_t rounds) {
  uint64_t sum = 1, step = 3;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      sum += step;
      asm volatile("" : "+r"(sum), "+r"(step));  // keeps each addition, and in turn
    }
  }
  return sum;
}

}  // namespace

int64_t SumBytes(const void* data, int64_t bytes, Executor& executor) {
  std::atomic<int64_t> sum{0};
  executor.ParallelFor((bytes + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
    sum += HWY_DYNAMIC_DISPATCH(SumRange)(static_cast<const uint8_t*>(data), begin * kBlock, std::min(end * kBlock, bytes));
  });
  return sum;
}

double MultiplyAdds(Executor& executor) {
  std::atomic<int64_t> flops{0};
  executor.ParallelFor(16 * executor.num_workers(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) flops += static_cast<int64_t>(HWY_DYNAMIC_DISPATCH(Burst)(0.5f + i));
  });
  return static_cast<double>(flops);
}

double ReadBytesPerSecond(int64_t bytes, Executor& executor) {
  const std::unique_ptr<char[]> data(new char[bytes]);
  std::memset(data.get(), 1, bytes);
  // What fits into a cache is read several times, so that a run is long enough to be timed.
  const int64_t times = std::max<int64_t>(1, (int64_t{32} << 20) / bytes);
  std::atomic<int64_t> sum{0};
  const double seconds = BestSeconds([&] {
    for (int64_t i = 0; i < times; ++i) sum += SumBytes(data.get(), bytes, executor);
  });
  return sum == 0 ? 0 : static_cast<double>(times) * static_cast<double>(bytes) / seconds;
}

double CopyBytesPerSecond(Executor& executor) {
  const std::unique_ptr<char[]> from(new char[kCopyBytes]), to(new char[kCopyBytes]);
  std::memset(from.get(), 1, kCopyBytes);
  const double seconds = BestSeconds([&] {
    executor.ParallelFor(kCopyBytes / kBlock, 16, [&](int64_t begin, int64_t end) {
      std::memcpy(to.get() + begin * kBlock, from.get() + begin * kBlock, static_cast<size_t>((end - begin) * kBlock));
    });
  });
  return 2.0 * kCopyBytes / seconds;
}

double FlopsPerSecond(Executor& executor) {
  double flops = 0;
  const double seconds = BestSeconds([&] { flops = MultiplyAdds(executor); });
  return flops / seconds;
}

double CyclesPerSecond() {
  constexpr int64_t kRounds = 1'000'000;
  uint64_t total = 0;
  const double seconds = BestSeconds([&total] { total += AddChain(kRounds); });
  return total == 0 ? 0 : 16.0 * kRounds / seconds;
}

}  // namespace jumar::tiling
#endif  // HWY_ONCE
