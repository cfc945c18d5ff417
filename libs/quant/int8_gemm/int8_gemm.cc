#include "libs/quant/int8_gemm/int8_gemm.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/quant/int8_gemm/int8_kernel.h"
#include "libs/quant/int8_gemm/scratch.h"

namespace jumar::quant {
namespace {

template <class... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("int8 gemm: ", parts...));
}

absl::Status CheckMatrix(const char* name, const void* data, int64_t rows, int64_t cols, const char* ld_name, int64_t ld) {
  if (rows == 0 || cols == 0) return absl::OkStatus();
  if (data == nullptr) return Invalid(name, " is null");
  if (ld < cols) return Invalid(ld_name, " = ", ld, " is less than the ", cols, " elements of a row of ", name);
  int64_t elements;
  if (__builtin_mul_overflow(rows, ld, &elements) || elements > INT64_MAX / 64) {
    return Invalid(name, " of ", rows, " rows by ", ld_name, " = ", ld, " is too large");
  }
  return absl::OkStatus();
}

absl::Status CheckShared(const Int8GemmArgs& args) {
  if (args.m < 0 || args.n < 0 || args.k < 0) return Invalid("m, n, k = ", args.m, ", ", args.n, ", ", args.k, " must not be negative");
  if (args.k > kMaxInt8Depth) {
    return Invalid("k = ", args.k, " is more than ", kMaxInt8Depth, ", with which a sum may leave int32; split k, and add the parts in a wider type");
  }
  if (args.layout > Int8Layout::kFractalKN) return Invalid("unknown weight layout ", static_cast<int>(args.layout));
  if (args.out_type > Int8GemmOut::kBF16) return Invalid("unknown output type ", static_cast<int>(args.out_type));
  if (auto status = CheckMatrix("a", args.a, args.m, args.k, "lda", args.lda); !status.ok()) return status;
  return CheckMatrix("out", args.out, args.m, args.n, "ldo", args.ldo);
}

absl::Status CheckGroup(const Int8GemmArgs& args, const Int8Group& group) {
  absl::Status status;
  switch (args.layout) {
    case Int8Layout::kNK: status = CheckMatrix("w", group.w, args.n, args.k, "ldw", args.ldw); break;
    case Int8Layout::kKN: status = CheckMatrix("w", group.w, args.k, args.n, "ldw", args.ldw); break;
    case Int8Layout::kFractalNK:
    case Int8Layout::kFractalKN: status = CheckMatrix("w", group.w, args.n, args.k, "k", args.k); break;
  }
  if (!status.ok()) return status;
  const bool floats = args.out_type != Int8GemmOut::kI32;
  if (floats && args.n > 0 && group.scale.data == nullptr) return Invalid("scale is absent; only int32 out goes without");
  const bool token = args.token_scale.data != nullptr, bias = group.bias.data != nullptr;
  if (!floats && (group.scale.data != nullptr || token || bias)) {
    return Invalid(group.scale.data ? "scale" : token ? "token_scale" : "bias", " is given, but int32 out is the sum (with int_bias) as it is");
  }
  if (args.out_type != Int8GemmOut::kI8 && group.offset.data != nullptr) return Invalid("offset is given; it goes with int8 out only");
  return absl::OkStatus();
}

// Rows are computed in blocks whose packed activations stay in the second-level cache.
constexpr int64_t kSecondLevelBytes = 384 * 1024;
constexpr double kRangeNanoseconds = 10'000;  // work that is worth handing to another thread
constexpr int64_t kFewRows = 16;              // up to here reading the weights is the work

struct Task {  // a block of rows of a group, all stripes
  const Int8Group* group;
  int64_t row_begin, row_end;
};

absl::Status Run(const Int8GemmArgs& args, std::span<const Int8Group> groups, tiling::Executor& executor) {
  const int64_t row_bytes = internal::PackedInt8RowBytes(args.k);
  const int64_t max_rows = std::clamp<int64_t>(kSecondLevelBytes / row_bytes, 24, 512);
  static thread_local std::vector<Task> tasks;
  tasks.clear();
  int64_t rows = 0;
  for (const Int8Group& group : groups) {
    const int64_t count = group.end - group.begin, blocks = (count + max_rows - 1) / max_rows;
    rows += count;
    for (int64_t b = 0; b < blocks; ++b) {
      tasks.push_back({&group, group.begin + count * b / blocks, group.begin + count * (b + 1) / blocks});
    }
  }
  if (rows == 0 || args.n == 0) return absl::OkStatus();

  char* packed = internal::Scratch<internal::ScratchUse::kActivations>(args.m * row_bytes);
  if (packed == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("int8 gemm: no memory for ", args.m, " packed rows of ", row_bytes, " bytes"));
  }
  executor.ParallelFor(args.m, std::max<int64_t>(1, 65536 / row_bytes),
                       [&](int64_t begin, int64_t end) { internal::PackInt8Rows(args, begin, end, packed); });

  const int64_t stripes = (args.n + internal::kInt8Stripe - 1) / internal::kInt8Stripe, count = static_cast<int64_t>(tasks.size());
  const double rows_per_task = static_cast<double>(rows) / count;
  const double stripe_ns = args.k * internal::kInt8Stripe * std::max(1 / 10.0, rows_per_task / 100.0) + 20;  // 10 GB/s, 100 MAC/ns
  const int64_t grain = std::max<int64_t>(1, static_cast<int64_t>(kRangeNanoseconds / stripe_ns));
  const auto compute = [&, list = tasks.data()](int64_t begin, int64_t end) {
    while (begin < end) {
      const Task& task = list[begin / stripes];
      const int64_t first = begin % stripes, last = std::min(stripes, first + (end - begin));
      internal::ComputeInt8Stripes(args, *task.group, packed, task.row_begin, task.row_end, first, last);
      begin += last - first;
    }
  };
  if (rows <= kFewRows) {
    tiling::ParallelForStreams(executor, count * stripes, grain, compute);
  } else {
    executor.ParallelFor(count * stripes, grain, compute);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Int8Gemm(const Int8GemmArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShared(args); !status.ok()) return status;
  const Int8Group group = {.begin = 0, .end = args.m, .w = args.w, .scale = args.scale, .int_bias = args.int_bias, .bias = args.bias,
                           .offset = args.offset};
  if (auto status = CheckGroup(args, group); !status.ok()) return status;
  return Run(args, {&group, 1}, executor);
}

absl::Status GroupedInt8Gemm(const Int8GemmArgs& args, std::span<const Int8Group> groups, tiling::Executor& executor) {
  if (auto status = CheckShared(args); !status.ok()) return status;
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const Int8Group& group : groups) {
    if (group.begin < 0 || group.end < group.begin || group.end > args.m) {
      return Invalid("a group has the rows [", group.begin, ", ", group.end, "); they must lie in [0, ", args.m, ")");
    }
    if (group.begin == group.end) continue;
    if (auto status = CheckGroup(args, group); !status.ok()) return status;
    spans.emplace_back(group.begin, group.end);
  }
  if (!std::is_sorted(spans.begin(), spans.end())) std::sort(spans.begin(), spans.end());
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].first < spans[i - 1].second) {
      return Invalid("two groups have row ", spans[i].first, ": one is [", spans[i - 1].first, ", ", spans[i - 1].second, ")");
    }
  }
  return Run(args, groups, executor);
}

}  // namespace jumar::quant
