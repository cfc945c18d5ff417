#ifndef LIBS_ATTENTION_ROWS_ROWS_H_
#define LIBS_ATTENTION_ROWS_ROWS_H_

// The row kernels around attention: RMS norm (with and without residual), rotary embedding, SwiGLU. All compute in fp32 and
// round once per output; a row's result depends on that row alone. Strides are in elements. `out` may be `x` (in place).

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

// out = x * r * weight, r = 1 / sqrt(mean(x^2) + epsilon). With a residual, x is first replaced by s = round(x + residual),
// rounded to `type`, which is also stored in sum_out.
struct RmsNormArgs {
  DType type = DType::kF32;     // of x, residual, out, sum_out
  int64_t rows = 0, cols = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* residual = nullptr;  // or null
  int64_t residual_stride = 0;
  DType weight_type = DType::kF32;  // `type` or kF32
  const void* weight = nullptr;     // [cols], or null = all ones
  float epsilon = 1e-6f;
  void* out = nullptr;
  int64_t out_stride = 0;
  void* sum_out = nullptr;  // with a residual: required; may be x or residual
  int64_t sum_out_stride = 0;
  float* rstd = nullptr;    // [rows], optional: r
};
absl::Status RmsNorm(const RmsNormArgs& args, tiling::Executor& executor);

// Rotary embedding of the first `rotary_dim` elements of each head; the rest is copied.
//   half:        out[i] = x[i] cos[i] - x[i + R/2] sin[i],      out[i + R/2] = x[i + R/2] cos[i + R/2] + x[i] sin[i + R/2]
//   interleaved: out[2i] = x[2i] cos[2i] - x[2i+1] sin[2i],     out[2i+1] = x[2i+1] cos[2i+1] + x[2i] sin[2i+1]
// With compact tables (`cos`, `sin` of R/2 entries) the entry of pair i serves both its elements.
struct RopeArgs {
  DType type = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0, rotary_dim = 0;  // rotary_dim even, <= head_dim
  bool interleaved = false;
  bool inverse = false;  // rotates back: sin with the other sign
  const void* x = nullptr;
  int64_t x_token_stride = 0, x_head_stride = 0;
  DType table_type = DType::kF32;  // of cos and sin: `type` or kF32
  const void* cos = nullptr;
  const void* sin = nullptr;
  int64_t table_stride = 0;            // between the rows of cos (and of sin); 0 = one row for all tokens
  bool compact_table = false;
  const int64_t* positions = nullptr;  // row of the table for each token; null = the token's index
  int64_t table_rows = 0;              // positions must lie in [0, table_rows)
  void* out = nullptr;
  int64_t out_token_stride = 0, out_head_stride = 0;
};
absl::Status Rope(const RopeArgs& args, tiling::Executor& executor);

// out[r, c] = g / (1 + exp(-g)) * u with g = gate[r, c], u = up[r, c]. vLLM's packed input is gate = x, up = x + cols.
struct SwiGluArgs {
  DType type = DType::kF32;
  int64_t rows = 0, cols = 0;
  const void* gate = nullptr;
  int64_t gate_stride = 0;
  const void* up = nullptr;
  int64_t up_stride = 0;
  void* out = nullptr;  // may be gate or up
  int64_t out_stride = 0;
};
absl::Status SwiGlu(const SwiGluArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_ROWS_ROWS_H_
