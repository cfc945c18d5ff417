// Random numbers. Every operator gets its seed and offset from torch_npu's generator (philox.h says what they fix); the
// *Tensor forms, used while a graph is captured, read them from device memory at every replay. The numbers have the
// documented distributions but are not those of the hardware.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/philox.h"

namespace jumar::hostcann::aclnn {
namespace {

// Runs fn(p, first, count) over dense storage of `out`, in pieces that begin at multiples of 4.
template <class T, class Fn>
void FillDense(const Tensor& out, const Fn& fn) {
  const Tensor dense = out.contiguous();  // out itself if it is dense
  T* p = dense.data_ptr<T>();
  const int64_t n = dense.numel();
  ComputeExecutor().ParallelFor((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) fn(p + 4 * block, 4 * block, std::min<int64_t>(4, n - 4 * block));
  });
  if (!dense.is_same(out)) out.copy_(dense);
}

#define DISPATCH_FLOAT(tensor, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, (tensor).scalar_type(), "random", __VA_ARGS__)

void FillUniform(const Tensor& out, double from, double to, const Philox& random) {
  DISPATCH_FLOAT(out, [&] {
    FillDense<scalar_t>(out, [&](scalar_t* p, int64_t first, int64_t count) {
      if constexpr (std::is_same_v<scalar_t, double>) {
        for (int64_t i = 0; i < count; ++i) {
          const uint64_t element = static_cast<uint64_t>(first + i);
          const double u = Uniform(Bits64(random(element / 2), static_cast<int>(element % 2)));
          p[i] = std::min(from + u * (to - from), std::nextafter(to, from));
        }
      } else {
        // As many random bits as the type has, so that rounding can't reach `to`.
        constexpr int kDrop = 32 - std::numeric_limits<scalar_t>::digits;
        const Philox::Block bits = random(static_cast<uint64_t>(first / 4));
        for (int64_t i = 0; i < count; ++i) {
          const float u = static_cast<float>(bits[static_cast<size_t>(i)] >> kDrop) * std::ldexp(1.0f, kDrop - 32);
          const scalar_t value = static_cast<scalar_t>(static_cast<float>(from) + u * static_cast<float>(to - from));
          p[i] = static_cast<float>(value) >= static_cast<float>(to) ? static_cast<scalar_t>(static_cast<float>(from)) : value;
        }
      }
    });
  });
}

// Box-Muller: two uniforms make two independent standard normals.
template <class T>
std::pair<T, T> Normals(T u0, T u1) {
  const T radius = std::sqrt(T{-2} * std::log(T{1} - u0));  // 1 - u0 is never 0
  const T angle = T{2} * std::numbers::pi_v<T> * u1;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// mean(i) + std(i) * z
template <class Mean, class Std>
void FillNormal(const Tensor& out, const Mean& mean, const Std& std, const Philox& random) {
  DISPATCH_FLOAT(out, [&] {
    using Wide = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
    FillDense<scalar_t>(out, [&](scalar_t* p, int64_t first, int64_t count) {
      Wide z[4];
      if constexpr (std::is_same_v<scalar_t, double>) {
        for (int half = 0; half < 2; ++half) {
          const Philox::Block bits = random(static_cast<uint64_t>(first / 2 + half));
          std::tie(z[2 * half], z[2 * half + 1]) = Normals<Wide>(Uniform(Bits64(bits, 0)), Uniform(Bits64(bits, 1)));
        }
      } else {
        const Philox::Block bits = random(static_cast<uint64_t>(first / 4));
        // 32 bits for the radius, so that the tail reaches 6.6 standard deviations.
        for (int half = 0; half < 2; ++half) {
          const float u0 = static_cast<float>(static_cast<double>(bits[static_cast<size_t>(2 * half)]) * 0x1p-32);
          std::tie(z[2 * half], z[2 * half + 1]) =
              Normals<Wide>(std::min(u0, 1.0f - 0x1p-24f), Uniform(bits[static_cast<size_t>(2 * half + 1)]));
        }
      }
      for (int64_t i = 0; i < count; ++i)
        p[i] = static_cast<scalar_t>(static_cast<Wide>(mean(first + i)) + static_cast<Wide>(std(first + i)) * z[i]);
    });
  });
}

auto Constant(double value) {
  return [value](int64_t) { return value; };
}
// Element i of a tensor that broadcasts to out's shape.
auto Elements(const Tensor& t, const Tensor& out) {
  const Tensor wide = t.expand(out.sizes()).to(at::kDouble).contiguous();
  return [wide, p = wide.const_data_ptr<double>()](int64_t i) { return p[i]; };
}

// Integers in [from, to).
void FillRandom(const Tensor& out, int64_t from, int64_t to, const Philox& random) {
  Require(from < to, "from is ", from, " and to is ", to, "; from must be less");
  const uint64_t range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, out.scalar_type(), "random_", [&] {
    FillDense<scalar_t>(out, [&](scalar_t* p, int64_t first, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t element = static_cast<uint64_t>(first + i);
        const uint64_t bits = range <= (uint64_t{1} << 32) ? random(element / 4)[element % 4]
                                                           : Bits64(random(element / 2), static_cast<int>(element % 2));
        p[i] = static_cast<scalar_t>(static_cast<int64_t>(static_cast<uint64_t>(from) + bits % range));
      }
    });
  });
}

// Ones with probability p(i).
template <class Probability>
void FillBernoulli(const Tensor& out, const Probability& probability, const Philox& random) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, out.scalar_type(), "bernoulli_", [&] {
    FillDense<scalar_t>(out, [&](scalar_t* p, int64_t first, int64_t count) {
      const Philox::Block bits = random(static_cast<uint64_t>(first / 4));
      for (int64_t i = 0; i < count; ++i) {
        p[i] = static_cast<scalar_t>(static_cast<double>(bits[static_cast<size_t>(i)]) * 0x1p-32 < probability(first + i));
      }
    });
  });
}

// -log(u) / lambda, u in (0, 1].
void FillExponential(const Tensor& out, double lambda, const Philox& random) {
  DISPATCH_FLOAT(out, [&] {
    FillDense<scalar_t>(out, [&](scalar_t* p, int64_t first, int64_t count) {
      const Philox::Block bits = random(static_cast<uint64_t>(first / 4));
      for (int64_t i = 0; i < count; ++i) {
        p[i] = static_cast<scalar_t>(-std::log((static_cast<double>(bits[static_cast<size_t>(i)]) + 1) * 0x1p-32) / lambda);
      }
    });
  });
}

// Draws of one row. Without replacement: the k largest of p / e with e exponential (the exponential race); with it: by the
// inverse of the cumulative sum.
void DrawRow(const double* p, int64_t categories, int64_t draws, bool replacement, const Philox& random, uint64_t row,
             int64_t* out) {
  const uint64_t base = row * static_cast<uint64_t>(std::max(categories, draws));
  double sum = 0;
  int64_t positive = 0;
  for (int64_t i = 0; i < categories; ++i) {
    Require(p[i] >= 0 && std::isfinite(p[i]), "self[", row, "][", i, "] is ", p[i],
            "; a probability must be finite and not negative");
    sum += p[i];
    positive += p[i] > 0;
  }
  Require(sum > 0, "the probabilities of row ", row, " sum to 0");
  if (replacement) {
    std::vector<double> cumulative(static_cast<size_t>(categories));
    std::partial_sum(p, p + categories, cumulative.begin());
    for (int64_t d = 0; d < draws; ++d) {
      const double u = Uniform(Bits64(random(base + static_cast<uint64_t>(d)), 0)) * cumulative.back();
      out[d] = std::min<int64_t>(std::upper_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin(), categories - 1);
    }
    return;
  }
  Require(positive >= draws, "num_samples is ", draws, " but row ", row, " has only ", positive,
          " categories of positive probability");
  std::vector<std::pair<double, int64_t>> race(static_cast<size_t>(categories));
  for (int64_t i = 0; i < categories; ++i) {
    const double e = -std::log(1.0 - Uniform(Bits64(random(base + static_cast<uint64_t>(i)), 0)));
    race[static_cast<size_t>(i)] = {p[i] > 0 ? e / p[i] : std::numeric_limits<double>::infinity(), i};
  }
  std::partial_sort(race.begin(), race.begin() + draws, race.end());
  for (int64_t d = 0; d < draws; ++d) out[d] = race[static_cast<size_t>(d)].second;
}

void Multinomial(const Tensor& self, int64_t draws, bool replacement, const Philox& random, const Tensor& out) {
  const int64_t categories = self.size(-1), rows = self.dim() == 2 ? self.size(0) : 1;
  Require(draws > 0 && (replacement || draws <= categories), "num_samples is ", draws,
          "; it must be positive, and without replacement at most ", categories);
  const Tensor p = self.to(at::kDouble).contiguous();
  const Tensor drawn = out.to(at::kLong).contiguous();  // out itself if it is dense int64
  ComputeExecutor().ParallelFor(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      DrawRow(p.const_data_ptr<double>() + r * categories, categories, draws, replacement, random, static_cast<uint64_t>(r),
              drawn.mutable_data_ptr<int64_t>() + r * draws);
    }
  });
  if (!drawn.is_same(out)) out.copy_(drawn);
}

Philox FromDevice(const Tensor& seed, const Tensor& offset, uint64_t extra) {
  return Philox(static_cast<uint64_t>(seed.item<int64_t>()), static_cast<uint64_t>(offset.item<int64_t>()) + extra);
}
Philox FromHost(int64_t seed, int64_t offset) { return Philox(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)); }

}  // namespace

ACLNN_OP(InplaceUniform, Out(self), F64(from), F64(to), I64(seed), I64(offset)) {
  FillUniform(self, from, to, FromHost(seed, offset));
}
ACLNN_OP(InplaceUniformTensor, Out(self), F64(from), F64(to), In(seed), In(offset), I64(extra)) {
  FillUniform(self, from, to, FromDevice(seed, offset, extra));
}
ACLNN_OP(InplaceNormal, Out(self), F32(mean), F32(std), I64(seed), I64(offset)) {
  FillNormal(self, Constant(mean), Constant(std), FromHost(seed, offset));
}
ACLNN_OP(InplaceNormalTensor, Out(self), F32(mean), F32(std), In(seed), In(offset), I64(extra)) {
  FillNormal(self, Constant(mean), Constant(std), FromDevice(seed, offset, extra));
}
ACLNN_OP(NormalFloatFloat, F32(mean), F32(std), I64(seed), I64(offset), Out(out)) {
  FillNormal(out, Constant(mean), Constant(std), FromHost(seed, offset));
}
ACLNN_OP(NormalFloatTensor, F32(mean), In(std), I64(seed), I64(offset), Out(out)) {
  FillNormal(out, Constant(mean), Elements(std, out), FromHost(seed, offset));
}
ACLNN_OP(NormalTensorFloat, In(mean), F32(std), I64(seed), I64(offset), Out(out)) {
  FillNormal(out, Elements(mean, out), Constant(std), FromHost(seed, offset));
}
ACLNN_OP(NormalTensorTensor, In(mean), In(std), I64(seed), I64(offset), Out(out)) {
  FillNormal(out, Elements(mean, out), Elements(std, out), FromHost(seed, offset));
}
ACLNN_OP(InplaceRandom, Out(self), I64(from), I64(to), I64(seed), I64(offset)) {
  FillRandom(self, from, to, FromHost(seed, offset));
}
ACLNN_OP(InplaceRandomTensor, Out(self), I64(from), I64(to), In(seed), In(offset), I64(extra)) {
  FillRandom(self, from, to, FromDevice(seed, offset, extra));
}
ACLNN_OP(InplaceBernoulli, Out(self), Num(probability), I64(seed), I64(offset)) {
  FillBernoulli(self, Constant(probability.toDouble()), FromHost(seed, offset));
}
ACLNN_OP(InplaceBernoulliTensor, Out(self), In(probability), I64(seed), I64(offset)) {
  FillBernoulli(self, Elements(probability, self), FromHost(seed, offset));
}
ACLNN_OP(SimThreadExponential, Out(self), I64(count), F64(lambda), I64(seed), I64(offset)) {
  FillExponential(self, lambda, FromHost(seed, offset));
}
ACLNN_OP(Multinomial, In(self), I64(num_samples), Flag(replacement), I64(seed), I64(offset), Out(out)) {
  Multinomial(self, num_samples, replacement, FromHost(seed, offset), out);
}
ACLNN_OP(MultinomialTensor, In(self), I64(num_samples), Flag(replacement), In(seed), In(offset), I64(extra), Out(out)) {
  Multinomial(self, num_samples, replacement, FromDevice(seed, offset, extra), out);
}
// Fisher and Yates.
ACLNN_OP(Randperm, I64(n), I64(seed), I64(offset), Out(out)) {
  IntList permutation(static_cast<size_t>(n));
  std::iota(permutation.begin(), permutation.end(), 0);
  const Philox random = FromHost(seed, offset);
  for (int64_t i = n - 1; i > 0; --i) {
    std::swap(permutation[static_cast<size_t>(i)],
              permutation[Bits64(random(static_cast<uint64_t>(i)), 0) % static_cast<uint64_t>(i + 1)]);
  }
  Put(out, ToTensor(aclTensor{.dtype = DType::kI64,
                              .format = kFormatND,
                              .sizes = {{n}, 1},
                              .strides = {{1}, 1},
                              .storage_sizes = {{n}, 1},
                              .offset = 0,
                              .base = permutation.data()}));
}

// Dropout keeps an element with the probability 1 - p. Its mask holds a bit per element, in bytes from the lowest bit on, padded
// with zeros to 128 bits; a kept element is divided by 1 - p.
static void DropoutMask(const IntList& shape, double p, const Philox& random, const Tensor& mask) {
  Require(p >= 0 && p <= 1, "prob is ", p, "; it must be in [0, 1]");
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  Require(mask.scalar_type() == at::kByte && mask.numel() * 8 >= n, "mask has ", mask.numel(), " bytes; ", n, " elements need ",
          (n + 7) / 8, " of uint8");
  const Tensor uniform = at::empty({n}, at::kFloat);
  FillUniform(uniform, 0, 1, random);
  const float* u = uniform.const_data_ptr<float>();
  const Tensor dense = at::zeros({mask.numel()}, at::kByte);
  uint8_t* bits = dense.data_ptr<uint8_t>();
  for (int64_t i = 0; i < n; ++i) bits[i / 8] |= static_cast<uint8_t>((u[i] >= p && p < 1) << (i % 8));
  mask.copy_(dense.view(mask.sizes()));
}
ACLNN_OP(DropoutGenMask, Ints(shape), F64(prob), I64(seed), I64(offset), Out(out)) {
  DropoutMask(shape, prob, FromHost(seed, offset), out);
}
ACLNN_OP(DropoutGenMaskV2, Ints(shape), F64(prob), I64(seed), I64(offset), I32(prob_type), Out(out)) {
  DropoutMask(shape, prob, FromHost(seed, offset), out);
}
ACLNN_OP(DropoutGenMaskV2Tensor, Ints(shape), F64(prob), In(seed), In(offset), I64(extra), I32(prob_type), Out(out)) {
  DropoutMask(shape, prob, FromDevice(seed, offset, extra), out);
}
ACLNN_OP(DropoutDoMask, In(self), In(mask), F64(prob), Out(out)) {
  const int64_t n = self.numel();
  const Tensor bytes = mask.contiguous(), keep = at::empty({n}, at::kFloat);
  Require(mask.scalar_type() == at::kByte && bytes.numel() * 8 >= n, "mask has ", bytes.numel(), " bytes; ", n, " elements need ",
          (n + 7) / 8, " of uint8");
  const uint8_t* bits = bytes.const_data_ptr<uint8_t>();
  float* k = keep.data_ptr<float>();
  const float scale = prob < 1 ? static_cast<float>(1 / (1 - prob)) : 0.0f;
  for (int64_t i = 0; i < n; ++i) k[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? scale : 0.0f;
  Put(out, at::mul(self, keep.view(self.sizes())));
}

}  // namespace jumar::hostcann::aclnn
