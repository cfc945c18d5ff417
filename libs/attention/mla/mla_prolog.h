#ifndef LIBS_ATTENTION_MLA_MLA_PROLOG_H_
#define LIBS_ATTENTION_MLA_MLA_PROLOG_H_

// What comes before multi-head latent attention, for each token x (a row of `hidden` numbers):
//
//   cq = query_scale * rms_norm(x . W_DQ, gamma_cq)                          [q_rank]
//   [qn | qr] = cq . W_UQ_QR, of each head                                   [heads, nope_dim + rope_dim]
//   query = qn . W_UK[head]                                                  [heads, kv_rank], in the space of the latents
//   query_rope = rope(qr)                                                    [heads, rope_dim]
//   [c | r] = x . W_DKV_KR                                                   [kv_rank + rope_dim]
//   kv_cache[slot] = kv_scale * rms_norm(c, gamma_ckv),  kr_cache[slot] = rope(r)
//
//   rope(v)[i]     = v[2i] cos[i] - v[2i+1] sin[i]                           pairs of neighbours come apart into halves,
//   rope(v)[i + h] = v[2i+1] cos[i + h] + v[2i] sin[i + h],  h = rope_dim / 2     as aclnnMlaProlog* leave them
//
// Each line is computed in fp32 and rounded once to `type`: bit by bit what quant::Gemm, RmsNorm and Rope give one after the other, for any batch, chunk
// and number of threads. (norm and scale are one line: a scale multiplies gamma in fp32.)
//
// Quantised forms. A weight with `scale` is int8, its product being quant::Int8Gemm's:
//   W_UQ_QR alone                  cq is quantised per token (quant::Int8Rows::kDynamic, times smooth_cq) instead of rounded to `type`
//   all of W_DQ, W_UQ_QR, W_DKV_KR  x is int8 as well, with x_scale
//
// Source: DeepSeek-V2's report, section 2.1; CANN's pages of aclnnMlaPrologV2WeightNz and V3.

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "libs/memory/kv/views.h"
#include "libs/quant/dtype.h"
#include "libs/quant/gemm.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

// A matrix [k, n] that x [tokens, k] is multiplied with. In the words of quant::Gemm; of int8 the NZ layouts have columns of 32.
struct MlaWeight {
  const void* data = nullptr;
  quant::WeightLayout layout = quant::WeightLayout::kKN;
  int64_t ld = 0;                // in elements; not read for the NZ layouts
  const float* scale = nullptr;  // [n]: int8
};

// Strides are in elements; the last dimension is contiguous.
struct MlaPrologArgs {
  DType type = DType::kBF16;  // of x and the weights where they are not int8, of gammas, tables, outputs and caches
  int64_t tokens = 0, hidden = 0, q_rank = 0, heads = 0, nope_dim = 0, kv_rank = 0;  // dims 1 .. kMaxMlaDim
  int64_t rope_dim = 0;                                                              // even, 2 .. 1024

  const void* x = nullptr;  // [tokens, hidden]
  int64_t x_stride = 0;
  const float* x_scale = nullptr;  // [tokens], with int8 x

  MlaWeight w_dq;              // [hidden, q_rank]
  MlaWeight w_uq_qr;           // [q_rank, heads * (nope_dim + rope_dim)]
  MlaWeight w_dkv_kr;          // [hidden, kv_rank + rope_dim]
  const void* w_uk = nullptr;  // [heads, nope_dim, kv_rank] of `type`, dense
  const void* gamma_cq = nullptr;   // [q_rank]
  const void* gamma_ckv = nullptr;  // [kv_rank]
  float epsilon_cq = 1e-5f, epsilon_ckv = 1e-5f;
  float query_scale = 1, kv_scale = 1;
  const float* smooth_cq = nullptr;  // [q_rank], with int8 w_uq_qr; or null = ones
  const void* cos = nullptr;  // [tokens, rope_dim], of each token's position
  const void* sin = nullptr;
  int64_t table_stride = 0;

  void* query = nullptr;  // [tokens, heads, kv_rank]
  int64_t query_token_stride = 0, query_head_stride = 0;
  void* query_rope = nullptr;  // [tokens, heads, rope_dim]
  int64_t query_rope_token_stride = 0, query_rope_head_stride = 0;

  const int64_t* slots = nullptr;  // [tokens]; -1: the token is kept nowhere. Null: none is, and the caches are not read
  memory::kv::PartRows<std::byte> kv_cache, kr_cache;
};

inline constexpr int64_t kMaxMlaDim = 65536;
inline constexpr int64_t kMaxMlaTokens = int64_t{1} << 20;

// InvalidArgument names the field, the value and the limit; nothing is written then. Thread safe. Scratch memory, of at most kMlaTokensAtOnce tokens, is
// kept per calling thread.
inline constexpr int64_t kMlaTokensAtOnce = 512;
absl::Status MlaProlog(const MlaPrologArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_MLA_MLA_PROLOG_H_
