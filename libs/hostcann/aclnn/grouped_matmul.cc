// Products of groups: rows of x (or columns) that belong together, each group with the weight of its expert.
//
// One x whose rows are grouped, of floats with weights of its type (ND or FRACTAL_NZ) or of int8 with int8, goes to the kernels of
// libs/quant. The rest (other quantised types, several tensors, groups along k, activations) is a product per group over ATen.
#include "libs/hostcann/aclnn/grouped_matmul.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <optional>

#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/weight_matmul.h"
#include "libs/quant/fractal_nz.h"
#include "libs/quant/gemm.h"

namespace jumar::hostcann::aclnn {
namespace {

using Tensors = std::vector<aclTensor>;

struct Call {
  const Tensors &x, &weight, &bias, &scale, &offset, &antiquant_scale, &antiquant_offset, &per_token_scale;
  const OptTensor& group_list;
  int64_t group_type, group_list_type, act_type;
  const Tensors& y;
};

bool Stacked(const Tensors& weight) { return weight.size() == 1 && weight[0].sizes.n == 3; }

}  // namespace

std::vector<Group> ReadGroups(const Tensor& list, int64_t list_type, int64_t experts, int64_t rows) {
  const Tensor counts = list_type == 2 ? list.select(1, 1) : list;
  const Tensor ends = (list_type == 0 ? counts : at::cumsum(counts, 0)).to(at::kLong).contiguous();
  const Tensor names = list_type == 2 ? list.select(1, 0).to(at::kLong).contiguous() : Tensor();
  Require(ends.numel() <= experts, "group_list has ", ends.numel(), " entries; there are ", experts, " weights");
  std::vector<Group> groups;
  int64_t begin = 0;
  for (int64_t i = 0; i < ends.numel(); ++i) {
    const int64_t end = ends.const_data_ptr<int64_t>()[i], expert = list_type == 2 ? names.const_data_ptr<int64_t>()[i] : i;
    Require(end >= begin && end <= rows, "group ", i, " of group_list ends at ", end, "; it must lie in [", begin, ", ", rows, "]");
    Require(expert >= 0 && expert < experts, "group ", i, " of group_list is of expert ", expert, "; there are ", experts);
    groups.push_back({expert, begin, end});
    begin = end;
  }
  return groups;
}

int64_t ExpertsIn(const Tensors& weight) { return Stacked(weight) ? weight[0].sizes[0] : static_cast<int64_t>(weight.size()); }

Tensor WeightOf(const Tensors& weight, int64_t e) {
  if (!Stacked(weight)) return DenseWeight("weight", weight[static_cast<size_t>(e)]);
  return DenseWeight("weight", weight[0]).select(0, e);
}

Tensor NumbersOf(const Tensors& list, int64_t e, int64_t experts) {
  if (list.empty()) return Tensor();
  if (list.size() == 1 && experts > 1) {
    const Tensor all = ToTensor(list[0]);
    return all.dim() == 0 || all.size(0) != experts ? all : all.select(0, e);
  }
  Require(e < static_cast<int64_t>(list.size()), "a list of scales, offsets or biases has ", list.size(), " tensors for ", experts,
          " experts");
  const Tensor one = ToTensor(list[static_cast<size_t>(e)]);
  return experts == 1 && one.dim() > 1 && one.size(0) == 1 ? one.select(0, 0) : one;
}

namespace {

bool IsPlain(const Call& c) {
  const bool quantized = !c.scale.empty() || !c.antiquant_scale.empty() || !c.per_token_scale.empty();
  const auto same = [&](const aclTensor& t) { return t.dtype == c.x[0].dtype; };
  const auto base = [&](const aclTensor& t) { return same(t) && IsBaseFormat(t.format); };
  return c.x.size() == 1 && c.y.size() == 1 && c.group_type == 0 && c.group_list_type <= 1 && c.act_type == 0 && !quantized &&
         KernelType(c.x[0].dtype) && std::all_of(c.weight.begin(), c.weight.end(), same) &&
         std::all_of(c.bias.begin(), c.bias.end(), [&](const aclTensor& b) { return base(b) && IsContiguous(b); }) && base(c.y[0]);
}

// How the kernel takes a [k, n] weight, or a stack of them.
struct KernelWeight {
  quant::WeightLayout layout;
  int64_t ld, matrix_bytes;  // from one of the stack to the next
};

// nullopt: not at all.
std::optional<KernelWeight> PlanWeight(const aclTensor& w) {
  const int r = w.sizes.n - 2;
  const int64_t k = w.sizes[r], n = w.sizes[r + 1], size = ItemSize(w.dtype);
  if (IsBaseFormat(w.format)) {
    const int64_t matrix_bytes = r > 0 ? w.strides[0] * size : 0;
    if (w.strides[r] == 1 && w.strides[r + 1] >= k) return KernelWeight{quant::WeightLayout::kNK, w.strides[r + 1], matrix_bytes};
    if (w.strides[r + 1] == 1) return KernelWeight{quant::WeightLayout::kKN, w.strides[r], matrix_bytes};
    return std::nullopt;
  }
  const bool transposed = w.strides[r] == 1 && w.strides[r + 1] == k && n > 1;  // of a matrix [n, k] that was cast
  const bool whole = transposed || (w.strides[r + 1] == 1 && (w.strides[r] == n || k == 1));
  const auto nz = transposed ? quant::FractalNzShape(n, k, size) : quant::FractalNzShape(k, n, size);
  const Dims& stored = w.storage_sizes;
  if (w.format != kFormatFractalNz || !whole || !nz.ok() || w.offset != 0 || stored.n < 4 || !std::equal(nz->begin(), nz->end(), stored.end() - 4) ||
      (r > 0 && w.sizes[0] > 1 && w.strides[0] != k * n)) {
    return std::nullopt;
  }
  return KernelWeight{transposed ? quant::WeightLayout::kFractalNz : quant::WeightLayout::kFractalNzKN, 0,
                      (*nz)[0] * (*nz)[1] * (*nz)[2] * (*nz)[3] * size};
}

// y[rows of e] = x[rows of e] * weight[e] (+ bias[e]), or nullptr if strides aren't the kernel's.
Task PlanKernel(const Call& c) {
  const aclTensor &x = c.x[0], &y = c.y[0];
  const auto a = AsRows(x, 1), o = AsRows(y, 1);
  if (!a || !o) return nullptr;
  const int64_t size = ItemSize(x.dtype), experts = ExpertsIn(c.weight);
  const bool stacked = Stacked(c.weight);
  quant::GemmArgs shared{.m = std::min(a->rows, o->rows), .n = o->cols, .k = a->cols, .type = *KernelType(x.dtype), .a = x.data(),
                         .lda = a->stride, .out = y.data(), .ldo = o->stride};
  std::vector<quant::GemmGroup> table;  // of each expert; its rows are those of the group list
  for (int64_t e = 0; e < experts; ++e) {
    const aclTensor& w = c.weight[stacked ? 0 : static_cast<size_t>(e)];
    const int r = w.sizes.n - 2;
    Require(r >= 0 && w.sizes[r] == a->cols && w.sizes[r + 1] == o->cols, "weight ", e, " is ", ToString(w.sizes), "; it must be [",
            a->cols, ", ", o->cols, "]");
    const auto plan = PlanWeight(w);
    if (!plan || (e > 0 && (plan->layout != shared.layout || plan->ld != shared.ldw))) return nullptr;
    shared.layout = plan->layout;
    shared.ldw = plan->ld;
    const void* b = nullptr;
    if (!c.bias.empty()) {
      const aclTensor& t = c.bias[c.bias.size() == 1 ? 0 : static_cast<size_t>(e)];
      b = static_cast<const char*>(t.data()) + (c.bias.size() == 1 && t.sizes.n == 2 ? e * t.strides[0] * size : 0);
    }
    table.push_back({.w = static_cast<const char*>(w.data()) + (stacked ? e * plan->matrix_bytes : 0), .bias = b});
  }
  return [=, list = *c.group_list, type = c.group_list_type, rows = a->rows] {
    std::vector<quant::GemmGroup> groups;
    for (const Group& g : ReadGroups(list, type, experts, rows)) {
      quant::GemmGroup group = table[static_cast<size_t>(g.expert)];
      group.first_row = g.begin;
      group.num_rows = g.end - g.begin;
      groups.push_back(group);
    }
    Check(quant::GroupedGemm(shared, groups, ComputeExecutor()));
  };
}

Tensor Activated(const Tensor& t, int64_t act_type) {
  switch (act_type) {
    case 1: return at::relu(t);
    case 2: return at::gelu(t, "tanh");
    case 4: return at::mul(t, at::sigmoid(at::mul(t, 1.702)));
    case 5: return at::silu(t);
    default: return t;
  }
}

// One number per column, or per column and group of rows, for each row of w.
Tensor Spread(const Tensor& t, const Tensor& w) {
  const Tensor s = ScaleOf(t);
  if (s.dim() < 2 || s.size(0) == 1) return s;
  Require(w.size(0) % s.size(0) == 0, "scales have ", s.size(0), " groups for ", w.size(0), " rows of weight; they must divide them");
  return s.repeat_interleave(w.size(0) / s.size(0), 0);
}

// The general case.
struct GroupedProduct {
  Tensors x, weight, bias, scale, antiquant_scale, antiquant_offset, per_token_scale, y;
  OptTensor group_list;
  int64_t group_type, group_list_type, act_type, experts;

  void Run() const {
    std::vector<Tensor> outputs;
    for (const aclTensor& t : y) outputs.push_back(ToTensor(t));
    if (x.size() > 1 || !group_list) return RunListed(outputs);
    const Tensor rows = ToTensor(x[0]);
    if (group_type == 2) return RunAlongK(rows, outputs);
    const auto groups = ReadGroups(*group_list, group_list_type, experts, rows.size(0));
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& [e, begin, end] = groups[i];
      if (end == begin) continue;
      const Tensor out = outputs.size() == 1 ? outputs[0].narrow(0, begin, end - begin) : outputs.at(i);
      Multiply(rows.narrow(0, begin, end - begin), WeightOf(weight, e), e, TokenScale(0, begin, end), out);
    }
  }

 private:
  // A product per tensor of x; their rows follow each other if there is one output.
  void RunListed(const std::vector<Tensor>& outputs) const {
    int64_t begin = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const Tensor t = ToTensor(x[i]), rows = t.reshape({-1, t.size(-1)});
      const int64_t n = rows.size(0);
      const Tensor out = outputs.size() == 1 ? outputs[0].view({-1, outputs[0].size(-1)}).narrow(0, begin, n) : outputs.at(i);
      const auto e = static_cast<int64_t>(i);
      Multiply(rows, WeightOf(weight, e), e, TokenScale(i, 0, n), out);
      begin += n;
    }
  }

  // Groups of columns of x, with as many rows of the weight, or with a weight each.
  void RunAlongK(const Tensor& rows, const std::vector<Tensor>& outputs) const {
    const auto groups = ReadGroups(*group_list, group_list_type, group_list->size(0), rows.size(1));
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& [e, begin, end] = groups[i];
      const bool whole = weight.size() == 1 && weight[0].sizes.n == 2;
      const Tensor w = whole ? WeightOf(weight, 0).narrow(0, begin, end - begin) : WeightOf(weight, e);
      const bool stacked = outputs.size() == 1 && outputs[0].dim() == 3;
      const Tensor out = stacked ? outputs[0].select(0, static_cast<int64_t>(i)) : outputs.at(i);
      Multiply(rows.narrow(1, begin, end - begin), w, whole ? 0 : e, TokenScale(0, 0, rows.size(0)), out);
    }
  }

  Tensor TokenScale(size_t i, int64_t begin, int64_t end) const {
    if (per_token_scale.empty()) return Tensor();
    const Tensor all = ToTensor(per_token_scale[std::min(i, per_token_scale.size() - 1)]).flatten();
    if (all.numel() == 1) return all;
    Require(end <= all.numel(), "per_token_scale has ", all.numel(), " entries; x has at least ", end, " rows");
    return all.narrow(0, begin, end - begin);
  }

  void Multiply(const Tensor& a, const Tensor& stored, int64_t e, const Tensor& token, const Tensor& out) const {
    const Tensor b = NumbersOf(bias, e, experts), s = NumbersOf(scale, e, experts);
    const Tensor w = stored.scalar_type() == at::kInt ? UnpackInt4(stored) : stored;
    Tensor value;
    OptTensor offset;
    if (a.scalar_type() == at::kChar || c10::isFloat8Type(a.scalar_type())) {
      Tensor sum = a.scalar_type() == at::kChar ? IntProduct(a, w) : at::matmul(F32(a), F32(w));
      if (b.defined() && b.scalar_type() == at::kInt) sum = at::add(sum, b);
      if (out.scalar_type() == at::kInt) return Put(out, sum);
      Require(s.defined(), "argument `scale` is empty; a product of int8 or float8 needs it, unless y is int32");
      value = at::mul(F32(sum), ScaleOf(s));
      offset = OffsetOf(s);
    } else if (a.scalar_type() == at::kInt) {  // int4 with int4
      Require(s.defined(), "argument `scale` is empty; a product of int4 needs it");
      value = at::matmul(F32(UnpackInt4(a)), at::mul(F32(w), Spread(s, w)));
    } else {
      const Tensor o = NumbersOf(antiquant_offset, e, experts), by = NumbersOf(antiquant_scale, e, experts);
      Tensor wide = o.defined() ? at::add(F32(w), Spread(o, w)) : F32(w);
      if (by.defined()) wide = at::mul(wide, Spread(by, w));
      value = at::matmul(F32(a), wide);
    }
    if (token.defined()) value = at::mul(value, F32(token).unsqueeze(-1));
    if (b.defined() && b.scalar_type() != at::kInt) value = at::add(value, F32(b));
    value = Activated(value, act_type);
    if (out.scalar_type() != at::kChar) return Put(out, value);
    PutRounded(out, offset ? at::add(at::round(value), *offset) : value);
  }
};

Task PlanGroupedMatmul(const Call& c) {
  Require(!c.x.empty() && !c.weight.empty() && !c.y.empty(), "there are ", c.x.size(), " tensors x, ", c.weight.size(), " weights and ",
          c.y.size(), " outputs; none may be 0");
  Require(c.group_type == -1 || c.group_type == 0 || c.group_type == 2, "group_type is ", c.group_type,
          "; it must be -1 (none), 0 (rows) or 2 (along k)");
  Require(c.group_list_type >= 0 && c.group_list_type <= 2, "group_list_type is ", c.group_list_type,
          "; it must be 0 (ends), 1 (counts) or 2 (pairs)");
  Require(c.x.size() > 1 || c.group_list || c.group_type == -1, "group_list is missing");
  Require(c.x.size() == 1 || c.x.size() == static_cast<size_t>(ExpertsIn(c.weight)), "there are ", c.x.size(), " tensors x and ",
          ExpertsIn(c.weight), " weights; there must be one x, or one for each");
  if (c.x.size() == 1 && c.weight.size() == 1 && c.y.size() == 1 && c.group_list && c.group_type == 0 && c.act_type == 0) {
    const GroupedWeights call{c.x[0], c.weight[0], c.bias, c.scale, c.antiquant_scale, c.antiquant_offset, c.per_token_scale, *c.group_list, c.group_list_type, c.y[0]};
    if (Task task = PlanGroupedWeights(call)) return task;
  }
  const DType a = c.x[0].dtype, w = c.weight[0].dtype;
  const bool floats = KernelType(a).has_value();
  const auto float8 = [](DType t) { return t == DType::kF8E4M3 || t == DType::kF8E5M2; };
  const bool fits = floats ? w == a || ((w == DType::kI8 || w == DType::kI32) && !c.antiquant_scale.empty())
                           : (a == DType::kI8 && w == DType::kI8) || (a == DType::kI32 && w == DType::kI32) || (float8(a) && float8(w));
  Require(fits, "x is ", DTypeName(a), " and weight ", DTypeName(w), c.antiquant_scale.empty() ? " without" : " with",
          " antiquant_scale; hostcann has floats with their own type, floats with int8 or int4 and antiquant_scale, int8 with int8, "
          "float8 with float8, and int4 with int4 (int4 packed in int32)");
  Require(c.offset.empty() || a != DType::kI8, "argument `offset` is given; hostcann has no use for it");
  Require(c.act_type >= 0 && c.act_type <= 5 && c.act_type != 3, "act_type is ", c.act_type,
          "; it must be 0 (none), 1 (relu), 2 (gelu, tanh), 4 (fast gelu) or 5 (silu)");
  if (c.group_list && IsPlain(c)) {
    if (Task task = PlanKernel(c)) return task;
  }
  const bool one = c.x.size() == 1 && c.y.size() == 1 && c.per_token_scale.size() <= 1 && IsBaseFormat(c.x[0].format) && IsBaseFormat(c.y[0].format);
  if (a == DType::kI8 && c.group_list && one && c.group_type == 0 && c.act_type == 0) {
    const OptTensor token = c.per_token_scale.empty() ? OptTensor() : ToTensor(c.per_token_scale[0]);
    if (Task task = PlanInt8Grouped({ToTensor(c.x[0]), c.weight, c.scale, c.bias, token, *c.group_list, c.group_list_type}, ToTensor(c.y[0]))) return task;
  }
  const GroupedProduct product{c.x, c.weight, c.bias, c.scale, c.antiquant_scale, c.antiquant_offset, c.per_token_scale, c.y,
                               c.group_list, c.group_type, c.group_list_type, c.act_type, ExpertsIn(c.weight)};
  return [product] { product.Run(); };
}

}  // namespace

ACLNN_PLAN(GroupedMatmulV4, RawIns(x), RawIns(weight), OptRawIns(bias), OptRawIns(scale), OptRawIns(offset),
           OptRawIns(antiquant_scale), OptRawIns(antiquant_offset), OptRawIns(per_token_scale), OptIn(group_list),
           OptRawIns(activation_input), OptRawIns(activation_quant_scale), OptRawIns(activation_quant_offset), I64(split_item),
           I64(group_type), I64(group_list_type), I64(act_type), RawIns(out), OptRawIns(activation_feature_out),
           OptRawIns(dynamic_quant_scale_out)) {
  return PlanGroupedMatmul({x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, group_type,
                            group_list_type, act_type, out});
}
ACLNN_PLAN(GroupedMatmulV5, RawIns(x), RawIns(weight), OptRawIns(bias), OptRawIns(scale), OptRawIns(offset),
           OptRawIns(antiquant_scale), OptRawIns(antiquant_offset), OptRawIns(per_token_scale), OptIn(group_list),
           OptRawIns(activation_input), OptRawIns(activation_quant_scale), OptRawIns(activation_quant_offset), I64(split_item),
           I64(group_type), I64(group_list_type), I64(act_type), Ints(tuning_config), RawIns(out), OptRawIns(activation_feature_out),
           OptRawIns(dynamic_quant_scale_out)) {
  return PlanGroupedMatmul({x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, group_type,
                            group_list_type, act_type, out});
}
ACLNN_PLAN(GroupedMatmulWeightNz, RawIns(x), RawIns(weight), OptRawIns(bias), OptRawIns(scale), OptRawIns(offset),
           OptRawIns(antiquant_scale), OptRawIns(antiquant_offset), OptRawIns(per_token_scale), OptIn(group_list),
           OptRawIns(activation_input), OptRawIns(activation_quant_scale), OptRawIns(activation_quant_offset), I64(split_item),
           I64(group_type), I64(group_list_type), I64(act_type), Ints(tuning_config), I64(quant_group_size), RawIns(out),
           OptRawIns(activation_feature_out), OptRawIns(dynamic_quant_scale_out)) {
  return PlanGroupedMatmul({x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, group_type,
                            group_list_type, act_type, out});
}

}  // namespace jumar::hostcann::aclnn
