// SwiGLU of rows, times a weight of each, and then quantised by blocks or by groups of rows.
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "libs/hostcann/aclnn/grouped_matmul.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/weight_operands.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scale/quantize.h"

namespace jumar::hostcann::aclnn {
namespace {

using quant::Format;
using quant::QuantizeArgs;
using quant::Rule;

enum Mode : int64_t { kBlocks, kMx, kStaticHiF8, kDynamicHiF8 };
// Of a group's absmax. Its document names it for the modes of blocks and leaves it open for kDynamicHiF8.
constexpr float kLeastMagnitude = 1e-4f;

struct GroupQuant {
  Tensor x;  // [rows, 2 cols]
  OptTensor weight, groups, inverse_scale;
  Mode mode;
  bool round_scale;
  double clamp, largest;
  Format format;
  uint8_t* codes;
  void* scales;      // of the kind that `mode` has
  OptTensor origin;  // the gate's product, before the weight

  int64_t cols() const { return x.size(1) / 2; }
  int64_t blocks() const { return (cols() + (mode == kMx ? 31 : 127)) / (mode == kMx ? 32 : 128); }

  // Counts of rows; what there is beyond x's rows is cut off.
  std::vector<Group> Groups() const {
    if (!groups) return {{0, 0, x.size(0)}};
    const Tensor counts = groups->to(at::kLong).contiguous();
    std::vector<Group> spans;
    int64_t begin = 0;
    for (int64_t g = 0; g < counts.numel(); ++g) {
      const int64_t count = counts.const_data_ptr<int64_t>()[g];
      Require(count >= 0, "groupIndex[", g, "] is ", count, "; it must not be negative");
      spans.push_back({g, begin, begin + std::min(count, x.size(0) - begin)});
      begin = spans.back().end;
    }
    return spans;
  }

  Tensor Gated(int64_t rows) const {
    const Tensor wide = F32(x.narrow(0, 0, rows));
    Tensor gate = wide.narrow(1, 0, cols()), up = wide.narrow(1, cols(), cols());
    if (clamp > 0) gate = gate.clamp_max(clamp), up = up.clamp(-clamp, clamp);
    return at::mul(at::silu(gate), up);
  }

  // Codes of `rows` rows of value from row `first` of y on, which are divided by `scale`.
  void Code(const Tensor& value, int64_t first, float scale) const {
    Check(quant::QuantizeWithScales({.format = format, .granularity = quant::PerTensor(), .rows = value.size(0), .cols = cols(), .in = value.const_data_ptr(),
                                     .ldi = cols(), .codes = codes + first * cols(), .ldc = cols(), .scales = &scale, .lds = 1},
                                    ComputeExecutor()));
  }

  // What isn't finite has no part in a block's scale, and becomes the code of itself.
  void CodeBlocks(const Tensor& value) const {
    const Tensor finite = value.isfinite(), masked = at::where(finite, value, at::zeros_like(value));
    QuantizeArgs args{.rule = mode == kMx || round_scale ? Rule::kDeepSeekUe8m0 : Rule::kDeepSeek, .format = format,
                      .granularity = quant::PerGroup(mode == kMx ? 32 : 128), .rows = value.size(0), .cols = cols(), .in = masked.const_data_ptr(),
                      .ldi = cols(), .codes = codes, .ldc = cols(), .lds = blocks()};
    if (mode == kMx) {
      args.e8m0_scales = static_cast<uint8_t*>(scales);
    } else {
      args.scales = static_cast<float*>(scales);
    }
    Check(quant::Quantize(args, ComputeExecutor()));
    const Tensor special = finite.logical_not().flatten().nonzero().flatten();
    const float* numbers = value.const_data_ptr<float>();
    for (int64_t i = 0; i < special.numel(); ++i) {
      const int64_t at = special.const_data_ptr<int64_t>()[i];
      codes[at] = quant::Encode(format, numbers[at], quant::Overflow::kToNanOrInf);
    }
  }

  void operator()() const {
    const std::vector<Group> spans = Groups();
    int64_t rows = 0;
    for (const Group& g : spans) rows = std::max(rows, g.end);
    Tensor value = Gated(rows);
    if (origin) Put(origin->view({x.size(0), cols()}).narrow(0, 0, rows), value);
    if (weight) value = at::mul(value, weight->flatten().narrow(0, 0, rows).unsqueeze(1));
    value = value.contiguous();
    if (mode == kBlocks || mode == kMx) return CodeBlocks(value);
    for (const Group& g : spans) {
      const Tensor part = value.narrow(0, g.begin, g.end - g.begin);
      if (mode == kStaticHiF8) {
        Code(at::mul(part, inverse_scale->flatten()[g.expert]).contiguous(), g.begin, 1);
        continue;
      }
      const float top = part.numel() == 0 ? 0.0f : part.abs().max().item<float>();
      const float scale = std::max(top, kLeastMagnitude) / static_cast<float>(largest);
      static_cast<float*>(scales)[g.expert] = scale;
      Code(part, g.begin, scale);
    }
  }
};

}  // namespace

ACLNN_PLAN(SwigluGroupQuant, In(x), OptIn(weight), OptIn(group_index), OptIn(scale), I32(dst_type), I64(quant_mode), I64(block_size), Flag(round_scale),
           F64(clamp_limit), F64(dst_type_max), Flag(output_origin), Raw(y), Raw(y_scale), Out(y_origin)) {
  Require(quant_mode >= kBlocks && quant_mode <= kDynamicHiF8, "quantMode is ", quant_mode,
          "; it must be 0 (blocks), 1 (MX), 2 (hifloat8 with given scales) or 3 (hifloat8)");
  const auto mode = static_cast<Mode>(quant_mode);
  const int64_t block = mode == kBlocks ? 128 : 32;
  Require(mode > kMx || block_size == 0 || block_size == block, "blockSize is ", block_size, "; it must be 0 or ", block);
  Require(x.dim() >= 2 && x.size(-1) % 256 == 0 && x.is_contiguous(), "x has ", x.dim(), " dimensions, the last of ", x.size(-1),
          "; it must be contiguous, with two dimensions or more and a multiple of 256 columns");
  const int64_t cols = x.size(-1) / 2, rows = x.numel() / (2 * cols), groups = group_index ? group_index->numel() : 1;
  const auto format = CodeFormat(y.dtype);
  Require(mode > kMx ? format == Format::kHiF8 : format == Format::kE4M3 || format == Format::kE5M2, "y is ", DTypeName(y.dtype), "; with quantMode ",
          quant_mode, " hostcann has ", mode > kMx ? "hifloat8" : "float8_e4m3fn and float8_e5m2");
  Require(y.numel() == rows * cols && IsContiguous(y), "y has shape ", ToString(y.sizes), "; it must be x's with half the columns, contiguous");
  Require(mode != kMx || round_scale, "roundScale is false; MX scales are powers of two");
  Require(clamp_limit == -1 || clamp_limit > 0, "clampLimit is ", clamp_limit, "; it must be -1 (none) or positive");
  Require(mode > kMx || !output_origin, "outputOrigin is true; with quantMode ", quant_mode, " it must be false");
  Require(!weight || (weight->numel() == rows && weight->scalar_type() == at::kFloat), "weight has ",
          weight ? weight->numel() : 0, " numbers; it must have ", rows, " of float32");
  Require(mode != kStaticHiF8 || (scale && scale->numel() == groups && scale->scalar_type() == at::kFloat), "quantMode 2 needs ", groups,
          " scales of float32, one for each group");
  const int64_t scales = mode == kStaticHiF8 ? 0 : mode == kDynamicHiF8 ? groups : rows * (cols / block);
  Require(mode == kStaticHiF8 || (y_scale.numel() == scales && y_scale.dtype == (mode == kMx ? kF8E8M0 : DType::kF32) && IsContiguous(y_scale)),
          "yScale has shape ", ToString(y_scale.sizes), " of ", DTypeName(y_scale.dtype), "; it must have ", scales, " of ",
          mode == kMx ? "float8_e8m0" : "float32");
  Require(mode != kDynamicHiF8 || dst_type_max > 0, "dstTypeMax is ", dst_type_max, "; it must be positive");
  return GroupQuant{.x = x.view({rows, 2 * cols}), .weight = weight, .groups = group_index, .inverse_scale = scale, .mode = mode, .round_scale = round_scale,
                    .clamp = clamp_limit, .largest = dst_type_max, .format = *format, .codes = static_cast<uint8_t*>(CodesOf(y)), .scales = CodesOf(y_scale),
                    .origin = output_origin ? OptTensor(y_origin) : std::nullopt};
}

}  // namespace jumar::hostcann::aclnn
