#ifndef LIBS_MEMORY_ONCHIP_TYPES_H_
#define LIBS_MEMORY_ONCHIP_TYPES_H_

// The words of the on-chip planner: spaces, pipes, buffers in, placements out. C++17, constexpr, no heap, no exceptions and no
// containers, so that a kernel compiler takes it too. Sizes and offsets are bytes.

#include <cstdint>

namespace jumar::memory::onchip {

// The buffers of one core. [A] is Huawei's Ascend C documentation, "General restrictions" (atlasascendc_api_07_0004) and the pages on
// NPU architecture versions 220x and 3510.
enum class Space : uint8_t {
  kUb,   // unified buffer, of a vector core
  kL1,   // of a cube core, as the following
  kL0a,  // left operand of the cube unit
  kL0b,  // right operand
  kL0c,  // accumulator
  kFb,   // fixpipe buffer: parameters of the requantisation on the way out of L0C
  kBt,   // bias table
};
inline constexpr int kNumSpaces = 7;

// A start address must be a multiple of this [A].
constexpr int64_t NaturalAlignment(Space space) {
  switch (space) {
    case Space::kUb: return 32;
    case Space::kL1: return 32;
    case Space::kL0a: return 512;
    case Space::kL0b: return 512;
    case Space::kL0c: return 64;
    case Space::kFb: return 64;
    case Space::kBt: return 64;
  }
  return 1;
}

enum class Pipe : uint8_t { kNone, kScalar, kVector, kCube, kMte1, kMte2, kMte3, kFix };
inline constexpr int kNumPipes = 8;

// How many copies of a buffer there are, so that its producer can fill one while its consumer empties another.
enum class Policy : uint8_t {
  kSingle,
  kDouble,
  kTriple,
  kQuad,
  k2x2,  // four copies in two rows of two: copy 2 * row + column
};
inline constexpr int kNumPolicies = 5;
inline constexpr int kMaxCopies = 4;

constexpr int NumCopies(Policy policy) {
  switch (policy) {
    case Policy::kSingle: return 1;
    case Policy::kDouble: return 2;
    case Policy::kTriple: return 3;
    case Policy::kQuad: return 4;
    case Policy::k2x2: return 4;
  }
  return 1;
}

// A name by value, so that a map may outlive the strings that it was made from. At most 31 characters.
struct Name {
  static constexpr int kCapacity = 32;
  char text[kCapacity] = {};
  bool too_long = false;  // then cut, and refused by Plan

  constexpr Name() = default;
  constexpr Name(const char* from) {  // NOLINT: implicit, so that {"scores"} is a name
    int i = 0;
    for (; from[i] != 0 && i < kCapacity - 1; ++i) text[i] = from[i];
    too_long = from[i] != 0;
  }
  constexpr bool empty() const { return text[0] == 0; }
};

// Negative, zero or positive, as strcmp.
constexpr int Compare(const Name& a, const Name& b) {
  for (int i = 0; i < Name::kCapacity; ++i) {
    const int x = static_cast<unsigned char>(a.text[i]), y = static_cast<unsigned char>(b.text[i]);
    if (x != y) return x - y;
    if (x == 0) break;
  }
  return 0;
}
constexpr bool operator==(const Name& a, const Name& b) { return Compare(a, b) == 0; }

// The steps of the program during which a buffer holds something, both ends included. What the steps are is the caller's choice.
struct Lifetime {
  int32_t first = 0;
  int32_t last = kEnd;
  static constexpr int32_t kEnd = INT32_MAX;
};
constexpr bool Overlap(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The producer pipe sets a flag when a copy is full ("forward"), the consumer one when it is empty again ("backward").
struct Handover {
  Pipe producer = Pipe::kNone;  // both kNone: the buffer needs no events
  Pipe consumer = Pipe::kNone;
};

inline constexpr int64_t kAnywhere = -1;

struct Buffer {
  Name name = {};
  Space space = Space::kUb;
  int64_t bytes = 0;  // of one copy
  Policy policy = Policy::kSingle;
  Lifetime lifetime = {};
  Handover handover = {};
  int64_t alignment = 0;              // a power of two, at least the space's natural one; 0 = that one
  int64_t pinned_offset = kAnywhere;  // of copy 0
  Name alias_of = {};                 // to start where that buffer starts, when it is dead
};

// Of one core. 0 = the core has no such buffer. libs/tiling/hardware.h has them per chip.
struct Capacities {
  int64_t ub = 0;
  int64_t l1 = 0;
  int64_t l0a = 0;
  int64_t l0b = 0;
  int64_t l0c = 0;
  int64_t fb = 0;
  int64_t bt = 0;
  // Event ids of an ordered pair of pipes, numbered from 0 [A, SetFlag/WaitFlag: 0 to 7 for each pair]. The pages on NPU
  // architectures say that the system may reserve 6 and 7: a kernel that gives out ids by hand stays clear of them with 6.
  int32_t events_per_pair = 8;

  constexpr int64_t Of(Space space) const {
    switch (space) {
      case Space::kUb: return ub;
      case Space::kL1: return l1;
      case Space::kL0a: return l0a;
      case Space::kL0b: return l0b;
      case Space::kL0c: return l0c;
      case Space::kFb: return fb;
      case Space::kBt: return bt;
    }
    return 0;
  }
};

// Where a buffer is. Copy i starts at offset + i * stride.
struct Placement {
  int64_t offset = -1;  // -1 = not placed
  int64_t stride = 0;   // bytes of one copy, rounded up to the alignment
  int32_t copies = 0;
  int8_t forward[kMaxCopies] = {-1, -1, -1, -1};   // event ids, producer to consumer; -1 = none
  int8_t backward[kMaxCopies] = {-1, -1, -1, -1};  // consumer to producer

  constexpr int64_t Offset(int copy) const { return offset + copy * stride; }
};

enum class ErrorKind : uint8_t {
  kNone,
  kTooManyBuffers,
  kBadCapacity,   // negative, or more events than an id can number
  kUnknownValue,  // of an enumeration
  kBadName,       // empty or too long
  kDuplicateName,
  kBadSize,       // zero or negative
  kSizeOverflow,  // beyond kLargestBytes
  kBadAlignment,  // not a power of two, or below the space's
  kBadLifetime,   // reversed, or before step 0
  kBadHandover,   // one pipe missing, or both the same
  kBadAlias,      // of an unknown buffer, of one in another space, of itself, of an alias; or pinned
  kMisaligned,    // a pinned offset
  kReusesLiveBuffer,
  kOverCapacity,
  kOutOfEvents,
  kNotPlaced,  // the following only by Verify
  kWrongStride,
  kEventsWrong,  // missing, or beyond the number of ids
  kEventShared,  // by two buffers that are alive together
};

// Every size and offset is at most this, so that no sum of them overflows.
inline constexpr int64_t kLargestBytes = int64_t{1} << 40;
inline constexpr int64_t kLargestAlignment = int64_t{1} << 20;

struct Error {
  ErrorKind kind = ErrorKind::kNone;
  int32_t buffer = -1;  // index of the one that is to blame
  int32_t other = -1;   // index of a second one: whose name or bytes it takes
  int64_t value = 0;    // what was asked for or needed
  int64_t limit = 0;    // what is allowed
  int32_t step = -1;    // where the most is alive (kOverCapacity, kOutOfEvents)
  Space space = Space::kUb;
  Pipe from = Pipe::kNone, to = Pipe::kNone;  // kOutOfEvents, kEventShared
  constexpr bool ok() const { return kind == ErrorKind::kNone; }
};

// A view of a map of any size, for functions that read one.
struct MapView {
  const Capacities* capacities;
  const Buffer* buffers;
  const Placement* placements;
  int32_t count;
  const Error* error;
  const int64_t* used_bytes;  // [kNumSpaces]
  const int64_t* live_bytes;  // [kNumSpaces]
  const int8_t (*events)[kNumPipes];
};

constexpr int FindBuffer(const Buffer* buffers, int count, const Name& name) {
  for (int i = 0; i < count; ++i) {
    if (buffers[i].name == name) return i;
  }
  return -1;
}

// Not constexpr on purpose: whoever asks for an unknown name in a constant expression doesn't compile.
inline Placement NoBufferOfThatName() { return Placement{}; }

// A planned core: what went in, where everything is, or what is wrong. Complete also when a capacity is exceeded or event ids run out,
// so that explain can draw it; with errors in the buffers themselves nothing is placed.
template <int kCapacity>
struct BufferMap {
  Capacities capacities = {};
  Buffer buffers[kCapacity] = {};
  Placement placements[kCapacity] = {};
  int32_t count = 0;
  Error error = {};
  int64_t used_bytes[kNumSpaces] = {};       // high-water mark
  int64_t live_bytes[kNumSpaces] = {};       // the most that is alive in one step: no plan uses less
  int8_t events[kNumPipes][kNumPipes] = {};  // [from][to]: event ids in use

  constexpr bool ok() const { return error.ok(); }
  constexpr int64_t Used(Space space) const { return used_bytes[static_cast<int>(space)]; }
  constexpr int Events(Pipe from, Pipe to) const { return events[static_cast<int>(from)][static_cast<int>(to)]; }
  constexpr int Find(const Name& name) const { return FindBuffer(buffers, count, name); }
  // Of the buffer of that name. Unknown: doesn't compile in a constant expression, else has offset -1.
  constexpr Placement At(const Name& name) const {
    const int i = Find(name);
    return i < 0 ? NoBufferOfThatName() : placements[i];
  }
  constexpr MapView view() const { return {&capacities, buffers, placements, count, &error, used_bytes, live_bytes, events}; }
};

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_TYPES_H_
