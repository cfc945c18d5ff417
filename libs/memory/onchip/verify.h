#ifndef LIBS_MEMORY_ONCHIP_VERIFY_H_
#define LIBS_MEMORY_ONCHIP_VERIFY_H_

// Whether a map is sound, checked copy by copy and without the planner's help: also for maps that came from elsewhere.

#include <cstdint>

#include "libs/memory/onchip/types.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip {
namespace internal {

constexpr Error VerifyPlace(const MapView& map, int i) {
  const Buffer& b = map.buffers[i];
  const Placement& p = map.placements[i];
  const int copies = NumCopies(b.policy);
  if (p.offset < 0 || p.copies != copies) return Blame(ErrorKind::kNotPlaced, b, i, p.copies, copies);
  if (p.offset > kLargestBytes * map.count * kMaxCopies) return Blame(ErrorKind::kSizeOverflow, b, i, p.offset, kLargestBytes);
  if (p.stride != StrideOf(b)) return Blame(ErrorKind::kWrongStride, b, i, p.stride, StrideOf(b));
  for (int copy = 0; copy < copies; ++copy) {
    const int64_t start = p.Offset(copy), end = start + b.bytes;
    if (start % AlignmentOf(b) != 0) return Blame(ErrorKind::kMisaligned, b, i, start, AlignmentOf(b));
    if (end > map.capacities->Of(b.space)) return Blame(ErrorKind::kOverCapacity, b, i, end, map.capacities->Of(b.space));
  }
  return {};
}

constexpr Error VerifyBytes(const MapView& map, int i, int k) {
  const Buffer &a = map.buffers[i], &b = map.buffers[k];
  if (a.space != b.space || !Overlap(a.lifetime, b.lifetime)) return {};
  for (int x = 0; x < NumCopies(a.policy); ++x) {
    for (int y = 0; y < NumCopies(b.policy); ++y) {
      const int64_t start_a = map.placements[i].Offset(x), start_b = map.placements[k].Offset(y);
      if (start_a < start_b + b.bytes && start_b < start_a + a.bytes) {
        return Blame(ErrorKind::kReusesLiveBuffer, a, i, start_a, start_b, k);
      }
    }
  }
  return {};
}

// An event id that a copy of a buffer uses, and where.
struct Flag {
  Pipe from, to;
  int id;
};
constexpr Flag FlagOf(const Buffer& b, const Placement& p, int n) {
  const int copy = n / 2;
  if (n % 2 == 0) return {b.handover.producer, b.handover.consumer, p.forward[copy]};
  return {b.handover.consumer, b.handover.producer, p.backward[copy]};
}

constexpr Error VerifyFlags(const MapView& map, int i, int k) {
  const Buffer &a = map.buffers[i], &b = map.buffers[k];
  if (a.handover.producer == Pipe::kNone || b.handover.producer == Pipe::kNone || !Overlap(a.lifetime, b.lifetime)) return {};
  for (int x = 0; x < 2 * NumCopies(a.policy); ++x) {
    const Flag f = FlagOf(a, map.placements[i], x);
    if (f.id < 0 || f.id >= map.capacities->events_per_pair) {
      return Blame(ErrorKind::kEventsWrong, a, i, f.id, map.capacities->events_per_pair);
    }
    for (int y = 0; y < 2 * NumCopies(b.policy); ++y) {
      if (i == k && x == y) continue;
      const Flag g = FlagOf(b, map.placements[k], y);
      if (f.from != g.from || f.to != g.to || f.id != g.id) continue;
      Error e = Blame(ErrorKind::kEventShared, a, i, f.id, 0, k);
      e.from = f.from;
      e.to = f.to;
      return e;
    }
  }
  return {};
}

}  // namespace internal

// The first fault: of the buffers (Validate), a buffer outside its space or misaligned or away from where it is pinned, two live buffers on
// one byte, event ids that are missing or used twice at a time.
constexpr Error Verify(const MapView& map) {
  if (const Error e = Validate(*map.capacities, map.buffers, map.count); !e.ok()) return e;
  for (int i = 0; i < map.count; ++i) {
    if (const Error e = internal::VerifyPlace(map, i); !e.ok()) return e;
    const Buffer& b = map.buffers[i];
    const int root = b.alias_of.empty() ? -1 : FindBuffer(map.buffers, map.count, b.alias_of);
    const int64_t wanted = root >= 0 ? map.placements[root].offset : b.pinned_offset;
    if (wanted != kAnywhere && map.placements[i].offset != wanted) {
      return internal::Blame(ErrorKind::kNotPlaced, b, i, map.placements[i].offset, wanted, root);
    }
  }
  for (int i = 0; i < map.count; ++i) {
    for (int k = 0; k <= i; ++k) {
      if (i != k) {
        if (const Error e = internal::VerifyBytes(map, i, k); !e.ok()) return e;
      }
      if (const Error e = internal::VerifyFlags(map, i, k); !e.ok()) return e;
    }
  }
  return {};
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_VERIFY_H_
