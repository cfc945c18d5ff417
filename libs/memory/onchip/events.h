#ifndef LIBS_MEMORY_ONCHIP_EVENTS_H_
#define LIBS_MEMORY_ONCHIP_EVENTS_H_

// The event ids of Plan. Each copy of a buffer that is handed over has one from producer to consumer and one back. The lowest free ids go
// out in the order in which lifetimes start, which for intervals takes no more ids than are in use in one step.

#include <cstdint>

#include "libs/memory/onchip/types.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip::internal {

// The ids of (from, to) serve what goes from one to the other and the way back of what goes from the other to one.
constexpr bool UsesPair(const Buffer& b, Pipe from, Pipe to) {
  return (b.handover.producer == from && b.handover.consumer == to) || (b.handover.producer == to && b.handover.consumer == from);
}

constexpr bool StartsBefore(const Buffer& a, const Buffer& b) {
  if (a.lifetime.first != b.lifetime.first) return a.lifetime.first < b.lifetime.first;
  return Compare(a.name, b.name) < 0;
}

// Gives out the ids of one ordered pair, as far as they go. Returns the first error.
template <int kCapacity>
constexpr Error GiveEvents(BufferMap<kCapacity>& map, Pipe from, Pipe to) {
  int order[kCapacity] = {};
  int n = 0;
  for (int i = 0; i < map.count; ++i) {
    if (!UsesPair(map.buffers[i], from, to)) continue;
    int at = n++;
    for (; at > 0 && StartsBefore(map.buffers[i], map.buffers[order[at - 1]]); --at) order[at] = order[at - 1];
    order[at] = i;
  }
  Error error;
  int8_t& used = map.events[static_cast<int>(from)][static_cast<int>(to)];
  for (int i = 0; i < n; ++i) {
    const Buffer& b = map.buffers[order[i]];
    const bool forward = b.handover.producer == from;
    bool taken[INT8_MAX + 1] = {};
    int alive = NumCopies(b.policy);
    for (int k = 0; k < i; ++k) {
      const Buffer& earlier = map.buffers[order[k]];
      if (!Overlap(earlier.lifetime, b.lifetime)) continue;
      alive += NumCopies(earlier.policy);
      const Placement& p = map.placements[order[k]];
      const int8_t* ids = earlier.handover.producer == from ? p.forward : p.backward;
      for (int copy = 0; copy < NumCopies(earlier.policy); ++copy) {
        if (ids[copy] >= 0) taken[static_cast<int>(ids[copy])] = true;
      }
    }
    Placement& p = map.placements[order[i]];
    int8_t* ids = forward ? p.forward : p.backward;
    int id = 0;
    for (int copy = 0; copy < NumCopies(b.policy); ++copy) {
      while (id < map.capacities.events_per_pair && taken[id]) ++id;
      if (id >= map.capacities.events_per_pair) {
        if (error.ok()) {
          error = Blame(ErrorKind::kOutOfEvents, b, order[i], alive, map.capacities.events_per_pair);
          error.step = b.lifetime.first;
          error.from = from;
          error.to = to;
        }
        break;
      }
      ids[copy] = static_cast<int8_t>(id++);
      if (id > used) used = static_cast<int8_t>(id);
    }
  }
  return error;
}

template <int kCapacity>
constexpr Error GiveAllEvents(BufferMap<kCapacity>& map) {
  Error error;
  for (int from = 1; from < kNumPipes; ++from) {
    for (int to = 1; to < kNumPipes; ++to) {
      if (from == to) continue;
      const Error e = GiveEvents(map, static_cast<Pipe>(from), static_cast<Pipe>(to));
      const bool way_there = !e.ok() && map.buffers[e.buffer].handover.producer == e.from;  // says more than the way back
      if (error.ok() || (way_there && map.buffers[error.buffer].handover.producer != error.from)) error = e;
    }
  }
  return error;
}

}  // namespace jumar::memory::onchip::internal

#endif  // LIBS_MEMORY_ONCHIP_EVENTS_H_
