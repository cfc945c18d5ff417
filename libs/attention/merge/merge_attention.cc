#include "libs/attention/merge/merge_attention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/attention/merge/merge_kernel.h"

namespace jumar::attention {
namespace {

constexpr int64_t kGrainElements = 16 * 1024;  // of outputs that a worker takes at a time, at least

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("merging attention: ", parts...));
}

}  // namespace

absl::Status MergeAttention(const MergeAttentionArgs& args, tiling::Executor& executor) {
  for (const auto& [name, value] : {std::pair{"num_tokens", args.num_tokens}, {"num_heads", args.num_heads}, {"head_dim", args.head_dim}}) {
    if (value < 0) return Invalid(name, " = ", value, " is negative");
  }
  if (args.num_tokens > 0 && args.num_heads > INT64_MAX / args.num_tokens) {
    return Invalid("num_tokens = ", args.num_tokens, " times num_heads = ", args.num_heads, " is too large");
  }
  const int64_t rows = args.num_tokens * args.num_heads;
  if (rows == 0) return absl::OkStatus();
  if (args.out == nullptr) return Invalid("out is null");
  for (size_t i = 0; i < args.parts.size(); ++i) {
    if (args.parts[i].out == nullptr || args.parts[i].lse == nullptr) return Invalid("parts[", i, "] has no out or no lse");
  }
  const int64_t work = std::max<int64_t>(1, args.head_dim * static_cast<int64_t>(args.parts.size() + 1));
  executor.ParallelFor(rows, std::max<int64_t>(1, kGrainElements / work), [&](int64_t begin, int64_t end) { internal::MergeRows(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace jumar::attention
