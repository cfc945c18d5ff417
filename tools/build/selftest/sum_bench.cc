#include <vector>

#include "benchmark/benchmark.h"
#include "tools/build/selftest/sum.h"

static void BM_Sum(benchmark::State& state) {
  const std::vector<int32_t> values(state.range(0), 1);
  for (auto _ : state) benchmark::DoNotOptimize(jumar::selftest::Sum(values));
  state.SetBytesProcessed(state.iterations() * state.range(0) * sizeof(int32_t));
}
BENCHMARK(BM_Sum)->Arg(1024)->Arg(1 << 20);
