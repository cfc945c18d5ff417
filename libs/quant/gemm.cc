#include "libs/quant/gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/quant/gemm_kernel.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::quant {
namespace {

using internal::kPanel;

absl::Status CheckMatrix(const char* name, const void* data, int64_t rows, int64_t cols, const char* ld_name, int64_t ld) {
  if (rows == 0 || cols == 0) return absl::OkStatus();
  if (data == nullptr) return absl::InvalidArgumentError(absl::StrCat("gemm: ", name, " is null"));
  if (ld < cols) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: ", ld_name, " = ", ld, " is less than the ", cols, " elements of a row of ", name));
  }
  int64_t elements;
  if (__builtin_mul_overflow(rows, ld, &elements) || elements > INT64_MAX / 64) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: ", name, " of ", rows, " rows by ", ld_name, " = ", ld, " is too large"));
  }
  return absl::OkStatus();
}

absl::Status Check(const GemmArgs& args) {
  if (args.m < 0 || args.n < 0 || args.k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: m, n, k = ", args.m, ", ", args.n, ", ", args.k, " must not be negative"));
  }
  if (auto status = CheckMatrix("a", args.a, args.m, args.k, "lda", args.lda); !status.ok()) return status;
  if (auto status = CheckMatrix("out", args.out, args.m, args.n, "ldo", args.ldo); !status.ok()) return status;
  switch (args.layout) {
    case WeightLayout::kNK: return CheckMatrix("w", args.w, args.n, args.k, "ldw", args.ldw);
    case WeightLayout::kKN: return CheckMatrix("w", args.w, args.k, args.n, "ldw", args.ldw);
    case WeightLayout::kFractalNz: return CheckMatrix("w", args.w, args.n, args.k, "k", args.k);
  }
  return absl::InvalidArgumentError(absl::StrCat("gemm: unknown weight layout ", static_cast<int>(args.layout)));
}

constexpr int64_t kSecondLevelBytes = 384 * 1024;  // of packed activations that a range of panels reads again and again
constexpr double kRangeNanoseconds = 10'000;       // work that is worth handing to another thread

}  // namespace

absl::Status Gemm(const GemmArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  if (args.m == 0 || args.n == 0) return absl::OkStatus();

  const int64_t row_bytes = internal::PackedRowBytes(args.type, args.k);
  static thread_local ScratchBuffer scratch;
  char* packed = scratch.Get(args.m * row_bytes);
  if (packed == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("gemm: no memory for ", args.m, " packed rows of ", row_bytes, " bytes"));
  }
  executor.ParallelFor(args.m, std::max<int64_t>(1, 65536 / row_bytes), [&](int64_t begin, int64_t end) {
    internal::PackActivations(args, begin, end, packed);
  });

  // Tasks: blocks of rows whose activations stay in the second-level cache, times panels of 16 columns.
  const int64_t max_rows = std::clamp<int64_t>(kSecondLevelBytes / row_bytes, 24, 256);
  const int64_t row_blocks = (args.m + max_rows - 1) / max_rows;
  const int64_t panels = (args.n + kPanel - 1) / kPanel;
  const bool decode = args.m <= (args.layout == WeightLayout::kNK ? 6 : internal::kDecodeRows);
  const auto compute = decode ? internal::DecodePanels : internal::PrefillPanels;
  const double rows_per_block = static_cast<double>(args.m) / row_blocks;
  const double panel_ns = args.k * kPanel * std::max(SizeOf(args.type) / 10.0, rows_per_block / 20.0) + 20;  // 10 GB/s, 20 MAC/ns
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kRangeNanoseconds / panel_ns));
  executor.ParallelFor(row_blocks * panels, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t block = begin / panels, first = begin % panels;
      const int64_t last = std::min(panels, first + (end - begin));
      compute(args, packed, args.m * block / row_blocks, args.m * (block + 1) / row_blocks, first, last);
      begin += last - first;
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::quant
