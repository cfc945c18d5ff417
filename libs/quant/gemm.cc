#include "libs/quant/gemm.h"

#include <algorithm>

#include "absl/container/inlined_vector.h"
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

absl::Status CheckWeight(const GemmArgs& args) {
  switch (args.layout) {
    case WeightLayout::kNK: return CheckMatrix("w", args.w, args.n, args.k, "ldw", args.ldw);
    case WeightLayout::kKN: return CheckMatrix("w", args.w, args.k, args.n, "ldw", args.ldw);
    case WeightLayout::kFractalNz: return CheckMatrix("w", args.w, args.n, args.k, "k", args.k);
    case WeightLayout::kFractalNzKN: return CheckMatrix("w", args.w, args.k, args.n, "n", args.n);
  }
  return absl::InvalidArgumentError(absl::StrCat("gemm: unknown weight layout ", static_cast<int>(args.layout)));
}

absl::Status CheckShared(const GemmArgs& args) {
  if (args.m < 0 || args.n < 0 || args.k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("gemm: m, n, k = ", args.m, ", ", args.n, ", ", args.k, " must not be negative"));
  }
  if (auto status = CheckMatrix("a", args.a, args.m, args.k, "lda", args.lda); !status.ok()) return status;
  return CheckMatrix("out", args.out, args.m, args.n, "ldo", args.ldo);
}

constexpr int64_t kMaxRows = 1024, kMinRows = 128;  // of a task: its weights are packed once
constexpr double kRangeNanoseconds = 10'000;         // work that is worth handing to another thread

// Rows that share a weight, and how they are cut: blocks of rows times panels of 16 columns.
struct Product {
  GemmArgs args;
  int64_t first_row, blocks, first_task;
};
using Products = absl::InlinedVector<Product, 1>;

// `products` is not empty.
absl::Status Run(Products& products, tiling::Executor& executor) {
  const GemmArgs& shared = products.front().args;
  const int64_t first_row = products.front().first_row, rows = products.back().first_row + products.back().args.m - first_row;
  const int64_t row_bytes = internal::PackedRowBytes(shared.type, shared.k);
  static thread_local ScratchBuffer scratch;
  char* packed = scratch.Get(rows * row_bytes);
  if (packed == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("gemm: no memory for ", rows, " packed rows of ", row_bytes, " bytes"));
  }
  for (const Product& product : products) {
    char* rows_of_product = packed + (product.first_row - first_row) * row_bytes;
    executor.ParallelFor(product.args.m, std::max<int64_t>(1, 65536 / row_bytes), [&](int64_t begin, int64_t end) {
      internal::PackActivations(product.args, begin, end, rows_of_product);
    });
  }

  const int64_t panels = (shared.n + kPanel - 1) / kPanel, wanted_blocks = 16 * executor.num_workers() / panels + 1;
  int64_t tasks = 0;
  double ns = 0;
  for (Product& product : products) {
    const int64_t m = product.args.m;
    product.blocks = std::max((m + kMaxRows - 1) / kMaxRows, std::min(wanted_blocks, m / kMinRows));
    product.first_task = tasks;
    tasks += product.blocks * panels;
    const double weight_ns = SizeOf(shared.type) / 10.0, product_ns = static_cast<double>(m) / product.blocks / 20.0;  // 10 GB/s, 20 MAC/ns
    ns += product.blocks * panels * (shared.k * kPanel * std::max(weight_ns, product_ns) + 20);
  }
  const auto grain = static_cast<int64_t>(std::clamp(kRangeNanoseconds * tasks / ns, 1.0, static_cast<double>(tasks)));
  executor.ParallelFor(tasks, grain, [&](int64_t begin, int64_t end) {
    const auto starts_later = [](int64_t task, const Product& product) { return task < product.first_task; };
    for (auto product = std::upper_bound(products.begin(), products.end(), begin, starts_later) - 1; begin < end; ++product) {
      const GemmArgs& args = product->args;
      const char* activations = packed + (product->first_row - first_row) * row_bytes;
      const auto compute = args.m <= internal::kDecodeRows ? internal::DecodePanels : internal::PrefillPanels;
      const int64_t end_of_product = std::min(end, product->first_task + product->blocks * panels);
      while (begin < end_of_product) {
        const int64_t block = (begin - product->first_task) / panels, first = (begin - product->first_task) % panels;
        const int64_t last = std::min(panels, first + (end_of_product - begin));
        compute(args, activations, args.m * block / product->blocks, args.m * (block + 1) / product->blocks, first, last);
        begin += last - first;
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status GroupedGemm(const GemmArgs& shared, absl::Span<const GemmGroup> groups, tiling::Executor& executor) {
  if (auto status = CheckShared(shared); !status.ok()) return status;
  const int64_t size = SizeOf(shared.type);
  Products products;
  int64_t free_row = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto& [first_row, num_rows, w, bias] = groups[g];
    if (num_rows < 0 || first_row < free_row || first_row > shared.m - num_rows) {
      return absl::InvalidArgumentError(absl::StrCat("gemm: group ", g, " has ", num_rows, " rows from ", first_row, "; they must lie in [", free_row,
                                                     ", ", shared.m, "], behind those of the groups before"));
    }
    free_row = first_row + num_rows;
    if (num_rows == 0 || shared.n == 0) continue;
    GemmArgs args = shared;
    args.m = num_rows;
    args.a = static_cast<const char*>(shared.a) + first_row * shared.lda * size;
    args.out = static_cast<char*>(shared.out) + first_row * shared.ldo * size;
    args.w = w;
    args.bias = bias;
    if (auto status = CheckWeight(args); !status.ok()) return status;
    products.push_back({args, first_row, 0, 0});
  }
  return products.empty() ? absl::OkStatus() : Run(products, executor);
}

absl::Status Gemm(const GemmArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShared(args); !status.ok()) return status;
  if (auto status = CheckWeight(args); !status.ok()) return status;
  if (args.m == 0 || args.n == 0) return absl::OkStatus();
  Products products = {{args, 0, 0, 0}};
  return Run(products, executor);
}

}  // namespace jumar::quant
