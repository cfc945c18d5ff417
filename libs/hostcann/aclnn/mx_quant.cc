// Quantisation by blocks: MX (a power of two for 32 numbers and more along an axis) and fp32 scales for blocks of rows and columns.
#include <ATen/ops/zeros.h>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/hostcann/aclnn/weight_operands.h"
#include "libs/quant/scale/quantize.h"

namespace jumar::hostcann::aclnn {
namespace {

using quant::Format;
using quant::QuantizeArgs;
using quant::Rule;

Format FloatFormat(const aclTensor& y) {
  const auto format = CodeFormat(y.dtype);
  Require(format && *format != Format::kI4, "the output is ", DTypeName(y.dtype), "; hostcann quantises by blocks to int8, hifloat8, float8 and float4_e2m1");
  return *format;
}

void RequireRint(const char* mode, DType y) {
  Require(mode == nullptr || *mode == '\0' || std::string_view(mode) == "rint" || (y == kHiF8 && std::string_view(mode) == "round"), "round_mode is \"",
          mode == nullptr ? "" : mode, "\"; hostcann has \"rint\" (hifloat8: \"round\", ties away from zero)");
}

// Which power of two a block gets.
Rule MxRule(int64_t scale_alg, double dst_type_max, Format format) {
  const bool nibbles = format == Format::kE2M1;
  Require(scale_alg == 0 || (scale_alg == 1 && !nibbles) || (scale_alg == 2 && nibbles), "scaleAlg is ", scale_alg, "; it must be 0, or 1 for float8, or 2 for float4");
  Require(dst_type_max == 0 || dst_type_max == quant::Max(format), "dstTypeMax is ", dst_type_max, "; hostcann has 0 (the type's)");
  return scale_alg == 0 ? Rule::kOcpMx : Rule::kMxCeil;  // 2: up where the largest of a block would be cut, as 1
}

Task Run(const QuantizeArgs& args) {
  return [args] { Check(quant::Quantize(args, ComputeExecutor())); };
}

// Blocks along the last axis. Scales: [rows, ceil(blocks / 2), 2], the one behind an odd number of blocks zero.
struct MxArgs {
  QuantizeArgs quantize;
  int64_t blocks;
  void operator()() const {
    const QuantizeArgs& q = quantize;
    for (int64_t r = 0; r < q.rows && blocks % 2 != 0; ++r) q.e8m0_scales[r * q.lds + blocks] = 0;
    Check(quant::Quantize(q, ComputeExecutor()));
  }
};

Task PlanMxQuant(const aclTensor& x, int64_t axis, const char* round_mode, int64_t block, int64_t scale_alg, double dst_type_max, double low_bound,
                 const aclTensor& y, const aclTensor& scale) {
  const Format format = FloatFormat(y);
  RequireRint(round_mode, y.dtype);
  const auto type = KernelType(x.dtype);
  Require(type.has_value(), "x is ", DTypeName(x.dtype), "; it must be float32, float16 or bfloat16");
  Require(format == Format::kE4M3 || format == Format::kE5M2 || format == Format::kE2M1, "y is ", DTypeName(y.dtype),
          "; hostcann's MX formats are float8_e4m3fn, float8_e5m2 and float4_e2m1");
  Require(block > 0 && block % 32 == 0 && block <= 1024, "blocksize is ", block, "; it must be a multiple of 32 of at most 1024");
  Require(low_bound == 0, "maxLowBound is ", low_bound, "; hostcann has 0");
  Require(x.sizes.n >= 1 && axis >= -x.sizes.n && axis < x.sizes.n, "axis is ", axis, "; x has ", x.sizes.n, " dimensions");
  Require(scale.dtype == kF8E8M0 && SameShape(x, y), "y has shape ", ToString(y.sizes), " and mxscale type ", DTypeName(scale.dtype), "; they must be ",
          ToString(x.sizes), " and float8_e8m0");
  const int last = x.sizes.n - 1;
  const int64_t k = x.sizes[static_cast<int>(axis < 0 ? axis + x.sizes.n : axis)], blocks = (k + block - 1) / block, pairs = (blocks + 1) / 2;
  Require(scale.numel() * k == x.numel() * pairs * 2, "mxscale has shape ", ToString(scale.sizes), "; ", blocks, " blocks along axis ", axis, " need ", pairs,
          " pairs there");
  const Rule rule = MxRule(scale_alg, dst_type_max, format);
  QuantizeArgs args{.rule = rule, .format = format, .granularity = quant::PerGroup(block), .rows = k == 0 ? 0 : x.numel() / k, .cols = k, .type = *type, .lds = pairs * 2};
  const auto rows = AsRows(x, 1);
  if (axis == -1 || axis == last) {
    Require(rows && IsContiguous(y) && IsContiguous(scale) && IsBaseFormat(x.format), "rows of x, or y or mxscale, are not contiguous");
    args.in = x.data();
    args.ldi = rows->stride;
    args.codes = static_cast<uint8_t*>(CodesOf(y));
    args.ldc = k * quant::Bits(format) / 8;
    args.e8m0_scales = static_cast<uint8_t*>(CodesOf(scale));
    Require(quant::Bits(format) == 8 || k % 2 == 0, "the last dimension is ", k, "; it must be even for ", DTypeName(y.dtype));
    return MxArgs{args, blocks};
  }
  Require(quant::Bits(format) == 8, "axis is ", axis, "; hostcann quantises to ", DTypeName(y.dtype), " along the last axis only");
  aclTensor bytes = y, scale_bytes = scale;
  bytes.dtype = scale_bytes.dtype = DType::kU8;
  return [args, blocks, axis, x = ToTensor(x), y = ToTensor(bytes), scale = ToTensor(scale_bytes)] {
    const Tensor turned = x.movedim(axis, -1).contiguous(), codes = at::zeros(turned.sizes(), at::kByte);
    IntList shape = turned.sizes().vec();
    shape.back() = args.lds / 2;
    shape.push_back(2);
    const Tensor scales = at::zeros(shape, at::kByte);
    QuantizeArgs now = args;
    now.in = turned.const_data_ptr();
    now.ldi = now.ldc = args.cols;
    now.codes = codes.data_ptr<uint8_t>();
    now.e8m0_scales = scales.data_ptr<uint8_t>();
    MxArgs{now, blocks}();
    Put(y, codes.movedim(-1, axis));
    Put(scale, scales.movedim(-2, axis < 0 ? axis + x.dim() : axis));
  };
}

Task PlanBlockQuant(const aclTensor& x, double min_scale, const char* round_mode, int64_t block_rows, int64_t block_cols, double dst_type_max,
                    const aclTensor& y, const aclTensor& scale) {
  const Format format = FloatFormat(y);
  RequireRint(round_mode, y.dtype);
  const auto type = KernelType(x.dtype);
  Require(type.has_value(), "x is ", DTypeName(x.dtype), "; it must be float32, float16 or bfloat16");
  Require(min_scale == 0, "minScale is ", min_scale, "; hostcann has 0");
  Require(dst_type_max == 0 || dst_type_max == quant::Max(format), "dstTypeMax is ", dst_type_max, "; hostcann has 0 (the type's)");
  Require(block_rows > 0 && block_cols > 0, "blocks are ", block_rows, " by ", block_cols, "; both must be positive");
  Require((x.sizes.n == 2 || x.sizes.n == 3) && SameShape(x, y) && IsContiguous(y) && IsContiguous(scale) && scale.dtype == DType::kF32 && IsContiguous(x),
          "x has shape ", ToString(x.sizes), " and y ", ToString(y.sizes), "; both must be contiguous with the same 2 or 3 dimensions, scale contiguous float32");
  const int64_t rows = x.sizes[x.sizes.n - 2], cols = x.sizes[x.sizes.n - 1], batch = x.sizes.n == 3 ? x.sizes[0] : 1;
  const quant::Granularity blocks = quant::PerBlock(block_rows, block_cols);
  const quant::ScaleShape shape = quant::ScalesOf(blocks, rows, cols);
  Require(scale.numel() == batch * shape.rows * shape.cols, "scale has shape ", ToString(scale.sizes), "; it must have ", shape.rows, " by ", shape.cols,
          " numbers for each matrix");
  QuantizeArgs args{.rule = Rule::kCannDynamic, .format = format, .granularity = blocks, .rows = rows, .cols = cols, .type = *type, .in = x.data(), .ldi = cols,
                    .codes = static_cast<uint8_t*>(CodesOf(y)), .ldc = cols, .scales = static_cast<float*>(scale.data()), .lds = shape.cols};
  if (batch == 1) return Run(args);
  const int64_t size = ItemSize(x.dtype);
  return [=] {
    for (int64_t b = 0; b < batch; ++b) {
      QuantizeArgs one = args;
      one.in = static_cast<const char*>(args.in) + b * rows * cols * size;
      one.codes += b * rows * cols;
      one.scales += b * shape.rows * shape.cols;
      Check(quant::Quantize(one, ComputeExecutor()));
    }
  };
}

}  // namespace

ACLNN_PLAN(DynamicMxQuant, Raw(x), I64(axis), OptText(round_mode), I32(dst_type), I64(blocksize), I64(scale_alg), Raw(y), Raw(mxscale)) {
  return PlanMxQuant(x, axis, round_mode, blocksize, scale_alg, 0, 0, y, mxscale);
}
ACLNN_PLAN(DynamicMxQuantV2, Raw(x), I64(axis), OptText(round_mode), I32(dst_type), I64(blocksize), I64(scale_alg), F64(dst_type_max), Raw(y),
           Raw(mxscale)) {
  return PlanMxQuant(x, axis, round_mode, blocksize, scale_alg, dst_type_max, 0, y, mxscale);
}
ACLNN_PLAN(DynamicMxQuantV3, Raw(x), I64(axis), OptText(round_mode), I32(dst_type), I64(blocksize), I64(scale_alg), F64(dst_type_max),
           F64(max_low_bound), Raw(y), Raw(mxscale)) {
  return PlanMxQuant(x, axis, round_mode, blocksize, scale_alg, dst_type_max, max_low_bound, y, mxscale);
}
ACLNN_PLAN(DynamicBlockQuant, Raw(x), F64(min_scale), OptText(round_mode), I32(dst_type), I64(row_block_size), I64(col_block_size), Raw(y), Raw(scale)) {
  return PlanBlockQuant(x, min_scale, round_mode, row_block_size, col_block_size, 0, y, scale);
}
ACLNN_PLAN(DynamicBlockQuantV2, Raw(x), F64(min_scale), OptText(round_mode), I32(dst_type), I64(row_block_size), I64(col_block_size),
           F64(dst_type_max), Raw(y), Raw(scale)) {
  return PlanBlockQuant(x, min_scale, round_mode, row_block_size, col_block_size, dst_type_max, y, scale);
}

}  // namespace jumar::hostcann::aclnn
