#ifndef LIBS_QUANT_SCALE_QUANTIZE_H_
#define LIBS_QUANT_SCALE_QUANTIZE_H_

// Matrices to codes and scales, and back.
//
//   QuantizeArgs args = {.rule = Rule::kVllmGroup, .format = Format::kE4M3, .granularity = PerGroup(128), .rows = tokens, .cols = 7168,
//                        .type = DType::kBF16, .in = x, .ldi = 7168, .codes = q, .ldc = 7168, .scales = s, .lds = 56};
//   absl::Status status = Quantize(args, executor);
//
// Element (r, c) has the scale of its block, scales[(r / block rows) * lds + c / block cols]:
//   code = Encode(format, x / scale, saturated); x / 0 counts as 0.      back = Decode(format, code) * scale, rounded to the type.
// Asymmetric (integers; rows and groups):
//   code = Encode(format, x / scale + offset)                            back = (Decode(format, code) - offset) * scale
//
// NaN and infinity stay in their block: its scale is NaN (E8M0: 0xFF), its codes NaN, or 0 in formats without. No other block's result
// depends on it. So a batch's padding rows may hold anything; columns from `cols` on are not read, bytes behind a row's codes not written.
// Results are bit-equal for every number of threads and instruction set.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scale/scale_rule.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

// The block of elements that share a scale; 0: all rows, all columns. The last block of a row or column may be smaller.
struct Granularity {
  int64_t rows = 0, cols = 0;
  friend constexpr bool operator==(const Granularity&, const Granularity&) = default;
};
constexpr Granularity PerTensor() { return {0, 0}; }
constexpr Granularity PerRow() { return {1, 0}; }     // a token of activations, an output channel of a weight [out, in]
constexpr Granularity PerColumn() { return {0, 1}; }  // an output channel of a weight [in, out]
constexpr Granularity PerGroup(int64_t size) { return {1, size}; }  // 128 with fp32 scales; 32: MX
constexpr Granularity PerBlock(int64_t rows, int64_t cols) { return {rows, cols}; }  // 128 x 128: DeepSeek's weights

// Shape of the scales of a [rows, cols] matrix.
struct ScaleShape {
  int64_t rows = 0, cols = 0;
};
constexpr ScaleShape ScalesOf(Granularity g, int64_t rows, int64_t cols) {
  const auto count = [](int64_t all, int64_t part) { return all <= 0 ? 0 : part <= 0 ? 1 : all / part + (all % part != 0); };
  return {count(rows, g.rows), count(cols, g.cols)};
}

struct QuantizeArgs {
  Rule rule = Rule::kCannDynamic;
  Format format = Format::kE4M3;  // not E8M0
  Granularity granularity;
  int64_t rows = 0, cols = 0;
  DType type = DType::kF32;
  const void* in = nullptr;  // [rows, cols], rows `ldi` elements apart
  int64_t ldi = 0;
  uint8_t* codes = nullptr;  // [rows, cols], rows `ldc` bytes apart; 4-bit codes two per byte, the first in the low half
  int64_t ldc = 0;
  // One of the two: [ScalesOf(...)], rows `lds` elements apart. E8M0 takes rules whose scales are powers of two.
  float* scales = nullptr;
  uint8_t* e8m0_scales = nullptr;
  int64_t lds = 0;
};

// InvalidArgument names the argument: a negative size, a stride less than the row, a null array, E8M0 as a format or with a rule whose
// scales aren't powers of two, blocks of an odd number of 4-bit columns.
absl::Status Quantize(const QuantizeArgs& args, tiling::Executor& executor);

// With scales that are there already (static quantisation): `scales` or `e8m0_scales` are read, `rule` has no meaning.
absl::Status QuantizeWithScales(const QuantizeArgs& args, tiling::Executor& executor);

// From min and max of each row or group. The result's codes are signed, as all of int8 and int4.
enum class AsymmetricRule : uint8_t {
  kCann,               // scale = (max - min) / (high - low), offset = high - max / scale, not rounded; a constant group: see below
  kCompressedTensors,  // min <= 0 <= max enforced; offset = round(low - min / scale), within [low, high]
};
// args.rule has no meaning, args.scales is required; offsets: as scales. A group whose range is 0 has scale 2^-23 with kCompressedTensors; with
// kCann scale 0 and offset 0, and codes 0.
absl::Status QuantizeAsymmetric(AsymmetricRule rule, const QuantizeArgs& args, float* offsets, tiling::Executor& executor);

struct DequantizeArgs {
  Format format = Format::kE4M3;
  Granularity granularity;
  int64_t rows = 0, cols = 0;
  const uint8_t* codes = nullptr;
  int64_t ldc = 0;
  const float* scales = nullptr;  // one of the two
  const uint8_t* e8m0_scales = nullptr;
  const float* offsets = nullptr;  // as scales, or null
  int64_t lds = 0;
  DType type = DType::kF32;
  void* out = nullptr;  // [rows, cols], rows `ldo` elements apart
  int64_t ldo = 0;
};
absl::Status Dequantize(const DequantizeArgs& args, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_SCALE_QUANTIZE_H_
