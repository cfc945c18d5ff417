// A quantised KV cache in an attention call: its codes and scales, from aclnn's modes to the kernel's strides.
#pragma once

#include <optional>

#include "libs/attention/paged/kv_scales.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/format/format.h"

namespace jumar::hostcann::aclnn {

// The format of a cache of this type, or nullopt for a type that isn't quantised. Fails for what is neither.
std::optional<quant::Format> CacheFormat(const aclTensor& cache, DType query);

// What a scale's shape depends on.
struct CacheShape {
  int64_t heads, dim;            // of keys or values
  int64_t batches, tokens;       // tokens: the most that a sequence may have
  int64_t blocks, block_size;    // 0 = not paged
};

// How aclnn names what shares a scale (key_antiquant_mode, value_antiquant_mode): the public page of FusedInferAttentionScoreV3.
enum class ScaleMode : int64_t {
  kChannel = 0,           // [1], or [heads, dim], [heads, 1, dim], [heads * dim], and these with a leading 1; any float
  kToken = 1,             // [batches, tokens], also with a leading 1; float32
  kHead = 2,              // [heads]; any float
  kTokenHead = 3,         // [batches, heads, tokens]; float32
  kTokenPaged = 4,        // [blocks, block_size]; float32
  kTokenHeadPaged = 5,    // [blocks, heads, block_size]; float32
};

struct CacheScales {
  attention::KvScales scales;          // data is null if `convert` is there
  std::optional<aclTensor> convert = {};  // scales to turn into contiguous float32 when the task runs
};
CacheScales PlanScales(const char* name, const aclTensor& scale, int64_t mode, const CacheShape& shape);

// Half of a tensor that has keys' scales at 0 of its first dimension and values' at 1 (antiquant_scale).
aclTensor HalfOfScales(const aclTensor& both, int64_t half);

}  // namespace jumar::hostcann::aclnn
