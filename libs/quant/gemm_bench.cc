// Matrix products of SmolLM2-135M against what the machine can do, measured in the same run:
//   ReadBandwidth   sums an array far larger than the caches: the limit of decode, in bytes/s
//   MultiplyAddPeak fp32 multiply-adds from registers: the limit of prefill, in flop/s (bf16 with a dot instruction may exceed it)
//   Gemm            the counters weight_bytes (the weights, once a call) and flops, both per second
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

namespace jumar::quant {
namespace {

// Weights of as many layers as exceed the caches, used in turn as a model does, so that decode reads them from memory.
void RunGemm(benchmark::State& state, DType type, WeightLayout layout, int64_t n, int64_t k, int64_t m) {
  const int64_t size = SizeOf(type), bytes = layout == WeightLayout::kFractalNz ? *FractalNzBytes(n, k, size) : n * k * size;
  const int64_t copies = std::clamp<int64_t>((int64_t{192} << 20) / bytes, 1, 60);
  // 0x3C3C3C3C: finite and not subnormal in every type, so that speed is that of ordinary numbers.
  std::vector<char> weights(bytes * copies, 0x3C), a(m * k * size, 0x3C), out(m * n * size);
  GemmArgs args = {.m = m, .n = n, .k = k, .type = type, .a = a.data(), .lda = k, .ldw = layout == WeightLayout::kKN ? n : k, .layout = layout,
                   .out = out.data(), .ldo = n};
  tiling::Executor& pool = BenchmarkPool();
  int64_t copy = 0;
  for (auto _ : state) {
    args.w = weights.data() + copy * bytes;
    copy = (copy + 1) % copies;
    if (!Gemm(args, pool).ok()) state.SkipWithError("gemm failed");
  }
  state.counters["weight_bytes"] = Rate(n * k * size);
  state.counters["flops"] = Rate(2.0 * m * n * k);
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  RegisterMachineLimits();
  const std::pair<int64_t, int64_t> shapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  const std::pair<WeightLayout, const char*> layouts[] = {{WeightLayout::kFractalNz, "NZ"}, {WeightLayout::kNK, "NK"}, {WeightLayout::kKN, "KN"}};
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const auto& [layout, layout_name] : layouts) {
      for (const auto& [n, k] : shapes) {
        for (int64_t m : {1, 8, 16, 128, 512}) {
          if (n > 10000 && m > 16) continue;  // the output layer sees one row per sequence
          if (layout == WeightLayout::kKN && (n != 3072 || m > 16)) continue;
          if (layout == WeightLayout::kNK && n != 3072 && n != 49152) continue;
          const std::string name = std::string("Gemm/") + Name(type) + "/" + layout_name + "/n" + std::to_string(n) + "/k" + std::to_string(k) + "/m" + std::to_string(m);
          benchmark::RegisterBenchmark(name.c_str(), [type, layout = layout, n = n, k = k, m](benchmark::State& state) {
            RunGemm(state, type, layout, n, k, m);
          })->UseRealTime()->Unit(benchmark::kMicrosecond);
        }
      }
    }
    benchmark::RegisterBenchmark((std::string("Gemm/") + Name(type) + "/NZ/n2048/k2048/m512").c_str(), [type](benchmark::State& state) {
      RunGemm(state, type, WeightLayout::kFractalNz, 2048, 2048, 512);
    })->UseRealTime()->Unit(benchmark::kMicrosecond);
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::quant
