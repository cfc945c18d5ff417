#ifndef LIBS_MEMORY_ONCHIP_VALIDATE_H_
#define LIBS_MEMORY_ONCHIP_VALIDATE_H_

// Whether buffers can be planned at all, before anything is placed.

#include <cstdint>

#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {

constexpr int64_t AlignUp(int64_t value, int64_t alignment) { return (value + alignment - 1) / alignment * alignment; }
constexpr int64_t AlignmentOf(const Buffer& b) { return b.alignment == 0 ? NaturalAlignment(b.space) : b.alignment; }
constexpr int64_t StrideOf(const Buffer& b) { return AlignUp(b.bytes, AlignmentOf(b)); }
// From the start of the first copy to the end of the last.
constexpr int64_t ExtentOf(const Buffer& b) { return StrideOf(b) * (NumCopies(b.policy) - 1) + b.bytes; }

namespace internal {

constexpr Error Blame(ErrorKind kind, const Buffer& b, int buffer, int64_t value = 0, int64_t limit = 0, int other = -1) {
  Error e;
  e.kind = kind;
  e.buffer = buffer;
  e.other = other;
  e.value = value;
  e.limit = limit;
  e.space = b.space;
  e.from = b.handover.producer;
  e.to = b.handover.consumer;
  return e;
}

constexpr Error ValidateOne(const Buffer& b, int i) {
  if (b.name.empty() || b.name.too_long) {
    return Blame(ErrorKind::kBadName, b, i, b.name.empty() ? 0 : Name::kCapacity, Name::kCapacity - 1);
  }
  if (static_cast<int>(b.space) >= kNumSpaces) return Blame(ErrorKind::kUnknownValue, b, i, static_cast<int>(b.space), kNumSpaces - 1);
  if (static_cast<int>(b.policy) >= kNumPolicies) {
    return Blame(ErrorKind::kUnknownValue, b, i, static_cast<int>(b.policy), kNumPolicies - 1);
  }
  const int producer = static_cast<int>(b.handover.producer), consumer = static_cast<int>(b.handover.consumer);
  if (producer >= kNumPipes || consumer >= kNumPipes) {
    return Blame(ErrorKind::kUnknownValue, b, i, producer > consumer ? producer : consumer, kNumPipes - 1);
  }
  if (b.bytes <= 0) return Blame(ErrorKind::kBadSize, b, i, b.bytes, 1);
  if (b.bytes > kLargestBytes) return Blame(ErrorKind::kSizeOverflow, b, i, b.bytes, kLargestBytes);
  const int64_t natural = NaturalAlignment(b.space);
  if (b.alignment != 0 && (b.alignment < natural || b.alignment > kLargestAlignment || (b.alignment & (b.alignment - 1)) != 0)) {
    return Blame(ErrorKind::kBadAlignment, b, i, b.alignment, natural);
  }
  if (b.lifetime.first < 0) return Blame(ErrorKind::kBadLifetime, b, i, b.lifetime.first, 0);
  if (b.lifetime.first > b.lifetime.last) return Blame(ErrorKind::kBadLifetime, b, i, b.lifetime.first, b.lifetime.last);
  if ((producer == 0) != (consumer == 0) || (producer != 0 && producer == consumer)) return Blame(ErrorKind::kBadHandover, b, i);
  if (b.pinned_offset != kAnywhere) {
    if (b.pinned_offset > kLargestBytes) return Blame(ErrorKind::kSizeOverflow, b, i, b.pinned_offset, kLargestBytes);
    if (b.pinned_offset < 0 || b.pinned_offset % AlignmentOf(b) != 0) {
      return Blame(ErrorKind::kMisaligned, b, i, b.pinned_offset, AlignmentOf(b));
    }
  }
  return {};
}

constexpr Error ValidateAlias(const Buffer* buffers, int count, int i) {
  const Buffer& b = buffers[i];
  if (b.alias_of.empty()) return {};
  const int target = FindBuffer(buffers, count, b.alias_of);
  const bool fine = target >= 0 && target != i && !b.alias_of.too_long && b.pinned_offset == kAnywhere &&
                    buffers[target].space == b.space && buffers[target].alias_of.empty();
  if (!fine) return Blame(ErrorKind::kBadAlias, b, i, 0, 0, target);
  if (const int64_t pinned = buffers[target].pinned_offset; pinned != kAnywhere && pinned % AlignmentOf(b) != 0) {
    return Blame(ErrorKind::kMisaligned, b, i, pinned, AlignmentOf(b), target);
  }
  return {};
}

}  // namespace internal

// The first thing that is wrong with the buffers themselves, in their order.
constexpr Error Validate(const Capacities& capacities, const Buffer* buffers, int count) {
  for (int s = 0; s < kNumSpaces; ++s) {
    const int64_t bytes = capacities.Of(static_cast<Space>(s));
    if (bytes < 0) {
      Error e;
      e.kind = ErrorKind::kBadCapacity;
      e.space = static_cast<Space>(s);
      e.value = bytes;
      return e;
    }
  }
  if (capacities.events_per_pair < 0 || capacities.events_per_pair > INT8_MAX) {
    Error e;
    e.kind = ErrorKind::kBadCapacity;
    e.value = capacities.events_per_pair;
    e.limit = INT8_MAX;
    return e;
  }
  for (int i = 0; i < count; ++i) {
    if (const Error e = internal::ValidateOne(buffers[i], i); !e.ok()) return e;
  }
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < i; ++k) {
      if (buffers[k].name == buffers[i].name) return internal::Blame(ErrorKind::kDuplicateName, buffers[i], i, 0, 0, k);
    }
  }
  for (int i = 0; i < count; ++i) {
    if (const Error e = internal::ValidateAlias(buffers, count, i); !e.ok()) return e;
  }
  return {};
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_VALIDATE_H_
