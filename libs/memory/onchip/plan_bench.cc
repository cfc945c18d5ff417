// How long a solver waits for a plan: of `n` random buffers in one space, and of a typical kernel's sixteen in five.

#include <cstdint>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/memory/onchip/plan.h"
#include "libs/memory/onchip/random_buffers.h"

namespace jumar::memory::onchip {
namespace {

constexpr int64_t kMiB = 1 << 20;
constexpr Capacities kPlenty = {.ub = kMiB, .l1 = kMiB, .l0a = kMiB, .l0b = kMiB, .l0c = kMiB, .events_per_pair = 127};

void PlanRandom(benchmark::State& state, int count, int spaces) {
  std::mt19937_64 random(1);
  std::vector<std::vector<Buffer>> problems;
  for (int i = 0; i < 64; ++i) problems.push_back(RandomBuffers(random, count, spaces));
  size_t next = 0;
  for (auto _ : state) {
    const Map map = PlanAll(problems[next++ % problems.size()], kPlenty);
    if (!map.ok()) state.SkipWithError("plan failed");
    benchmark::DoNotOptimize(map.used_bytes[0]);
  }
}

BENCHMARK_CAPTURE(PlanRandom, 8_in_one_space, 8, 1);
BENCHMARK_CAPTURE(PlanRandom, 16_in_one_space, 16, 1);
BENCHMARK_CAPTURE(PlanRandom, 32_in_one_space, 32, 1);
BENCHMARK_CAPTURE(PlanRandom, 16_in_five_spaces, 16, 5);

}  // namespace
}  // namespace jumar::memory::onchip
