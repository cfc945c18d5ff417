// Products of int8, int4 and float8 matrices, and of floating-point rows with quantised weights.
#include <ATen/ops/add.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>

#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/quant.h"
#include "libs/hostcann/aclnn/weight_matmul.h"

namespace jumar::hostcann::aclnn {
namespace {

bool Given(const OptTensor& t) { return t && t->numel() > 0; }

// value, an fp32 product, as out: rounded to its floating-point type, or quantised by `scale` (fp32, or words that hold an offset, too).
void PutQuantized(const Tensor& out, const Tensor& value, const Tensor& scale, const OptTensor& offset) {
  const Tensor scaled = at::mul(value, ScaleOf(scale));
  const OptTensor o = offset ? F32(offset) : OffsetOf(scale);
  PutRounded(out, o ? at::add(at::round(scaled), *o) : scaled);
}

bool IsFloat8(DType dtype) { return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2; }

// A scale for each block of x, as one for each element.
Tensor SpreadBlocks(const Tensor& scale, const Tensor& x) {
  Tensor s = F32(scale);
  for (const int64_t d : {-2, -1}) {
    const int64_t block = (x.size(d) + s.size(d) - 1) / s.size(d);
    s = s.repeat_interleave(block, d).narrow(d, 0, x.size(d));
  }
  return s;
}

Task PlanQuantMatmul(const aclTensor& x1, const aclTensor& x2, const OptTensor& x1_scale, const OptTensor& x2_scale,
                     const OptTensor& x2_offset, const OptTensor& bias, bool transpose1, bool transpose2, const Tensor& out) {
  const bool packed = x1.dtype == DType::kI32 && x2.dtype == DType::kI32, float8 = IsFloat8(x1.dtype) && IsFloat8(x2.dtype);
  Require(packed || float8 || (x1.dtype == DType::kI8 && x2.dtype == DType::kI8), "x1 is ", DTypeName(x1.dtype), " and x2 ",
          DTypeName(x2.dtype), "; hostcann multiplies int8 with int8, float8 with float8, and int4 with int4 (both packed in int32)");
  Require(x2_scale.has_value(), "argument `x2Scale` is null");
  const bool blocks = Given(x1_scale) && x1_scale->dim() >= 2 && x1_scale->size(-1) != 1;
  Require(!blocks || (!packed && x2_scale->dim() >= 2), "x1Scale has shape ", x1_scale ? x1_scale->sizes() : at::IntArrayRef(),
          " and x2Scale ", x2_scale->sizes(), "; scales of blocks need two dimensions of both");
  if (!blocks && !transpose1) {
    if (Task task = PlanInt8Matmul(x1, x2, transpose2, Given(x1_scale) ? x1_scale : std::nullopt, x2_scale, x2_offset, bias, out)) return task;
  }
  return [=] {
    const Tensor a = ToTensor(x1), b = DenseWeight("x2", x2);
    Tensor left = transpose1 ? a.transpose(-1, -2) : a, right = transpose2 ? b.transpose(-1, -2) : b;
    if (packed) left = UnpackInt4(left), right = UnpackInt4(right);
    Require(left.size(-1) == right.size(-2), "x1 has ", left.size(-1), " columns but x2 has ", right.size(-2), " rows");
    if (blocks) {
      const Tensor scaled = at::mul(F32(right), SpreadBlocks(*x2_scale, right));
      const Tensor value = at::matmul(at::mul(F32(left), SpreadBlocks(*x1_scale, left)), scaled);
      return Put(out, bias ? at::add(value, F32(*bias)) : value);
    }
    Tensor sum = float8 ? at::matmul(F32(left), F32(right)) : IntProduct(left, right);
    if (bias && bias->scalar_type() == at::kInt) sum = at::add(sum, *bias);
    if (out.scalar_type() == at::kInt) return Put(out, sum);
    Tensor value = F32(sum);
    if (Given(x1_scale)) value = at::mul(value, x1_scale->numel() == 1 ? F32(*x1_scale).reshape({1}) : F32(*x1_scale).reshape({-1, 1}));
    const bool float_bias = bias && bias->scalar_type() != at::kInt;
    if (out.scalar_type() == at::kChar && !float_bias) return PutQuantized(out, value, *x2_scale, x2_offset);
    value = at::mul(value, ScaleOf(*x2_scale));
    if (float_bias) value = at::add(value, F32(*bias));
    if (out.scalar_type() == at::kChar) return PutRounded(out, x2_offset ? at::add(value, F32(*x2_offset)) : value);
    Put(out, value);
  };
}

// x * ((weight + antiquant_offset) * antiquant_scale) + bias, the scales per column, or per column and group of rows; then quantised, if
// there is a quant_scale.
Task PlanWeightQuantMatmul(const Tensor& x, const aclTensor& weight, const Tensor& scale, const OptTensor& offset,
                           const OptTensor& quant_scale, const OptTensor& quant_offset, const OptTensor& bias, int64_t group_size,
                           const Tensor& y) {
  const bool packed = weight.dtype == DType::kI32;
  Require(packed || weight.dtype == DType::kI8, "weight is ", DTypeName(weight.dtype), "; it must be int8, or int32 that holds int4");
  return [=] {
    const Tensor stored = DenseWeight("weight", weight), w = packed ? UnpackInt4(stored) : stored;
    Require(w.size(-2) == x.size(-1), "x has ", x.size(-1), " columns but weight has ", w.size(-2), " rows");
    const auto spread = [&](const Tensor& t) {
      const Tensor s = ScaleOf(t);
      if (group_size == 0 || s.dim() < 2 || s.size(-2) == 1) return s;
      Require(s.size(-2) == (w.size(-2) + group_size - 1) / group_size, "antiquantScale has ", s.size(-2), " groups; ", w.size(-2),
              " rows in groups of ", group_size, " need ", (w.size(-2) + group_size - 1) / group_size);
      return s.repeat_interleave(group_size, -2).narrow(-2, 0, w.size(-2));
    };
    const Tensor dense = at::mul(offset ? at::add(F32(w), F32(spread(*offset))) : F32(w), spread(scale));
    Tensor value = at::matmul(F32(x), dense);
    if (bias) value = at::add(value, F32(*bias));
    if (Given(quant_scale)) return PutQuantized(y, value, *quant_scale, Given(quant_offset) ? quant_offset : std::nullopt);
    Put(y, value);
  };
}

// [b, m, k] times [b, k, n] after the permutations; out is [m, b, n], or with `split` [split, m, b * n / split].
Task PlanTransposeBatchMatmul(const Tensor& x1, const Tensor& x2, const OptTensor& scale, const IntList& perm1, const IntList& perm2,
                              const IntList& perm_y, int64_t split, const Tensor& out) {
  Require(x1.dim() == 3 && x2.dim() == 3 && perm1.size() == 3 && perm2.size() == 3, "x1 has ", x1.dim(), " dimensions and x2 ", x2.dim(),
          "; they and their permutations must have 3");
  Require(perm_y == IntList({1, 0, 2}), "permY must be [1, 0, 2]");
  const Tensor a = x1.permute(perm1), b = x2.permute(perm2);
  const int64_t batch = a.size(0);
  Require(b.size(0) == batch && a.size(2) == b.size(1), "x1 is [", batch, ", ", a.size(1), ", ", a.size(2), "] and x2 [", b.size(0), ", ",
          b.size(1), ", ", b.size(2), "] after the permutations; batches and inner sizes must agree");
  Require(split >= 1 && batch % split == 0, "batchSplitFactor is ", split, "; it must divide the batch, ", batch);
  Require(!Given(scale) || split == 1, "batchSplitFactor is ", split, "; with a scale it must be 1");
  return [=] {
    Tensor y = at::matmul(F32(a), F32(b)).permute({1, 0, 2});
    if (Given(scale)) return PutQuantized(out, y.flatten(1).unsqueeze(1), *scale, std::nullopt);
    if (split > 1) y = y.reshape({y.size(0), split, -1}).transpose(0, 1);
    Put(out, y);
  };
}

void RefuseOffsets(const std::optional<aclTensor>& y_scale, const std::optional<aclTensor>& x1_offset,
                   const std::optional<aclTensor>& y_offset) {
  for (const auto& [name, t] : {std::pair("yScale", &y_scale), {"x1Offset", &x1_offset}, {"yOffset", &y_offset}}) {
    RefuseGiven(name, *t && (*t)->numel() > 0);
  }
}

}  // namespace

static OptTensor Base(const char* name, const std::optional<aclTensor>& t) { return t ? OptTensor(arg::BaseTensor(name, &*t)) : std::nullopt; }

// The kernel for float formats, else the general case.
static Task PlanAnyQuantMatmul(const aclTensor& x1, const aclTensor& x2, const std::optional<aclTensor>& x1_scale,
                               const std::optional<aclTensor>& x2_scale, const OptTensor& x2_offset, const std::optional<aclTensor>& bias,
                               bool transpose1, bool transpose2, int64_t group_size, const aclTensor& out) {
  if (Task task = PlanFloat8Matmul(x1, x2, x1_scale, x2_scale, bias, transpose1, transpose2, group_size, out)) return task;
  return PlanQuantMatmul(x1, x2, Base("x1Scale", x1_scale), Base("x2Scale", x2_scale), x2_offset, Base("bias", bias), transpose1, transpose2,
                         arg::BaseTensor("out", &out));
}
ACLNN_PLAN(QuantMatmulV5, Raw(x1), Raw(x2), OptRaw(x1_scale), OptRaw(x2_scale), OptRaw(y_scale), OptRaw(x1_offset), OptIn(x2_offset),
           OptRaw(y_offset), OptRaw(bias), Flag(transpose1), Flag(transpose2), I64(group_size), Raw(out)) {
  RefuseOffsets(y_scale, x1_offset, y_offset);
  return PlanAnyQuantMatmul(x1, x2, x1_scale, x2_scale, x2_offset, bias, transpose1, transpose2, group_size, out);
}
ACLNN_PLAN(QuantMatmulWeightNz, Raw(x1), Raw(x2), OptRaw(x1_scale), OptRaw(x2_scale), OptRaw(y_scale), OptRaw(x1_offset),
           OptIn(x2_offset), OptRaw(y_offset), OptRaw(bias), Flag(transpose1), Flag(transpose2), I64(group_size), Raw(out)) {
  RefuseOffsets(y_scale, x1_offset, y_offset);
  return PlanAnyQuantMatmul(x1, x2, x1_scale, x2_scale, x2_offset, bias, transpose1, transpose2, group_size, out);
}

// The kernel for what it takes, else the general case.
static Task PlanAnyWeightQuant(const aclTensor& x, const aclTensor& weight, const aclTensor& scale, const std::optional<aclTensor>& offset,
                               const std::optional<aclTensor>& quant_scale, const OptTensor& quant_offset, const std::optional<aclTensor>& bias,
                               int64_t group_size, const aclTensor& y) {
  Require(group_size >= 0, "antiquantGroupSize is ", group_size, "; it must be 0 or a number of rows");
  if (Task task = PlanWeightOnly(x, weight, scale, offset, quant_scale, bias, group_size, y)) return task;
  return PlanWeightQuantMatmul(arg::BaseTensor("x", &x), weight, arg::BaseTensor("antiquantScale", &scale), Base("antiquantOffset", offset),
                               Base("quantScale", quant_scale), quant_offset, Base("bias", bias), group_size, arg::BaseTensor("y", &y));
}
ACLNN_PLAN(WeightQuantBatchMatmulV2, Raw(x), Raw(weight), Raw(antiquant_scale), OptRaw(antiquant_offset), OptRaw(quant_scale),
           OptIn(quant_offset), OptRaw(bias), I32(group_size), Raw(y)) {
  return PlanAnyWeightQuant(x, weight, antiquant_scale, antiquant_offset, quant_scale, quant_offset, bias, group_size, y);
}
ACLNN_PLAN(WeightQuantBatchMatmulV3, Raw(x), Raw(weight), Raw(antiquant_scale), OptRaw(antiquant_offset), OptRaw(quant_scale),
           OptIn(quant_offset), OptRaw(bias), I32(group_size), I32(inner_precise), Raw(y)) {
  return PlanAnyWeightQuant(x, weight, antiquant_scale, antiquant_offset, quant_scale, quant_offset, bias, group_size, y);
}
ACLNN_PLAN(WeightQuantBatchMatmulNz, Raw(x), Raw(weight), Raw(antiquant_scale), OptRaw(antiquant_offset), OptRaw(quant_scale),
           OptIn(quant_offset), OptRaw(bias), I32(group_size), Raw(y)) {
  return PlanAnyWeightQuant(x, weight, antiquant_scale, antiquant_offset, quant_scale, quant_offset, bias, group_size, y);
}

ACLNN_PLAN(TransposeBatchMatMul, In(x1), In(x2), OptRaw(bias), OptIn(scale), Ints(perm_x1), Ints(perm_x2), Ints(perm_y),
           I8(cube_math_type), I32(batch_split_factor), Out(out)) {
  RefuseGiven("bias", bias && bias->numel() > 0);
  return PlanTransposeBatchMatmul(x1, x2, scale, perm_x1, perm_x2, perm_y, batch_split_factor, out);
}
ACLNN_PLAN(TransposeBatchMatMulWeightNz, In(x1), Raw(x2), OptRaw(bias), OptIn(scale), Ints(perm_x1), Ints(perm_x2), Ints(perm_y),
           I8(cube_math_type), I32(batch_split_factor), Out(out)) {
  RefuseGiven("bias", bias && bias->numel() > 0);
  const Dims& sizes = x2.sizes;
  Require(sizes.n == 3 && x2.format == kFormatFractalNz, "x2 has format ", FormatName(x2.format), " and shape ", ToString(sizes),
          "; it must be FRACTAL_NZ (29) with 3 dimensions");
  return [=] { PlanTransposeBatchMatmul(x1, DenseWeight("x2", x2), scale, perm_x1, perm_x2, perm_y, batch_split_factor, out)(); };
}

// Sums in fp32, rounded once.
ACLNN_PLAN(BatchMatMulWeightNz, In(self), Raw(mat2), Out(out), I8(cube_math_type)) {
  Require(self.dim() == 3 && mat2.sizes.n == 3 && self.size(2) == mat2.sizes[1], "self has shape ", self.sizes(), " and mat2 ",
          ToString(mat2.sizes), "; they must be batches of matrices that can be multiplied");
  return [=] { Put(out, at::matmul(F32(self), F32(DenseWeight("mat2", mat2)))); };
}

}  // namespace jumar::hostcann::aclnn
