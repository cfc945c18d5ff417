#include "libs/quant/scale/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/quant/scale/row_kernel.h"

namespace jumar::quant {
namespace {

using internal::RowBlocks;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

absl::Status Bad(const char* what, int64_t value, const char* must) {
  return absl::InvalidArgumentError(absl::StrCat("quantize: ", what, " is ", value, "; it must be ", must));
}
absl::Status Bad(const char* message) { return absl::InvalidArgumentError(absl::StrCat("quantize: ", message)); }

// A matrix with its scales, for either direction.
struct Problem {
  Format format;
  Granularity granularity;
  int64_t rows, cols;
  DType type;
  const void* numbers;
  int64_t numbers_stride;
  const uint8_t* codes;
  int64_t codes_stride;
  const float* scales;
  const uint8_t* e8m0_scales;
  int64_t scales_stride;

  int64_t block_rows() const { return granularity.rows <= 0 ? rows : std::min(granularity.rows, rows); }
  RowBlocks blocks() const { return {cols, granularity.cols <= 0 ? cols : std::min(granularity.cols, cols)}; }
  ScaleShape scale_shape() const { return ScalesOf(granularity, rows, cols); }

  absl::Status Check() const {
    constexpr int64_t kMost = int64_t{1} << 40;  // strides times rows and types' sizes stay within int64
    if (rows < 0 || rows > kMost) return Bad("rows", rows, "in [0, 2^40]");
    if (cols < 0 || cols > kMost) return Bad("cols", cols, "in [0, 2^40]");
    if (granularity.rows < 0) return Bad("granularity.rows", granularity.rows, "0 (all) or positive");
    if (granularity.cols < 0) return Bad("granularity.cols", granularity.cols, "0 (all) or positive");
    if (format == Format::kE8M0) return Bad("E8M0 has no zero and no sign; it is for scales");
    if (rows == 0 || cols == 0) return absl::OkStatus();
    if (Bits(format) == 4 && blocks().block % 2 != 0 && blocks().block != 1 && blocks().block != cols) {
      return Bad("granularity.cols", granularity.cols, "even for a 4-bit format, whose codes share bytes");
    }
    const int64_t most_rows = std::numeric_limits<int64_t>::max() / 8 / rows;
    if (numbers_stride < cols || numbers_stride > most_rows) return Bad("the matrix' row stride", numbers_stride, "at least cols");
    if (codes_stride < RowBytes() || codes_stride > most_rows) return Bad("ldc", codes_stride, "at least the bytes of a row's codes");
    if (scales_stride < scale_shape().cols || scales_stride > most_rows) return Bad("lds", scales_stride, "at least the scales of a row");
    if (numbers == nullptr || codes == nullptr) return Bad("the matrix or the codes are null");
    if ((scales == nullptr) == (e8m0_scales == nullptr)) return Bad("one of scales and e8m0_scales must be given");
    return absl::OkStatus();
  }
  int64_t RowBytes() const { return Bits(format) == 4 ? cols / 2 + cols % 2 : cols; }
  const void* row(int64_t r) const { return static_cast<const char*>(numbers) + r * numbers_stride * SizeOf(type); }
  const uint8_t* code_row(int64_t r) const { return codes + r * codes_stride; }
};

Problem ProblemOf(const QuantizeArgs& a) {
  return {a.format, a.granularity, a.rows, a.cols, a.type, a.in, a.ldi, a.codes, a.ldc, a.scales, a.e8m0_scales, a.lds};
}

// The scales of one row of blocks, as fp32 wherever they come from; what is changed is written back by Put.
class ScaleRow {
 public:
  ScaleRow(const Problem& p, int64_t block_row) : e8m0_(p.e8m0_scales == nullptr ? nullptr : p.e8m0_scales + block_row * p.scales_stride) {
    if (e8m0_ == nullptr) {
      scales_ = p.scales + block_row * p.scales_stride;
    } else {
      wide_.resize(static_cast<size_t>(p.scale_shape().cols));
      for (size_t b = 0; b < wide_.size(); ++b) wide_[b] = kDecoded<Format::kE8M0>.f32[e8m0_[b]];
      scales_ = wide_.data();
    }
  }
  const float* get() const { return scales_; }

 private:
  const uint8_t* e8m0_;
  const float* scales_;
  std::vector<float> wide_;
};

void PutScale(const QuantizeArgs& args, int64_t block_row, int64_t b, float scale) {
  const int64_t at = block_row * args.lds + b;
  if (args.scales != nullptr) {
    args.scales[at] = scale;
  } else {
    args.e8m0_scales[at] = Encode(Format::kE8M0, scale, Overflow::kSaturate);
  }
}

int64_t Grain(int64_t cols) { return std::max<int64_t>(1, 8192 / std::max<int64_t>(1, cols)); }

void CodeRows(const QuantizeArgs& args, const Problem& p, const float* scales, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    internal::QuantizeRow(p.format, p.type, p.row(r), p.blocks(), scales, nullptr, args.codes + r * p.codes_stride);
  }
}

void PutScales(const QuantizeArgs& args, int64_t block_row, const std::vector<uint32_t>& maxima) {
  for (size_t b = 0; b < maxima.size(); ++b) {
    PutScale(args, block_row, static_cast<int64_t>(b), ScaleOf(RuleOf(args.rule), args.format, internal::MagnitudeToFloat(args.type, maxima[b])));
  }
}

}  // namespace

absl::Status QuantizeWithScales(const QuantizeArgs& args, tiling::Executor& executor) {
  const Problem p = ProblemOf(args);
  if (absl::Status status = p.Check(); !status.ok()) return status;
  if (p.rows == 0 || p.cols == 0) return absl::OkStatus();
  const int64_t per = p.block_rows();
  executor.ParallelFor(p.rows, Grain(p.cols), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t block_row = begin / per, next = std::min(end, (block_row + 1) * per);
      CodeRows(args, p, ScaleRow(p, block_row).get(), begin, next);
      begin = next;
    }
  });
  return absl::OkStatus();
}

absl::Status Quantize(const QuantizeArgs& args, tiling::Executor& executor) {
  const Problem p = ProblemOf(args);
  if (absl::Status status = p.Check(); !status.ok()) return status;
  if (args.e8m0_scales != nullptr && !IsPowerOfTwo(RuleOf(args.rule))) {
    return absl::InvalidArgumentError(
        absl::StrCat("quantize: rule ", RuleOf(args.rule).name, " gives scales that aren't powers of two; E8M0 can't hold them"));
  }
  if (p.rows == 0 || p.cols == 0) return absl::OkStatus();
  const int64_t per = p.block_rows();
  const ScaleShape shape = p.scale_shape();
  if (shape.rows > 1 || per == 1) {
    // A row of blocks is read twice, the second time from a cache.
    executor.ParallelFor(shape.rows, std::max<int64_t>(1, Grain(p.cols) / per), [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> maxima(static_cast<size_t>(shape.cols));
      for (int64_t block_row = begin; block_row < end; ++block_row) {
        const int64_t first = block_row * per, last = p.rows - first < per ? p.rows : first + per;
        std::fill(maxima.begin(), maxima.end(), 0u);
        for (int64_t r = first; r < last; ++r) internal::MaxMagnitudes(p.type, p.row(r), p.blocks(), maxima.data());
        PutScales(args, block_row, maxima);
        CodeRows(args, p, ScaleRow(p, block_row).get(), first, last);
      }
    });
    return absl::OkStatus();
  }
  // Blocks as high as the matrix: maxima of each row on all threads, then of all rows. A maximum doesn't depend on the order.
  const int64_t parts = std::min<int64_t>(p.rows, executor.num_workers());
  std::vector<uint32_t> partial(static_cast<size_t>(parts * shape.cols));
  executor.ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t r = part; r < p.rows; r += parts) {
        internal::MaxMagnitudes(p.type, p.row(r), p.blocks(), partial.data() + part * shape.cols);
      }
    }
  });
  std::vector<uint32_t> maxima(partial.begin(), partial.begin() + shape.cols);
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t b = 0; b < shape.cols; ++b) {
      const auto at = static_cast<size_t>(b);
      maxima[at] = std::max(maxima[at], partial[static_cast<size_t>(part * shape.cols + b)]);
    }
  }
  PutScales(args, 0, maxima);
  return QuantizeWithScales(args, executor);
}

absl::Status QuantizeAsymmetric(AsymmetricRule rule, const QuantizeArgs& args, float* offsets, tiling::Executor& executor) {
  const Problem p = ProblemOf(args);
  if (absl::Status status = p.Check(); !status.ok()) return status;
  if (args.format != Format::kI8 && args.format != Format::kI4) {
    return absl::InvalidArgumentError(absl::StrCat("quantize: format ", Name(args.format), " has no offset; use int8 or int4"));
  }
  if (args.granularity.rows != 1 || args.granularity.cols == 1) return Bad("asymmetric scales are per row or group");
  if (p.rows == 0 || p.cols == 0) return absl::OkStatus();
  if (args.scales == nullptr || offsets == nullptr) return Bad("scales and offsets must be given");
  const float high = Max(args.format), low = -high - 1;
  const auto blocks = static_cast<size_t>(p.scale_shape().cols);
  executor.ParallelFor(p.rows, Grain(p.cols), [&](int64_t begin, int64_t end) {
    std::vector<float> least(blocks), most(blocks);
    for (int64_t r = begin; r < end; ++r) {
      internal::Extremes(p.type, p.row(r), p.blocks(), least.data(), most.data());
      float* scale = args.scales + r * args.lds;
      float* offset = offsets + r * args.lds;
      for (size_t b = 0; b < blocks; ++b) {
        if (!std::isfinite(least[b]) || !std::isfinite(most[b])) {
          scale[b] = offset[b] = kNan;
        } else if (rule == AsymmetricRule::kCann) {
          // Halves: the difference may exceed fp32.
          scale[b] = (most[b] / 2 - least[b] / 2) / ((high - low) / 2);
          offset[b] = scale[b] == 0 ? 0 : high - most[b] / scale[b];
        } else {
          least[b] = std::min(least[b], 0.0f), most[b] = std::max(most[b], 0.0f);
          scale[b] = (most[b] / 2 - least[b] / 2) / ((high - low) / 2);
          const float ratio = scale[b] == 0 ? 0 : least[b] / scale[b];
          offset[b] = std::clamp(std::nearbyint(low - ratio), low, high);
          if (scale[b] == 0) scale[b] = 0x1p-23f;
        }
      }
      internal::QuantizeRow(p.format, p.type, p.row(r), p.blocks(), scale, offset, args.codes + r * p.codes_stride);
    }
  });
  return absl::OkStatus();
}

absl::Status Dequantize(const DequantizeArgs& a, tiling::Executor& executor) {
  const Problem p = {a.format, a.granularity, a.rows, a.cols, a.type, a.out, a.ldo, a.codes, a.ldc, a.scales, a.e8m0_scales, a.lds};
  if (absl::Status status = p.Check(); !status.ok()) return status;
  if (p.rows == 0 || p.cols == 0) return absl::OkStatus();
  const int64_t per = p.block_rows();
  executor.ParallelFor(p.rows, Grain(p.cols), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t block_row = begin / per, next = std::min(end, (block_row + 1) * per);
      const ScaleRow scales(p, block_row);
      for (; begin < next; ++begin) {
        internal::DequantizeRow(p.format, p.code_row(begin), p.blocks(), scales.get(),
                                a.offsets == nullptr ? nullptr : a.offsets + block_row * a.lds, p.type,
                                static_cast<char*>(a.out) + begin * a.ldo * SizeOf(a.type));
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::quant
