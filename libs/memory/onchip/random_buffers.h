#ifndef LIBS_MEMORY_ONCHIP_RANDOM_BUFFERS_H_
#define LIBS_MEMORY_ONCHIP_RANDOM_BUFFERS_H_

// Problems for tests.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "libs/memory/onchip/plan.h"

namespace jumar::memory::onchip {

inline Map PlanAll(const std::vector<Buffer>& buffers, const Capacities& capacities) {
  return Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size()));
}

// As kernels have them: a few steps, sizes from bytes to a third of a space, all policies, some with a larger alignment.
inline std::vector<Buffer> RandomBuffers(std::mt19937_64& random, int count, int spaces = 1) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < count; ++i) {
    Buffer b;
    b.name = Name(("b" + std::to_string(i)).c_str());
    b.space = static_cast<Space>(random() % static_cast<uint64_t>(spaces));
    const uint64_t most = random() % 2 == 0 ? 8 * 1024 : 512;
    b.bytes = static_cast<int64_t>(1 + random() % most);
    b.policy = static_cast<Policy>(random() % kNumPolicies);
    b.lifetime.first = static_cast<int32_t>(random() % 10);
    b.lifetime.last = b.lifetime.first + static_cast<int32_t>(random() % 6);
    if (random() % 4 == 0) b.alignment = 1024;
    if (random() % 2 == 0) {
      const uint64_t producer = 1 + random() % (kNumPipes - 1);
      b.handover.producer = static_cast<Pipe>(producer);
      b.handover.consumer = static_cast<Pipe>(1 + (producer - 1 + 1 + random() % (kNumPipes - 2)) % (kNumPipes - 1));
    }
    buffers.push_back(b);
  }
  return buffers;
}

// The least that any plan of one space uses: first fit in every order, one of which is the order of the best plan's offsets.
inline int64_t LeastBytes(const std::vector<Buffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t least = INT64_MAX;
  do {
    std::vector<int64_t> at(buffers.size(), -1);
    int64_t used = 0;
    for (const size_t i : order) {
      int64_t offset = 0;
      for (size_t k = 0; k < buffers.size(); ++k) {
        if (at[k] < 0 || !Overlap(buffers[i].lifetime, buffers[k].lifetime)) continue;
        if (offset >= at[k] + ExtentOf(buffers[k]) || at[k] >= offset + ExtentOf(buffers[i])) continue;
        offset = AlignUp(at[k] + ExtentOf(buffers[k]), AlignmentOf(buffers[i]));
        k = static_cast<size_t>(-1);  // from the start again
      }
      at[i] = offset;
      used = std::max(used, offset + ExtentOf(buffers[i]));
      if (used >= least) break;
    }
    least = std::min(least, used);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_RANDOM_BUFFERS_H_
