// Gated activations: the halves of one dimension are a gate and a value. Computed in fp32, rounded once.
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include "libs/attention/rows/rows.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

at::ScalarType Wide(const Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

std::pair<Tensor, Tensor> Halves(const Tensor& x, int64_t dim) {
  Require(x.size(dim) % 2 == 0, "x has ", x.size(dim), " elements in dimension ", dim, "; it must be even");
  const std::vector<Tensor> halves = x.to(Wide(x)).chunk(2, dim);
  return {halves[0], halves[1]};
}

}  // namespace

// silu(first half) * second half
ACLNN_PLAN(SwiGlu, Raw(x), I64(dim), Raw(out)) {
  Require(IsBaseFormat(x.format) && IsBaseFormat(out.format), "x has format ", FormatName(x.format), "; it must be ND (2)");
  const int64_t along = dim < 0 ? dim + x.sizes.n : dim;
  Require(along >= 0 && along < x.sizes.n, "dim is ", dim, "; x has ", x.sizes.n, " dimensions");
  const int64_t size = x.sizes[static_cast<int>(along)];
  Require(size % 2 == 0, "x has ", size, " elements in dimension ", dim, "; it must be even");
  const auto type = KernelType(x.dtype);
  const auto in = AsRows(x, 1), to = AsRows(out, 1);
  if (type && out.dtype == x.dtype && along == x.sizes.n - 1 && in && to && to->cols * 2 == in->cols && to->rows == in->rows) {
    const attention::SwiGluArgs args{.type = *type,
                                     .rows = in->rows,
                                     .cols = to->cols,
                                     .gate = x.data(),
                                     .gate_stride = in->stride,
                                     .up = static_cast<const char*>(x.data()) + to->cols * ItemSize(x.dtype),
                                     .up_stride = in->stride,
                                     .out = out.data(),
                                     .out_stride = to->stride};
    return [args] { Check(attention::SwiGlu(args, ComputeExecutor())); };
  }
  return [in = ToTensor(x), out = ToTensor(out), dim] {
    const auto [gate, up] = Halves(in, dim);
    Put(out, at::mul(at::silu(gate), up));
  };
}
ACLNN_PLAN(GeluMul, In(x), Text(approximate), Out(out)) {
  Require(approximate == "none" || approximate == "tanh", "approximate is \"", approximate, "\"; it must be \"none\" or \"tanh\"");
  return [=] {
    const auto [gate, up] = Halves(x, -1);
    Put(out, at::mul(at::gelu(gate, approximate), up));
  };
}
// value * gelu(gate), the gate being the left half or the right one; also returns gelu(gate).
ACLNN_OP(GeGluV3, In(x), I64(dim), I64(approximate), Flag(activate_left), Out(out), Out(out_gelu)) {
  const auto [left, right] = Halves(x, dim);
  const Tensor gelu = at::gelu(activate_left ? left : right, approximate == 1 ? "tanh" : "none");
  Put(out, at::mul(gelu, activate_left ? right : left));
  Put(out_gelu, gelu);
}
// GPT-OSS: a * sigmoid(alpha * a) * (b + bias), a clamped from above and b from both sides by limit. Rows past
// sum(group_index) are left alone.
ACLNN_OP(ClippedSwiglu, In(x), OptIn(group_index), I64(dim), F64(alpha), F64(limit), F64(bias), Flag(interleaved), Out(out)) {
  const int64_t along = dim < 0 ? dim + x.dim() : dim;
  int64_t rows = 1, cols = 1;
  for (int64_t i = 0; i < x.dim(); ++i) (i < along ? rows : cols) *= x.size(i);
  const int64_t used = group_index ? std::min(rows, group_index->sum().item<int64_t>()) : rows;
  const Tensor f = x.reshape({rows, cols}).narrow(0, 0, used).to(Wide(x));
  const Tensor a = (interleaved ? f.slice(1, 0, std::nullopt, 2) : f.slice(1, 0, cols / 2)).clamp(std::nullopt, limit);
  const Tensor b = (interleaved ? f.slice(1, 1, std::nullopt, 2) : f.slice(1, cols / 2)).clamp(-limit, limit);
  out.view({rows, cols / 2}).narrow(0, 0, used).copy_(at::mul(at::mul(a, at::sigmoid(at::mul(a, alpha))), b.add(bias)));
}

}  // namespace jumar::hostcann::aclnn
