#include "libs/quant/int8_gemm/row_quant.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/quant/int8_gemm/row_kernel.h"
#include "libs/quant/int8_gemm/scratch.h"

namespace jumar::quant {
namespace {

constexpr int64_t kMaxCols = int64_t{1} << 24;  // a thread keeps a few rows in fp32

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("int8 rows: ", parts...));
}

absl::Status CheckMatrix(const char* name, const void* data, int64_t rows, int64_t cols, int64_t ld) {
  if (rows == 0 || cols == 0) return absl::OkStatus();
  if (data == nullptr) return Invalid(name, " is null");
  if (ld < cols) return Invalid("the leading dimension ", ld, " of ", name, " is less than its ", cols, " columns");
  int64_t elements;
  if (__builtin_mul_overflow(rows, ld, &elements) || elements > INT64_MAX / 64) return Invalid(name, " of ", rows, " rows by ", ld, " is too large");
  return absl::OkStatus();
}

absl::Status CheckIn(int64_t rows, int64_t cols, const RowsIn& in) {
  if (in.type == RowsIn::Type::kI32 && in.scale.data == nullptr) return Invalid("scale is absent; int32 rows need it");
  return CheckMatrix("in", in.data, rows, cols, in.ld);
}

absl::Status CheckTo(int64_t rows, int64_t cols, const Int8Rows& to) {
  if (to.kind == Int8Rows::Kind::kDynamic && rows > 0 && to.scale == nullptr) return Invalid("scale to write is null; kDynamic needs it");
  return CheckMatrix("out", to.out, rows, cols, to.ldo);
}

absl::Status CheckSizes(int64_t rows, int64_t cols) {
  if (rows < 0 || cols < 0) return Invalid("rows, cols = ", rows, ", ", cols, " must not be negative");
  if (cols > kMaxCols) return Invalid("cols = ", cols, " is more than ", kMaxCols);
  return absl::OkStatus();
}

int64_t Grain(int64_t cols) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, cols)); }

}  // namespace

absl::Status QuantizeRows(int64_t rows, int64_t cols, const RowsIn& in, const Int8Rows& to, tiling::Executor& executor) {
  for (const absl::Status& status : {CheckSizes(rows, cols), CheckIn(rows, cols, in), CheckTo(rows, cols, to)}) {
    if (!status.ok()) return status;
  }
  executor.ParallelFor(rows, Grain(cols), [&](int64_t begin, int64_t end) { internal::QuantizeRowRange(cols, in, to, begin, end); });
  return absl::OkStatus();
}

absl::Status NormQuantizeRows(const NormQuantArgs& args, tiling::Executor& executor) {
  if (auto status = CheckSizes(args.rows, args.cols); !status.ok()) return status;
  if (args.to.empty() || args.to.size() > 2) return Invalid(args.to.size(), " outputs; there must be one or two");
  if (args.gamma.data == nullptr) return Invalid("gamma is absent");
  for (const absl::Status& status : {CheckMatrix("x", args.x, args.rows, args.cols, args.ldx),
                                     args.residual ? CheckMatrix("residual", args.residual, args.rows, args.cols, args.ldr) : absl::OkStatus(),
                                     args.sum ? CheckMatrix("sum", args.sum, args.rows, args.cols, args.lds) : absl::OkStatus()}) {
    if (!status.ok()) return status;
  }
  for (const Int8Rows& to : args.to) {
    if (auto status = CheckTo(args.rows, args.cols, to); !status.ok()) return status;
  }
  executor.ParallelFor(args.rows, Grain(args.cols), [&](int64_t begin, int64_t end) { internal::NormQuantizeRange(args, begin, end); });
  return absl::OkStatus();
}

absl::Status SwigluQuantizeRows(const SwigluQuantArgs& args, tiling::Executor& executor) {
  if (auto status = CheckSizes(args.rows, args.cols); !status.ok()) return status;
  RowsIn in = args.in;
  if (!args.groups.empty() && in.scale.data == nullptr) in.scale = args.groups[0].scale;
  for (const absl::Status& status : {CheckIn(args.rows, 2 * args.cols, in), CheckTo(args.rows, args.cols, args.to)}) {
    if (!status.ok()) return status;
  }
  if (args.groups.empty()) {
    executor.ParallelFor(args.rows, Grain(args.cols), [&](int64_t begin, int64_t end) {
      internal::SwigluQuantizeRange(args, args.in.scale, args.to.factor, begin, end);
    });
    return absl::OkStatus();
  }
  int64_t last = 0;
  for (const auto& group : args.groups) {
    if (group.begin < last || group.end < group.begin || group.end > args.rows) {
      return Invalid("a group has the rows [", group.begin, ", ", group.end, "); groups must follow each other in [", last, ", ", args.rows, ")");
    }
    last = group.end;
  }
  executor.ParallelFor(args.rows, Grain(args.cols), [&](int64_t begin, int64_t end) {
    for (const auto& group : args.groups) {
      const int64_t first = std::max(begin, group.begin), behind = std::min(end, group.end);
      if (first >= behind) continue;
      internal::SwigluQuantizeRange(args, group.scale.data ? group.scale : args.in.scale, group.factor.data ? group.factor : args.to.factor, first,
                                    behind);
    }
  });
  return absl::OkStatus();
}

absl::Status GroupedInt8GemmSwigluQuant(const Int8GemmArgs& args, std::span<const Int8Group> groups, const Int8SwigluOut& to,
                                        tiling::Executor& executor) {
  if (args.n % 2 != 0) return Invalid("n = ", args.n, " is odd; it is a gate and as many columns beside it");
  if (!to.factor.empty() && to.factor.size() != groups.size()) return Invalid(to.factor.size(), " factors for ", groups.size(), " groups");
  if (auto status = CheckTo(args.m, args.n / 2, {.out = to.out, .ldo = to.ldo, .scale = to.scale}); !status.ok()) return status;
  int64_t bytes;
  if (args.m < 0 || args.n < 0 || __builtin_mul_overflow(args.m, args.n, &bytes) || __builtin_mul_overflow(bytes, 4, &bytes)) {
    return Invalid("m, n = ", args.m, ", ", args.n, " are negative or too large");
  }
  char* const product = internal::Scratch<internal::ScratchUse::kProduct>(bytes);
  if (product == nullptr && bytes > 0) return absl::ResourceExhaustedError(absl::StrCat("int8 rows: no memory for a product of ", bytes, " bytes"));
  Int8GemmArgs gemm = args;
  gemm.out_type = Int8GemmOut::kF32;
  gemm.out = product;
  gemm.ldo = args.n;
  if (auto status = GroupedInt8Gemm(gemm, groups, executor); !status.ok()) return status;
  std::vector<SwigluQuantArgs::Group> rows;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].begin < groups[i].end) rows.push_back({groups[i].begin, groups[i].end, {}, to.factor.empty() ? Numbers() : to.factor[i]});
  }
  if (rows.empty()) return absl::OkStatus();
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return SwigluQuantizeRows({.rows = args.m, .cols = args.n / 2, .in = {.data = product, .ld = args.n},
                             .to = {.out = to.out, .ldo = to.ldo, .scale = to.scale}, .groups = rows},
                            executor);
}

}  // namespace jumar::quant
