#ifndef LIBS_QUANT_INT8_GEMM_INT8_GEMM_H_
#define LIBS_QUANT_INT8_GEMM_INT8_GEMM_H_

// Products of int8 matrices, of one weight or of a weight per group of rows (mixture of experts):
//
//   sum[i,j] = Σ_k a[i,k] · w[j,k]                                      exact, in int32
//   out[i,j] = ((float(sum[i,j] + int_bias[j]) · scale[j]) · token_scale[i]) + bias[j]
//
// in fp32 with one rounding per operation, in this order, then rounded once to the type of `out`. int8 out is
// saturate(nearest_even(that) + offset[j]), NaN gives 0: fold the scale of the output into `scale`. int32 out is sum + int_bias, modulo 2^32.
//
// The result is the same for every instruction set, layout, batch and thread count: integer sums don't depend on their order.
//
//   Int8GemmArgs args = {.m = 1, .n = 3072, .k = 576, .a = x, .lda = 576, .w = weight, .ldw = 576, .scale = {per_channel},
//                        .token_scale = {per_token}, .out_type = Int8GemmOut::kBF16, .out = y, .ldo = 3072};
//   absl::Status status = Int8Gemm(args, pool);

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

// The largest k of which every sum fits int32: 131071 · 128 · 128 < 2^31.
inline constexpr int64_t kMaxInt8Depth = 131071;

enum class Int8Layout : uint8_t {
  kNK,         // row-major [n, k], leading dimension ldw >= k: torch's Linear weight
  kKN,         // row-major [k, n], leading dimension ldw >= n
  kFractalNK,  // FRACTAL_NZ of [n, k] (fractal_nz.h): [ceil(k/32)][ceil(n/16)][16 n][32 k]; ldw is not read
  kFractalKN,  // FRACTAL_NZ of [k, n]: [ceil(n/32)][ceil(k/16)][16 k][32 n]; what torch_npu makes of a weight [k, n]
};

// A vector of numbers that may be absent: number i is data[i * step]. Step 0: one number for all. Step 2 with kF32: the fp32 in the low
// halves of 64-bit words, as aclnnTransQuantParam makes them.
struct Numbers {
  const void* data = nullptr;
  DType type = DType::kF32;
  int64_t step = 1;
};

enum class Int8GemmOut : uint8_t { kI32, kI8, kF32, kF16, kBF16 };

struct Int8GemmArgs {
  int64_t m = 0, n = 0, k = 0;  // each >= 0; k <= kMaxInt8Depth
  const int8_t* a = nullptr;    // row-major [m, k]
  int64_t lda = 0;              // in elements, >= k
  const int8_t* w = nullptr;
  int64_t ldw = 0;
  Int8Layout layout = Int8Layout::kNK;
  Numbers scale = {};                 // [n] (step 1) or one (step 0); required unless out is int32
  Numbers token_scale = {};           // [m], or one, or absent = 1
  const int32_t* int_bias = nullptr;  // [n] or null
  Numbers bias = {};                  // [n], or absent; not with int32 out
  Numbers offset = {};                // [n], or one, or absent = 0; with int8 out only
  Int8GemmOut out_type = Int8GemmOut::kF32;
  void* out = nullptr;  // row-major [m, n]; must not overlap what is read
  int64_t ldo = 0;      // in elements, >= n
};

// Pointers need the alignment of their element only. InvalidArgument names the field that is wrong. Thread safe; scratch buffers are kept
// per calling thread.
absl::Status Int8Gemm(const Int8GemmArgs& args, tiling::Executor& executor);

// Rows [begin, end) of a and out, with their own weight and numbers in place of those of the arguments. A group may be empty.
struct Int8Group {
  int64_t begin = 0, end = 0;
  const int8_t* w = nullptr;
  Numbers scale = {};
  const int32_t* int_bias = nullptr;
  Numbers bias = {};
  Numbers offset = {};
};

// All groups in one pass over the executor. args.w, .scale, .int_bias, .bias and .offset are not read; layout, ldw, n and k are those of every
// group. Rows of no group are left alone. Groups that overlap, or leave [0, m), are InvalidArgument.
absl::Status GroupedInt8Gemm(const Int8GemmArgs& args, std::span<const Int8Group> groups, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_INT8_GEMM_INT8_GEMM_H_
