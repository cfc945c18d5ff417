#include "libs/quant/bench_util.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "libs/tiling/machine_limits.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::quant {

tiling::Executor& BenchmarkPool() {
  static tiling::ThreadPool pool([] {
    const absl::Status status = tiling::UseSimdTargetFromEnvironment();
    if (!status.ok()) {
      std::fprintf(stderr, "JUMAR_SIMD: %s\n", std::string(status.message()).c_str());
      std::exit(2);
    }
    const char* threads = std::getenv("JUMAR_BENCH_THREADS");
    return threads == nullptr ? 2 : std::atoi(threads);
  }());
  return pool;
}

constexpr int64_t kHugePage = int64_t{2} << 20;

BenchmarkBuffer::BenchmarkBuffer(int64_t bytes)
    : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage), data_(static_cast<char*>(std::aligned_alloc(kHugePage, bytes_))) {
  madvise(data_, bytes_, MADV_HUGEPAGE);
  std::memset(data_, 0x3C, bytes_);
}

BenchmarkBuffer::~BenchmarkBuffer() { std::free(data_); }

benchmark::Counter Rate(double per_iteration) {
  return benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void RegisterMachineLimits() {
  benchmark::RegisterBenchmark("ReadBandwidth", [](benchmark::State& state) {
    BenchmarkBuffer data(int64_t{256} << 20);
    tiling::Executor& pool = BenchmarkPool();
    for (auto _ : state) benchmark::DoNotOptimize(tiling::SumBytes(data.data(), data.size(), pool));
    state.counters["bytes"] = Rate(data.size());
    state.SetLabel(tiling::SimdTarget());
  })->UseRealTime()->Unit(benchmark::kMillisecond);
  const std::pair<const char*, double (*)(tiling::Executor&)> peaks[] = {
      {"MultiplyAddPeak", tiling::MultiplyAdds}, {"BF16DotPeak", tiling::BF16DotOps}, {"Int8DotPeak", tiling::Int8DotOps}};
  for (const auto& [name, run] : peaks) {
    benchmark::RegisterBenchmark(name, [run = run](benchmark::State& state) {
      tiling::Executor& pool = BenchmarkPool();
      double ops = 0;
      for (auto _ : state) ops = run(pool);
      state.counters["flops"] = Rate(ops);
      state.SetLabel(ops == 0 ? "not in " + tiling::SimdTarget() : tiling::SimdTarget());
    })->UseRealTime()->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace jumar::quant
