// Quantisation to int8 and back, and products of int8 matrices. A quotient is rounded to the nearest, a half to the even; what
// leaves the range of int8 is its end. Everything between is computed in fp32, sums of products in int32.
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {
namespace arg {

struct Bools {
  using C = const aclBoolArray*;
  using Body = const std::vector<uint8_t>&;  // empty if not given
  static std::vector<uint8_t> Capture(const char*, C a) { return a == nullptr ? std::vector<uint8_t>() : a->v; }
};

}  // namespace arg
#define JUMAR_ARG_Bools(x) Bools, x

namespace {

constexpr double kMax = 127;  // of int8; symmetric quantisation uses -127 to 127

Tensor F32(const Tensor& t) { return t.to(at::kFloat); }
OptTensor F32(const OptTensor& t) { return t ? OptTensor(F32(*t)) : t; }

// out = value, rounded and cut to out's type.
void PutRounded(const Tensor& out, const Tensor& value) {
  const at::ScalarType type = out.scalar_type();
  if (type == at::kChar) {
    Put(out, at::round(value).clamp(-128, 127));
  } else if (type == at::kByte) {
    Put(out, at::round(value).clamp(0, 255));
  } else {
    Require(type == at::kInt, "the output is ", at::toString(type), "; hostcann quantises to int8, uint8 and int32");
    Put(out, at::round(value));
  }
}

// A scale or offset: one number, one per index of an axis, or anything that broadcasts.
Tensor Along(const Tensor& t, const Tensor& x, int64_t axis) {
  if (t.numel() == 1) return F32(t).reshape({1});
  if (t.dim() != 1) return F32(t);
  IntList shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = t.numel();
  return F32(t).reshape(shape);
}

// The group of each of `rows` rows; a group ends where `ends` says (type 0) or has as many rows (type 1). Rows behind the last
// group belong to it.
Tensor GroupOfRows(const Tensor& groups, int64_t type, int64_t rows) {
  const Tensor ends = (type == 1 ? at::cumsum(groups, 0) : groups).to(at::kLong).contiguous();
  return at::searchsorted(ends, at::arange(rows), /*out_int32=*/false, /*right=*/true).clamp_max(ends.numel() - 1);
}

// x * smooth, row by row of x as a matrix; of several rows of smooth, that of the row's group.
Tensor Smooth(const Tensor& x, const OptTensor& smooth, const OptTensor& groups, int64_t group_type) {
  if (!smooth) return x;
  if (!groups || smooth->dim() < 2) return at::mul(x, F32(*smooth));
  return at::mul(x, F32(*smooth).index_select(0, GroupOfRows(*groups, group_type, x.size(0))));
}

// Symmetric, a scale per row: scale = max |x| / 127.
void DynamicQuantize(const Tensor& x, const Tensor& y, const Tensor& scale) {
  const Tensor s = x.abs().amax(-1, /*keepdim=*/true).div(kMax);
  PutRounded(y, at::where(s.eq(0), at::zeros_like(x), at::div(x, s)));
  Put(scale, s);
}

Tensor Rows(const Tensor& x) { return F32(x).reshape({x.dim() == 0 ? 1 : x.numel() / std::max<int64_t>(1, x.size(-1)), -1}); }

Tensor RmsNormed(const Tensor& x, const Tensor& gamma, const OptTensor& beta, double eps) {
  const Tensor g = F32(gamma).flatten();
  const Tensor y = at::mul(at::mul(x, at::rsqrt(x.square().mean({-1}, true).add(eps))), g);
  return beta ? at::add(y, F32(*beta).flatten()) : y;
}

// The scales of a product as fp32: from float types, or from the low half of the 64-bit words that aclnnTransQuantParam makes.
Tensor ScaleOf(const Tensor& t) {
  if (t.scalar_type() != at::kLong && t.scalar_type() != at::kUInt64) return F32(t);
  const Tensor words = t.contiguous(), scale = at::empty(t.sizes(), at::kFloat);
  const auto* from = static_cast<const uint64_t*>(words.const_data_ptr());
  float* to = scale.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]);
    std::memcpy(to + i, &bits, sizeof(bits));
  }
  return scale;
}
// The offset in such a word: nine bits, signed, from bit 37 on.
OptTensor OffsetOf(const Tensor& t) {
  if (t.scalar_type() != at::kLong && t.scalar_type() != at::kUInt64) return std::nullopt;
  const Tensor words = t.contiguous(), offset = at::empty(t.sizes(), at::kFloat);
  const auto* from = static_cast<const uint64_t*>(words.const_data_ptr());
  float* to = offset.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const int bits = static_cast<int>(from[i] >> 37 & 0x1FF);
    to[i] = static_cast<float>(bits >= 256 ? bits - 512 : bits);
  }
  return offset;
}

// The dense [k, n] matrix of a weight in ND or FRACTAL_NZ, of whatever strides.
Tensor DenseWeight(const aclTensor& w) {
  if (IsBaseFormat(w.format)) return ToTensor(w);
  Require(w.format == kFormatFractalNz && w.sizes.n == 2, "argument `x2` has format ", FormatName(w.format), " and shape ",
          ToString(w.sizes), "; it must be ND (2), or FRACTAL_NZ (29) with 2 dimensions");
  const bool transposed = w.strides[0] == 1 && w.strides[1] == w.sizes[0] && w.sizes[1] > 1;
  const int64_t rows = transposed ? w.sizes[1] : w.sizes[0], cols = transposed ? w.sizes[0] : w.sizes[1];
  const auto shape = quant::FractalNzShape(rows, cols, ItemSize(w.dtype));
  Check(shape.status());
  Require(w.storage_sizes.n >= 4 && std::equal(shape->begin(), shape->end(), w.storage_sizes.end() - 4) && w.offset == 0,
          "x2 is a [", rows, ", ", cols, "] weight but its FRACTAL_NZ storage is ", ToString(w.storage_sizes));
  const Tensor dense = at::empty({rows, cols}, at::TensorOptions().dtype(ToScalarType(w.dtype)));
  Check(quant::UnpackFractalNz(rows, cols, ItemSize(w.dtype), w.data(), dense.data_ptr(), cols));
  return transposed ? dense.t() : dense;
}

Tensor IntProduct(const Tensor& a, const Tensor& b) {
  if (b.dim() == 2) {
    IntList shape = a.sizes().vec();
    shape.back() = b.size(1);
    return at::_int_mm(a.reshape({-1, a.size(-1)}).contiguous(), b.contiguous()).reshape(shape);
  }
  return at::matmul(a.to(at::kInt), b.to(at::kInt));
}

Task PlanQuantMatmul(const aclTensor& x1, const aclTensor& x2, const OptTensor& x1_scale, const OptTensor& x2_scale,
                     const OptTensor& x2_offset, const OptTensor& bias, bool transpose1, bool transpose2, const Tensor& out) {
  Require(x1.dtype == DType::kI8 && x2.dtype == DType::kI8, "x1 is ", DTypeName(x1.dtype), " and x2 ", DTypeName(x2.dtype),
          "; hostcann multiplies int8 with int8");
  Require(x2_scale.has_value(), "argument `x2Scale` is null");
  return [=] {
    const Tensor a = ToTensor(x1), b = DenseWeight(x2);
    const Tensor wide1 = transpose1 ? a.transpose(-1, -2) : a, wide2 = transpose2 ? b.transpose(-1, -2) : b;
    Require(wide1.size(-1) == wide2.size(-2), "x1 has ", wide1.size(-1), " columns but x2 has ", wide2.size(-2), " rows");
    Tensor sum = IntProduct(wide1, wide2);
    if (bias && bias->scalar_type() == at::kInt) sum = at::add(sum, *bias);
    if (out.scalar_type() == at::kInt) return Put(out, sum);
    Tensor value = at::mul(F32(sum), ScaleOf(*x2_scale));
    if (x1_scale) value = at::mul(value, F32(*x1_scale).unsqueeze(-1));
    if (bias && bias->scalar_type() != at::kInt) value = at::add(value, F32(*bias));
    if (out.scalar_type() != at::kChar) return Put(out, value);
    const OptTensor offset = x2_offset ? F32(x2_offset) : OffsetOf(*x2_scale);
    PutRounded(out, offset ? at::add(at::round(value), *offset) : value);
  };
}

void RefuseGiven(const char* name, bool given) {
  Require(!given, "argument `", name, "` is given; hostcann has no use for it");
}

}  // namespace

// round(x * scale + offset); scale twice with sqrt_mode. The axis is the last one.
static void Quantize(const Tensor& x, const Tensor& scale, const OptTensor& offset, bool sqrt_mode, const std::string& round_mode,
                     int64_t axis, const Tensor& y) {
  Require(round_mode == "round", "round_mode is \"", round_mode, "\"; hostcann has \"round\"");
  const Tensor s = Along(scale, x, axis);
  Tensor value = at::mul(F32(x), s);
  if (sqrt_mode) value = at::mul(value, s);
  PutRounded(y, offset ? at::add(value, Along(*offset, x, axis)) : value);
}
ACLNN_OP(AscendQuant, In(x), In(scale), OptIn(offset), Flag(sqrt_mode), Text(round_mode), I32(dst_type), Out(y)) {
  Quantize(x, scale, offset, sqrt_mode, round_mode, -1, y);
}
ACLNN_OP(AscendQuantV3, In(x), In(scale), OptIn(offset), Flag(sqrt_mode), Text(round_mode), I32(dst_type), I32(axis), Out(y)) {
  Quantize(x, scale, offset, sqrt_mode, round_mode, axis, y);
}
// round(x / scales + zero_points)
ACLNN_OP(Quantize, In(x), In(scales), OptIn(zero_points), I32(dtype), I32(axis), Out(out)) {
  const Tensor value = at::div(F32(x), Along(scales, x, axis));
  PutRounded(out, zero_points ? at::add(value, Along(*zero_points, x, axis)) : value);
}
// (x + offset) * scale
ACLNN_OP(AscendAntiQuant, In(x), In(scale), OptIn(offset), I32(dst_type), Flag(sqrt_mode), Out(y)) {
  Require(x.scalar_type() == at::kChar, "x is ", at::toString(x.scalar_type()), "; it must be int8");
  const Tensor value = offset ? at::add(F32(x), F32(*offset)) : F32(x);
  const Tensor scaled = at::mul(value, F32(scale));
  Put(y, sqrt_mode ? at::mul(scaled, F32(scale)) : scaled);
}

ACLNN_OP(DynamicQuant, In(x), OptIn(smooth_scales), Out(y), Out(scale)) {
  DynamicQuantize(Smooth(Rows(x), smooth_scales, std::nullopt, 0), y, scale);
}
// With `offset`, asymmetric: the range of a row is spread over all of int8.
ACLNN_OP(DynamicQuantV2, In(x), OptIn(smooth_scales), OptIn(group_index), I32(dst_type), Out(y), Out(scale), OptOut(offset)) {
  const Tensor rows = Smooth(Rows(x), smooth_scales, group_index, 0);
  if (!offset) return DynamicQuantize(rows, y, scale);
  const Tensor high = rows.amax(-1, true), s = at::div(at::sub(high, rows.amin(-1, true)), 255.0);
  const Tensor o = at::sub(at::full_like(high, kMax), at::div(high, s));
  PutRounded(y, at::add(at::div(rows, s), o));
  Put(scale, s);
  Put(*offset, o);
}

// fp32 scales cut to 19 bits, with offsets, as 64-bit words.
ACLNN_OP(TransQuantParamV2, In(scale), OptIn(offset), Out(out)) {
  const Tensor s = F32(scale).contiguous(), words = at::empty({std::max(s.numel(), offset ? offset->numel() : 1)}, at::kLong);
  const Tensor o = offset ? at::round(F32(*offset)).clamp(-256, 255).contiguous() : Tensor();
  for (int64_t i = 0; i < words.numel(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, s.const_data_ptr<float>() + (s.numel() == 1 ? 0 : i), sizeof(bits));
    uint64_t word = uint64_t{bits & 0xFFFFE000u} | uint64_t{1} << 46;
    if (offset) {
      const auto value = static_cast<int64_t>(o.const_data_ptr<float>()[o.numel() == 1 ? 0 : i]);
      word |= (static_cast<uint64_t>(value) & 0x1FF) << 37;
    }
    words.data_ptr<int64_t>()[i] = static_cast<int64_t>(word);
  }
  const Tensor shaped = words.reshape(out.sizes());
  out.copy_(out.scalar_type() == at::kUInt64 ? shaped.view(at::kUInt64) : shaped);
}

ACLNN_PLAN(QuantMatmulV5, Raw(x1), Raw(x2), OptIn(x1_scale), OptIn(x2_scale), OptRaw(y_scale), OptRaw(x1_offset), OptIn(x2_offset),
           OptRaw(y_offset), OptIn(bias), Flag(transpose1), Flag(transpose2), I64(group_size), Out(out)) {
  for (const auto& [name, t] : {std::pair("yScale", &y_scale), {"x1Offset", &x1_offset}, {"yOffset", &y_offset}}) {
    RefuseGiven(name, *t && (*t)->numel() > 0);
  }
  return PlanQuantMatmul(x1, x2, x1_scale, x2_scale, x2_offset, bias, transpose1, transpose2, out);
}
ACLNN_PLAN(QuantMatmulWeightNz, Raw(x1), Raw(x2), OptIn(x1_scale), OptIn(x2_scale), OptRaw(y_scale), OptRaw(x1_offset),
           OptIn(x2_offset), OptRaw(y_offset), OptIn(bias), Flag(transpose1), Flag(transpose2), I64(group_size), Out(out)) {
  for (const auto& [name, t] : {std::pair("yScale", &y_scale), {"x1Offset", &x1_offset}, {"yOffset", &y_offset}}) {
    RefuseGiven(name, *t && (*t)->numel() > 0);
  }
  return PlanQuantMatmul(x1, x2, x1_scale, x2_scale, x2_offset, bias, transpose1, transpose2, out);
}

// x * ((weight + antiquant_offset) * antiquant_scale) + bias, the scales per column, or per column and group of rows.
static void WeightQuantMatmul(const Tensor& x, const Tensor& weight, const Tensor& scale, const OptTensor& offset,
                              const OptTensor& bias, int64_t group_size, const Tensor& y) {
  Require(weight.scalar_type() == at::kChar, "weight is ", at::toString(weight.scalar_type()), "; it must be int8");
  const auto spread = [&](const Tensor& t) {
    if (group_size <= 0 || t.dim() < 2 || t.size(0) == 1) return F32(t);
    return F32(t).repeat_interleave(group_size, 0).narrow(0, 0, weight.size(0));
  };
  const Tensor w = at::mul(offset ? at::add(F32(weight), spread(*offset)) : F32(weight), spread(scale));
  const Tensor value = at::matmul(F32(x), w);
  Put(y, bias ? at::add(value, F32(*bias)) : value);
}
ACLNN_OP(WeightQuantBatchMatmulV2, In(x), In(weight), In(antiquant_scale), OptIn(antiquant_offset), OptIn(quant_scale),
         OptIn(quant_offset), OptIn(bias), I32(group_size), Out(y)) {
  RefuseGiven("quantScale", quant_scale && quant_scale->numel() > 0);
  WeightQuantMatmul(x, weight, antiquant_scale, antiquant_offset, bias, group_size, y);
}
ACLNN_OP(WeightQuantBatchMatmulV3, In(x), In(weight), In(antiquant_scale), OptIn(antiquant_offset), OptIn(quant_scale),
         OptIn(quant_offset), OptIn(bias), I32(group_size), I32(inner_precise), Out(y)) {
  RefuseGiven("quantScale", quant_scale && quant_scale->numel() > 0);
  WeightQuantMatmul(x, weight, antiquant_scale, antiquant_offset, bias, group_size, y);
}

ACLNN_OP(RmsNormQuant, In(x), In(gamma), In(beta), In(scale), In(offset), F64(eps), Out(y)) {
  PutRounded(y, at::add(at::mul(RmsNormed(F32(x), gamma, beta, eps), F32(scale)), F32(offset)));
}
// The normalised sum, quantised with one pair of scale and offset or two: divided by the scale with div_mode, else multiplied.
ACLNN_OP(AddRmsNormQuantV2, In(x1), In(x2), In(gamma), In(scales1), OptIn(scales2), OptIn(zero_points1), OptIn(zero_points2),
         OptIn(beta), I64(axis), F64(eps), Flag(div_mode), Out(y1), OptOut(y2), Out(sum), OptOut(normed)) {
  Put(sum, at::add(F32(x1), F32(x2)));
  const Tensor y = RmsNormed(at::add(F32(x1), F32(x2)), gamma, beta, eps);
  const auto quantized = [&](const Tensor& scale, const OptTensor& zero) {
    const Tensor value = div_mode ? at::div(y, F32(scale)) : at::mul(y, F32(scale));
    return zero ? at::add(value, F32(*zero)) : value;
  };
  PutRounded(y1, quantized(scales1, zero_points1));
  if (y2 && scales2) PutRounded(*y2, quantized(*scales2, zero_points2));
  if (normed && normed->numel() == y.numel()) Put(*normed, y);
}
ACLNN_OP(AddRmsNormDynamicQuantV2, In(x1), In(x2), In(gamma), OptIn(smooth1), OptIn(smooth2), OptIn(beta), F64(eps), Bools(mask),
         Out(y1), Out(y2), Out(sum), Out(scale1), Out(scale2)) {
  const Tensor x = at::add(F32(x1), F32(x2));
  Put(sum, x);
  const Tensor y = RmsNormed(x, gamma, beta, eps);
  const bool first = mask.empty() || mask[0] != 0;
  const bool second = mask.empty() ? smooth1 && smooth2 : mask.size() > 1 && mask[1] != 0;
  if (first) DynamicQuantize(smooth1 ? at::mul(y, F32(*smooth1)) : y, y1, scale1);
  if (second) DynamicQuantize(smooth2 ? at::mul(y, F32(*smooth2)) : y, y2, scale2);
}

// silu(one half) * the other, and then int8, with a scale that was given ("static") or one per row ("dynamic").
static void SwigluQuant(const Tensor& x, bool activate_left, const OptTensor& smooth, const OptTensor& offsets,
                        const OptTensor& groups, int64_t group_type, const std::string& mode, const Tensor& y, const Tensor& scale) {
  Require(mode == "dynamic" || mode == "static", "quantMode is \"", mode, "\"; it must be \"static\" or \"dynamic\"");
  Require(x.size(-1) % 2 == 0, "x has ", x.size(-1), " columns; they must be even");
  const std::vector<Tensor> halves = x.chunk(2, -1);
  const Tensor product = at::mul(at::silu(halves[activate_left ? 0 : 1]), halves[activate_left ? 1 : 0]);
  const Tensor smoothed = Smooth(product, smooth, groups, group_type);
  if (mode == "dynamic") {
    DynamicQuantize(smoothed, y, scale);
  } else if (!offsets) {
    PutRounded(y, smoothed);
  } else {
    const bool per_group = groups && offsets->dim() >= 1 && offsets->size(0) > 1;
    Tensor o = F32(*offsets);
    if (per_group) o = o.index_select(0, GroupOfRows(*groups, group_type, product.size(0)));
    PutRounded(y, at::add(smoothed, per_group && o.dim() == 1 ? o.unsqueeze(-1) : o));
  }
}
ACLNN_OP(SwiGluQuantV2, In(x), OptIn(smooth_scales), OptIn(offsets), OptIn(group_index), Flag(activate_left), Text(quant_mode),
         I64(group_list_type), I32(dst_type), Out(y), Out(scale)) {
  SwigluQuant(Rows(x), activate_left, smooth_scales, offsets, group_index, group_list_type, quant_mode, y, scale);
}
// First x, int32 sums of products, becomes fp32: times weight_scale per column (of the row's group) and activation_scale per row.
ACLNN_OP(DequantSwigluQuant, In(x), OptIn(weight_scale), OptIn(activation_scale), OptIn(bias), OptIn(quant_scale),
         OptIn(quant_offset), OptIn(group_index), Flag(activate_left), Text(quant_mode), Out(y), Out(scale)) {
  Tensor value = x.reshape({-1, x.size(-1)});
  if (bias && bias->scalar_type() == at::kInt) value = at::add(value, *bias);
  value = F32(value);
  if (x.scalar_type() == at::kInt) value = Smooth(value, weight_scale, group_index, 1);
  if (x.scalar_type() == at::kInt && activation_scale) value = at::mul(value, F32(*activation_scale).reshape({-1, 1}));
  if (bias && bias->scalar_type() != at::kInt) value = at::add(value, F32(*bias));
  SwigluQuant(value, activate_left, quant_scale, quant_offset, group_index, /*group_type=*/1, quant_mode, y, scale);
}

}  // namespace jumar::hostcann::aclnn
