#ifndef LIBS_MEMORY_KV_HYBRID_H_
#define LIBS_MEMORY_KV_HYBRID_H_

// Hybrid models: groups of layers whose pages differ (full attention, windows, states) share one pool of equal pages, so that a freed page
// of any group serves any other. Which page, and how many tokens does each group's block then hold?

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::memory::kv {

struct HybridGroup {
  std::string_view name;
  int64_t page_bytes = 0;    // of one block of block_size tokens, unpadded
  int64_t block_size = 0;    // tokens; the smallest that the group's kernel takes
  int64_t max_multiple = 1;  // blocks of up to block_size * max_multiple tokens are taken too; 1 for a state, whose page is what it is
  int64_t layers = 1;        // pages of this group per block: its weight in what padding wastes
};

struct HybridGroupPlan {
  int64_t block_size = 0;     // a multiple of the group's
  int64_t used_bytes = 0;     // of the common page
  int64_t padding_bytes = 0;  // the rest
};

struct HybridPlan {
  int64_t page_bytes = 0;  // common to all groups; a multiple of the alignment
  std::vector<HybridGroupPlan> groups;
  // The least number of tokens that fill whole blocks of every group: what prefix caching may hash by.
  int64_t common_block_size = 0;
  double wasted = 0;  // share of the pool that is padding, groups weighted by their layers
};

// The smallest waste, and of equals the smallest page. Tried are: the largest page of all, and, for each group that may grow, its first
// multiple that reaches it (as vLLM raises attention's block until its page holds a mamba state). Each other group then takes the largest
// multiple that fits. InvalidArgument names the group whose size isn't positive, or whose page exceeds int64 when padded.
absl::StatusOr<HybridPlan> PlanHybrid(std::span<const HybridGroup> groups, int64_t alignment = 1);

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_HYBRID_H_
