#ifndef LIBS_ATTENTION_MERGE_MERGE_ATTENTION_H_
#define LIBS_ATTENTION_MERGE_MERGE_ATTENTION_H_

// Attention over several sets of keys from attention over each: one softmax of all, however they were divided (context parallelism, a prompt that
// is partly cached, caches of different kinds).
//
//   lse[t, h]    = log sum_i exp(lse_i[t, h]);   with a sink, + exp(sinks[h]) in the sum
//   out[t, h, :] = sum_i exp(lse_i[t, h] - lse[t, h]) * out_i[t, h, :]
//
// A part of which a row saw no key has lse_i = +infinity, as PagedAttention writes it; its output isn't read. No part: out = 0 and lse = +infinity, or
// the sink. A part must not have the sink in its own lse. Parts are added from the first to the last, in fp32; out is rounded once.

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::attention {

using quant::DType;

// Strides are in elements; the head dimension is contiguous.
struct AttentionPart {
  const void* out = nullptr;  // row of (token, head) at token * token_stride + head * head_stride
  int64_t token_stride = 0, head_stride = 0;
  const float* lse = nullptr;  // likewise
  int64_t lse_token_stride = 0, lse_head_stride = 0;
};

struct MergeAttentionArgs {
  DType type = DType::kF32;        // of the parts' outputs
  DType out_type = DType::kF32;
  int64_t num_tokens = 0, num_heads = 0, head_dim = 0;
  std::span<const AttentionPart> parts = {};
  const float* sinks = nullptr;  // optional [num_heads]; -infinity = none

  void* out = nullptr;  // may be one of the parts' outputs, if that has its type and strides
  int64_t out_token_stride = 0, out_head_stride = 0;
  float* lse = nullptr;  // optional; may be one of the parts', with its strides
  int64_t lse_token_stride = 0, lse_head_stride = 0;
};

// InvalidArgument names the field, the value and the limit. Thread safe.
absl::Status MergeAttention(const MergeAttentionArgs& args, tiling::Executor& executor);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_MERGE_MERGE_ATTENTION_H_
