// Time of a solve, and the heaviest core over the mean of the unsplit work (1 = perfect) beside the fixed rule's. Costs are the fixed
// planner's own, 6 for 16 rows of queries and 10 for 64 keys, so that only the split differs.

#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/tiling/balance.h"

namespace jumar::tiling {
namespace {

struct Case {
  const char* name;
  int64_t batch, heads, context, chunk;  // chunk: queries of a sequence
  bool ragged;
};

constexpr Case kCases[] = {
    {"decode_1x1M", 1, 1, 1 << 20, 1, false},
    {"decode_8x64k", 8, 8, 1 << 16, 1, false},
    {"decode_32_ragged", 32, 1, 1 << 17, 1, true},
    {"decode_256_ragged", 256, 1, 1 << 17, 1, true},
    {"decode_256x8_ragged", 256, 8, 1 << 15, 1, true},
    {"prefill_1x1M", 1, 8, 1 << 20, 1 << 20, false},
    {"chunk_1x8k_of_1M", 1, 8, 1 << 20, 1 << 13, false},
    {"prefill_16_ragged", 16, 8, 1 << 14, 1 << 14, true},
    {"prefill_256_ragged", 256, 8, 1 << 14, 1 << 14, true},
};

const int registered = [] {
  for (const Case& c : kCases) {
    benchmark::RegisterBenchmark((std::string("Balance/") + c.name).c_str(), [c](benchmark::State& state) {
      std::mt19937_64 random(1);
      std::vector<int64_t> queries, keys;
      for (int64_t i = 0; i < c.batch; ++i) {
        keys.push_back(c.ragged ? 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(c.context)) : c.context);
        queries.push_back(std::min(c.chunk, keys.back()));
      }
      const BalanceProblem problem = {.query_lens = queries, .kv_lens = keys, .heads = c.heads, .query_block = c.chunk == 1 ? 1 : 128, .kv_block = 64,
                                      .cost = {.per_row = 6, .per_block = 10, .per_split_piece = 12, .barrier = 20}, .cores = 24};
      for (auto _ : state) benchmark::DoNotOptimize(Balance(problem));
      const auto balance = Balance(problem), fixed = BalanceByFixedRule(problem);
      const double mean = static_cast<double>(balance->work) / static_cast<double>(problem.cores);
      state.counters["heaviest"] = static_cast<double>(balance->makespan) / mean;
      state.counters["fixed_rule"] = static_cast<double>(fixed->makespan) / mean;
      state.counters["merges"] = static_cast<double>(balance->merges.size());
    })->Unit(benchmark::kMicrosecond);
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::tiling
