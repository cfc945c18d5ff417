#ifndef LIBS_ATTENTION_MERGE_MERGE_KERNEL_H_
#define LIBS_ATTENTION_MERGE_MERGE_KERNEL_H_

#include <cstdint>

#include "libs/attention/merge/merge_attention.h"

namespace jumar::attention::internal {

// Rows [begin, end) of (token, head), row = token * num_heads + head.
void MergeRows(const MergeAttentionArgs& args, int64_t begin, int64_t end);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_MERGE_MERGE_KERNEL_H_
