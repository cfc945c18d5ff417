#include "libs/attention/indexer/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "libs/attention/indexer/hadamard_kernel.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {
namespace {

constexpr int64_t kMaxDim = 65'536;
constexpr int64_t kRowsAtOnce = 16;  // rotated rows that wait to be quantised

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("hadamard: ", parts...));
}

absl::Status Check(const HadamardArgs& args) {
  if (args.rows < 0) return Invalid("rows = ", args.rows, " is negative");
  if (args.dim < 1 || args.dim > kMaxDim || !std::has_single_bit(static_cast<uint64_t>(args.dim))) {
    return Invalid("dim = ", args.dim, " is not a power of two in [1, ", kMaxDim, "]");
  }
  if (args.rows > 0 && args.in == nullptr) return Invalid("in is null");
  if (args.rows > 1 && args.in_stride < args.dim) return Invalid("in_stride = ", args.in_stride, " is less than dim = ", args.dim);
  return absl::OkStatus();
}

float* Scratch(int64_t floats) {
  static thread_local quant::ScratchBuffer buffer;
  return reinterpret_cast<float*>(buffer.Get(floats * static_cast<int64_t>(sizeof(float))));
}

// Rows for a range of an executor that is worth a thread.
int64_t Grain(int64_t dim) { return std::max<int64_t>(1, 16'384 / dim); }

float Factor(int64_t dim) { return static_cast<float>(1 / std::sqrt(static_cast<double>(dim))); }

}  // namespace

absl::Status HadamardRotate(const HadamardArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  if (args.rows > 0 && args.out == nullptr) return Invalid("out is null");
  if (args.rows > 1 && args.out_stride < args.dim) return Invalid("out_stride = ", args.out_stride, " is less than dim = ", args.dim);
  executor.ParallelFor(args.rows, Grain(args.dim), [&](int64_t begin, int64_t end) {
    float* row = Scratch(args.dim);
    for (int64_t r = begin; r < end; ++r) {
      internal::RotateRow(args.type, static_cast<const char*>(args.in) + r * args.in_stride * quant::SizeOf(args.type), args.dim, Factor(args.dim),
                          row, args.out_type, static_cast<char*>(args.out) + r * args.out_stride * quant::SizeOf(args.out_type));
    }
  });
  return absl::OkStatus();
}

absl::Status HadamardQuantize(const HadamardArgs& args, const RotatedCodes& out, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  quant::QuantizeArgs quantize = {.rule = out.rule, .format = out.format, .granularity = quant::PerRow(), .rows = args.rows, .cols = args.dim,
                                  .type = quant::DType::kF32, .in = args.in, .ldi = args.dim, .codes = out.codes, .ldc = out.codes_stride,
                                  .scales = out.scales, .lds = 1};
  quantize.rows = 0;  // the arguments are checked before a row is written
  if (auto status = quant::Quantize(quantize, tiling::InlineExecutor()); !status.ok()) return status;
  if (args.rows > 0 && (out.codes == nullptr || out.scales == nullptr)) return Invalid("codes or scales is null");
  if (args.rows > 1 && out.codes_stride < args.dim * quant::Bits(out.format) / 8) {
    return Invalid("codes_stride = ", out.codes_stride, " is less than a row of dim = ", args.dim);
  }
  executor.ParallelFor(args.rows, Grain(args.dim), [&](int64_t begin, int64_t end) {
    const int64_t size = quant::SizeOf(args.type);
    float* rows = Scratch((kRowsAtOnce + 1) * args.dim);
    for (int64_t r = begin; r < end; r += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, end - r);
      for (int64_t i = 0; i < count; ++i) {
        internal::RotateRow(args.type, static_cast<const char*>(args.in) + (r + i) * args.in_stride * size, args.dim, Factor(args.dim),
                            rows + kRowsAtOnce * args.dim, quant::DType::kF32, rows + i * args.dim);
      }
      quant::QuantizeArgs some = quantize;
      some.rows = count, some.in = rows, some.codes = out.codes + r * out.codes_stride, some.scales = out.scales + r;
      quant::Quantize(some, tiling::InlineExecutor()).IgnoreError();  // checked above
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::attention
