#include "libs/tiling/buffer_map.h"

#include <algorithm>
#include <string>

namespace jumar::tiling {
namespace {

namespace onchip = memory::onchip;

onchip::Space SpaceOf(Memory memory) {
  switch (memory) {
    case Memory::kUb: return onchip::Space::kUb;
    case Memory::kL1: return onchip::Space::kL1;
    case Memory::kL0A: return onchip::Space::kL0a;
    case Memory::kL0B: return onchip::Space::kL0b;
    case Memory::kL0C: return onchip::Space::kL0c;
  }
  return onchip::Space::kUb;
}

}  // namespace

onchip::Map PlanBuffers(const std::vector<Buffer>& buffers, const HardwareSpec& spec) {
  const onchip::Capacities capacities = {.ub = spec.ub_bytes,
                                         .l1 = spec.l1_bytes,
                                         .l0a = spec.l0a_bytes,
                                         .l0b = spec.l0b_bytes,
                                         .l0c = spec.l0c_bytes,
                                         .fb = spec.fixpipe_bytes,
                                         .bt = spec.bias_table_bytes};
  constexpr onchip::Policy kPolicies[] = {onchip::Policy::kSingle, onchip::Policy::kDouble, onchip::Policy::kTriple, onchip::Policy::kQuad};
  std::vector<onchip::Buffer> planned;
  for (const Buffer& buffer : buffers) {
    // Solvers may give the same name to a buffer and to what a further memory holds of it; the planner's names are unique.
    std::string name(buffer.name);
    if (std::ranges::count(buffers, buffer.name, &Buffer::name) > 1) name.append(" in ").append(MemoryName(buffer.memory));
    const onchip::Space space = SpaceOf(buffer.memory);
    const int64_t alignment = std::max(buffer.alignment, onchip::NaturalAlignment(space));
    onchip::Buffer b = {.name = name.c_str(),
                        .space = space,
                        .bytes = buffer.bytes,
                        .lifetime = {static_cast<int32_t>(buffer.first), static_cast<int32_t>(buffer.last)},
                        .alignment = alignment};
    if (buffer.copies >= 1 && buffer.copies <= onchip::kMaxCopies) {
      b.policy = kPolicies[buffer.copies - 1];
    } else {
      b.bytes = (buffer.bytes + alignment - 1) / alignment * alignment * buffer.copies;  // a ring, as one
    }
    planned.push_back(b);
  }
  return onchip::Plan(capacities, planned.data(), static_cast<int64_t>(planned.size()));
}

}  // namespace jumar::tiling
