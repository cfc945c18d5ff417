// Addresses that nobody can touch, and their mirror, through which the owner reaches the memory behind them.
//
// A program that gets addresses of the lower half can hand them around, but a load or store through one faults: nothing is ever
// mapped there. The runtime adds the constant `distance()` and works on the upper half. This needs no protection keys, and it is exact
// on every CPU: no window of time and no thread in which the program may touch device memory.
//
//   [base, base + bytes)                what the program sees: never accessible
//   [base + distance, + bytes)          the mirror: accessible where memory was put
#ifndef LIBS_MEMORY_DEVICE_ADDRESS_MIRROR_H_
#define LIBS_MEMORY_DEVICE_ADDRESS_MIRROR_H_

#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/statusor.h"
#include "libs/memory/device/range_allocator.h"

namespace jumar::memory {

class AddressMirror {
 public:
  // Reserves twice `bytes` of addresses; no memory. `bytes` is rounded up to 2 MiB.
  static absl::StatusOr<std::unique_ptr<AddressMirror>> Create(uint64_t bytes);
  ~AddressMirror();
  AddressMirror(const AddressMirror&) = delete;
  AddressMirror& operator=(const AddressMirror&) = delete;

  uint64_t base() const { return base_; }
  uint64_t distance() const { return bytes_; }
  bool Holds(uint64_t address) const { return address - base_ < bytes_; }
  bool MirrorHolds(uint64_t address) const { return address - base_ - bytes_ < bytes_; }

  // Hands out a range of the lower half. Thread-safe. ResourceExhausted when no free range is long enough.
  absl::StatusOr<void*> Take(uint64_t bytes, uint64_t alignment);
  void Give(void* base);  // also makes its mirror inaccessible

 private:
  AddressMirror(uint64_t base, uint64_t bytes);

  const uint64_t base_;
  const uint64_t bytes_;
  std::mutex mutex_;
  RangeAllocator ranges_;
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_ADDRESS_MIRROR_H_
