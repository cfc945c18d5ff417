// Hyper-connections of DeepSeek V4's size (4 streams of 7,168) for decode and prefill, against what the machine can read in the same run:
//   ReadBandwidth   compare with the counter bytes: streams read, written, and once per 32 tokens the projection
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/hyper_connections/hyper_connections.h"
#include "libs/quant/bench_util.h"

namespace jumar::attention {
namespace {

constexpr int64_t kStreams = 4, kDim = 7168, kRows = kStreams * (kStreams + 2);

template <typename Call>
void Run(benchmark::State& state, double bytes, const Call& call) {
  tiling::Executor& pool = quant::BenchmarkPool();
  for (auto _ : state) {
    if (!call(pool).ok()) state.SkipWithError("failed");
  }
  state.counters["bytes"] = quant::Rate(bytes);
  state.SetLabel(tiling::SimdTarget());
}

void RunAll(benchmark::State& state, const std::string& which, int64_t tokens) {
  std::vector<uint16_t> x(static_cast<size_t>(tokens * kStreams * kDim), 0x3F80), layer(static_cast<size_t>(tokens * kDim), 0x3F80), y(x.size());
  std::vector<float> phi(static_cast<size_t>(kRows * kStreams * kDim), 1e-3f), weights(kRows, 0.5f), post(static_cast<size_t>(tokens * kStreams), 1.0f);
  std::vector<float> res(static_cast<size_t>(tokens * kStreams * kStreams), 0.25f), mix(res.size());
  const double streams = static_cast<double>(x.size()) * 2, one = static_cast<double>(layer.size()) * 2;
  if (which == "Pre") {
    Run(state, streams + one + static_cast<double>((tokens + 31) / 32) * static_cast<double>(phi.size()) * 4, [&](tiling::Executor& pool) {
      return HyperConnectionPre({.tokens = tokens, .streams = kStreams, .dim = kDim, .x = x.data(), .phi = phi.data(), .alpha = weights.data(),
                                 .bias = weights.data(), .in = layer.data(), .post = post.data(), .res = res.data()}, pool);
    });
  } else if (which == "Sinkhorn") {
    Run(state, static_cast<double>(res.size()) * 8, [&](tiling::Executor& pool) {
      return Sinkhorn({.tokens = tokens, .streams = kStreams, .logits = res.data(), .out = mix.data()}, pool);
    });
  } else {
    Run(state, 2 * streams + one, [&](tiling::Executor& pool) {
      return HyperConnectionPost({.tokens = tokens, .streams = kStreams, .dim = kDim, .x = x.data(), .mix = res.data(), .out = layer.data(),
                                  .post = post.data(), .y = y.data()}, pool);
    });
  }
}

const int registered = [] {
  quant::RegisterMachineLimits();
  for (const std::string which : {"Pre", "Sinkhorn", "Post"}) {
    for (int64_t tokens : {1, 512}) {
      benchmark::RegisterBenchmark(("HyperConnections/" + which + "/" + std::to_string(tokens)).c_str(), [=](benchmark::State& state) {
        RunAll(state, which, tokens);
      })->UseRealTime()->Unit(benchmark::kMicrosecond);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
