// int8 products against what the machine can do and against the bf16 product, all in the same run:
//   ReadBandwidth    bytes/s: the limit of decode, a byte per weight
//   Int8Gemm, Bf16   pairs of the same shape; weight_bytes and flops (2 m n k), both per second
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/quant/bench_util.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/gemm.h"
#include "libs/quant/int8_gemm/int8_gemm.h"

namespace jumar::quant {
namespace {

// Weights of as many layers as exceed the caches, used in turn as a model does, so that decode reads them from memory.
int64_t Copies(int64_t bytes) { return std::clamp<int64_t>((int64_t{192} << 20) / bytes, 1, 60); }

void Count(benchmark::State& state, int64_t weight_bytes, double flops) {
  state.counters["weight_bytes"] = Rate(static_cast<double>(weight_bytes));
  state.counters["flops"] = Rate(flops);
  state.SetLabel(tiling::SimdTarget());
}

void RunInt8(benchmark::State& state, Int8Layout layout, int64_t n, int64_t k, int64_t m) {
  const int64_t bytes = layout == Int8Layout::kFractalNK   ? *FractalNzBytes(n, k, 1)
                        : layout == Int8Layout::kFractalKN ? *FractalNzBytes(k, n, 1)
                                                           : n * k;
  const int64_t copies = Copies(bytes);
  std::vector<int8_t> weights(bytes * copies, 0x3C), a(m * k, 0x3C);
  std::vector<uint16_t> out(m * n);
  const std::vector<float> scale(std::max(m, n), 0.01f);
  Int8GemmArgs args = {.m = m, .n = n, .k = k, .a = a.data(), .lda = k, .ldw = layout == Int8Layout::kKN ? n : k, .layout = layout,
                       .scale = {scale.data()}, .token_scale = {scale.data()}, .out_type = Int8GemmOut::kBF16, .out = out.data(), .ldo = n};
  tiling::Executor& pool = BenchmarkPool();
  int64_t copy = 0;
  for (auto _ : state) {
    args.w = weights.data() + copy * bytes;
    copy = (copy + 1) % copies;
    if (!Int8Gemm(args, pool).ok()) state.SkipWithError("int8 gemm failed");
  }
  Count(state, n * k, 2.0 * m * n * k);
}

void RunBf16(benchmark::State& state, int64_t n, int64_t k, int64_t m) {
  const int64_t bytes = *FractalNzBytes(n, k, 2), copies = Copies(bytes);
  std::vector<char> weights(bytes * copies, 0x3C), a(m * k * 2, 0x3C), out(m * n * 2);
  GemmArgs args = {.m = m, .n = n, .k = k, .type = DType::kBF16, .a = a.data(), .lda = k, .layout = WeightLayout::kFractalNz, .out = out.data(), .ldo = n};
  tiling::Executor& pool = BenchmarkPool();
  int64_t copy = 0;
  for (auto _ : state) {
    args.w = weights.data() + copy * bytes;
    copy = (copy + 1) % copies;
    if (!Gemm(args, pool).ok()) state.SkipWithError("gemm failed");
  }
  Count(state, n * k * 2, 2.0 * m * n * k);
}

// A layer of experts, each with `rows` rows: the gate-up product of a mixture.
void RunGrouped(benchmark::State& state, int64_t experts, int64_t rows) {
  const int64_t n = 1024, k = 1024, m = experts * rows, bytes = *FractalNzBytes(k, n, 1);
  std::vector<int8_t> weights(bytes * experts, 0x3C), a(m * k, 0x3C);
  std::vector<uint16_t> out(m * n);
  const std::vector<float> scale(std::max(m, n), 0.01f);
  const Int8GemmArgs args = {.m = m, .n = n, .k = k, .a = a.data(), .lda = k, .layout = Int8Layout::kFractalKN, .token_scale = {scale.data()},
                             .out_type = Int8GemmOut::kBF16, .out = out.data(), .ldo = n};
  std::vector<Int8Group> groups;
  for (int64_t e = 0; e < experts; ++e) {
    groups.push_back({.begin = e * rows, .end = (e + 1) * rows, .w = weights.data() + e * bytes, .scale = {scale.data()}});
  }
  tiling::Executor& pool = BenchmarkPool();
  for (auto _ : state) {
    if (!GroupedInt8Gemm(args, groups, pool).ok()) state.SkipWithError("grouped int8 gemm failed");
  }
  Count(state, n * k * experts, 2.0 * m * n * k);
}

const int registered = [] {
  RegisterMachineLimits();
  const std::pair<Int8Layout, const char*> layouts[] = {
      {Int8Layout::kFractalKN, "NzKN"}, {Int8Layout::kFractalNK, "NzNK"}, {Int8Layout::kNK, "NK"}, {Int8Layout::kKN, "KN"}};
  const auto add = [](const std::string& name, auto run) { benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond); };
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{2048, 2048}, {3072, 576}, {576, 1536}}) {
    for (int64_t m : {1, 4, 8, 16, 32, 128, 512}) {
      const std::string shape = "/n" + std::to_string(n) + "/k" + std::to_string(k) + "/m" + std::to_string(m);
      add("Bf16/NZ" + shape, [n = n, k = k, m](benchmark::State& state) { RunBf16(state, n, k, m); });
      for (const auto& [layout, name] : layouts) {
        add(std::string("Int8/") + name + shape, [layout = layout, n = n, k = k, m](benchmark::State& state) { RunInt8(state, layout, n, k, m); });
      }
    }
  }
  for (int64_t rows : {1, 16, 64}) {
    add("Int8Grouped/NzKN/n1024/k1024/experts64/rows" + std::to_string(rows), [rows](benchmark::State& state) { RunGrouped(state, 64, rows); });
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::quant
