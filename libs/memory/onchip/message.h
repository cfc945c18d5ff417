#ifndef LIBS_MEMORY_ONCHIP_MESSAGE_H_
#define LIBS_MEMORY_ONCHIP_MESSAGE_H_

// A map and its error in words, a line at a time, constexpr: a compiler prints them (check.h), text.h joins them.

#include <cstdint>

#include "libs/memory/onchip/types.h"
#include "libs/memory/onchip/validate.h"

namespace jumar::memory::onchip {

// Text of a fixed capacity; what is too much is cut.
struct Line {
  static constexpr int kCapacity = 240;
  char text[kCapacity] = {};

  constexpr int size() const {
    int n = 0;
    while (text[n] != 0) ++n;
    return n;
  }
  constexpr Line& Add(const char* more) {
    int n = size();
    for (; *more != 0 && n < kCapacity - 1; ++more) text[n++] = *more;
    return *this;
  }
  constexpr Line& Add(int64_t value) {
    char digits[24] = {};
    int n = 23;
    uint64_t rest = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    do {
      digits[--n] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest != 0);
    if (value < 0) digits[--n] = '-';
    return Add(static_cast<const char*>(digits + n));
  }
  // Up to that column, at least one blank.
  constexpr Line& Tab(int column) {
    do {
      Add(" ");
    } while (size() < column && size() < kCapacity - 1);
    return *this;
  }
  // Ends in that column.
  constexpr Line& AddRight(int64_t value, int column) {
    Line number;
    number.Add(value);
    while (size() + number.size() < column) Add(" ");
    return Add(" ").Add(static_cast<const char*>(number.text));
  }
};

constexpr const char* SpaceName(Space space) {
  switch (space) {
    case Space::kUb: return "UB";
    case Space::kL1: return "L1";
    case Space::kL0a: return "L0A";
    case Space::kL0b: return "L0B";
    case Space::kL0c: return "L0C";
    case Space::kFb: return "FB";
    case Space::kBt: return "BT";
  }
  return "?";
}

constexpr const char* PipeName(Pipe pipe) {
  switch (pipe) {
    case Pipe::kNone: return "none";
    case Pipe::kScalar: return "S";
    case Pipe::kVector: return "V";
    case Pipe::kCube: return "M";
    case Pipe::kMte1: return "MTE1";
    case Pipe::kMte2: return "MTE2";
    case Pipe::kMte3: return "MTE3";
    case Pipe::kFix: return "FIX";
  }
  return "?";
}

constexpr const char* PolicyName(Policy policy) {
  switch (policy) {
    case Policy::kSingle: return "single";
    case Policy::kDouble: return "double";
    case Policy::kTriple: return "triple";
    case Policy::kQuad: return "quad";
    case Policy::k2x2: return "2x2";
  }
  return "?";
}

namespace internal {

constexpr void AddIds(Line& line, Pipe from, Pipe to, const int8_t* ids, int copies) {
  line.Add(PipeName(from)).Add(">").Add(PipeName(to));
  for (int copy = 0; copy < copies; ++copy) {
    if (ids[copy] < 0) {
      line.Add(" -");
    } else {
      line.Add(" ").Add(int64_t{ids[copy]});
    }
  }
}

constexpr void AddOverCapacity(Line& line, const Error& e) {
  const char* space = SpaceName(e.space);
  if (e.limit == 0) {
    line.Add("there is no ").Add(space).Add(" (capacity 0): put it elsewhere, or state the capacity");
  } else if (e.step >= 0) {
    line.Add("it is the largest in ").Add(space).Add(" at step ").Add(int64_t{e.step}).Add(", which needs ").Add(e.value).Add(" of ");
    line.Add(e.limit).Add(" bytes: smaller tiles, fewer copies or shorter lifetimes");
  } else {
    line.Add("ends beyond ").Add(space).Add(", which needs ").Add(e.value).Add(" of ").Add(e.limit);
    line.Add(" bytes for gaps between buffers: other pinned offsets, or shorter lifetimes");
  }
}

}  // namespace internal

// What is wrong: names the buffer, the value, the limit and the mend. Empty when nothing is.
constexpr Line ErrorLine(const MapView& map) {
  const Error& e = *map.error;
  Line line;
  if (e.ok()) return line;
  if (e.buffer >= 0) line.Add("buffer \"").Add(static_cast<const char*>(map.buffers[e.buffer].name.text)).Add("\": ");
  const char* other = e.other >= 0 ? static_cast<const char*>(map.buffers[e.other].name.text) : "";
  switch (e.kind) {
    case ErrorKind::kNone: break;
    case ErrorKind::kTooManyBuffers: line.Add(e.value).Add(" buffers, a map of this type holds 0 to ").Add(e.limit); break;
    case ErrorKind::kBadCapacity:
      if (e.limit == 0) {
        line.Add("capacity of ").Add(SpaceName(e.space)).Add(" is ").Add(e.value).Add(" bytes, must not be negative");
      } else {
        line.Add("events_per_pair is ").Add(e.value).Add(", must be 0 to ").Add(e.limit);
      }
      break;
    case ErrorKind::kUnknownValue:
      line.Add("space, policy or pipe has the value ").Add(e.value).Add(", the largest is ").Add(e.limit);
      break;
    case ErrorKind::kBadName:
      line.Add(e.value == 0 ? "its name is empty, needs 1 to " : "its name is too long, at most ").Add(e.limit).Add(" characters");
      break;
    case ErrorKind::kDuplicateName:
      line.Add("buffers ").Add(int64_t{e.other}).Add(" and ").Add(int64_t{e.buffer}).Add(" have this name: rename one");
      break;
    case ErrorKind::kBadSize: line.Add(e.value).Add(" bytes, must be at least 1"); break;
    case ErrorKind::kSizeOverflow: line.Add(e.value).Add(" is more than sizes and offsets may be (").Add(e.limit).Add(")"); break;
    case ErrorKind::kBadAlignment:
      line.Add("alignment ").Add(e.value).Add(" must be a power of two from ").Add(e.limit);
      line.Add(" (of ").Add(SpaceName(e.space)).Add(") to ").Add(kLargestAlignment).Add(", or 0");
      break;
    case ErrorKind::kBadLifetime:
      if (e.value < 0) {
        line.Add("lifetime starts at step ").Add(e.value).Add(", must be at least 0");
      } else {
        line.Add("lifetime is reversed, steps ").Add(e.value).Add(" to ").Add(e.limit);
      }
      break;
    case ErrorKind::kBadHandover:
      line.Add("handed over by ").Add(PipeName(e.from)).Add(" to ").Add(PipeName(e.to)).Add(": name two different pipes, or none");
      break;
    case ErrorKind::kBadAlias:
      line.Add("is an alias of \"").Add(static_cast<const char*>(map.buffers[e.buffer].alias_of.text));
      line.Add("\": that must be another buffer of the same space that isn't an alias, and the alias not pinned");
      break;
    case ErrorKind::kMisaligned: line.Add("offset ").Add(e.value).Add(" is not a multiple of its alignment, ").Add(e.limit); break;
    case ErrorKind::kReusesLiveBuffer:
      line.Add("takes bytes of \"").Add(other).Add("\" while that is alive: another offset, or lifetimes that don't overlap");
      break;
    case ErrorKind::kOverCapacity: internal::AddOverCapacity(line, e); break;
    case ErrorKind::kOutOfEvents:
      line.Add("out of event ids from ").Add(PipeName(e.from)).Add(" to ").Add(PipeName(e.to)).Add(", ").Add(e.value);
      line.Add(" of ").Add(e.limit).Add(" needed at step ").Add(int64_t{e.step}).Add(": fewer copies or shorter lifetimes");
      break;
    case ErrorKind::kNotPlaced: line.Add("has no place"); break;
    case ErrorKind::kWrongStride: line.Add("copies are ").Add(e.value).Add(" bytes apart, must be ").Add(e.limit); break;
    case ErrorKind::kEventsWrong: line.Add("event id ").Add(e.value).Add(" is missing, or not below ").Add(e.limit); break;
    case ErrorKind::kEventShared:
      line.Add("shares event id ").Add(e.value).Add(" from ").Add(PipeName(e.from)).Add(" to ").Add(PipeName(e.to));
      line.Add(" with \"").Add(other).Add("\", which is alive");
      break;
  }
  return line;
}

constexpr Line TableHeader() {
  Line line;
  line.Add("buffer").Tab(32).Add("space").Tab(42).Add("offset").Tab(54).Add("end").Tab(58).Add("copies x bytes").Tab(75).Add("steps");
  return line.Tab(85).Add("event ids");
}

// One buffer.
constexpr Line TableRow(const MapView& map, int i) {
  const Buffer& b = map.buffers[i];
  const Placement& p = map.placements[i];
  Line line;
  line.Add(static_cast<const char*>(b.name.text)).Tab(32).Add(SpaceName(b.space));
  if (p.offset < 0) {
    line.Tab(47).Add("-").Tab(56).Add("-");
  } else {
    line.AddRight(p.offset, 47).AddRight(p.offset + ExtentOf(b), 56);
  }
  line.Tab(58).Add(int64_t{NumCopies(b.policy)}).Add(" x ").Add(b.bytes).Tab(75).Add(int64_t{b.lifetime.first}).Add("-");
  if (b.lifetime.last == Lifetime::kEnd) {
    line.Add("end");
  } else {
    line.Add(int64_t{b.lifetime.last});
  }
  if (p.offset >= 0 && b.handover.producer != Pipe::kNone) {
    internal::AddIds(line.Tab(85), b.handover.producer, b.handover.consumer, p.forward, NumCopies(b.policy));
    internal::AddIds(line.Add(", "), b.handover.consumer, b.handover.producer, p.backward, NumCopies(b.policy));
  }
  return line;
}

// One space.
constexpr Line SpaceLine(const MapView& map, Space space) {
  const int s = static_cast<int>(space);
  const int64_t capacity = map.capacities->Of(space), used = map.used_bytes[s];
  Line line;
  line.Add(SpaceName(space)).Add(": ").Add(used).Add(" of ").Add(capacity).Add(" bytes used");
  if (capacity > 0) {
    const double percent = 100.0 * static_cast<double>(used) / static_cast<double>(capacity);
    line.Add(" (").Add(static_cast<int64_t>(percent + 0.5)).Add("%)");
  }
  line.Add(", at most ").Add(map.live_bytes[s]).Add(" alive in one step");
  if (used > capacity) line.Add(", ").Add(used - capacity).Add(" too many");
  return line;
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_MESSAGE_H_
