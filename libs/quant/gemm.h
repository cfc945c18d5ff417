#ifndef LIBS_QUANT_GEMM_H_
#define LIBS_QUANT_GEMM_H_

// Matrix product with a weight: out[m,n] = a[m,k] · w[n,k]ᵀ + bias[n].
//
// Products are summed in fp32 and rounded once, to `type`, at the end. The order of the sum depends only on k, `type` and the
// instruction set, so a row of `out` is bit-equal whatever m, the thread count, the other rows and the weight layout are.
// Decode (m up to about 32) streams the weights once; larger m is blocked for the caches.

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

enum class WeightLayout : uint8_t {
  kNK,         // row-major [n, k], leading dimension ldw >= k: torch's Linear weight
  kKN,         // row-major [k, n], leading dimension ldw >= n
  // FRACTAL_NZ (fractal_nz.h) of [n, k], and of [k, n]. Dense: ldw is not read. Padding is not read as data. The first is the faster.
  kFractalNz,    // [ceil(k/16)][ceil(n/16)][16 n][16 k]
  kFractalNzKN,  // [ceil(n/16)][ceil(k/16)][16 k][16 n]
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;  // each >= 0; with k = 0 the product is 0 (plus bias)
  DType type = DType::kF32;     // of a, w, bias and out
  const void* a = nullptr;      // row-major [m, k]
  int64_t lda = 0;              // in elements, >= k
  const void* w = nullptr;
  int64_t ldw = 0;              // in elements
  WeightLayout layout = WeightLayout::kNK;
  const void* bias = nullptr;   // [n] or null
  void* out = nullptr;          // row-major [m, n]; must not overlap a, w or bias
  int64_t ldo = 0;              // in elements, >= n
};

// Pointers need the alignment of their element only. InvalidArgument names the field that is wrong.
// Thread safe. Uses a scratch buffer per calling thread, kept for the next call.
absl::Status Gemm(const GemmArgs& args, tiling::Executor& executor);

// Rows [first_row, first_row + num_rows) of a and out, with a weight (and bias, or null) of their own: a group of a mixture of experts.
struct GemmGroup {
  int64_t first_row = 0, num_rows = 0;
  const void* w = nullptr;
  const void* bias = nullptr;
};

// The products of all groups in one pass of the executor, each row bit-equal to Gemm's. `shared` says what the groups share: m is the rows of
// a and out, its w and bias are not read. Groups must ascend and not overlap; the rows of no group are neither read nor written.
absl::Status GroupedGemm(const GemmArgs& shared, absl::Span<const GemmGroup> groups, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_GEMM_H_
