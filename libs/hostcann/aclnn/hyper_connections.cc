// Manifold-constrained hyper-connections, by libs/attention/hyper_connections.
#include "libs/attention/hyper_connections/hyper_connections.h"

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

// [T, n, D] or [B, S, n, D].
struct Streams {
  quant::DType type;
  int64_t tokens, n, dim;
};
Streams ParseStreams(const aclTensor& x) {
  const auto type = KernelType(x.dtype);
  Require(type.has_value() && (x.sizes.n == 3 || x.sizes.n == 4), "x is ", DTypeName(x.dtype), " of shape ", ToString(x.sizes),
          "; it must be a float tensor [tokens, n, d] or [batch, tokens, n, d]");
  const int first = x.sizes.n - 3;
  return {*type, (first == 1 ? x.sizes[0] : 1) * x.sizes[first], x.sizes[first + 1], x.sizes[first + 2]};
}

void RequireDense(const char* name, const aclTensor& t, DType dtype, int64_t elements) {
  Require(IsBaseFormat(t.format) && t.dtype == dtype && IsContiguous(t) && t.numel() == elements, "`", name, "` is ", DTypeName(t.dtype), " of shape ",
          ToString(t.sizes), "; it must be dense, of ", elements, " elements of ", DTypeName(dtype));
}

// The dense form of an input whose strides may be any; read when the task runs.
Tensor Dense(const Tensor& t) { return t.contiguous(); }

struct PreCall {
  aclTensor x;
  Tensor x_view, phi, alpha, bias;
  OptTensor gamma;
  double norm_epsilon, epsilon;
  aclTensor in, post;
  std::optional<aclTensor> res, inverse_rms, mix, pre;
};

Task PlanPre(const PreCall& c) {
  const Streams s = ParseStreams(c.x);
  const int64_t parts = c.alpha.numel(), rows = 2 * s.n + (parts == 3 ? s.n * s.n : 0);
  Require(parts == 2 || parts == 3, "alpha has ", parts, " elements; it must have 3, or 2 without hRes");
  for (const auto& [name, t, elements] : {std::tuple("phi", &c.phi, rows * s.n * s.dim), {"alpha", &c.alpha, parts}, {"bias", &c.bias, rows}}) {
    Require(t->scalar_type() == at::kFloat && t->numel() == elements, "`", name, "` has ", t->numel(), " elements of ", t->scalar_type(),
            "; it must have ", elements, " of float32 for n = ", s.n, ", d = ", s.dim, " and ", parts, " elements of alpha");
  }
  Require(!c.gamma || (c.gamma->scalar_type() == at::kFloat && c.gamma->numel() == s.n * s.dim), "gamma must be float32 [n, d]");
  RequireDense("hIn", c.in, c.x.dtype, s.tokens * s.dim);
  RequireDense("hPost", c.post, DType::kF32, s.tokens * s.n);
  const auto optional = [](const char* name, const std::optional<aclTensor>& t, int64_t elements) -> float* {
    if (!t) return nullptr;
    RequireDense(name, *t, DType::kF32, elements);
    return static_cast<float*>(t->data());
  };
  attention::HyperConnectionPreArgs args{.type = s.type, .tokens = s.tokens, .streams = s.n, .dim = s.dim,
                                         .norm_epsilon = static_cast<float>(c.norm_epsilon), .epsilon = static_cast<float>(c.epsilon),
                                         .in = c.in.data(), .post = static_cast<float*>(c.post.data())};
  if (parts == 3) {
    Require(c.res.has_value(), "argument `hRes` is null, but alpha has 3 elements");
    args.res = optional("hRes", c.res, s.tokens * s.n * s.n);
  }
  args.inverse_rms = optional("invRms", c.inverse_rms, s.tokens);
  args.mix = optional("hMix", c.mix, s.tokens * rows);
  args.pre = optional("hPre", c.pre, s.tokens * s.n);
  return [=, x = c.x_view, phi = c.phi, alpha = c.alpha, bias = c.bias, gamma = c.gamma]() mutable {
    const Tensor dense_x = Dense(x), dense_phi = Dense(phi), dense_alpha = Dense(alpha), dense_bias = Dense(bias);
    const OptTensor dense_gamma = gamma ? OptTensor(Dense(*gamma)) : std::nullopt;
    args.x = dense_x.const_data_ptr();
    args.phi = dense_phi.const_data_ptr<float>();
    args.alpha = dense_alpha.const_data_ptr<float>();
    args.bias = dense_bias.const_data_ptr<float>();
    args.gamma = dense_gamma ? dense_gamma->const_data_ptr<float>() : nullptr;
    Check(attention::HyperConnectionPre(args, ComputeExecutor()));
  };
}

}  // namespace

ACLNN_PLAN(MhcPre, Raw(x), In(phi), In(alpha), In(bias), OptIn(gamma), F64(norm_eps), F64(hc_eps), Raw(h_in), Raw(h_post), OptRaw(h_res),
           OptRaw(inv_rms), OptRaw(h_mix), OptRaw(h_pre)) {
  return PlanPre({x, ToTensor(x), phi, alpha, bias, gamma, norm_eps, hc_eps, h_in, h_post, h_res, inv_rms, h_mix, h_pre});
}
// inner_precise lets the hardware take a shorter float for the product; here it is fp32 either way.
ACLNN_PLAN(MhcPreV2, Raw(x), In(phi), In(alpha), In(bias), OptIn(gamma), F64(norm_eps), F64(hc_eps), I64(inner_precise), Raw(h_in), Raw(h_post),
           OptRaw(h_res), OptRaw(inv_rms), OptRaw(h_mix), OptRaw(h_pre)) {
  Require(inner_precise == 0 || inner_precise == 1, "inner_precise is ", inner_precise, "; it must be 0 or 1");
  return PlanPre({x, ToTensor(x), phi, alpha, bias, gamma, norm_eps, hc_eps, h_in, h_post, h_res, inv_rms, h_mix, h_pre});
}

ACLNN_PLAN(MhcSinkhorn, In(x), F32(eps), I64(num_iters), Raw(y), OptRaw(norm_out), OptRaw(sum_out)) {
  Require(!norm_out && !sum_out, "norm_out and sum_out are for training; hostcann doesn't give them: use out_flag = 0");
  Require(x.scalar_type() == at::kFloat && (x.dim() == 3 || x.dim() == 4) && x.size(-1) == x.size(-2), "x is ", x.scalar_type(), " of shape ",
          x.sizes(), "; it must be float32 [tokens, n, n] or [batch, tokens, n, n]");
  RequireDense("y", y, DType::kF32, x.numel());
  const int64_t n = x.size(-1);
  attention::SinkhornArgs args{.tokens = n == 0 ? 0 : x.numel() / (n * n), .streams = n, .iterations = num_iters, .epsilon = eps, .out = static_cast<float*>(y.data())};
  return [=, x = x]() mutable {
    const Tensor dense = Dense(x);
    args.logits = dense.const_data_ptr<float>();
    Check(attention::Sinkhorn(args, ComputeExecutor()));
  };
}

ACLNN_PLAN(MhcPost, Raw(x), OptIn(h_res), In(h_out), In(h_post), Raw(out)) {
  const Streams s = ParseStreams(x);
  const Tensor view = ToTensor(x);
  Require(h_out.scalar_type() == view.scalar_type() && h_out.numel() == s.tokens * s.dim, "hOut has ", h_out.numel(), " elements of ",
          h_out.scalar_type(), "; it must have x's type and ", s.tokens * s.dim, " of them");
  Require(h_post.scalar_type() == at::kFloat && h_post.numel() == s.tokens * s.n, "hPost must be float32, of ", s.tokens * s.n, " elements");
  Require(!h_res || (h_res->scalar_type() == at::kFloat && h_res->numel() == s.tokens * s.n * s.n), "hRes must be float32, of ", s.tokens * s.n * s.n,
          " elements");
  RequireDense("out", out, x.dtype, s.tokens * s.n * s.dim);
  attention::HyperConnectionPostArgs args{.type = s.type, .tokens = s.tokens, .streams = s.n, .dim = s.dim, .y = out.data()};
  return [=, h_res = h_res, h_out = h_out, h_post = h_post]() mutable {
    const Tensor dense_x = Dense(view), dense_out = Dense(h_out), dense_post = Dense(h_post);
    const OptTensor dense_res = h_res ? OptTensor(Dense(*h_res)) : std::nullopt;
    args.x = dense_x.const_data_ptr();
    args.out = dense_out.const_data_ptr();
    args.post = dense_post.const_data_ptr<float>();
    args.mix = dense_res ? dense_res->const_data_ptr<float>() : nullptr;
    Check(attention::HyperConnectionPost(args, ComputeExecutor()));
  };
}

}  // namespace jumar::hostcann::aclnn
