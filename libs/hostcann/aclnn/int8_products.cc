// Products of int8 by the kernel of libs/quant/int8_gemm.
#include <algorithm>

#include "libs/hostcann/aclnn/grouped_matmul.h"
#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {

using quant::Int8GemmArgs;
using quant::Int8GemmOut;
using quant::Int8Group;
using quant::Int8Layout;
using quant::Numbers;

namespace {

std::optional<Int8GemmOut> KernelOut(at::ScalarType type) {
  switch (type) {
    case at::kInt: return Int8GemmOut::kI32;
    case at::kChar: return Int8GemmOut::kI8;
    case at::kFloat: return Int8GemmOut::kF32;
    case at::kHalf: return Int8GemmOut::kF16;
    case at::kBFloat16: return Int8GemmOut::kBF16;
    default: return std::nullopt;
  }
}

bool IsWords(const OptTensor& t) { return t && (t->scalar_type() == at::kLong || t->scalar_type() == at::kUInt64); }

// The numbers of a weight's columns.
std::optional<Int8Group> KernelGroup(const Int8Weight& w, const OptTensor& scale, const OptTensor& bias, const OptTensor& offset, Int8GemmOut out) {
  Int8Group group = {.w = w.data};
  const bool has_bias = bias && bias->numel() > 0, int_bias = has_bias && bias->scalar_type() == at::kInt;
  if (int_bias) {
    if (bias->numel() != w.n || !bias->is_contiguous()) return std::nullopt;
    group.int_bias = static_cast<const int32_t*>(bias->const_data_ptr());
  }
  if (out == Int8GemmOut::kI32) return has_bias && !int_bias ? std::nullopt : std::optional(group);
  const auto by = KernelNumbers(scale, w.n, /*words=*/true);
  const auto added = int_bias ? Numbers() : KernelNumbers(bias, w.n);
  if (!by || by->data == nullptr || !added) return std::nullopt;
  group.scale = *by;
  group.bias = *added;
  if (out == Int8GemmOut::kI8) {
    // Words hold an offset of their own; with a bias of floats the offset comes before the rounding.
    const auto o = KernelNumbers(offset, w.n);
    if (!o || added->data != nullptr || (IsWords(scale) && o->data == nullptr)) return std::nullopt;
    group.offset = *o;
  }
  return group;
}

// a [m, k] by weights like w.
std::optional<Int8GemmArgs> KernelArgs(const Tensor& a, const Int8Weight& w, const OptTensor& token_scale, Int8GemmOut out_type) {
  if (a.dim() < 1 || a.size(-1) != w.k || w.k == 0 || w.k > quant::kMaxInt8Depth || !a.is_contiguous()) return std::nullopt;
  const int64_t m = a.numel() / w.k;
  const auto token = KernelNumbers(token_scale, m);
  if (!token) return std::nullopt;
  Int8GemmArgs args = {.m = m, .n = w.n, .k = w.k, .a = static_cast<const int8_t*>(a.const_data_ptr()), .lda = w.k, .ldw = w.ldw,
                       .layout = w.layout, .out_type = out_type, .ldo = w.n};
  if (out_type != Int8GemmOut::kI32) args.token_scale = *token;
  return args;
}

// Whether `out` is a matrix that the product fills.
bool IsProduct(const Tensor& out, const Int8GemmArgs& args) {
  return out.dim() >= 1 && out.size(-1) == args.n && out.numel() == args.m * args.n && out.is_contiguous();
}

}  // namespace

std::optional<Numbers> KernelNumbers(const OptTensor& t, int64_t count, bool words) {
  if (!t || t->numel() == 0) return Numbers();
  if ((t->numel() != 1 && t->numel() != count) || !t->is_contiguous()) return std::nullopt;
  const int64_t step = t->numel() == 1 ? 0 : 1;
  switch (t->scalar_type()) {
    case at::kFloat: return Numbers{t->const_data_ptr(), quant::DType::kF32, step};
    case at::kHalf: return Numbers{t->const_data_ptr(), quant::DType::kF16, step};
    case at::kBFloat16: return Numbers{t->const_data_ptr(), quant::DType::kBF16, step};
    case at::kLong:
    case at::kUInt64:
      if (words) return Numbers{t->const_data_ptr(), quant::DType::kF32, 2 * step};
      [[fallthrough]];
    default: return std::nullopt;
  }
}

std::optional<Int8Weight> KernelWeight(const char* name, const aclTensor& w, bool transpose) {
  const int d = w.sizes.n;
  if (w.dtype != DType::kI8 || (d != 2 && d != 3)) return std::nullopt;
  const int along_k = transpose ? d - 1 : d - 2, along_n = transpose ? d - 2 : d - 1;
  Int8Weight result{.data = static_cast<const int8_t*>(w.data()), .n = w.sizes[along_n], .k = w.sizes[along_k], .stack = d == 3 ? w.sizes[0] : 1};
  if (!IsBaseFormat(w.format)) {
    const NzMatrices nz = NzMatricesOf(name, w);
    result.layout = nz.transposed != transpose ? Int8Layout::kFractalNK : Int8Layout::kFractalKN;
    const auto bytes = quant::FractalNzBytes(nz.rows, nz.cols, 1);
    Check(bytes.status());
    result.stride = *bytes;
    return result;
  }
  result.stride = d == 3 ? w.strides[0] : 0;
  // A dimension of one element has no stride of its own.
  const int64_t stride_k = result.k > 1 ? w.strides[along_k] : 1, stride_n = result.n > 1 ? w.strides[along_n] : 1;
  if (stride_k == 1 && (result.n <= 1 || stride_n >= result.k)) {
    result.layout = Int8Layout::kNK;
    result.ldw = result.n > 1 ? stride_n : result.k;
  } else if (stride_n == 1 && (result.k <= 1 || stride_k >= result.n)) {
    result.layout = Int8Layout::kKN;
    result.ldw = result.k > 1 ? stride_k : result.n;
  } else {
    return std::nullopt;
  }
  return result;
}

Task PlanInt8Matmul(const aclTensor& x1, const aclTensor& x2, bool transpose2, const OptTensor& x1_scale, const OptTensor& x2_scale,
                    const OptTensor& x2_offset, const OptTensor& bias, const Tensor& out) {
  if (x1.dtype != DType::kI8 || !IsBaseFormat(x1.format)) return nullptr;
  const auto w = KernelWeight("x2", x2, transpose2);
  if (!w || w->stack != 1) return nullptr;
  const auto type = KernelOut(out.scalar_type());
  if (!type) return nullptr;
  const auto args = KernelArgs(ToTensor(x1), *w, x1_scale, *type);
  const auto group = KernelGroup(*w, x2_scale, bias, x2_offset, *type);
  if (!args || !group || !IsProduct(out, *args)) return nullptr;
  Int8GemmArgs all = *args;
  all.out = out.data_ptr();
  all.w = group->w, all.scale = group->scale, all.int_bias = group->int_bias, all.bias = group->bias, all.offset = group->offset;
  return [all] { Check(quant::Int8Gemm(all, ComputeExecutor())); };
}

namespace {

struct Experts {
  Int8GemmArgs args;
  std::vector<Int8Group> groups;  // one for each expert
};

std::optional<Experts> PlanExperts(const Int8Grouped& p, Int8GemmOut out_type) {
  const int64_t experts = ExpertsIn(p.weight);
  const bool stacked = p.weight.size() == 1 && p.weight[0].sizes.n == 3;
  if (p.x.scalar_type() != at::kChar || p.x.dim() != 2) return std::nullopt;
  Experts result;
  std::optional<Int8Weight> first;
  for (int64_t e = 0; e < experts; ++e) {
    const auto w = KernelWeight("weight", p.weight[stacked ? 0 : static_cast<size_t>(e)], /*transpose=*/false);
    if (!w || (!stacked && w->stack != 1)) return std::nullopt;
    if (!first) {
      const auto args = KernelArgs(p.x, *w, p.token_scale, out_type);
      if (!args) return std::nullopt;
      result.args = *args;
      first = w;
    }
    if (w->layout != first->layout || w->ldw != first->ldw || w->n != first->n || w->k != first->k) return std::nullopt;
    Int8Weight one = *w;
    if (stacked) one.data += e * w->stride;
    const auto numbers = [&](const std::vector<aclTensor>& list) {
      const Tensor t = NumbersOf(list, e, experts);
      return t.defined() ? OptTensor(t) : OptTensor();
    };
    const auto group = KernelGroup(one, numbers(p.scale), numbers(p.bias), std::nullopt, out_type);
    if (!group) return std::nullopt;
    result.groups.push_back(*group);
  }
  return first ? std::optional(result) : std::nullopt;
}

// The experts' groups with the rows that group_list gives them; which[i] is the expert of group i.
std::vector<Int8Group> RowsOfExperts(const Experts& plan, const Tensor& list, int64_t type, std::vector<int64_t>* which = nullptr) {
  std::vector<Int8Group> groups;
  for (const Group& g : ReadGroups(list, type, static_cast<int64_t>(plan.groups.size()), plan.args.m)) {
    if (g.begin == g.end) continue;
    Int8Group& group = groups.emplace_back(plan.groups[static_cast<size_t>(g.expert)]);
    group.begin = g.begin, group.end = g.end;
    if (which != nullptr) which->push_back(g.expert);
  }
  return groups;
}

}  // namespace

Task PlanInt8Grouped(const Int8Grouped& product, const Tensor& y) {
  const auto type = KernelOut(y.scalar_type());
  auto plan = type ? PlanExperts(product, *type) : std::nullopt;
  if (!plan || !IsProduct(y, plan->args)) return nullptr;
  plan->args.out = y.data_ptr();
  return [plan = *plan, list = product.group_list, type = product.group_list_type] {
    Check(quant::GroupedInt8Gemm(plan.args, RowsOfExperts(plan, list, type), ComputeExecutor()));
  };
}

Task PlanInt8GroupedSwiglu(const Int8Grouped& product, const OptTensor& smooth, const Tensor& y, const Tensor& y_scale) {
  const auto plan = PlanExperts(product, Int8GemmOut::kF32);
  if (!plan || plan->args.n % 2 != 0) return nullptr;
  const int64_t experts = static_cast<int64_t>(plan->groups.size()), rows = plan->args.m, cols = plan->args.n / 2;
  const auto to = KernelInt8Rows(quant::Int8Rows::Kind::kDynamic, std::nullopt, std::nullopt, y, y_scale, rows, cols);
  if (!to) return nullptr;
  std::vector<Numbers> factors(static_cast<size_t>(experts));
  if (smooth && smooth->numel() > 0) {
    const bool each = smooth->dim() > 1 && smooth->size(0) > 1;
    if (smooth->numel() != (each ? experts * cols : cols)) return nullptr;
    for (int64_t e = 0; e < experts; ++e) {
      const auto factor = KernelNumbers(each ? smooth->select(0, e) : *smooth, cols);
      if (!factor) return nullptr;
      factors[static_cast<size_t>(e)] = *factor;
    }
  }
  return [=, plan = *plan, to = *to, list = product.group_list, type = product.group_list_type] {
    std::vector<int64_t> which;
    const std::vector<Int8Group> groups = RowsOfExperts(plan, list, type, &which);
    std::vector<Numbers> factor;
    for (int64_t e : which) factor.push_back(factors[static_cast<size_t>(e)]);
    Check(quant::GroupedInt8GemmSwigluQuant(plan.args, groups, {.out = to.out, .ldo = to.ldo, .scale = to.scale, .factor = factor},
                                            ComputeExecutor()));
  };
}

}  // namespace jumar::hostcann::aclnn
