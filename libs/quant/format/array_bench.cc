// Conversions of arrays far larger than the caches, beside memcpy. "bytes": read and written. "of_memcpy": that, as a share of what a copy
// reaches on the same threads, measured in turns with the conversion.
//
//   ./bazelw run //libs/quant/format:array_bench      JUMAR_BENCH_THREADS=1, JUMAR_SIMD=AVX2

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>

#include "benchmark/benchmark.h"
#include "libs/quant/bench_util.h"
#include "libs/quant/format/array.h"

namespace jumar::quant {
namespace {

constexpr int64_t kCount = int64_t{32} << 20;
constexpr int64_t kBytes = 4 * kCount;

struct Arrays {
  std::unique_ptr<char, decltype(&std::free)> a{static_cast<char*>(std::aligned_alloc(4096, kBytes)), &std::free};
  std::unique_ptr<char, decltype(&std::free)> b{static_cast<char*>(std::aligned_alloc(4096, kBytes)), &std::free};
};
Arrays& TheArrays() {
  static Arrays arrays;
  return arrays;
}

// Of the processor, over all threads: other processes' turns don't count.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Fn>
double Seconds(const Fn& fn) {
  const double start = CpuSeconds();
  fn();
  return (CpuSeconds() - start) / BenchmarkPool().num_workers();
}

// Turns: conversion, copy of as many bytes. Of both the best counts.
template <class Fn>
void Compare(benchmark::State& state, int64_t bytes, const Fn& convert) {
  tiling::Executor& pool = BenchmarkPool();
  Arrays& arrays = TheArrays();
  double best = 1e9, best_copy = 1e9;
  for (auto _ : state) {
    const double seconds = Seconds(convert);
    best = std::min(best, seconds);
    state.SetIterationTime(seconds);
    best_copy = std::min(best_copy, Seconds([&] {
      pool.ParallelFor(bytes / 2, 65536, [&](int64_t begin, int64_t end) {
        std::memcpy(arrays.b.get() + begin, arrays.a.get() + begin, static_cast<size_t>(end - begin));
      });
    }));
  }
  state.counters["bytes"] = Rate(static_cast<double>(bytes));
  state.counters["of_memcpy"] = best_copy / best;
  state.counters["copy_GB_s"] = static_cast<double>(bytes) / best_copy * 1e-9;
  state.SetLabel(tiling::SimdTarget());
}

void Register(Format format, DType type) {
  const std::string name = std::string(Name(type)) + ":" + Name(format);
  const int64_t bytes = kCount * SizeOf(type) + CodeBytes(format, kCount);
  const auto fill = [=] {
    Arrays& arrays = TheArrays();
    for (int64_t i = 0; i < kBytes; ++i) arrays.a.get()[i] = static_cast<char>(i % SizeOf(type) == SizeOf(type) - 1 ? 0x3F : i * 31);
    std::memset(arrays.b.get(), 0, kBytes);
  };
  benchmark::RegisterBenchmark(("Encode/" + name).c_str(), [=](benchmark::State& state) {
    fill();
    Compare(state, bytes, [&] {
      benchmark::DoNotOptimize(EncodeArray(format, Overflow::kSaturate, type, TheArrays().a.get(), kCount,
                                           reinterpret_cast<uint8_t*>(TheArrays().b.get()), BenchmarkPool()));
    });
  })->UseManualTime()->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark(("Decode/" + name).c_str(), [=](benchmark::State& state) {
    fill();
    Compare(state, bytes, [&] {
      benchmark::DoNotOptimize(DecodeArray(format, reinterpret_cast<const uint8_t*>(TheArrays().a.get()), kCount, type, TheArrays().b.get(),
                                           BenchmarkPool()));
    });
  })->UseManualTime()->Unit(benchmark::kMillisecond);
}

const bool kRegistered = [] {
  for (const Format format : kFormats) Register(format, DType::kBF16);
  for (const DType type : {DType::kF32, DType::kF16}) {
    Register(Format::kE4M3, type);
    Register(Format::kI8, type);
  }
  return true;
}();

}  // namespace
}  // namespace jumar::quant
