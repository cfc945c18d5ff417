// Products with compact weights beside the bf16 GEMM of the same n and k, in one run; weights don't fit the caches. `weights_per_s` of a
// format over that of "bf16" is what the format gains; `weight_bytes` compares with ReadBandwidth, `flops` with MultiplyAddPeak.
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/quant/bench_util.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/gemm.h"
#include "libs/quant/weight_gemm/weight_gemm.h"
#include "libs/tiling/simd.h"

namespace jumar::quant {
namespace {

constexpr int64_t kOutOfCache = int64_t{192} << 20;

struct Shape {
  int64_t n, k, m;
};

void Report(benchmark::State& state, const Shape& s, int64_t bytes) {
  state.counters["weights_per_s"] = Rate(static_cast<double>(s.n * s.k));
  state.counters["weight_bytes"] = Rate(static_cast<double>(bytes));
  state.counters["flops"] = Rate(2.0 * static_cast<double>(s.m * s.n * s.k));
  state.SetLabel(tiling::SimdTarget());
}

// Weights of as many layers as exceed the caches, used in turn as a model does. 0x3C: an ordinary number in every format.
int64_t Copies(int64_t bytes) { return std::clamp<int64_t>(kOutOfCache / bytes, 1, 400); }

void Bf16(benchmark::State& state, Shape s) {
  const int64_t bytes = *FractalNzBytes(s.n, s.k, 2), copies = Copies(bytes);
  BenchmarkBuffer weights(bytes * copies);
  std::vector<char> a(static_cast<size_t>(s.m * s.k * 2), 0x3C), out(static_cast<size_t>(s.m * s.n * 2));
  GemmArgs args = {.m = s.m, .n = s.n, .k = s.k, .type = DType::kBF16, .a = a.data(), .lda = s.k, .layout = WeightLayout::kFractalNz, .out = out.data(), .ldo = s.n};
  tiling::Executor& pool = BenchmarkPool();
  int64_t copy = 0;
  for (auto _ : state) {
    args.w = weights.data() + copy * bytes;
    copy = (copy + 1) % copies;
    if (!Gemm(args, pool).ok()) state.SkipWithError("gemm failed");
  }
  Report(state, s, bytes);
}

struct Case {
  const char* name;
  Format format;
  ScaleType scale_type;
  int64_t rows, depth;
  Activations activations = DType::kBF16;
  CodeLayout layout = CodeLayout::kNK;
  int64_t a_depth = 0;  // of activations that are codes
};
const Case kCases[] = {
    {"int4_g64", Format::kI4, ScaleType::kBF16, 1, 64},
    {"int4_g128", Format::kI4, ScaleType::kBF16, 1, 128},
    {"int4_g32", Format::kI4, ScaleType::kBF16, 1, 32},
    {"mxfp4_w4a16", Format::kE2M1, ScaleType::kE8M0, 1, 32},
    {"int8_channel", Format::kI8, ScaleType::kBF16, 1, 0},
    {"fp8_channel", Format::kE4M3, ScaleType::kF32, 1, 0},
    {"fp8_block128", Format::kE4M3, ScaleType::kF32, 128, 128},
    {"hif8_channel", Format::kHiF8, ScaleType::kF32, 1, 0},
    {"fp8_w8a8", Format::kE4M3, ScaleType::kF32, 1, 0, Format::kE4M3},
    {"fp8_w8a8_block128", Format::kE4M3, ScaleType::kF32, 128, 128, Format::kE4M3, CodeLayout::kNK, 128},
    {"mxfp8_w8a8", Format::kE4M3, ScaleType::kE8M0, 1, 32, Format::kE4M3, CodeLayout::kNK, 32},
    {"mxfp4_w4a4", Format::kE2M1, ScaleType::kE8M0, 1, 32, Format::kE2M1, CodeLayout::kNK, 32},
    {"int4_g128_kn", Format::kI4, ScaleType::kBF16, 1, 128, DType::kBF16, CodeLayout::kKN},
    {"int8_channel_nz", Format::kI8, ScaleType::kBF16, 1, 0, DType::kBF16, CodeLayout::kFractalNz},
    {"int8_channel_kn", Format::kI8, ScaleType::kBF16, 1, 0, DType::kBF16, CodeLayout::kKN},
};

void Compact(benchmark::State& state, const Case& c, Shape s) {
  const int64_t bytes = s.n * s.k * Bits(c.format) / 8, copies = Copies(bytes), groups = c.depth == 0 ? 1 : s.k / c.depth;
  BenchmarkBuffer weights(bytes * copies);
  std::vector<char> a(static_cast<size_t>(s.m * s.k * 2), 0x3C), out(static_cast<size_t>(s.m * s.n * 2));
  const char scale = c.scale_type == ScaleType::kE8M0 ? 0x7F : 0x3C;  // 1, or an ordinary number
  std::vector<char> scales(static_cast<size_t>(s.n * groups * 4), scale), a_scales(static_cast<size_t>(s.m * s.k * 4 / 32 + 4), scale);
  WeightGemmArgs args = {.m = s.m, .n = s.n, .k = s.k, .activations = c.activations, .a = a.data(), .format = c.format, .layout = c.layout,
                         .w_scale = {.data = scales.data(), .type = c.scale_type, .rows = c.rows, .depth = c.depth, .row_stride = groups},
                         .out_type = DType::kBF16, .out = out.data(), .ldo = s.n * 2};
  args.lda = c.activations.is_format ? s.k * Bits(c.activations.format) / 8 : s.k * 2;
  args.ldw = (c.layout == CodeLayout::kKN ? s.n : s.k) * Bits(c.format) / 8;
  if (c.activations.is_format) {
    args.a_scale = {.data = a_scales.data(), .type = c.scale_type, .depth = c.a_depth, .row_stride = c.a_depth == 0 ? 1 : s.k / c.a_depth};
  }
  tiling::Executor& pool = BenchmarkPool();
  int64_t copy = 0;
  for (auto _ : state) {
    args.w = weights.data() + copy * bytes;
    copy = (copy + 1) % copies;
    if (!WeightGemm(args, pool).ok()) state.SkipWithError("weight gemm failed");
  }
  Report(state, s, bytes);
}

const int registered = [] {
  RegisterMachineLimits();
  for (const Shape& s : {Shape{2048, 2048, 1}, {2048, 2048, 8}, {2048, 2048, 32}, {2048, 2048, 512}, {3072, 576, 1}, {3072, 576, 512}, {576, 1536, 1}, {576, 1536, 512}, {4096, 4096, 1}}) {
    const std::string shape = "/n" + std::to_string(s.n) + "/k" + std::to_string(s.k) + "/m" + std::to_string(s.m);
    benchmark::RegisterBenchmark(("bf16" + shape).c_str(), [s](benchmark::State& state) { Bf16(state, s); })->UseRealTime()->Unit(benchmark::kMicrosecond);
    for (const Case& c : kCases) {
      benchmark::RegisterBenchmark((c.name + shape).c_str(), [&c, s](benchmark::State& state) { Compact(state, c, s); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace jumar::quant
