#include "libs/quant/gemm_reference.h"

#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::quant {
namespace {

double Weight(const GemmArgs& args, int64_t j, int64_t kk) {
  switch (args.layout) {
    case WeightLayout::kNK: return LoadScalar(args.type, args.w, j * args.ldw + kk);
    case WeightLayout::kKN: return LoadScalar(args.type, args.w, kk * args.ldw + j);
    case WeightLayout::kFractalNz:
      return LoadScalar(args.type, args.w, ((kk / 16 * ((args.n + 15) / 16) + j / 16) * 16 + j % 16) * 16 + kk % 16);
    case WeightLayout::kFractalNzKN:
      return LoadScalar(args.type, args.w, ((j / 16 * ((args.k + 15) / 16) + kk / 16) * 16 + kk % 16) * 16 + j % 16);
  }
  return NAN;
}

}  // namespace

GemmReferenceResult GemmReference(const GemmArgs& args) {
  GemmReferenceResult result;
  result.product.resize(args.m * args.n);
  result.magnitude.resize(args.m * args.n);
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = args.bias == nullptr ? 0 : LoadScalar(args.type, args.bias, j);
      double magnitude = std::fabs(sum);
      for (int64_t kk = 0; kk < args.k; ++kk) {
        const double term = LoadScalar(args.type, args.a, i * args.lda + kk) * Weight(args, j, kk);
        sum += term;
        magnitude += std::fabs(term);
      }
      result.product[i * args.n + j] = sum;
      result.magnitude[i * args.n + j] = magnitude;
    }
  }
  return result;
}

double GemmErrorBound(DType type, int64_t k, double product, double magnitude) {
  const double nu = (k + 1) * 0x1p-24, sum_error = nu / (1 - nu) * magnitude + (k + 1) * 0x1p-126;
  return sum_error + HalfUlp(type, std::fabs(product) + sum_error);
}

}  // namespace jumar::quant
