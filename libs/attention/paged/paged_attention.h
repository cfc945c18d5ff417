#ifndef LIBS_ATTENTION_PAGED_PAGED_ATTENTION_H_
#define LIBS_ATTENTION_PAGED_PAGED_ATTENTION_H_

// Softmax attention with grouped query heads (GQA, MQA, MHA) over a paged or a contiguous KV cache:
//
//   s_j          = scale * q[t, h, :] · k[j, g, :],   g = h / (num_heads / num_kv_heads);   with a soft cap, cap * tanh(s_j / cap)
//   lse[t, h]    = log sum_j exp(s_j)   over the visible keys j;   with a sink, + exp(sinks[h]) in the sum
//   out[t, h, :] = sum_j exp(s_j - lse[t, h]) * v[j, g, :]
//
// Queries and keys may be in two parts that lie apart, as latent attention has them: q = [q | q_rope], k = [k | k_rope].
//
// One call takes any mix of prefill, chunked prefill and decode sequences. Sequence s has query tokens
// [query_starts[s], query_ends[s]) and keys at positions 0 .. kv_lens[s] - 1. Query i of Q sits at position
// p = kv_lens[s] - Q + i (right-down alignment) and sees key j if
//   (window_left < 0 or j >= p - window_left) and (window_right < 0 or j <= p + window_right) and mask[..., i, j] == 0.
// Causal attention is window_right = 0. A query that sees no key gives out = 0 and lse = +infinity, or its sink.
//
// Scores, softmax and sums are fp32; `out` is rounded once. The KV axis is cut at fixed positions, so the result of a query row
// is bit-equal in decode, chunked and whole prefill, in any batch and with any number of threads. Keys that a row does
// not see, unused blocks and padding are never multiplied into it: they may hold NaN.
//
// The cache may be quantised: its bytes are read once and become fp32 in registers, exactly; all sums are fp32 as before. Scales of
// K per token multiply the scores, of V per token the probabilities; scales per tensor, head or channel multiply q, and `out` before it is
// rounded. Scales of keys that a row does not see may be NaN, too.

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "libs/attention/paged/kv_scales.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

struct PagedAttentionArgs {
  DType type = DType::kF32;  // of q and out; of k and v unless they are quantised
  std::optional<DType> out_type = {};  // of out if it is another: fp32 for parts that are merged (merge.h)
  int64_t num_seqs = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;     // divides num_heads
  int64_t head_dim = 0;         // of q and k: 1 .. 1024, with rope_dim
  int64_t rope_dim = 0;         // of q_rope and k_rope; 0 = there are none
  int64_t value_head_dim = 0;   // of v and out: 1 .. 1024; 0 = head_dim

  // All strides are in elements; the head dimension itself is contiguous.
  const void* q = nullptr;  // row of (token, head) at token * q_token_stride + head * q_head_stride
  int64_t q_token_stride = 0, q_head_stride = 0;
  const void* q_rope = nullptr;
  int64_t q_rope_token_stride = 0, q_rope_head_stride = 0;

  // Key (or value) at position j of sequence s:
  //   paged       block_table[s][j / block_size] * block_stride + (j % block_size) * token_stride + kv_head * head_stride
  //   contiguous  (kv_starts[s] + j) * token_stride + kv_head * head_stride
  //   selected    slots[s][j] / block_size * block_stride + (slots[s][j] % block_size) * token_stride + kv_head * head_stride
  const void* k = nullptr;
  int64_t k_block_stride = 0, k_token_stride = 0, k_head_stride = 0;
  const void* v = nullptr;
  int64_t v_block_stride = 0, v_token_stride = 0, v_head_stride = 0;
  const void* k_rope = nullptr;
  int64_t k_rope_block_stride = 0, k_rope_token_stride = 0, k_rope_head_stride = 0;

  std::optional<quant::Format> kv_format = {};  // of a quantised cache: kI8, kE4M3 or kE5M2, a byte each; not with rope_dim
  KvScales k_scales = {}, v_scales = {};        // of a quantised cache only

  const int32_t* block_table = nullptr;  // [num_seqs, block_table_stride], or null = contiguous, or selected
  int64_t block_table_stride = 0;        // >= ceil(max kv_len / block_size)
  const int32_t* slots = nullptr;        // [num_seqs, slots_stride], instead of a block_table: where each key of a sequence is
  int64_t slots_stride = 0;              // >= max kv_len
  int64_t block_size = 0;
  int64_t num_blocks = 0;                // of the cache: every table entry that is used lies in [0, num_blocks), every slot in its tokens

  const int64_t* query_ends = nullptr;    // [num_seqs], cumulative
  const int64_t* query_starts = nullptr;  // [num_seqs], or null = the end of the previous sequence (0 for the first)
  const int64_t* kv_lens = nullptr;       // [num_seqs], keys of each sequence, new ones included
  const int64_t* kv_starts = nullptr;     // [num_seqs], contiguous only; null = sum of the previous kv_lens

  float scale = 1.0f;
  float soft_cap = 0.0f;         // scores stay within it; 0 = no cap
  const float* sinks = nullptr;  // optional [num_heads]: one more score of each head, of a key without a value; -infinity = none
  int64_t window_left = -1;   // keys before the query's own position that are visible; -1 = all
  int64_t window_right = -1;  // keys after it; 0 = causal, -1 = all

  // Optional. Nonzero = hidden. Element (s, h, i, j) at s * seq + h * head + i * query + j, strides in bytes (0 = broadcast).
  const uint8_t* mask = nullptr;
  int64_t mask_seq_stride = 0, mask_head_stride = 0, mask_query_stride = 0;

  void* out = nullptr;  // must not overlap the inputs
  int64_t out_token_stride = 0, out_head_stride = 0;

  float* lse = nullptr;  // optional, natural logarithm
  int64_t lse_token_stride = 0, lse_head_stride = 0;
};

// InvalidArgument names the field, the value and the limit; block-table entries are checked before anything is read through them.
// Thread safe. Scratch memory is kept per calling thread and per worker.
absl::Status PagedAttention(const PagedAttentionArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_PAGED_PAGED_ATTENTION_H_
