#include "libs/quant/weight_gemm/weight_gemm.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "libs/quant/scratch_buffer.h"
#include "libs/quant/weight_gemm/weight_kernel.h"

namespace jumar::quant {

const char* Name(ScaleType type) {
  switch (type) {
    case ScaleType::kF32: return "float32";
    case ScaleType::kF16: return "float16";
    case ScaleType::kBF16: return "bfloat16";
    case ScaleType::kE8M0: return "e8m0";
    case ScaleType::kI32: break;
  }
  return "int32";
}

namespace {

using internal::kPanelColumns;
using internal::WeightPlan;

absl::Status Invalid(auto... parts) { return absl::InvalidArgumentError(absl::StrCat("weight_gemm: ", parts...)); }

absl::Status CheckMatrix(const char* name, const void* data, int64_t rows, int64_t row_bytes, const char* ld_name, int64_t ld) {
  if (rows == 0 || row_bytes == 0) return absl::OkStatus();
  if (data == nullptr) return Invalid(name, " is null");
  if (ld < row_bytes) return Invalid(ld_name, " = ", ld, " is less than the ", row_bytes, " bytes of a row of ", name);
  int64_t bytes;
  if (__builtin_mul_overflow(rows, ld, &bytes) || bytes > INT64_MAX / 64) {
    return Invalid(name, " of ", rows, " rows by ", ld_name, " = ", ld, " is too large");
  }
  return absl::OkStatus();
}

absl::Status CheckScales(const char* name, const Scales& s) {
  if (s.data == nullptr) return absl::OkStatus();
  if (s.rows < 0) return Invalid(name, ".rows = ", s.rows, " must not be negative");
  if (s.depth < 0 || s.depth % 16 != 0) return Invalid(name, ".depth = ", s.depth, " must be 0 or a multiple of 16");
  if (s.run < 1) return Invalid(name, ".run = ", s.run, " must be at least 1");
  return absl::OkStatus();
}

absl::Status Check(const WeightGemmArgs& args) {
  constexpr int64_t kMost = INT64_MAX / 1024;
  if (args.m < 0 || args.n < 0 || args.k < 0) return Invalid("m, n, k = ", args.m, ", ", args.n, ", ", args.k, " must not be negative");
  if (args.m > kMost || args.n > kMost || args.k > kMost) return Invalid("m, n, k = ", args.m, ", ", args.n, ", ", args.k, " are too large");
  if (args.format == Format::kE8M0) return Invalid("format is e8m0, a format of scales");
  if (args.activations.is_format && args.activations.format == Format::kE8M0) return Invalid("activations are e8m0, a format of scales");
  const bool half = args.epilogue == Epilogue::kSwiGlu;
  if (half && args.n % 2 != 0) return Invalid("n = ", args.n, " must be even for SwiGLU");
  const int64_t bits = Bits(args.format);
  const int64_t a_bytes = args.activations.is_format ? (args.k * Bits(args.activations.format) + 7) / 8 : args.k * SizeOf(args.activations.type);
  if (auto status = CheckMatrix("a", args.a, args.m, a_bytes, "lda", args.lda); !status.ok()) return status;
  const int64_t out_bytes = (half ? args.n / 2 : args.n) * SizeOf(args.out_type);
  if (auto status = CheckMatrix("out", args.out, args.m, out_bytes, "ldo", args.ldo); !status.ok()) return status;
  for (const auto& [name, scales] : {std::pair("a_scale", &args.a_scale), {"w_scale", &args.w_scale}, {"w_offset", &args.w_offset}}) {
    if (auto status = CheckScales(name, *scales); !status.ok()) return status;
  }
  switch (args.layout) {
    case CodeLayout::kNK: return CheckMatrix("w", args.w, args.n, (args.k * bits + 7) / 8, "ldw", args.ldw);
    case CodeLayout::kKN:
      if (half && bits == 4 && args.n % 4 != 0) return Invalid("n = ", args.n, " must be a multiple of 4 for SwiGLU with 4-bit codes packed along n");
      return CheckMatrix("w", args.w, args.k, (args.n * bits + 7) / 8, "ldw", args.ldw);
    case CodeLayout::kFractalNz:
      if (bits != 8) return Invalid("FRACTAL_NZ holds formats of 8 bits; format is ", Name(args.format));
      return CheckMatrix("w", args.w, args.n, args.k, "k", args.k);
  }
  return Invalid("unknown layout ", static_cast<int>(args.layout));
}

constexpr int64_t kSecondLevelBytes = 384 * 1024;  // of packed activations that a range of panels reads again and again
constexpr double kRangeNanoseconds = 10'000;       // work that is worth handing to another thread

WeightPlan Plan(const WeightGemmArgs& args) {
  WeightPlan plan;
  for (const Scales* s : {&args.a_scale, &args.w_scale, &args.w_offset}) {
    if (!internal::Varies(*s, args.k)) continue;
    int64_t unit = plan.unit == 0 ? internal::kMaxUnit : plan.unit;
    while (s->depth % unit != 0) unit /= 2;
    plan.unit = unit;
  }
  internal::FinishWeightPlan(args, plan);
  return plan;
}

// Rows [begin, end) of a checked problem.
absl::Status Run(const WeightGemmArgs& args, const WeightPlan& plan, int64_t begin, int64_t end, tiling::Executor& executor) {
  const int64_t width = args.epilogue == Epilogue::kSwiGlu ? args.n / 2 : args.n, m = end - begin;
  if (m == 0 || width == 0) return absl::OkStatus();
  static thread_local ScratchBuffer scratch;
  int64_t bytes;
  char* packed = __builtin_mul_overflow(m, plan.row_bytes, &bytes) ? nullptr : scratch.Get(bytes);
  if (packed == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("weight_gemm: no memory for ", m, " packed rows of ", plan.row_bytes, " bytes"));
  }
  executor.ParallelFor(m, std::max<int64_t>(1, 32768 / plan.row_bytes), [&](int64_t first, int64_t last) {
    internal::PackActivationRows(args, plan, begin + first, begin + last, packed + first * plan.row_bytes);
  });

  // Tasks: blocks of rows whose activations stay in the second-level cache, times panels of columns.
  const int64_t max_rows = std::clamp<int64_t>(kSecondLevelBytes / plan.row_bytes, 192, 256);
  const int64_t row_blocks = (m + max_rows - 1) / max_rows, panels = (width + kPanelColumns - 1) / kPanelColumns;
  const double rows_per_block = static_cast<double>(m) / static_cast<double>(row_blocks);
  const double columns = kPanelColumns * (args.epilogue == Epilogue::kSwiGlu ? 2.0 : 1.0);
  const double panel_ns = static_cast<double>(args.k) * columns * std::max(0.05, rows_per_block / 20.0) + 50;  // 20 codes, 20 MAC/ns
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kRangeNanoseconds / panel_ns));
  tiling::ParallelForStreams(executor, row_blocks * panels, grain, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t block = task / panels, row = m * block / row_blocks;
      internal::ComputeWeightPanel(args, plan, begin + row, begin + m * (block + 1) / row_blocks, task % panels * kPanelColumns,
                                   packed + row * plan.row_bytes);
    }
  });
  return absl::OkStatus();
}

const void* Behind(const void* p, int64_t bytes) { return p == nullptr ? nullptr : static_cast<const char*>(p) + bytes; }

}  // namespace

absl::Status WeightGemm(const WeightGemmArgs& args, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  return Run(args, Plan(args), 0, args.m, executor);
}

absl::Status GroupedWeightGemm(const WeightGemmArgs& args, const ExpertStack& stack, absl::Span<const RowGroup> groups, tiling::Executor& executor) {
  if (auto status = Check(args); !status.ok()) return status;
  for (const RowGroup& g : groups) {
    if (g.begin < 0 || g.begin > g.end || g.end > args.m) {
      return Invalid("a group has rows [", g.begin, ", ", g.end, "); they must lie in [0, ", args.m, ")");
    }
    if (g.expert < 0) return Invalid("a group is of expert ", g.expert);
  }
  const WeightPlan plan = Plan(args);
  for (const RowGroup& g : groups) {
    WeightGemmArgs one = args;
    one.w = Behind(args.w, g.expert * stack.w);
    one.w_scale.data = Behind(args.w_scale.data, g.expert * stack.w_scale);
    one.w_offset.data = Behind(args.w_offset.data, g.expert * stack.w_offset);
    one.bias = Behind(args.bias, g.expert * stack.bias);
    if (auto status = Run(one, plan, g.begin, g.end, executor); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace jumar::quant
