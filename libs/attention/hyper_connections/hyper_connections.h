#ifndef LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_CONNECTIONS_H_
#define LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_CONNECTIONS_H_

// Manifold-constrained hyper-connections: n residual streams x [tokens, n, D] in place of one. Before a layer they are collapsed to its
// input, after it its output is spread over them, and between the two they are mixed by a doubly stochastic matrix:
//
//   r    = 1 / sqrt(mean over the n D elements of x^2 + norm_epsilon)
//   w    = r * (x * gamma) phi^T                                  rows of phi: n of pre, n of post, n^2 of res
//   pre  = sigmoid(alpha[0] w_pre + bias_pre) + epsilon           post = 2 sigmoid(alpha[1] w_post + bias_post)
//   res  = alpha[2] w_res + bias_res                              [n, n], for Sinkhorn to normalise
//   in   = sum_j pre[j] x[j]                                      what the layer gets            (HyperConnectionPre)
//   x'[k] = sum_j mix[j, k] x[j] + post[k] out                    with the layer's output `out`  (HyperConnectionPost)
//
// All sums are in fp32, in a fixed order: a token's result depends on that token alone. Names as in torch_npu's npu_mhc_pre, npu_mhc_sinkhorn
// and npu_mhc_post. Source: arXiv 2512.24880, equations 5 to 9.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

inline constexpr int64_t kMaxStreams = 8;

struct HyperConnectionPreArgs {
  DType type = DType::kBF16;  // of x and in
  int64_t tokens = 0, streams = 4, dim = 0;  // n: 1 .. kMaxStreams
  const void* x = nullptr;      // [tokens, n, D], dense
  const float* phi = nullptr;   // [n (n + 2), n D], or without res [2 n, n D], dense
  const float* gamma = nullptr;  // [n, D] or null = ones
  const float* alpha = nullptr;  // [3], without res [2]
  const float* bias = nullptr;   // [n (n + 2)], without res [2 n]
  float norm_epsilon = 1e-6f, epsilon = 1e-6f;

  void* in = nullptr;     // [tokens, D]
  float* post = nullptr;  // [tokens, n]
  float* res = nullptr;   // [tokens, n, n], or null: there is no such part
  // Optional, all or none: r [tokens]; (x * gamma) phi^T [tokens, rows of phi]; pre [tokens, n].
  float* inverse_rms = nullptr;
  float* mix = nullptr;
  float* pre = nullptr;
};
absl::Status HyperConnectionPre(const HyperConnectionPreArgs& args, tiling::Executor& executor);

// m := softmax over each row of logits, + epsilon; then in turn each column, each row, each column ... divided by its sum + epsilon: columns
// `iterations` times, rows once less. Both [tokens, n, n], dense; `out` may be `logits`.
struct SinkhornArgs {
  int64_t tokens = 0, streams = 4;
  int64_t iterations = 20;  // 1 .. 100
  float epsilon = 1e-6f;
  const float* logits = nullptr;
  float* out = nullptr;
};
absl::Status Sinkhorn(const SinkhornArgs& args, tiling::Executor& executor);

struct HyperConnectionPostArgs {
  DType type = DType::kBF16;  // of x, out and y
  int64_t tokens = 0, streams = 4, dim = 0;
  const void* x = nullptr;      // [tokens, n, D], dense
  const float* mix = nullptr;   // [tokens, n, n], or null = the unit matrix
  const void* out = nullptr;    // [tokens, D]: the layer's
  const float* post = nullptr;  // [tokens, n]
  void* y = nullptr;            // x', [tokens, n, D]; must not overlap the inputs
};
absl::Status HyperConnectionPost(const HyperConnectionPostArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_CONNECTIONS_H_
