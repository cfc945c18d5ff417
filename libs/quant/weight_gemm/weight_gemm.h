#ifndef LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_H_
#define LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_H_

// Matrix product with a weight in a compact format, which is decoded on the way and never written back wide:
//
//   out[m,n] = Σ_k (a[m,k] · a_scale[m,k]) · ((decode(w)[n,k] + w_offset[n,k]) · w_scale[n,k]) + bias[n]
//
// Weights are INT8, INT4, E4M3, E5M2, HiF8 or E2M1; scales and offsets are shared by rows, groups along k, or blocks of both (Scales).
// Activations are fp32, fp16 or bf16 (W8A16, W4A16), or codes of a float format themselves (W8A8, MXFP8, MXFP4).
//
// What is summed in which precision. Every code is a bf16 number and is decoded exactly. The k's are cut into segments that share a
// scale (or whose lanes do): of at most 128, or, where scales don't vary along k, of about 128 or 1024 by the instruction set. Products of
// decoded numbers are summed in fp32 within a segment; that sum times the segment's scale, an fp32 product of w_scale and a_scale, is added
// to the total by a fused multiply-add; the total is rounded once to out's type. With offsets, offset · Σ a joins the segment's sum. Where CPU
// and activations allow, bf16 pairs are multiplied by one instruction (which takes subnormal bf16 activations for zero), else in fp32. So with
// u = 2⁻²⁴ and at most k + 16 roundings on the way of a term,
//
//   |out - exact| <= (k + 16) u / (1 - (k + 16) u) · Σ |a| (|w| + |w_offset|) |scales| + half an ulp of out's type
//
// (+ (k + 16) 2⁻¹²⁶ · max |w scale| for what underflows). A product of two E4M3 numbers is exact in fp32 (8 bits), so their rounding errors come
// from the sums alone. A weight that is NaN makes its column NaN and no other.
//
// The order of the sums depends on k, the formats, the scales' depths and the instruction set only: a row of `out` is bit-equal
// whatever m, the thread count, the other rows and the weight's layout are.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

enum class ScaleType : uint8_t { kF32, kF16, kBF16, kE8M0, kI32 };
const char* Name(ScaleType type);

// A table of scales (or offsets) of a matrix with rows along m or n and columns along k. Row r and column k use entry (r / rows, k / depth):
//
//   per tensor {.rows = 0}   per channel or token {}   per group of 64 {.depth = 64, .row_stride = k / 64}   blocks {.rows = 128, .depth = 128, ...}
struct Scales {
  const void* data = nullptr;  // null: 1 everywhere (as offsets: 0)
  ScaleType type = ScaleType::kF32;
  int64_t rows = 1;            // that share an entry; 0: all
  int64_t depth = 0;           // columns that share an entry, a multiple of 16; 0 (or k and more): all
  int64_t row_stride = 1;      // in elements, from one entry to the next along the rows
  int64_t depth_stride = 1;    // and along the columns
  // So many entries along the columns lie side by side, `depth_stride` from one such run to the next. torch_npu's MX scales of a [k, n] weight,
  // [k / 64, n, 2]: {.type = kE8M0, .depth = 32, .row_stride = 2, .depth_stride = 2 * n, .run = 2}.
  int64_t run = 1;
};

enum class CodeLayout : uint8_t {
  kNK,         // rows of k codes, ldw bytes apart; 4-bit codes two to a byte, the lower half first: also [n, k / 8] little-endian int32 words
  kKN,         // rows of n codes, ldw bytes apart; 4-bit codes packed along n: also [k, n / 8] int32 words
  kFractalNz,  // of [n, k], 8-bit formats: [ceil(k/32)][ceil(n/16)][16 n][32 k] (fractal_nz.h); ldw is not read; padding is not read as data
};

// What the activations are: a floating-point type, or codes of a format (kE4M3, kE5M2, kHiF8, kE2M1, kI8, kI4).
struct Activations {
  constexpr Activations() = default;
  constexpr Activations(DType type) : type(type) {}                               // NOLINT: meant to convert
  constexpr Activations(Format format) : format(format), is_format(true) {}       // NOLINT
  DType type = DType::kF32;
  Format format = Format::kE4M3;
  bool is_format = false;
};

enum class Epilogue : uint8_t {
  kNone,
  kSwiGlu,  // out[m, n / 2] = silu(first half of the columns) · second half
};

struct WeightGemmArgs {
  int64_t m = 0, n = 0, k = 0;  // each >= 0; with k = 0 the product is 0 (plus bias)
  Activations activations = DType::kF32;
  const void* a = nullptr;      // row-major [m, k]
  int64_t lda = 0;              // in bytes; a row has k elements, or ceil(k / 2) bytes of a 4-bit format (the lower half first)
  Scales a_scale = {};          // by row of a
  Format format = Format::kI8;  // of w; not kE8M0
  const void* w = nullptr;
  int64_t ldw = 0;              // in bytes
  CodeLayout layout = CodeLayout::kNK;
  Scales w_scale = {}, w_offset = {};  // by row of w, that is column of out
  const void* bias = nullptr;   // [n] or null
  DType bias_type = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;  // kSwiGlu: n must be even
  DType out_type = DType::kF32;
  void* out = nullptr;          // row-major [m, n] (kSwiGlu: [m, n / 2]); must not overlap an input
  int64_t ldo = 0;              // in bytes
};

// Pointers need the alignment of their element only. InvalidArgument names the field that is wrong.
// Thread safe. Uses a scratch buffer per calling thread, kept for the next call.
absl::Status WeightGemm(const WeightGemmArgs& args, tiling::Executor& executor);

// Mixture of experts: rows [begin, end) of a, a_scale and out with weight `expert` of a stack.
struct RowGroup {
  int64_t expert, begin, end;
};
struct ExpertStack {  // what each expert adds to the pointers of `args`, in bytes
  int64_t w = 0, w_scale = 0, w_offset = 0, bias = 0;
};
// `args` describes expert 0 and all m rows. Rows that no group has are not written.
absl::Status GroupedWeightGemm(const WeightGemmArgs& args, const ExpertStack& stack, absl::Span<const RowGroup> groups, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_WEIGHT_GEMM_WEIGHT_GEMM_H_
