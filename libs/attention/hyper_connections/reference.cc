#include "libs/attention/hyper_connections/reference.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr double kU = 0x1p-24, kExpError = 0x1p-22;

void Add(Bounded& to, double value, double bound) {
  to.value.push_back(value);
  to.bound.push_back(bound);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

PreReference HyperConnectionPreReference(const HyperConnectionPreArgs& args, int64_t token) {
  const int64_t n = args.streams, size = n * args.dim, rows = 2 * n + (args.res == nullptr ? 0 : n * n);
  std::vector<double> x(size);
  double squares = 0;
  for (int64_t d = 0; d < size; ++d) {
    x[d] = quant::LoadScalar(args.type, args.x, token * size + d);
    squares += x[d] * x[d];
  }
  PreReference result;
  const double rms = std::sqrt(squares / size + args.norm_epsilon), rms_error = (size / 2.0 + 8) * kU;  // a sum of positive terms, halved by the root
  Add(result.inverse_rms, 1 / rms, rms_error / rms);

  // A product of `size` terms, each with gamma's rounding; then three products and a sum.
  std::vector<double> weight(rows), weight_error(rows);
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0, magnitude = 0;
    for (int64_t d = 0; d < size; ++d) {
      const double term = x[d] * (args.gamma == nullptr ? 1 : args.gamma[d]) * args.phi[row * size + d];
      sum += term;
      magnitude += std::fabs(term);
    }
    const double error = (size + 2) * kU * magnitude;
    Add(result.mix, sum, error);
    const double alpha = args.alpha[row < n ? 0 : row < 2 * n ? 1 : 2], product = alpha * sum / rms;
    weight[row] = product + args.bias[row];
    weight_error[row] = (std::fabs(alpha) * error / rms + std::fabs(product) * (rms_error + 3 * kU)) * 1.01 + 2 * kU * (std::fabs(product) + std::fabs(args.bias[row]));
  }
  // The sigmoid's slope is 1/4 at most; its own roundings, and those of what is added, are few.
  for (int64_t j = 0; j < n; ++j) {
    Add(result.pre, Sigmoid(weight[j]) + args.epsilon, weight_error[j] / 4 + 8 * kU);
    Add(result.post, 2 * Sigmoid(weight[n + j]), weight_error[n + j] / 2 + 16 * kU);
  }
  for (int64_t i = 2 * n; i < rows; ++i) Add(result.res, weight[i], weight_error[i]);
  for (int64_t d = 0; d < args.dim; ++d) {
    double sum = 0, bound = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double stream = x[j * args.dim + d];
      sum += result.pre.value[j] * stream;
      bound += (result.pre.bound[j] + (n + 1) * kU * result.pre.value[j]) * std::fabs(stream);
    }
    Add(result.in, sum, bound + quant::HalfUlp(args.type, std::fabs(sum) + bound));
  }
  return result;
}

// Dividing rows and columns scales them, which leaves every cross ratio m[i,j] m[k,l] / (m[i,l] m[k,j]) as it is; so errors don't grow
// from one iteration to the next, they add up: a division and its sum of n + 1 terms are (n + 2) u of each element. An element of the normalised
// matrix follows with at most four times the relative error of the cross ratios.
Bounded SinkhornReference(const SinkhornArgs& args, int64_t token) {
  const int64_t n = args.streams;
  const float* logits = args.logits + token * n * n;
  std::vector<double> m(n * n);
  double range = 0, magnitude = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto [low, high] = std::minmax_element(logits + i * n, logits + (i + 1) * n);
    range = std::max<double>(range, static_cast<double>(*high) - *low);
    magnitude = std::max<double>(magnitude, std::max(std::fabs(*high), std::fabs(*low)));
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += m[i * n + j] = std::exp(static_cast<double>(logits[i * n + j]) - *high);
    for (int64_t j = 0; j < n; ++j) m[i * n + j] = m[i * n + j] / sum + args.epsilon;
  }
  for (int64_t iteration = 0; iteration < args.iterations; ++iteration) {
    for (int64_t i = 0; i < n && iteration > 0; ++i) {
      double sum = args.epsilon;
      for (int64_t j = 0; j < n; ++j) sum += m[i * n + j];
      for (int64_t j = 0; j < n; ++j) m[i * n + j] /= sum;
    }
    for (int64_t j = 0; j < n; ++j) {
      double sum = args.epsilon;
      for (int64_t i = 0; i < n; ++i) sum += m[i * n + j];
      for (int64_t i = 0; i < n; ++i) m[i * n + j] /= sum;
    }
  }
  const double start = 2 * (kU * range + kExpError + (n + 3) * kU), all = 4 * (start + 2.0 * args.iterations * (n + 2) * kU);
  Bounded result;
  for (double value : m) Add(result, value, std::expm1(all) * value + 0x1p-126);
  return result;
}

Bounded HyperConnectionPostReference(const HyperConnectionPostArgs& args, int64_t token) {
  const int64_t n = args.streams;
  Bounded result;
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t d = 0; d < args.dim; ++d) {
      const double layer = args.post[token * n + k] * quant::LoadScalar(args.type, args.out, token * args.dim + d);
      double sum = layer, magnitude = std::fabs(layer);
      for (int64_t j = 0; j < n; ++j) {
        const double mix = args.mix != nullptr ? args.mix[(token * n + j) * n + k] : j == k;
        const double term = mix * quant::LoadScalar(args.type, args.x, (token * n + j) * args.dim + d);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double error = (n + 2) * kU * magnitude;
      Add(result, sum, error + quant::HalfUlp(args.type, std::fabs(sum) + error));
    }
  }
  return result;
}

}  // namespace jumar::attention
