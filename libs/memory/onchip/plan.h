#ifndef LIBS_MEMORY_ONCHIP_PLAN_H_
#define LIBS_MEMORY_ONCHIP_PLAN_H_

// Plan: gives each buffer an offset (packer.h) and event ids (events.h). Buffers whose lifetimes don't overlap share bytes, and ids.

#include <cstdint>

#include "libs/memory/onchip/events.h"
#include "libs/memory/onchip/packer.h"
#include "libs/memory/onchip/types.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip {

inline constexpr int kMaxBuffers = 32;  // of a map that is planned at run time
using Map = BufferMap<kMaxBuffers>;

namespace internal {

// Whom to blame when a space overflows. If what is alive in one step is too much: the largest buffer of that step. If it is not, the
// packing is: the largest buffer that reaches beyond the capacity.
template <int kCapacity>
constexpr Error OverCapacity(const BufferMap<kCapacity>& map, Space space, int32_t step) {
  const int64_t limit = map.capacities.Of(space);
  const bool too_much_alive = map.live_bytes[static_cast<int>(space)] > limit;
  int blamed = -1;
  for (int i = 0; i < map.count; ++i) {
    const Buffer& b = map.buffers[i];
    if (b.space != space) continue;
    if (too_much_alive ? (step < b.lifetime.first || step > b.lifetime.last) : map.placements[i].offset + ExtentOf(b) <= limit) continue;
    const int64_t more = blamed < 0 ? 1 : ExtentOf(b) - ExtentOf(map.buffers[blamed]);
    if (more > 0 || (more == 0 && Compare(b.name, map.buffers[blamed].name) < 0)) blamed = i;
  }
  Error e = Blame(ErrorKind::kOverCapacity, map.buffers[blamed], blamed, map.used_bytes[static_cast<int>(space)], limit);
  e.step = too_much_alive ? step : -1;
  return e;
}

}  // namespace internal

// Deterministic; the same whatever order the buffers are listed in. On failure map.error says what is wrong first: the buffers themselves,
// then a live buffer that is reused, a capacity, event ids. count > kCapacity is kTooManyBuffers.
template <int kCapacity = kMaxBuffers>
constexpr BufferMap<kCapacity> Plan(const Capacities& capacities, const Buffer* buffers, int64_t count) {
  BufferMap<kCapacity> map;
  map.capacities = capacities;
  if (count < 0 || count > kCapacity) {
    map.error.kind = ErrorKind::kTooManyBuffers;
    map.error.value = count;
    map.error.limit = kCapacity;
    return map;
  }
  map.count = static_cast<int32_t>(count);
  for (int i = 0; i < map.count; ++i) map.buffers[i] = buffers[i];
  map.error = Validate(capacities, map.buffers, map.count);
  if (!map.ok()) return map;

  Error reuse, over;
  for (int s = 0; s < kNumSpaces; ++s) {
    const Space space = static_cast<Space>(s);
    internal::Packer<kCapacity> packer(map.buffers, map.count, space);
    if (packer.empty()) continue;
    packer.Pack();
    packer.Store(map.placements);
    int32_t step = -1;
    map.live_bytes[s] = packer.LiveBytes(&step);
    map.used_bytes[s] = packer.used();
    if (reuse.ok()) reuse = packer.Reuse();
    if (over.ok() && map.used_bytes[s] > capacities.Of(space)) over = internal::OverCapacity(map, space, step);
  }
  const Error events = internal::GiveAllEvents(map);
  map.error = !reuse.ok() ? reuse : !over.ok() ? over : events;
  return map;
}

// constexpr auto map = Plan(capacities, buffers), for an array.
template <int kCount>
constexpr BufferMap<kCount> Plan(const Capacities& capacities, const Buffer (&buffers)[kCount]) {
  return Plan<kCount>(capacities, static_cast<const Buffer*>(buffers), kCount);
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_PLAN_H_
