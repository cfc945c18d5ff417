// Quantisation and back, and what quant.h declares.
#include "libs/hostcann/aclnn/quant.h"

#include <ATen/ops/_int_mm.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cstring>

#include "libs/hostcann/aclnn/int8_kernels.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {

using quant::Int8Rows;

Tensor F32(const Tensor& t) { return t.to(at::kFloat); }
OptTensor F32(const OptTensor& t) { return t ? OptTensor(F32(*t)) : t; }

namespace {

// How many int4 numbers an element of `out` holds; 1 if it isn't packed.
int64_t Packed(const Tensor& out, int64_t elements) {
  if (out.numel() == 0 || out.numel() == elements) return 1;
  const int64_t per = elements / out.numel();
  Require(per * out.numel() == elements && per == (out.scalar_type() == at::kInt ? 8 : 2) &&
              (out.scalar_type() == at::kInt || out.scalar_type() == at::kChar),
          "the output has ", out.numel(), " elements of ", at::toString(out.scalar_type()), " for ", elements, " numbers");
  return per;
}

bool IsWord(const Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kUInt64; }

}  // namespace

std::pair<double, double> QuantizedRange(const Tensor& out, int64_t elements) {
  if (Packed(out, elements) > 1) return {-8, 7};
  switch (out.scalar_type()) {
    case at::kChar: return {-128, 127};
    case at::kByte: return {0, 255};
    case at::kInt: return {-2147483648.0, 2147483520.0};  // the largest fp32 that is an int32
    case at::kFloat8_e4m3fn: return {-448, 448};
    case at::kFloat8_e5m2: return {-57344, 57344};
    default: Fail("the output is ", at::toString(out.scalar_type()), "; hostcann quantises to int4, int8, uint8, int32 and float8");
  }
}

void PutRounded(const Tensor& out, const Tensor& value) {
  const auto [low, high] = QuantizedRange(out, value.numel());
  if (c10::isFloatingType(out.scalar_type())) return Put(out, value.clamp(low, high));
  const Tensor whole = at::round(value).clamp(low, high);
  const int64_t per = Packed(out, value.numel());
  if (per == 1) return Put(out, whole);
  const Tensor nibbles = at::bitwise_and(whole.to(at::kLong).reshape({-1, per}), 15);
  Tensor packed = nibbles.select(1, 0);
  for (int64_t i = 1; i < per; ++i) packed = at::add(packed, nibbles.select(1, i), int64_t{1} << (4 * i));
  Put(out, packed.to(out.scalar_type()));  // the high bits are cut off
}

Tensor Rows(const Tensor& x) { return F32(x).reshape({x.dim() == 0 ? 1 : x.numel() / std::max<int64_t>(1, x.size(-1)), -1}); }

Tensor GroupOfRows(const Tensor& groups, int64_t type, int64_t rows) {
  const Tensor ends = (type == 1 ? at::cumsum(groups, 0) : groups).to(at::kLong).contiguous();
  return at::searchsorted(ends, at::arange(rows), /*out_int32=*/false, /*right=*/true).clamp_max(ends.numel() - 1);
}

Tensor Smooth(const Tensor& x, const OptTensor& smooth, const OptTensor& groups, int64_t group_type) {
  if (!smooth) return x;
  if (!groups || smooth->dim() < 2) return at::mul(x, F32(*smooth));
  return at::mul(x, F32(*smooth).index_select(0, GroupOfRows(*groups, group_type, x.size(0))));
}

namespace {

// Symmetric over the dimensions `over`: scale = max |x| / high.
void QuantizeSymmetric(const Tensor& x, at::IntArrayRef over, double high, const Tensor& y, const Tensor& scale) {
  const Tensor s = x.abs().amax(over, /*keepdim=*/true).div(high);
  PutRounded(y, at::where(s.eq(0), at::zeros_like(x), at::div(x, s)));
  Put(scale, s);
}
// The range of x is spread over all of [low, high].
void QuantizeAsymmetric(const Tensor& x, at::IntArrayRef over, double low, double high, const Tensor& y, const Tensor& scale,
                        const Tensor& offset) {
  const Tensor top = x.amax(over, true), s = at::div(at::sub(top, x.amin(over, true)), high - low);
  const Tensor o = at::sub(at::div(top, s), high).neg();
  PutRounded(y, at::add(at::div(x, s), o));
  Put(scale, s);
  Put(offset, o);
}

}  // namespace

void DynamicQuantize(const Tensor& x, const Tensor& y, const Tensor& scale) {
  QuantizeSymmetric(x, {-1}, QuantizedRange(y, x.numel()).second, y, scale);
}

Tensor ScaleOf(const Tensor& t) {
  if (!IsWord(t)) return F32(t);
  const Tensor words = t.contiguous(), scale = at::empty(t.sizes(), at::kFloat);
  const auto* from = static_cast<const uint64_t*>(words.const_data_ptr());
  float* to = scale.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]);
    std::memcpy(to + i, &bits, sizeof(bits));
  }
  return scale;
}

// Nine bits, signed, from bit 37 on.
OptTensor OffsetOf(const Tensor& t) {
  if (!IsWord(t)) return std::nullopt;
  const Tensor words = t.contiguous(), offset = at::empty(t.sizes(), at::kFloat);
  const auto* from = static_cast<const uint64_t*>(words.const_data_ptr());
  float* to = offset.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i) {
    const int bits = static_cast<int>(from[i] >> 37 & 0x1FF);
    to[i] = static_cast<float>(bits >= 256 ? bits - 512 : bits);
  }
  return offset;
}

NzMatrices NzMatricesOf(const char* name, const aclTensor& w) {
  const int d = w.sizes.n;
  Require(w.format == kFormatFractalNz && (d == 2 || d == 3), "argument `", name, "` has format ", FormatName(w.format), " and shape ",
          ToString(w.sizes), "; it must be ND (2), or FRACTAL_NZ (29) with 2 or 3 dimensions");
  const bool transposed = w.strides[d - 2] == 1 && w.strides[d - 1] == w.sizes[d - 2] && w.sizes[d - 1] > 1;
  const int64_t stack = d == 3 ? w.sizes[0] : 1, size = ItemSize(w.dtype);
  const int64_t rows = transposed ? w.sizes[d - 1] : w.sizes[d - 2], cols = transposed ? w.sizes[d - 2] : w.sizes[d - 1];
  const Dims& s = w.storage_sizes;
  const int64_t width = s.n >= 4 ? s[s.n - 1] : 0;  // of a fractal: 32 bytes, or as torch_npu says
  Require(width > 0 && (width * size == 32 || width == quant::FractalCols(size)) && s[s.n - 2] == quant::kFractalRows &&
              s[s.n - 3] == (rows + 15) / 16 && s[s.n - 4] == (cols + width - 1) / width && w.offset == 0 &&
              (d == 2 || w.strides[0] == rows * cols || stack == 1),
          name, " is a [", rows, ", ", cols, "] weight but its FRACTAL_NZ storage is ", ToString(s), " (offset ", w.offset, ")");
  return {stack, rows, cols, transposed};
}

Tensor DenseWeight(const char* name, const aclTensor& w) {
  if (IsBaseFormat(w.format)) return ToTensor(w);
  const auto [stack, rows, cols, transposed] = NzMatricesOf(name, w);
  const Dims& s = w.storage_sizes;
  const int64_t width = s[s.n - 1];
  const Tensor nz = at::from_blob(w.data(), {stack, s[s.n - 4], s[s.n - 3], s[s.n - 2], width},
                                  at::TensorOptions().dtype(ToScalarType(w.dtype)));
  Tensor dense = nz.permute({0, 2, 3, 1, 4}).reshape({stack, s[s.n - 3] * s[s.n - 2], s[s.n - 4] * width});
  dense = dense.narrow(1, 0, rows).narrow(2, 0, cols);
  if (transposed) dense = dense.transpose(1, 2);
  return w.sizes.n == 3 ? dense : dense.squeeze(0);
}

Tensor UnpackInt4(const Tensor& packed) {
  const bool transposed = packed.dim() >= 2 && packed.stride(-2) == 1 && packed.stride(-1) > 1;
  const Tensor words = (transposed ? packed.transpose(-1, -2) : packed).unsqueeze(-1);
  const Tensor shifts = at::arange(0, 32, 4, at::TensorOptions().dtype(at::kInt));
  // To the top of the word, and back with the sign.
  const Tensor numbers = at::bitwise_right_shift(at::bitwise_left_shift(words, shifts.neg().add(28)), 28).to(at::kChar).flatten(-2);
  return transposed ? numbers.transpose(-1, -2) : numbers;
}

Tensor IntProduct(const Tensor& a, const Tensor& b) {
  if (b.dim() != 2) return at::matmul(a.to(at::kInt), b.to(at::kInt));
  IntList shape = a.sizes().vec();
  shape.back() = b.size(1);
  return at::_int_mm(a.reshape({-1, a.size(-1)}).contiguous(), b.contiguous()).reshape(shape);
}

void RefuseGiven(const char* name, bool given) {
  Require(!given, "argument `", name, "` is given; hostcann has no use for it");
}

namespace {

// A scale or offset: one number, one per index of an axis, or anything that broadcasts.
Tensor Along(const Tensor& t, const Tensor& x, int64_t axis) {
  if (t.numel() == 1) return F32(t).reshape({1});
  if (t.dim() != 1) return F32(t);
  IntList shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(axis < 0 ? axis + x.dim() : axis)] = t.numel();
  return F32(t).reshape(shape);
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
// The kernel's case: a number per column, or one.
static Task PlanStatic(Int8Rows::Kind kind, const Tensor& x, const Tensor& scale, const OptTensor& offset, int64_t axis, const Tensor& y) {
  if (scale.numel() != 1 && axis != -1 && axis != x.dim() - 1) return nullptr;
  return PlanInt8Rows(x, kind, scale, offset, y, std::nullopt);
}
static Task PlanQuantize(const Tensor& x, const Tensor& scale, const OptTensor& offset, bool sqrt_mode, const std::string& round_mode,
                         int64_t axis, const Tensor& y) {
  if (!sqrt_mode && round_mode == "round") {
    if (Task task = PlanStatic(Int8Rows::Kind::kMultiply, x, scale, offset, axis, y)) return task;
  }
  return [=] { Quantize(x, scale, offset, sqrt_mode, round_mode, axis, y); };
}
ACLNN_PLAN(AscendQuant, In(x), In(scale), OptIn(offset), Flag(sqrt_mode), Text(round_mode), I32(dst_type), Out(y)) {
  return PlanQuantize(x, scale, offset, sqrt_mode, round_mode, -1, y);
}
ACLNN_PLAN(AscendQuantV3, In(x), In(scale), OptIn(offset), Flag(sqrt_mode), Text(round_mode), I32(dst_type), I32(axis), Out(y)) {
  return PlanQuantize(x, scale, offset, sqrt_mode, round_mode, axis, y);
}
// round(x / scales + zero_points)
ACLNN_PLAN(Quantize, In(x), In(scales), OptIn(zero_points), I32(dtype), I32(axis), Out(out)) {
  if (Task task = PlanStatic(Int8Rows::Kind::kDivide, x, scales, zero_points, axis, out)) return task;
  return [=] {
    const Tensor value = at::div(F32(x), Along(scales, x, axis));
    PutRounded(out, zero_points ? at::add(value, Along(*zero_points, x, axis)) : value);
  };
}
// (x + offset) * scale
ACLNN_OP(AscendAntiQuant, In(x), In(scale), OptIn(offset), I32(dst_type), Flag(sqrt_mode), Out(y)) {
  Require(x.scalar_type() == at::kChar || x.scalar_type() == at::kInt, "x is ", at::toString(x.scalar_type()),
          "; it must be int8, or int32 that holds int4");
  const Tensor wide = F32(x.scalar_type() == at::kInt ? UnpackInt4(x) : x);
  const Tensor value = offset ? at::add(wide, F32(*offset)) : wide;
  const Tensor scaled = at::mul(value, F32(scale));
  Put(y, sqrt_mode ? at::mul(scaled, F32(scale)) : scaled);
}

ACLNN_PLAN(DynamicQuant, In(x), OptIn(smooth_scales), Out(y), Out(scale)) {
  if (Task task = PlanInt8Rows(x, Int8Rows::Kind::kDynamic, smooth_scales, std::nullopt, y, scale)) return task;
  return [=] { DynamicQuantize(Smooth(Rows(x), smooth_scales, std::nullopt, 0), y, scale); };
}
// `mode`: a scale per row ("pertoken"), per column ("perchannel") or one ("pertensor"). `largest` is that of the quantised numbers, 0 for
// the type's. With `offset`, asymmetric.
static void DynamicQuantizeBy(const std::string& mode, double largest, const Tensor& x, const OptTensor& smooth, const OptTensor& groups,
                              const Tensor& y, const Tensor& scale, const OptTensor& offset) {
  Require(mode == "pertoken" || mode == "perchannel" || mode == "pertensor", "quantMode is \"", mode,
          "\"; it must be \"pertoken\", \"perchannel\" or \"pertensor\"");
  const Tensor wide = Smooth(Rows(x), smooth, groups, 0).reshape(x.sizes());
  IntList over{-1};
  if (mode == "perchannel") over = {-2};
  if (mode == "pertensor") over.clear();  // all
  const auto [low, high] = QuantizedRange(y, x.numel());
  if (offset) return QuantizeAsymmetric(wide, over, largest > 0 ? -largest : low, largest > 0 ? largest : high, y, scale, *offset);
  QuantizeSymmetric(wide, over, largest > 0 ? largest : high, y, scale);
}
static Task PlanDynamicQuantize(const std::string& mode, double largest, const Tensor& x, const OptTensor& smooth, const OptTensor& groups,
                                const Tensor& y, const Tensor& scale, const OptTensor& offset) {
  if (mode == "pertoken" && largest <= 0 && !groups && !offset) {
    if (Task task = PlanInt8Rows(x, Int8Rows::Kind::kDynamic, smooth, std::nullopt, y, scale)) return task;
  }
  return [=] { DynamicQuantizeBy(mode, largest, x, smooth, groups, y, scale, offset); };
}
ACLNN_PLAN(DynamicQuantV2, In(x), OptIn(smooth_scales), OptIn(group_index), I32(dst_type), Out(y), Out(scale), OptOut(offset)) {
  return PlanDynamicQuantize("pertoken", 0, x, smooth_scales, group_index, y, scale, offset);
}
ACLNN_PLAN(DynamicQuantV3, In(x), OptIn(smooth_scales), OptIn(group_index), I32(dst_type), Flag(symmetrical), Text(mode), Out(y),
         Out(scale), OptOut(offset)) {
  return PlanDynamicQuantize(mode, 0, x, smooth_scales, group_index, y, scale, symmetrical ? std::nullopt : offset);
}
ACLNN_PLAN(DynamicQuantV4, In(x), OptIn(smooth_scales), OptIn(group_index), I32(dst_type), Flag(symmetrical), Text(mode),
         F32(dst_type_max), Out(y), Out(scale), OptOut(offset)) {
  return PlanDynamicQuantize(mode, dst_type_max, x, smooth_scales, group_index, y, scale, symmetrical ? std::nullopt : offset);
}

// fp32 scales cut (round_mode 0) or rounded (1) to 19 bits, with offsets, as 64-bit words.
static void TransQuantParam(const Tensor& scale, const OptTensor& offset, int64_t round_mode, const Tensor& out) {
  Require(round_mode == 0 || round_mode == 1, "roundMode is ", round_mode, "; it must be 0 (cut) or 1 (round)");
  const Tensor s = F32(scale).contiguous(), words = at::empty({std::max(s.numel(), offset ? offset->numel() : 1)}, at::kLong);
  const Tensor o = offset ? at::round(F32(*offset)).clamp(-256, 255).contiguous() : Tensor();
  for (int64_t i = 0; i < words.numel(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, s.const_data_ptr<float>() + (s.numel() == 1 ? 0 : i), sizeof(bits));
    if (round_mode == 1) bits += 0xFFF + (bits >> 13 & 1);  // a half to the even
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
ACLNN_OP(TransQuantParamV2, In(scale), OptIn(offset), Out(out)) { TransQuantParam(scale, offset, 0, out); }
ACLNN_OP(TransQuantParamV3, In(scale), OptIn(offset), I64(round_mode), Out(out)) { TransQuantParam(scale, offset, round_mode, out); }

}  // namespace jumar::hostcann::aclnn
