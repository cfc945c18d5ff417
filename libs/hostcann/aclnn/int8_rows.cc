// Rows to int8 by the kernels of libs/quant/int8_gemm.
#include <algorithm>

#include "libs/hostcann/aclnn/grouped_matmul.h"
#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/kernel.h"

namespace jumar::hostcann::aclnn {

using quant::Int8Rows;
using quant::NormQuantArgs;
using quant::Numbers;
using quant::RowsIn;
using quant::SwigluQuantArgs;

namespace {

int64_t Columns(const Tensor& x) { return x.dim() == 0 ? 1 : x.size(-1); }
int64_t RowCount(const Tensor& x) { return x.numel() / std::max<int64_t>(1, Columns(x)); }

std::optional<quant::DType> FloatType(const Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat: return quant::DType::kF32;
    case at::kHalf: return quant::DType::kF16;
    case at::kBFloat16: return quant::DType::kBF16;
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<RowsIn> KernelRows(const Tensor& x) {
  if (!x.is_contiguous()) return std::nullopt;
  RowsIn in = {.data = x.const_data_ptr(), .ld = Columns(x)};
  switch (x.scalar_type()) {
    case at::kFloat: in.type = RowsIn::Type::kF32; break;
    case at::kHalf: in.type = RowsIn::Type::kF16; break;
    case at::kBFloat16: in.type = RowsIn::Type::kBF16; break;
    case at::kInt: in.type = RowsIn::Type::kI32; break;
    default: return std::nullopt;
  }
  return in;
}

std::optional<Int8Rows> KernelInt8Rows(Int8Rows::Kind kind, const OptTensor& factor, const OptTensor& offset, const Tensor& y,
                                       const OptTensor& scale, int64_t rows, int64_t cols) {
  const bool dynamic = kind == Int8Rows::Kind::kDynamic;
  if (y.scalar_type() != at::kChar || !y.is_contiguous() || y.numel() != rows * cols) return std::nullopt;
  if (dynamic && (!scale || scale->scalar_type() != at::kFloat || !scale->is_contiguous() || scale->numel() != rows)) return std::nullopt;
  const auto by = KernelNumbers(factor, cols), added = KernelNumbers(offset, cols);
  if (!by || !added || (!dynamic && by->data == nullptr)) return std::nullopt;
  return Int8Rows{.kind = kind, .factor = *by, .offset = *added, .out = static_cast<int8_t*>(y.data_ptr()), .ldo = cols,
                  .scale = dynamic ? scale->data_ptr<float>() : nullptr};
}

Task PlanInt8Rows(const Tensor& x, Int8Rows::Kind kind, const OptTensor& factor, const OptTensor& offset, const Tensor& y, const OptTensor& scale) {
  const auto in = KernelRows(x);
  const auto to = KernelInt8Rows(kind, factor, offset, y, scale, RowCount(x), Columns(x));
  if (!in || !to || in->type == RowsIn::Type::kI32) return nullptr;
  return [in = *in, to = *to, rows = RowCount(x), cols = Columns(x)] { Check(quant::QuantizeRows(rows, cols, in, to, ComputeExecutor())); };
}

Task PlanInt8Norm(const Tensor& x, const OptTensor& residual, const OptTensor& sum, const Tensor& gamma, const OptTensor& beta, double epsilon,
                  const std::vector<std::optional<Int8Rows>>& to) {
  const auto type = FloatType(x);
  const int64_t rows = RowCount(x), cols = Columns(x);
  if (!type || gamma.numel() != cols) return nullptr;
  for (const OptTensor& t : {OptTensor(x), residual, sum}) {
    if (t && (t->scalar_type() != x.scalar_type() || t->sizes() != x.sizes() || !t->is_contiguous())) return nullptr;
  }
  const auto by = KernelNumbers(gamma, cols), added = KernelNumbers(beta, cols);
  if (!by || !added || to.empty()) return nullptr;
  std::vector<Int8Rows> outputs;
  for (const auto& one : to) {
    if (!one) return nullptr;
    outputs.push_back(*one);
  }
  NormQuantArgs args = {.rows = rows, .cols = cols, .type = *type, .x = x.const_data_ptr(), .ldx = cols, .gamma = *by, .beta = *added,
                        .epsilon = static_cast<float>(epsilon)};
  if (residual) args.residual = residual->const_data_ptr(), args.ldr = cols;
  if (sum) args.sum = sum->data_ptr(), args.lds = cols;
  return [args, outputs] {
    NormQuantArgs call = args;
    call.to = outputs;
    Check(quant::NormQuantizeRows(call, ComputeExecutor()));
  };
}

Task PlanInt8Gated(const Int8Gated& g, const Tensor& y, const Tensor& scale) {
  const auto in = KernelRows(g.x);
  const int64_t rows = RowCount(g.x), cols = Columns(g.x) / 2;
  const auto to = KernelInt8Rows(Int8Rows::Kind::kDynamic, std::nullopt, std::nullopt, y, scale, rows, cols);
  if (!in || !to || Columns(g.x) != 2 * cols) return nullptr;
  SwigluQuantArgs args = {.rows = rows, .cols = cols, .in = *in, .gate_right = !g.activate_left, .to = *to};
  const bool sums = in->type == RowsIn::Type::kI32;
  if (g.bias && g.bias->numel() > 0) {
    if (!sums || g.bias->numel() != 2 * cols || !g.bias->is_contiguous()) return nullptr;
    if (g.bias->scalar_type() == at::kInt) {
      args.in.int_bias = static_cast<const int32_t*>(g.bias->const_data_ptr());
    } else {
      const auto bias = KernelNumbers(g.bias, 2 * cols);
      if (!bias) return nullptr;
      args.in.bias = *bias;
    }
  }
  if (sums && g.activation_scale) {
    const auto token = KernelNumbers(g.activation_scale, rows);
    if (!token) return nullptr;
    args.in.token_scale = *token;
  }
  // A matrix has a row per group.
  const int64_t groups = g.groups ? g.groups->numel() : 1;
  const auto rows_of = [&](const OptTensor& t, int64_t width) -> std::optional<std::vector<Numbers>> {
    const bool matrix = g.groups && t && t->dim() >= 2 && t->size(0) == groups;
    std::vector<Numbers> result;
    for (int64_t i = 0; i < groups; ++i) {
      const auto one = KernelNumbers(matrix ? OptTensor(t->select(0, i)) : t, width);
      if (!one) return std::nullopt;
      result.push_back(*one);
    }
    return result;
  };
  const auto scales = rows_of(sums ? g.weight_scale : OptTensor(), 2 * cols), smooth = rows_of(g.smooth, cols);
  if (!scales || !smooth || (sums && scales->front().data == nullptr)) return nullptr;
  if (!g.groups) {
    args.in.scale = scales->front(), args.to.factor = smooth->front();
    return [args] { Check(quant::SwigluQuantizeRows(args, ComputeExecutor())); };
  }
  return [=, scales = *scales, smooth = *smooth, list = *g.groups, type = g.group_type] {
    std::vector<SwigluQuantArgs::Group> spans;
    for (const Group& group : ReadGroups(list, type, groups, rows)) {
      spans.push_back({group.begin, group.end, scales[static_cast<size_t>(group.expert)], smooth[static_cast<size_t>(group.expert)]});
    }
    if (!spans.empty()) spans.back().end = rows;  // rows behind the last group belong to it
    SwigluQuantArgs call = args;
    call.groups = spans;
    Check(quant::SwigluQuantizeRows(call, ComputeExecutor()));
  };
}

}  // namespace jumar::hostcann::aclnn
