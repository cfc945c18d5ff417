// What the attention operators have in common: from an aclnn call to calls of libs/attention.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libs/attention/paged/paged_attention.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

// How aclnn names what a query sees (sparse_mode).
enum class SparseMode : int64_t {
  kDefault = 0,          // the mask if there is one, and then only the band [i - pre, i + next] counted from the left top
  kAll = 1,              // the whole mask
  kLeftUpCausal = 2,     // j <= i
  kRightDownCausal = 3,  // j <= i + keys - queries
  kBand = 4,             // a band counted from the right bottom
};

struct AttentionCall {
  aclTensor query;
  std::vector<aclTensor> keys, values;  // one, or one per sequence
  std::optional<aclTensor> query_rope = {}, key_rope = {};  // the second parts of queries and keys, of latent attention: both or none
  std::optional<aclTensor> mask = {};   // nonzero = hidden; only modes 0 and 1 read it
  std::optional<aclTensor> block_table = {};
  std::optional<IntList> query_lengths = {}, key_lengths = {};
  int64_t num_heads = 0, num_kv_heads = 0;  // kv: 0 = num_heads
  double scale = 1;
  int64_t pre_tokens = 2147483647, next_tokens = 2147483647;
  std::string layout;  // of query, key and value, and after "_" of the output: "TND", "BSH", "BNSD_BSND"
  int64_t block_size = 0;
  std::optional<aclTensor> key_scale = {}, value_scale = {};  // of a quantised cache (attention_scales.h)
  int64_t key_scale_mode = 0, value_scale_mode = 0;
  int64_t sparse_mode = 0;
  std::optional<aclTensor> sink = {};  // [num_heads], any float: one more score of each head
  aclTensor out;
  std::optional<aclTensor> lse = {};  // [tokens, heads, 1] for TND and NTD, else [batch, heads, queries, 1]
};

// Checks the call and returns what runs it. Lengths are read now, everything on the device when the task runs.
Task PlanAttention(const AttentionCall& call);

}  // namespace jumar::hostcann::aclnn
