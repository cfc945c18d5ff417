#include "libs/attention/mla/reference.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr double kU = 0x1p-24;

using Vector = std::vector<Bounded>;

// What rounding to `type` adds.
Bounded Rounded(DType type, Bounded x) { return {x.value, x.error + quant::HalfUlp(type, std::fabs(x.value) + x.error)}; }

double WeightAt(const MlaPrologArgs& args, const MlaWeight& w, int64_t k, int64_t n) {
  const int64_t at = k * w.ld + n;
  return w.scale == nullptr ? quant::LoadScalar(args.type, w.data, at) : static_cast<const int8_t*>(w.data)[at] * static_cast<double>(w.scale[n]);
}

// A sum of `terms` products in fp32, in any order, of factors that err: sum |w| e + (terms + 2) u sum |a| |w|. The scales of int8 are among the + 2.
Bounded Dot(const Vector& a, const auto& weight) {
  Bounded sum;
  double magnitude = 0;
  for (size_t k = 0; k < a.size(); ++k) {
    const double w = weight(static_cast<int64_t>(k));
    sum.value += a[k].value * w;
    sum.error += a[k].error * std::fabs(w);
    magnitude += (std::fabs(a[k].value) + a[k].error) * std::fabs(w);
  }
  sum.error += (static_cast<double>(a.size()) + 2) * kU * magnitude;
  return sum;
}

Vector Product(const MlaPrologArgs& args, const Vector& a, const MlaWeight& w, int64_t n) {
  Vector out;
  for (int64_t j = 0; j < n; ++j) out.push_back(Rounded(args.type, Dot(a, [&](int64_t k) { return WeightAt(args, w, k, j); })));
  return out;
}

// With m = mean(x^2) + epsilon, known to q relatively, 1 / sqrt(m) is known to less than q (q < 1/2), and to some roundings.
Vector Norm(const MlaPrologArgs& args, const Vector& x, const void* gamma, double epsilon, double scale) {
  double squares = 0, error = 0;
  for (const Bounded& v : x) {
    squares += v.value * v.value;
    error += (2 * std::fabs(v.value) + v.error) * v.error;
  }
  const double n = static_cast<double>(x.size()), m = squares / n + epsilon, q = error / n / m + (n + 8) * kU, r = 1 / std::sqrt(m);
  Vector out;
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = quant::LoadScalar(args.type, gamma, static_cast<int64_t>(i)) * scale, y = x[i].value * r * g;
    out.push_back({y, std::fabs(g) * r * (x[i].error * (1 + q) + std::fabs(x[i].value) * q) + 4 * kU * std::fabs(y)});
  }
  return out;
}

Vector Rope(const MlaPrologArgs& args, const Bounded* x, int64_t token) {
  const int64_t half = args.rope_dim / 2;
  Vector out(static_cast<size_t>(args.rope_dim));
  for (int64_t i = 0; i < args.rope_dim; ++i) {
    const double cos = quant::LoadScalar(args.type, args.cos, token * args.table_stride + i), sin = quant::LoadScalar(args.type, args.sin, token * args.table_stride + i);
    const Bounded &own = x[2 * (i % half) + i / half], &other = x[2 * (i % half) + 1 - i / half];
    const double a = own.value * cos, b = (i < half ? -1 : 1) * other.value * sin;
    const double error = own.error * std::fabs(cos) + other.error * std::fabs(sin);
    out[static_cast<size_t>(i)] = Rounded(args.type, {a + b, error + 3 * kU * (std::fabs(a) + std::fabs(b) + error)});
  }
  return out;
}

// int8 per token: half a step, and the roundings of the step and the quotient, which may move a number to the next code.
void Quantize(const MlaPrologArgs& args, Vector& x) {
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (args.smooth_cq != nullptr) x[i] = {x[i].value * args.smooth_cq[i], x[i].error * std::fabs(args.smooth_cq[i])};
    largest = std::max(largest, std::fabs(x[i].value) + x[i].error);
  }
  for (Bounded& v : x) v.error += largest / 127 * (0.5 + 512 * kU);
}

}  // namespace

MlaPrologReference ReferenceMlaProlog(const MlaPrologArgs& args, int64_t token) {
  Vector x;
  for (int64_t k = 0; k < args.hidden; ++k) {
    const int64_t at = token * args.x_stride + k;
    x.push_back({args.x_scale == nullptr ? quant::LoadScalar(args.type, args.x, at) : static_cast<const int8_t*>(args.x)[at] * static_cast<double>(args.x_scale[token])});
  }
  Vector latent_query = Norm(args, Product(args, x, args.w_dq, args.q_rank), args.gamma_cq, args.epsilon_cq, args.query_scale);
  if (args.w_uq_qr.scale != nullptr) {
    Quantize(args, latent_query);
  } else {
    for (Bounded& v : latent_query) v = Rounded(args.type, v);
  }
  const int64_t head = args.nope_dim + args.rope_dim;
  const Vector up = Product(args, latent_query, args.w_uq_qr, args.heads * head);
  MlaPrologReference result;
  for (int64_t h = 0; h < args.heads; ++h) {
    const Vector nope(up.begin() + h * head, up.begin() + h * head + args.nope_dim);
    for (int64_t j = 0; j < args.kv_rank; ++j) {
      const auto weight = [&](int64_t k) { return quant::LoadScalar(args.type, args.w_uk, (h * args.nope_dim + k) * args.kv_rank + j); };
      result.query.push_back(Rounded(args.type, Dot(nope, weight)));
    }
    const Vector rotated = Rope(args, up.data() + h * head + args.nope_dim, token);
    result.query_rope.insert(result.query_rope.end(), rotated.begin(), rotated.end());
  }
  const Vector down = Product(args, x, args.w_dkv_kr, args.kv_rank + args.rope_dim);
  result.latent = Norm(args, Vector(down.begin(), down.begin() + args.kv_rank), args.gamma_ckv, args.epsilon_ckv, args.kv_scale);
  for (Bounded& v : result.latent) v = Rounded(args.type, v);
  result.key_rope = Rope(args, down.data() + args.kv_rank, token);
  return result;
}

}  // namespace jumar::attention
