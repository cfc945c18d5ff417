// The same operation on every tensor of a list.
#include <ATen/ops/abs.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/ceil.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/div.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/frac.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace arg {

// A list of numbers, one for each tensor.
struct Nums {
  using C = const aclScalarList*;
  using Body = const std::vector<Scalar>&;
  static std::vector<Scalar> Capture(const char* name, C list) {
    std::vector<Scalar> v;
    for (const aclScalar* s : NotNull(name, list).v) v.push_back(ToScalar(NotNull(name, s)));
    return v;
  }
};

}  // namespace arg
#define JUMAR_ARG_Nums(x) Nums, x

namespace {

// Puts fn(i) into out[i], for lists that must be as long as out.
template <class Fn>
void Each(const std::vector<Tensor>& out, std::initializer_list<size_t> lengths, const Fn& fn) {
  for (size_t length : lengths) Require(length == out.size(), "a list has ", length, " elements; the output has ", out.size());
  for (size_t i = 0; i < out.size(); ++i) Put(out[i], fn(i));
}

}  // namespace

#define EACH(Name, function)                                                       \
  ACLNN_OP(Foreach##Name, Ins(x), Ins(out)) {                                      \
    Each(out, {x.size()}, [&](size_t i) { return at::function(x[i]); });           \
  }
#define EACH_PAIR(Name, function)                                                  \
  ACLNN_OP(Foreach##Name##List, Ins(x), Ins(other), Ins(out)) {                    \
    Each(out, {x.size(), other.size()}, [&](size_t i) { return at::function(x[i], other[i]); }); \
  }
#define EACH_NUMBER(Name, function)                                                \
  ACLNN_OP(Foreach##Name##ScalarV2, Ins(x), Num(number), Ins(out)) {               \
    Each(out, {x.size()}, [&](size_t i) { return at::function(x[i], number); });   \
  }                                                                                \
  ACLNN_OP(Foreach##Name##ScalarList, Ins(x), Nums(numbers), Ins(out)) {           \
    Each(out, {x.size(), numbers.size()}, [&](size_t i) { return at::function(x[i], numbers[i]); }); \
  }

EACH(Abs, abs)
EACH(Acos, acos)
EACH(Asin, asin)
EACH(Atan, atan)
EACH(Cos, cos)
EACH(Cosh, cosh)
EACH(Erf, erf)
EACH(Erfc, erfc)
EACH(Exp, exp)
EACH(Expm1, expm1)
EACH(Log, log)
EACH(Log10, log10)
EACH(Log1p, log1p)
EACH(Log2, log2)
EACH(Neg, neg)
EACH(Reciprocal, reciprocal)
EACH(Sigmoid, sigmoid)
EACH(Sign, sign)
EACH(Sin, sin)
EACH(Sinh, sinh)
EACH(Sqrt, sqrt)
EACH(Tan, tan)
EACH(Tanh, tanh)
ACLNN_OP(ForeachCopy, Ins(x), Ins(out)) {
  Each(out, {x.size()}, [&](size_t i) { return x[i]; });
}
ACLNN_OP(ForeachZeroInplace, Ins(x)) {
  for (const Tensor& t : x) t.zero_();
}

EACH_PAIR(Mul, mul)
EACH_PAIR(Div, div)
EACH_PAIR(Maximum, maximum)
EACH_PAIR(Minimum, minimum)
EACH_PAIR(Pow, pow)
ACLNN_OP(ForeachAddListV2, Ins(x), Ins(other), Num(alpha), Ins(out)) {
  Each(out, {x.size(), other.size()}, [&](size_t i) { return at::add(x[i], other[i], alpha); });
}
ACLNN_OP(ForeachSubListV2, Ins(x), Ins(other), Num(alpha), Ins(out)) {
  Each(out, {x.size(), other.size()}, [&](size_t i) { return at::sub(x[i], other[i], alpha); });
}
ACLNN_OP(ForeachLerpList, Ins(x), Ins(end), Ins(weight), Ins(out)) {
  Each(out, {x.size(), end.size(), weight.size()}, [&](size_t i) { return at::lerp(x[i], end[i], weight[i]); });
}
ACLNN_OP(ForeachLerpScalar, Ins(x), Ins(end), Num(weight), Ins(out)) {
  Each(out, {x.size(), end.size()}, [&](size_t i) { return at::lerp(x[i], end[i], weight); });
}

EACH_NUMBER(Add, add)
EACH_NUMBER(Sub, sub)
EACH_NUMBER(Mul, mul)
EACH_NUMBER(Div, div)
EACH_NUMBER(Pow, pow)
EACH_NUMBER(Maximum, clamp_min)
EACH_NUMBER(Minimum, clamp_max)
ACLNN_OP(ForeachPowScalarAndTensor, Num(number), Ins(exponent), Ins(out)) {
  Each(out, {exponent.size()}, [&](size_t i) { return at::pow(number, exponent[i]); });
}

ACLNN_OP(ForeachAddcdivScalarV2, Ins(x), Ins(a), Ins(b), Num(value), Ins(out)) {
  Each(out, {x.size(), a.size(), b.size()}, [&](size_t i) { return at::addcdiv(x[i], a[i], b[i], value); });
}
ACLNN_OP(ForeachAddcmulScalarV2, Ins(x), Ins(a), Ins(b), Num(value), Ins(out)) {
  Each(out, {x.size(), a.size(), b.size()}, [&](size_t i) { return at::addcmul(x[i], a[i], b[i], value); });
}
ACLNN_PLAN(ForeachRoundOffNumberV2, Ins(x), Num(round_mode), Ins(out)) {
  const int64_t mode = round_mode.toLong();
  Require(mode == 1 || mode == 2 || mode == 3 || mode == 5 || mode == 7, "roundMode is ", mode,
          "; it must be 1 (round), 2 (floor), 3 (ceil), 5 (trunc) or 7 (frac)");
  return [=] {
    Each(out, {x.size()}, [&](size_t i) {
      return mode == 1   ? at::round(x[i])
             : mode == 2 ? at::floor(x[i])
             : mode == 3 ? at::ceil(x[i])
             : mode == 5 ? at::trunc(x[i])
                         : at::frac(x[i]);
    });
  };
}
ACLNN_OP(ForeachNorm, Ins(x), Num(order), Ins(out)) {
  Each(out, {x.size()}, [&](size_t i) { return at::linalg_vector_norm(x[i], order); });
}

}  // namespace jumar::hostcann::aclnn
