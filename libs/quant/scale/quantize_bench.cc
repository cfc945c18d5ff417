// Rows of activations to codes and scales. "bytes": read and written. Compare with ReadBandwidth of the same run.
//
//   ./bazelw run //libs/quant/scale:quantize_bench      JUMAR_BENCH_THREADS=1, JUMAR_SIMD=AVX2

#include <cmath>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/quant/bench_util.h"
#include "libs/quant/scale/quantize.h"

namespace jumar::quant {
namespace {

constexpr int64_t kCols = 7168;

void QuantizeRows(benchmark::State& state, Rule rule, Format format, Granularity g, bool e8m0) {
  const int64_t rows = state.range(0);
  std::vector<uint16_t> x(static_cast<size_t>(rows * kCols));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(0x3E00 + i * 7919 % 0x200 + (i % 2) * 0x8000);
  const ScaleShape shape = ScalesOf(g, rows, kCols);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * kCols)), powers(static_cast<size_t>(shape.rows * shape.cols));
  std::vector<float> scales(powers.size());
  const QuantizeArgs args = {.rule = rule, .format = format, .granularity = g, .rows = rows, .cols = kCols, .type = DType::kBF16,
                             .in = x.data(), .ldi = kCols, .codes = codes.data(), .ldc = kCols, .scales = e8m0 ? nullptr : scales.data(),
                             .e8m0_scales = e8m0 ? powers.data() : nullptr, .lds = shape.cols};
  for (auto _ : state) benchmark::DoNotOptimize(Quantize(args, BenchmarkPool()));
  state.counters["bytes"] = Rate(static_cast<double>(rows * kCols * (16 + Bits(format)) / 8));
  state.SetLabel(tiling::SimdTarget());
}

void Register(const char* name, Rule rule, Format format, Granularity g, bool e8m0) {
  benchmark::RegisterBenchmark(name, QuantizeRows, rule, format, g, e8m0)->Arg(1)->Arg(512)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

const bool kRegistered = [] {
  Register("Int8PerToken", Rule::kCannDynamic, Format::kI8, PerRow(), false);
  Register("E4M3PerToken", Rule::kVllmToken, Format::kE4M3, PerRow(), false);
  Register("E4M3Group128", Rule::kVllmGroup, Format::kE4M3, PerGroup(128), false);
  Register("MxFp8", Rule::kOcpMx, Format::kE4M3, PerGroup(32), true);
  Register("MxFp4", Rule::kOcpMx, Format::kE2M1, PerGroup(32), true);
  RegisterMachineLimits();
  return true;
}();

}  // namespace
}  // namespace jumar::quant
