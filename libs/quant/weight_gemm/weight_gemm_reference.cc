#include "libs/quant/weight_gemm/weight_gemm_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "libs/quant/scalar.h"

namespace jumar::quant {
namespace {

constexpr double kUnit = 0x1p-24, kSmallest = 0x1p-126;

double Activation(const WeightGemmArgs& args, int64_t row, int64_t k) {
  if (args.activations.is_format) return ReadCode(args.activations.format, CodeLayout::kNK, args.a, args.lda, 0, row, k);
  return LoadScalar(args.activations.type, static_cast<const char*>(args.a) + row * args.lda, k);
}

struct Sum {
  double value, bound;
};
Sum Element(const WeightGemmArgs& args, int64_t i, int64_t j) {
  double sum = args.bias == nullptr ? 0 : LoadScalar(args.bias_type, args.bias, j), magnitude = std::fabs(sum), largest = 0;
  for (int64_t k = 0; k < args.k; ++k) {
    const double a = Activation(args, i, k), w = ReadCode(args.format, args.layout, args.w, args.ldw, args.n, j, k);
    const double offset = ReadScale(args.w_offset, j, k, args.k, 0);
    const double scale = ReadScale(args.w_scale, j, k, args.k, 1) * ReadScale(args.a_scale, i, k, args.k, 1);
    sum += a * (w + offset) * scale;
    magnitude += std::fabs(a * scale) * (std::fabs(w) + std::fabs(offset));
    largest = std::max(largest, (std::fabs(w) + std::fabs(offset)) * std::fabs(scale));
  }
  const double nu = static_cast<double>(args.k + 16) * kUnit;
  return {sum, nu / (1 - nu) * magnitude + static_cast<double>(args.k + 16) * kSmallest * std::max(1.0, largest)};
}

}  // namespace

double ReadCode(Format format, CodeLayout layout, const void* w, int64_t ld, int64_t n, int64_t row, int64_t k) {
  const auto* bytes = static_cast<const uint8_t*>(w);
  const bool half = Bits(format) == 4;
  uint8_t code = 0;
  switch (layout) {
    case CodeLayout::kNK: code = half ? bytes[row * ld + k / 2] >> k % 2 * 4 & 15 : bytes[row * ld + k]; break;
    case CodeLayout::kKN: code = half ? bytes[k * ld + row / 2] >> row % 2 * 4 & 15 : bytes[k * ld + row]; break;
    case CodeLayout::kFractalNz: code = bytes[((k / 32 * ((n + 15) / 16) + row / 16) * 16 + row % 16) * 32 + k % 32]; break;
  }
  return Decode(format, code);
}

double ReadScale(const Scales& s, int64_t row, int64_t k, int64_t depth, double missing) {
  if (s.data == nullptr) return missing;
  const int64_t group = s.depth == 0 || s.depth >= depth ? 0 : k / s.depth;
  const int64_t at = (s.rows == 0 ? 0 : row / s.rows * s.row_stride) + group / s.run * s.depth_stride + group % s.run;
  switch (s.type) {
    case ScaleType::kF32: return LoadScalar(DType::kF32, s.data, at);
    case ScaleType::kF16: return LoadScalar(DType::kF16, s.data, at);
    case ScaleType::kBF16: return LoadScalar(DType::kBF16, s.data, at);
    case ScaleType::kE8M0: return Decode(Format::kE8M0, static_cast<const uint8_t*>(s.data)[at]);
    case ScaleType::kI32: break;
  }
  int32_t number;
  std::memcpy(&number, static_cast<const char*>(s.data) + 4 * at, 4);
  return number;
}

WeightGemmResult WeightGemmReference(const WeightGemmArgs& args) {
  WeightGemmResult result;
  const bool gated = args.epilogue == Epilogue::kSwiGlu;
  const int64_t width = gated ? args.n / 2 : args.n;
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      Sum sum = Element(args, i, j);
      if (gated) {
        // silu's slope is below 1.1; 8 roundings of exp, the quotient and the product.
        const Sum up = Element(args, i, width + j);
        const double silu = sum.value / (1 + std::exp(-sum.value));
        const double silu_error = 1.1 * sum.bound + 8 * kUnit * std::fabs(silu) * (1 + std::fabs(sum.value)) + kSmallest;
        sum = {silu * up.value, silu_error * (std::fabs(up.value) + up.bound) + std::fabs(silu) * up.bound};
      }
      result.value.push_back(sum.value);
      result.bound.push_back(sum.bound + HalfUlp(args.out_type, std::fabs(sum.value) + sum.bound));
    }
  }
  return result;
}

}  // namespace jumar::quant
