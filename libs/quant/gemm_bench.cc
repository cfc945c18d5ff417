// Matrix products of SmolLM2-135M against what the machine can do, measured in the same run:
//   ReadBandwidth   sums an array far larger than the caches: the limit of decode, in bytes/s
//   MultiplyAddPeak fp32 multiply-adds from registers: the limit of prefill, in flop/s (bf16 with a dot instruction may exceed it)
//   BF16DotPeak     the same with the bf16 dot instruction
//   Gemm            the counters weight_bytes (the weights, once a call) and flops, both per second
//   GroupedGemm     a mixture of 32 experts: the weights of those that have rows
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

// Memory as a device gives it: aligned. 0x3C3C3C3C is finite and not subnormal in every type, so that speed is that of ordinary numbers.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes + 64, 0x3C) {}
  char* data() { return bytes_.data() + 64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64; }

 private:
  std::vector<char> bytes_;
};

// Weights of as many layers as exceed the caches, used in turn as a model does, so that decode reads them from memory.
void RunGemm(benchmark::State& state, DType type, WeightLayout layout, int64_t n, int64_t k, int64_t m) {
  const bool nz = layout == WeightLayout::kFractalNz || layout == WeightLayout::kFractalNzKN;
  const int64_t size = SizeOf(type), bytes = nz ? *FractalNzBytes(n, k, size) : n * k * size;
  const int64_t copies = std::clamp<int64_t>((int64_t{192} << 20) / bytes, 1, 60);
  Buffer weights(bytes * copies), a(m * k * size), out(m * n * size);
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

// `groups` of 32 experts have `rows` rows each.
void RunGrouped(benchmark::State& state, DType type, int64_t n, int64_t k, int64_t groups, int64_t rows) {
  constexpr int64_t kExperts = 32;
  const int64_t size = SizeOf(type), bytes = *FractalNzBytes(n, k, size), m = groups * rows;
  Buffer weights(bytes * kExperts), a(m * k * size), out(m * n * size);
  const GemmArgs shared = {.m = m, .n = n, .k = k, .type = type, .a = a.data(), .lda = k, .layout = WeightLayout::kFractalNz, .out = out.data(), .ldo = n};
  tiling::Executor& pool = BenchmarkPool();
  std::vector<GemmGroup> table(groups);
  int64_t expert = 0;
  for (auto _ : state) {
    for (int64_t g = 0; g < groups; ++g) table[g] = {g * rows, rows, weights.data() + expert++ % kExperts * bytes, nullptr};
    if (!GroupedGemm(shared, table, pool).ok()) state.SkipWithError("grouped gemm failed");
  }
  state.counters["weight_bytes"] = Rate(groups * n * k * size);
  state.counters["flops"] = Rate(2.0 * m * n * k);
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  RegisterMachineLimits();
  const std::pair<int64_t, int64_t> shapes[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  const std::pair<WeightLayout, const char*> layouts[] = {{WeightLayout::kFractalNz, "NZ"}, {WeightLayout::kNK, "NK"}, {WeightLayout::kKN, "KN"}, {WeightLayout::kFractalNzKN, "NZKN"}};
  for (DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const auto& [layout, layout_name] : layouts) {
      for (const auto& [n, k] : shapes) {
        for (int64_t m : {1, 8, 16, 128, 512}) {
          if (n > 10000 && m > 16) continue;  // the output layer sees one row per sequence
          if ((layout == WeightLayout::kKN || layout == WeightLayout::kFractalNzKN) && (n != 3072 || m > 16)) continue;
          if (layout == WeightLayout::kNK && n != 3072 && n != 49152) continue;
          const std::string name = std::string("Gemm/") + Name(type) + "/" + layout_name + "/n" + std::to_string(n) + "/k" + std::to_string(k) + "/m" + std::to_string(m);
          benchmark::RegisterBenchmark(name.c_str(), [type, layout = layout, n = n, k = k, m](benchmark::State& state) {
            RunGemm(state, type, layout, n, k, m);
          })->UseRealTime()->Unit(benchmark::kMicrosecond);
        }
      }
    }
    for (int64_t rows : {1, 64}) {
      benchmark::RegisterBenchmark((std::string("GroupedGemm/") + Name(type) + "/NZ/n1024/k1024/groups8/rows" + std::to_string(rows)).c_str(),
                                   [type, rows](benchmark::State& state) { RunGrouped(state, type, 1024, 1024, 8, rows); })
          ->UseRealTime()->Unit(benchmark::kMicrosecond);
    }
    benchmark::RegisterBenchmark((std::string("Gemm/") + Name(type) + "/NZ/n2048/k2048/m512").c_str(), [type](benchmark::State& state) {
      RunGemm(state, type, WeightLayout::kFractalNz, 2048, 2048, 512);
    })->UseRealTime()->Unit(benchmark::kMicrosecond);
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::quant
