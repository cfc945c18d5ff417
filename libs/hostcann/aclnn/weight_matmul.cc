#include "libs/hostcann/aclnn/weight_matmul.h"

#include <utility>

#include "libs/hostcann/aclnn/grouped_matmul.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/weight_operands.h"
#include "libs/quant/weight_gemm/weight_gemm.h"

namespace jumar::hostcann::aclnn {
namespace {

using quant::WeightGemmArgs;

bool Given(const std::optional<aclTensor>& t) { return t && t->numel() > 0; }

// What all have in common: x, the weight, y; nullopt if the kernel doesn't take them.
std::optional<WeightGemmArgs> ProductOf(const aclTensor& x, const WeightCodes& w, const aclTensor& y) {
  const auto a = AsActivations(x);
  const auto type = KernelType(y.dtype);
  const auto out = AsRows(y, 1);
  if (!a || !type || !out || !IsBaseFormat(y.format) || out->stride < out->cols) return std::nullopt;
  Require(a->k == w.k, "x has ", a->k, " columns but the weight has ", w.k, " rows");
  Require(out->rows == a->rows && out->cols == w.n, "the output is [", out->rows, ", ", out->cols, "]; rows of x and columns of the weight make it [", a->rows,
          ", ", w.n, "]");
  return WeightGemmArgs{.m = a->rows,
                        .n = w.n,
                        .k = w.k,
                        .activations = a->type,
                        .a = a->data,
                        .lda = a->ld,
                        .format = w.format,
                        .w = w.data,
                        .ldw = w.ld,
                        .layout = w.layout,
                        .out_type = *type,
                        .out = y.data(),
                        .ldo = out->stride * ItemSize(y.dtype)};
}

bool AddBias(const aclTensor& bias, WeightGemmArgs& args) {
  const auto type = KernelType(bias.dtype);
  if (!type || bias.numel() != args.n || !IsContiguous(bias) || !IsBaseFormat(bias.format)) return false;
  args.bias = bias.data();
  args.bias_type = *type;
  return true;
}

Task PlanProduct(const WeightGemmArgs& args) {
  return [args] { Check(quant::WeightGemm(args, ComputeExecutor())); };
}

aclTensor Transposed(const aclTensor& t) {
  aclTensor out = t;
  for (Dims* dims : {&out.sizes, &out.strides}) std::swap(dims->v[dims->n - 1], dims->v[dims->n - 2]);
  return out;
}
// Scales of a [n, k] weight as those of its transpose; pairs stay the last dimension.
aclTensor TransposedScales(const aclTensor& t) {
  if (t.sizes.n < 2) return t;
  if (t.sizes.n == 2) return Transposed(t);
  aclTensor out = t;
  for (Dims* dims : {&out.sizes, &out.strides}) std::swap(dims->v[0], dims->v[1]);
  return out;
}

bool IsFloatCode(DType t) { return t == DType::kF8E4M3 || t == DType::kF8E5M2 || t == kHiF8 || t == kF4E2M1; }

// Types that ATen has not: a product of them must be the kernel's.
template <class... Parts>
void RequireKernel(DType a, DType w, const Parts&... parts) {
  for (const DType t : {a, w}) {
    if (t == kHiF8 || t == kF4E2M1) Fail(parts..., "; of ", DTypeName(t), " hostcann takes rows times one whole matrix with scales that fit");
  }
}

}  // namespace

Task PlanWeightOnly(const aclTensor& x, const aclTensor& weight, const aclTensor& scale, const std::optional<aclTensor>& offset,
                    const std::optional<aclTensor>& quant_scale, const std::optional<aclTensor>& bias, int64_t group_size, const aclTensor& y) {
  aclTensor words = weight;
  const bool packed_float4 = weight.dtype == DType::kF32;  // eight codes in each word, as int4 in int32
  if (packed_float4) words.dtype = DType::kI32;
  auto w = weight.sizes.n == 2 && !Given(quant_scale) && KernelType(x.dtype) ? AsWeight(words) : std::nullopt;
  if (w && packed_float4) w->format = quant::Format::kE2M1;
  auto args = w ? ProductOf(x, *w, y) : std::nullopt;
  if (args) {
    const auto by = WeightScales(scale, w->k, w->n, group_size);
    const auto add = Given(offset) ? WeightScales(*offset, w->k, w->n, group_size) : quant::Scales();
    if (by && add && (!Given(bias) || AddBias(*bias, *args))) {
      args->w_scale = *by;
      args->w_offset = *add;
      return PlanProduct(*args);
    }
  }
  RequireKernel(x.dtype, weight.dtype, "weight is ", DTypeName(weight.dtype), " ", ToString(weight.sizes), " and antiquantScale ", ToString(scale.sizes));
  return nullptr;
}

Task PlanFloat8Matmul(const aclTensor& x1, const aclTensor& x2, const std::optional<aclTensor>& x1_scale, const std::optional<aclTensor>& x2_scale,
                      const std::optional<aclTensor>& bias, bool transpose1, bool transpose2, int64_t group_size, const aclTensor& out) {
  if (!IsFloatCode(x1.dtype) || !IsFloatCode(x2.dtype)) return nullptr;
  const aclTensor right = transpose2 ? Transposed(x2) : x2;
  const auto w = right.sizes.n == 2 && !transpose1 ? AsWeight(right) : std::nullopt;
  auto args = w ? ProductOf(x1, *w, out) : std::nullopt;
  if (args) {
    const int64_t group_k = group_size & 0xFFFF, group_n = group_size >> 16 & 0xFFFF;
    const auto by = Given(x2_scale) ? WeightScales(transpose2 ? TransposedScales(*x2_scale) : *x2_scale, w->k, w->n, group_k > 1 ? group_k : 0, group_n)
                                    : quant::Scales();
    const auto token = Given(x1_scale) ? ActivationScales(*x1_scale, args->m, w->k, group_k > 1 ? group_k : 0) : quant::Scales();
    if (by && token && (!Given(bias) || AddBias(*bias, *args))) {
      args->w_scale = *by;
      args->a_scale = *token;
      return PlanProduct(*args);
    }
  }
  RequireKernel(x1.dtype, x2.dtype, "x1 is ", DTypeName(x1.dtype), " ", ToString(x1.sizes), ", x2 ", DTypeName(x2.dtype), " ", ToString(x2.sizes), ", x1Scale ",
                Given(x1_scale) ? ToString(x1_scale->sizes) : "not given", ", x2Scale ", Given(x2_scale) ? ToString(x2_scale->sizes) : "not given");
  return nullptr;
}

namespace {

// The numbers of expert 0 in a stack [e, ...], and the bytes to the next; a tensor without that dimension is of all.
std::optional<std::pair<aclTensor, int64_t>> First(const std::vector<aclTensor>& list, int64_t experts) {
  if (list.size() != 1 || list[0].sizes.n < 1 || (list[0].sizes[0] != experts)) return std::nullopt;
  return std::pair(Inner(list[0], 1), list[0].strides[0] * ItemSize(list[0].dtype));
}

}  // namespace

Task PlanGroupedWeights(const GroupedWeights& c) {
  const auto w = c.weight.sizes.n == 3 ? AsWeight(c.weight) : std::nullopt;
  const bool codes = IsFloatCode(c.x.dtype) && IsFloatCode(c.weight.dtype), floats = KernelType(c.x.dtype).has_value();
  if (!w || (!codes && !floats)) return nullptr;
  auto args = ProductOf(c.x, *w, c.y);
  const auto by = First(codes ? c.scale : c.antiquant_scale, w->experts);
  if (!args || !by) return nullptr;
  quant::ExpertStack stack{.w = w->step, .w_scale = by->second};
  const auto scales = WeightScales(by->first, w->k, w->n, 0);
  if (!scales) return nullptr;
  args->w_scale = *scales;
  if (floats && !c.antiquant_offset.empty()) {
    const auto offset = First(c.antiquant_offset, w->experts);
    const auto offsets = offset ? WeightScales(offset->first, w->k, w->n, 0) : std::nullopt;
    if (!offsets) return nullptr;
    args->w_offset = *offsets;
    stack.w_offset = offset->second;
  }
  if (!c.per_token_scale.empty()) {
    const auto token = c.per_token_scale.size() == 1 ? ActivationScales(c.per_token_scale[0], args->m, w->k, 0) : std::nullopt;
    if (!token) return nullptr;
    args->a_scale = *token;
  }
  if (!c.bias.empty()) {
    const auto bias = First(c.bias, w->experts);
    if (!bias || !AddBias(bias->first, *args)) return nullptr;
    stack.bias = bias->second;
  }
  return [args = *args, stack, list = c.group_list, type = c.group_list_type, experts = w->experts] {
    std::vector<quant::RowGroup> groups;
    for (const Group& g : ReadGroups(list, type, experts, args.m)) groups.push_back({g.expert, g.begin, g.end});
    Check(quant::GroupedWeightGemm(args, stack, groups, ComputeExecutor()));
  };
}

}  // namespace jumar::hostcann::aclnn
