#ifndef LIBS_QUANT_INT8_GEMM_ROW_QUANT_H_
#define LIBS_QUANT_INT8_GEMM_ROW_QUANT_H_

// Rows to int8, alone or behind what comes before in a model: RMS norm, or the SwiGLU of a gate-up product. All in fp32, one rounding per
// operation; the value of a row depends on that row alone, whatever the batch and the thread count.

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/int8_gemm/int8_gemm.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

// How fp32 rows v become int8 ones. int8() is rounded to nearest even and saturated; NaN gives 0.
struct Int8Rows {
  enum class Kind : uint8_t {
    kDynamic,   // u = v · factor;  scale[row] = max|u| / 127;  out = int8(u / scale[row]), 0 if the scale is 0: the rule cann_dynamic of
                // scale/scale_rule.h, by scale/quantize.h's code. NaN or infinity in a row makes its scale NaN and its codes 0.
    kMultiply,  // out = int8(v · factor + offset)
    kDivide,    // out = int8(v / factor + offset)
  };
  Kind kind = Kind::kDynamic;
  Numbers factor = {};  // per column or one; absent = 1
  Numbers offset = {};  // likewise; absent = 0; not read by kDynamic
  int8_t* out = nullptr;
  int64_t ldo = 0;         // in elements, >= cols
  float* scale = nullptr;  // [rows], with kDynamic
};

// A matrix of floats, or of int32 sums that become fp32 first: ((float(x + int_bias[c]) · scale[c]) · token_scale[r]) + bias[c].
struct RowsIn {
  enum class Type : uint8_t { kF32, kF16, kBF16, kI32 };
  Type type = Type::kF32;
  const void* data = nullptr;
  int64_t ld = 0;
  // With kI32 only. scale is required.
  Numbers scale = {}, token_scale = {}, bias = {};
  const int32_t* int_bias = nullptr;
};

// Sizes are >= 0; pointers may be null only for empty matrices. InvalidArgument names what is wrong.
absl::Status QuantizeRows(int64_t rows, int64_t cols, const RowsIn& in, const Int8Rows& to, tiling::Executor& executor);

// s = x + residual, stored to `sum` rounded to its type; v = s · (1 / sqrt(mean(s²) + epsilon)) · gamma + beta, of the sum before that
// rounding; then every `to`.
struct NormQuantArgs {
  int64_t rows = 0, cols = 0;
  DType type = DType::kF32;  // of x, residual and sum
  const void* x = nullptr;
  int64_t ldx = 0;
  const void* residual = nullptr;  // or null
  int64_t ldr = 0;
  void* sum = nullptr;  // or null; may be x or residual
  int64_t lds = 0;
  Numbers gamma = {}, beta = {};  // per column; beta may be absent
  float epsilon = 1e-6f;
  std::span<const Int8Rows> to = {};  // one or two
};
absl::Status NormQuantizeRows(const NormQuantArgs& args, tiling::Executor& executor);

// v = silu(gate) · up, silu(g) = g / (1 + exp(-g)); gate and up are the halves of a row of `in`, gate the left one unless gate_right. The error
// of exp is below 2 ulp.
struct SwigluQuantArgs {
  int64_t rows = 0, cols = 0;  // of the result; `in` has 2 · cols columns
  RowsIn in = {};
  bool gate_right = false;
  Int8Rows to = {};
  // Rows that share numbers of their own, in place of in.scale and to.factor where given. Rows of no group are left alone; without groups, all
  // rows are one.
  struct Group {
    int64_t begin = 0, end = 0;
    Numbers scale = {}, factor = {};
  };
  std::span<const Group> groups = {};
};
absl::Status SwigluQuantizeRows(const SwigluQuantArgs& args, tiling::Executor& executor);

// The gate-up product of an MLP or of experts, then SwiGLU, then dynamic int8: args.n columns, of which the left half is the gate. args.out is not
// read. Numbers of a group: scale and bias as in GroupedInt8Gemm; factor[e] (cols) multiplies the gated rows of group e, absent = 1.
struct Int8SwigluOut {
  int8_t* out = nullptr;  // [m, n / 2]
  int64_t ldo = 0;
  float* scale = nullptr;              // [m]
  std::span<const Numbers> factor = {};  // empty, or one for each group
};
absl::Status GroupedInt8GemmSwigluQuant(const Int8GemmArgs& args, std::span<const Int8Group> groups, const Int8SwigluOut& to,
                                        tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_INT8_GEMM_ROW_QUANT_H_
