#include "libs/memory/kv/hybrid.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace jumar::memory::kv {
namespace {

using Wide = __int128;

bool RoundUp(int64_t value, int64_t multiple, int64_t* out) {
  return !__builtin_mul_overflow(value / multiple + (value % multiple != 0 ? 1 : 0), multiple, out);
}

int64_t MultipleThatFits(const HybridGroup& g, int64_t page) { return std::min(page / g.page_bytes, g.max_multiple); }

struct Waste {
  Wide padding = 0, total = 0;
};
Waste WasteOf(std::span<const HybridGroup> groups, int64_t page) {
  Waste w;
  for (const HybridGroup& g : groups) {
    w.padding += static_cast<Wide>(page - g.page_bytes * MultipleThatFits(g, page)) * g.layers;
    w.total += static_cast<Wide>(page) * g.layers;
  }
  return w;
}

// a.padding / a.total < b.padding / b.total. The factors have up to 127 bits, so the quotients are compared as long double: 64 bits, and a
// tie within them goes to the smaller page either way.
bool Less(const Waste& a, const Waste& b) {
  return static_cast<long double>(a.padding) / static_cast<long double>(a.total) <
         static_cast<long double>(b.padding) / static_cast<long double>(b.total);
}

absl::Status CheckGroups(std::span<const HybridGroup> groups, int64_t alignment) {
  if (groups.empty()) return absl::InvalidArgumentError("hybrid: there is no group");
  if (groups.size() > 1024) return absl::InvalidArgumentError(absl::StrCat("hybrid: ", groups.size(), " groups; at most 1024"));
  if (alignment < 1) return absl::InvalidArgumentError(absl::StrCat("hybrid: alignment = ", alignment, " must be positive"));
  for (const HybridGroup& g : groups) {
    if (g.page_bytes < 1 || g.block_size < 1 || g.max_multiple < 1 || g.layers < 1 || g.layers > int64_t{1} << 40) {
      return absl::InvalidArgumentError(absl::StrCat("hybrid: group ", g.name, " has page_bytes = ", g.page_bytes,
                                                     ", block_size = ", g.block_size, ", max_multiple = ", g.max_multiple,
                                                     ", layers = ", g.layers, "; all must be positive, layers at most 2^40"));
    }
    if (g.block_size > INT64_MAX / g.max_multiple) {
      return absl::InvalidArgumentError(
          absl::StrCat("hybrid: group ", g.name, ": block_size ", g.block_size, " * ", g.max_multiple, " exceeds int64"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HybridPlan> PlanHybrid(std::span<const HybridGroup> groups, int64_t alignment) {
  if (auto status = CheckGroups(groups, alignment); !status.ok()) return status;
  const HybridGroup& largest =
      *std::max_element(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.page_bytes < b.page_bytes; });
  std::vector<int64_t> candidates(1);
  if (!RoundUp(largest.page_bytes, alignment, &candidates[0])) {
    return absl::InvalidArgumentError(absl::StrCat("hybrid: the page of group ", largest.name, ", ", largest.page_bytes,
                                                   " bytes, aligned to ", alignment, " exceeds int64"));
  }
  for (const HybridGroup& g : groups) {
    int64_t grown = 0, page = 0;
    if (!RoundUp(largest.page_bytes, g.page_bytes, &grown) || grown / g.page_bytes > g.max_multiple) continue;
    if (RoundUp(grown, alignment, &page)) candidates.push_back(page);
  }
  std::sort(candidates.begin(), candidates.end());
  int64_t page = candidates[0];
  for (const int64_t candidate : candidates) {
    if (Less(WasteOf(groups, candidate), WasteOf(groups, page))) page = candidate;
  }

  HybridPlan plan;
  plan.page_bytes = page;
  plan.common_block_size = 1;
  for (const HybridGroup& g : groups) {
    const int64_t multiple = MultipleThatFits(g, page);
    plan.groups.push_back({g.block_size * multiple, g.page_bytes * multiple, page - g.page_bytes * multiple});
    int64_t& common = plan.common_block_size;
    const int64_t block = plan.groups.back().block_size;
    if (__builtin_mul_overflow(common / std::gcd(common, block), block, &common)) {
      return absl::InvalidArgumentError(
          absl::StrCat("hybrid: with group ", g.name, "'s blocks of ", block, " tokens, the common block exceeds int64"));
    }
  }
  const Waste waste = WasteOf(groups, page);
  plan.wasted = static_cast<double>(static_cast<long double>(waste.padding) / static_cast<long double>(waste.total));
  return plan;
}

}  // namespace jumar::memory::kv
