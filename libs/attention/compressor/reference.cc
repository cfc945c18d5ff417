#include "libs/attention/compressor/reference.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr double kU = 0x1p-24, kExpError = 0x1p-22;

// One feature of the group's sum, and what fp32 may make of it.
//
// With u = 2^-24: a score is one rounded sum, u |s|; its difference to the maximum errs by e = 2 u max |s| + u range, so a probability by
// e + 2^-22 relative; numerator and denominator are chains of n such terms, and their quotient is rounded.
struct Feature {
  double value, error;
};
Feature WeighFeature(const std::vector<double>& scores, const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  double largest = 0, sum = 0, total = 0, magnitude = 0;
  for (size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j] - *high);
    sum += p;
    total += p * values[j];
    magnitude += p * std::fabs(values[j]);
    largest = std::max(largest, std::fabs(scores[j]));
  }
  const double p_error = std::expm1(2 * kU * largest + kU * (*high - *low) + kExpError);
  const double n = static_cast<double>(scores.size());
  return {total / sum, magnitude / sum * (2 * p_error + (2 * n + 4) * kU) * 1.01 + 0x1p-126};
}

}  // namespace

CompressedReference CompressorReference(const CompressorArgs& args, const void* kv, const void* gate, int64_t group) {
  const int64_t dim = args.head_dim, width = (args.overlap ? 2 : 1) * dim, first = group * args.ratio;
  std::vector<double> entry(dim), error(dim);
  double squares = 0, squared_error = 0;
  for (int64_t d = 0; d < dim; ++d) {
    std::vector<double> scores, values;
    const auto add = [&](int64_t position, int64_t feature) {
      const double ape = args.ape[position % args.ratio * width + feature];
      scores.push_back(quant::LoadScalar(args.type, gate, position * width + feature) + ape);
      values.push_back(quant::LoadScalar(args.type, kv, position * width + feature));
    };
    if (args.overlap && group > 0) {
      for (int64_t i = 0; i < args.ratio; ++i) add(first - args.ratio + i, d);
    }
    for (int64_t i = 0; i < args.ratio; ++i) add(first + i, args.overlap ? dim + d : d);
    const Feature feature = WeighFeature(scores, values);
    entry[d] = feature.value;
    error[d] = feature.error;
    squares += entry[d] * entry[d];
    squared_error += error[d] * error[d];
  }

  // The norm: 1 / rms is as sensitive, relatively, as the length of the row; its sum of D squares errs by D u, halved by the root.
  const double rms = std::sqrt(squares / dim + args.epsilon);
  const double rms_error = std::sqrt(squared_error / dim) / rms + (dim / 2.0 + 8) * kU;
  CompressedReference result{std::vector<double>(dim), std::vector<double>(dim)};
  for (int64_t d = 0; d < dim; ++d) {
    const double weight = args.norm_weight[d] / rms;
    result.out[d] = entry[d] * weight;
    result.bound[d] = (std::fabs(weight) * error[d] + std::fabs(result.out[d]) * rms_error) * 1.01;
  }

  // The rotation: two products and a sum for each element of a pair.
  const float* cos = args.cos + first * args.table_stride;
  const float* sin = args.sin + first * args.table_stride;
  for (int64_t i = 0; i < args.rope_dim / 2; ++i) {
    const int64_t even = dim - args.rope_dim + 2 * i, odd = even + 1;
    const double x = result.out[even], y = result.out[odd], x_error = result.bound[even], y_error = result.bound[odd];
    const double c = std::fabs(cos[i]), s = std::fabs(sin[i]);
    result.out[even] = x * cos[i] - y * sin[i];
    result.out[odd] = y * cos[i] + x * sin[i];
    result.bound[even] = c * x_error + s * y_error + 3 * kU * (c * std::fabs(x) + s * std::fabs(y));
    result.bound[odd] = c * y_error + s * x_error + 3 * kU * (c * std::fabs(y) + s * std::fabs(x));
  }
  for (int64_t d = 0; d < dim; ++d) result.bound[d] += quant::HalfUlp(args.type, std::fabs(result.out[d]) + result.bound[d]);
  return result;
}

}  // namespace jumar::attention
