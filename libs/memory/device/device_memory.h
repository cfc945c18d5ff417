// The memory of one simulated device: a budget, an arena of addresses, and a virtual-memory interface.
//
// Every byte that a device hands out comes from an address range of its own (so a pointer tells whether it is device memory) and
// is charged to one budget. Memory is real (mmap), zeroed when handed out, and inaccessible once freed: a use after free faults.
//
//   auto memory = DeviceMemory::Create({.name = "device 0", .limit_bytes = 8ull << 30});
//   absl::StatusOr<void*> p = (*memory)->Allocate(1 << 20, PageSize::kHuge);   // ResourceExhausted when the budget is spent
//   (*memory)->Free(*p);
//
// The virtual-memory half separates addresses from bytes, for allocators that grow a segment in place and for sleep and wake:
//   void* va = *memory->Reserve(1ull << 30, 0);                  // addresses only, nothing is charged
//   PhysicalHandle chunk = *memory->CreatePhysical(20 << 20);    // bytes only, charged
//   memory->Map(va, 20 << 20, 0, chunk);  memory->Unmap(va);  memory->DestroyPhysical(chunk);  memory->Release(va);
//
// Thread-safe. Errors: InvalidArgument (bad size, alignment or pointer), NotFound (a pointer or handle that is not ours or was
// freed), FailedPrecondition (wrong order of calls), ResourceExhausted (budget, or the host is out of memory).
#ifndef LIBS_MEMORY_DEVICE_DEVICE_MEMORY_H_
#define LIBS_MEMORY_DEVICE_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/device/range_allocator.h"

namespace jumar::memory {

inline constexpr uint64_t kNormalPageBytes = uint64_t{4} << 10;
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

enum class PageSize { kNormal, kHuge };  // the unit in which an allocation is charged

struct DeviceMemoryOptions {
  std::string name = "device";    // starts every error text
  uint64_t limit_bytes = 0;       // the budget
  std::string mend = "";          // what to do when the budget is spent; ends the out-of-memory text
  uint64_t window_bytes = 0;      // addresses for Allocate; 0: four times the budget, so that fragmentation never fails a request
};

struct DeviceMemoryStats {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;      // allocations and physical chunks
  uint64_t peak_bytes = 0;      // the most that used_bytes ever was
  uint64_t reserved_bytes = 0;  // addresses reserved by Reserve
  uint64_t num_allocations = 0;
  uint64_t num_chunks = 0;
  uint64_t num_refused = 0;     // requests that the budget refused
};

enum class RegionKind { kAllocation, kReservation };

struct Region {
  void* base = nullptr;
  uint64_t size_bytes = 0;
  RegionKind kind = RegionKind::kAllocation;
};

using PhysicalHandle = uint64_t;  // never 0, never used twice

class DeviceMemory {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Create(DeviceMemoryOptions options);
  ~DeviceMemory();  // unmaps everything
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Zeroed memory, aligned to the page size. `bytes` is positive and is charged in whole pages.
  absl::StatusOr<void*> Allocate(uint64_t bytes, PageSize page);
  absl::Status Free(void* base);

  // Addresses without memory; `alignment` is a power of two or 0 (huge page). Rounded up to 4 KiB.
  absl::StatusOr<void*> Reserve(uint64_t bytes, uint64_t alignment);
  absl::Status Release(void* base);  // nothing may be mapped in it

  absl::StatusOr<PhysicalHandle> CreatePhysical(uint64_t bytes);  // charged in whole 2 MiB pages
  absl::Status DestroyPhysical(PhysicalHandle handle);            // must not be mapped
  // Maps `bytes` of the chunk from `offset` (multiples of 4 KiB) at `address`, inside one reservation and over nothing mapped.
  absl::Status Map(void* address, uint64_t bytes, uint64_t offset, PhysicalHandle handle);
  absl::Status Unmap(void* address);  // the start of a mapping

  // Sets the range to zero. Whole pages of a long range go back to the host instead of being written, so that zeroing a cache of many
  // GiB takes no memory until it is used. Any range is allowed that the caller may write to.
  void Zero(void* pointer, uint64_t bytes);

  // The allocation or reservation that holds `pointer`.
  std::optional<Region> Find(const void* pointer) const;
  DeviceMemoryStats Stats() const;

 private:
  struct Chunk {
    uint64_t offset = 0;  // in the file
    uint64_t size_bytes = 0;
    uint64_t num_mappings = 0;
  };
  struct Mapping {
    uint64_t size_bytes = 0;
    PhysicalHandle handle = 0;
  };
  struct Reservation {
    uint64_t size_bytes = 0;
    std::map<uint64_t, Mapping> mappings;  // by address
  };

  DeviceMemory(DeviceMemoryOptions options, void* window, uint64_t window_bytes, int file);
  absl::Status Charge(uint64_t bytes, uint64_t requested);  // under mutex_
  absl::Status Error(absl::StatusCode code, const std::string& text) const;

  const DeviceMemoryOptions options_;
  char* const window_;
  const uint64_t window_bytes_;
  const int file_;  // memfd behind the physical chunks; one for all of them, since descriptors are scarce

  mutable std::shared_mutex mutex_;
  RangeAllocator addresses_;  // of window_
  RangeAllocator offsets_;    // of file_
  std::map<uint64_t, Reservation> reservations_;
  std::map<PhysicalHandle, Chunk> chunks_;
  PhysicalHandle next_handle_ = 1;
  DeviceMemoryStats stats_;
};

// "1.50 GiB", "20.00 MiB", "512 B".
std::string FormatBytes(uint64_t bytes);

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_DEVICE_MEMORY_H_
