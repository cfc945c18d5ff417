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

#ifndef LIBS_TILING_MACHINE_LIMITS_CONSTANTS_
#define LIBS_TILING_MACHINE_LIMITS_CONSTANTS_
namespace jumar::tiling {
constexpr int64_t kPiece = 256;  // bytes: a whole number of the widest vectors, four at a time
constexpr int kStreams = 8;      // memory gives some CPUs a sixth more than it gives one stream
constexpr int64_t kManyStreamsBytes = int64_t{8} << 20;  // a range that is longer than caches
constexpr int kChains = 12, kRounds = 4096;
}  // namespace jumar::tiling
#endif

HWY_BEFORE_NAMESPACE();
namespace jumar::tiling::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The words of `bytes` bytes as `kStreams` streams side by side, 256 bytes of each in turn.
template <int kStreams>
int64_t SumStreams(const uint8_t* data, int64_t bytes) {
  const hn::ScalableTag<int64_t> d;
  const int64_t lanes = hn::Lanes(d), stream_bytes = bytes / kStreams;
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  for (int64_t begin = 0; begin < stream_bytes; begin += kPiece) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const auto* p = reinterpret_cast<const int64_t*>(data + stream * stream_bytes + begin);
      for (int64_t i = 0; i < kPiece / 8; i += 4 * lanes) {
        s0 = hn::Add(s0, hn::LoadU(d, p + i));
        s1 = hn::Add(s1, hn::LoadU(d, p + i + lanes));
        s2 = hn::Add(s2, hn::LoadU(d, p + i + 2 * lanes));
        s3 = hn::Add(s3, hn::LoadU(d, p + i + 3 * lanes));
      }
    }
  }
  return hn::ReduceSum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

int64_t SumRange(const uint8_t* data, int64_t bytes) {
  int64_t sum = 0, done = 0;
  if (bytes >= kManyStreamsBytes) {
    done = bytes / (kStreams * kPiece) * (kStreams * kPiece);
    sum = SumStreams<kStreams>(data, done);
  }
  return sum + SumStreams<1>(data + done, (bytes - done) / kPiece * kPiece);
}

// Runs kRounds of `op` on kChains registers, none of which waits for another; returns `ops` for each. It reads the sum of them all, so that
// the loop stays.
template <class D, class Op>
HWY_INLINE double Burst(D d, int seed, double ops, const Op& op) {
  hn::Vec<D> x[kChains];
#pragma GCC unroll 12  // every loop over x, or it lives in memory and stores are the limit
  for (int c = 0; c < kChains; ++c) x[c] = hn::Set(d, static_cast<hn::TFromD<D>>(seed + c + 1));
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      x[c] = op(x[c]);
#if HWY_ARCH_X86
      asm volatile("" : "+v"(x[c].raw));  // one chain after the other: all products before all sums would not fit into registers
#endif
    }
  }
  double sum = 0;
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sum += hn::ReduceSum(d, x[c]);
  return sum == seed + 0.125 ? 0 : ops * kChains * kRounds;
}

double BurstF32(int seed) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.5f + seed);
  return Burst(d, seed, 2.0 * hn::Lanes(d), [&](auto x) HWY_ATTR { return hn::MulAdd(x, a, b); });
}

double BurstBF16Dot(int seed) {
#if HWY_NATIVE_DOT_BF16
  const hn::ScalableTag<float> d;
  const hn::Repartition<hwy::bfloat16_t, decltype(d)> d16;
  const auto a = hn::Set(d16, hwy::BF16FromF32(0.5f)), b = hn::Set(d16, hwy::BF16FromF32(0.25f));
  return Burst(d, seed, 2.0 * hn::Lanes(d16), [&](auto x) HWY_ATTR {
    auto unused = hn::Zero(d);
    return hn::ReorderWidenMulAccumulate(d, a, b, x, unused);
  });
#else
  return 0;
#endif
}

double BurstInt8Dot(int seed) {
  const hn::ScalableTag<int32_t> d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
  const hn::Repartition<uint8_t, decltype(d)> du8;
  const hn::Repartition<int8_t, decltype(d)> di8;
  const auto a = hn::Set(du8, 2);
  const auto b = hn::Set(di8, 3);
  return Burst(d, seed, 2.0 * hn::Lanes(di8), [&](auto x) HWY_ATTR { return hn::SumOfMulQuadAccumulate(d, a, b, x); });
#else
  const hn::Repartition<int16_t, decltype(d)> d16;
  const auto a = hn::Set(d16, 2);
  auto b = hn::Set(d16, 3);
  auto high = hn::Zero(d);  // of instruction sets that sum the two halves apart
  const double ops = Burst(d, seed, 2.0 * hn::Lanes(d16), [&](auto x) HWY_ATTR {
#if HWY_ARCH_X86
    asm("" : "+v"(b.raw));  // the product is an instruction of its own, which a compiler would do once
#endif
    return hn::ReorderWidenMulAccumulate(d, a, b, x, high);
  });
  return hn::ReduceSum(d, high) == 1 ? 0 : ops;
#endif
}

}  // namespace jumar::tiling::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::tiling {
namespace {

HWY_EXPORT(SumRange);
HWY_EXPORT(BurstF32);
HWY_EXPORT(BurstBF16Dot);
HWY_EXPORT(BurstInt8Dot);

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

// Several bursts for each worker; their operations.
double Bursts(double (*burst)(int), Executor& executor) {
  std::atomic<int64_t> ops{0};
  executor.ParallelFor(16 * executor.num_workers(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ops += static_cast<int64_t>(burst(static_cast<int>(i)));
  });
  return static_cast<double>(ops);
}

}  // namespace

int64_t SumBytes(const void* data, int64_t bytes, Executor& executor) {
  std::atomic<int64_t> sum{0};
  executor.ParallelFor((bytes + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
    sum += HWY_DYNAMIC_DISPATCH(SumRange)(static_cast<const uint8_t*>(data) + begin * kBlock, std::min(end * kBlock, bytes) - begin * kBlock);
  });
  return sum;
}

double MultiplyAdds(Executor& executor) { return Bursts(HWY_DYNAMIC_POINTER(BurstF32), executor); }
double BF16DotOps(Executor& executor) { return Bursts(HWY_DYNAMIC_POINTER(BurstBF16Dot), executor); }
double Int8DotOps(Executor& executor) { return Bursts(HWY_DYNAMIC_POINTER(BurstInt8Dot), executor); }

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
