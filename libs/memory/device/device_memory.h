// The memory of one simulated device: a budget, an arena of addresses, and a virtual-memory interface.
//
// Every byte that a device hands out comes from an address range of its own (so a pointer tells whether it is device memory) and
// is charged to one budget. Memory is real (mmap), zeroed when handed out, and inaccessible once freed: a use after free faults.
//
// With `mirror` it is isolated (strict mode): the addresses handed out are never accessible, the owner reaches the memory at
// address + mirror->distance(). Then fresh memory is not zero but kPoisonByte, allocations have an inaccessible page behind them,
// freed addresses are not reused until kMaxFreed others were freed or addresses run short, and it is known who allocated and freed.
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
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/device/address_mirror.h"
#include "libs/memory/device/holders.h"
#include "libs/memory/device/ledger.h"
#include "libs/memory/device/range_allocator.h"

namespace jumar::memory {

inline constexpr uint64_t kNormalPageBytes = uint64_t{4} << 10;
inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// Isolated memory: the first kPoisonBytes of what is handed out are filled with kPoisonByte (NaN in every floating-point format; the
// rest would only cost host memory) and read as zero behind that.
inline constexpr unsigned char kPoisonByte = 0xff;
inline constexpr uint64_t kPoisonBytes = uint64_t{64} << 20;
inline constexpr size_t kMaxFreed = 4096;

enum class PageSize { kNormal, kHuge };  // the unit in which an allocation is charged

struct DeviceMemoryOptions {
  std::string name = "device";    // starts every error text
  uint64_t limit_bytes = 0;       // the budget
  std::string mend = "";          // what to do when the budget is spent; ends the out-of-memory text
  uint64_t window_bytes = 0;      // addresses for Allocate; 0: four times the budget, so that fragmentation never fails a request
  AddressMirror* mirror = nullptr;  // where addresses come from when isolated; must outlive the memory
};

// The free ranges of addresses, or of the file behind the physical chunks.
struct FreeRuns {
  uint64_t free_bytes = 0;
  uint64_t largest_bytes = 0;
  // The share of what is free that is not in the largest range: 0 when all of it is, near 1 when it lies in splinters.
  double fragmentation() const {
    return free_bytes == 0 ? 0 : 1 - static_cast<double>(largest_bytes) / static_cast<double>(free_bytes);
  }
};

struct DeviceMemoryStats {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;      // allocations and physical chunks
  uint64_t peak_bytes = 0;      // the most that used_bytes ever was
  uint64_t reserved_bytes = 0;  // addresses reserved by Reserve
  uint64_t num_allocations = 0;
  uint64_t num_chunks = 0;
  uint64_t num_refused = 0;     // requests that the budget refused
  // Neither can fail a request that the budget allows: both rooms are four times the budget.
  FreeRuns addresses;  // of Allocate
  FreeRuns physical;   // of CreatePhysical
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

  // Zeroed memory, aligned to the page size. `bytes` is positive and is charged in whole pages. `tag` says whose it is.
  absl::StatusOr<void*> Allocate(uint64_t bytes, PageSize page, std::string_view tag = {});
  absl::Status Free(void* base);

  // Addresses without memory; `alignment` is a power of two or 0 (huge page). Rounded up to 4 KiB.
  absl::StatusOr<void*> Reserve(uint64_t bytes, uint64_t alignment);
  absl::Status Release(void* base);  // nothing may be mapped in it

  absl::StatusOr<PhysicalHandle> CreatePhysical(uint64_t bytes, std::string_view tag = {});  // charged in whole 2 MiB pages
  absl::Status DestroyPhysical(PhysicalHandle handle);            // must not be mapped
  // Maps `bytes` of the chunk from `offset` (multiples of 4 KiB) at `address`, inside one reservation and over nothing mapped.
  absl::Status Map(void* address, uint64_t bytes, uint64_t offset, PhysicalHandle handle);
  absl::Status Unmap(void* address);  // the start of a mapping

  // Sets the range to zero. Whole pages of a long range go back to the host instead of being written, so that zeroing a cache of many
  // GiB takes no memory until it is used. The range is inside one allocation or one row of mappings.
  void Zero(void* pointer, uint64_t bytes);

  // The allocation or reservation that holds `pointer`.
  std::optional<Region> Find(const void* pointer) const;
  // How many of `wanted` bytes from `pointer` on lie in its allocation, or are mapped without a gap.
  uint64_t UsableBytes(const void* pointer, uint64_t wanted) const;

  // ---- of isolated memory; empty or nothing otherwise
  std::string Describe(const void* pointer) const;  // the allocation that holds it, live or freed, and who did it; "" if none
  // For a signal handler: as Describe, or the nearest allocation before it; and is the address this device's, used or not? Both give up
  // when another thread holds the lock for long.
  void Describe(const void* pointer, SignalWriter& out) const;
  bool OwnsAddress(const void* pointer) const;
  std::vector<AllocationRecord> Live() const;  // allocations and mappings
  DeviceMemoryStats Stats() const;
  // What is charged, by tag, most bytes first. The out-of-memory text names them.
  std::vector<MemoryHolder> Holders() const;

 private:
  struct Chunk {
    std::string tag;
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
  std::vector<MemoryHolder> HoldersLocked() const;
  bool isolated() const { return options_.mirror != nullptr; }
  absl::StatusOr<void*> TakeAddresses(uint64_t bytes, uint64_t alignment);  // for a reservation
  void GiveAddresses(void* base, uint64_t bytes);
  void* Access(const void* pointer) const {
    return const_cast<char*>(static_cast<const char*>(pointer)) + distance_;
  }
  bool InWindow(const void* pointer) const;
  bool LockForSignal() const;
  std::optional<Region> FindLocked(const void* pointer) const;
  std::string DescribeLocked(const void* pointer) const;
  absl::Status Error(absl::StatusCode code, const std::string& text) const;

  const DeviceMemoryOptions options_;
  char* const window_;
  const uint64_t window_bytes_;
  const uint64_t distance_;
  const uint64_t guard_bytes_;  // behind each range of addresses
  const int file_;  // memfd behind the physical chunks; one for all of them, since descriptors are scarce

  mutable std::shared_mutex mutex_;
  RangeAllocator addresses_;  // of window_
  RangeAllocator offsets_;    // of file_
  std::map<uint64_t, Reservation> reservations_;
  std::map<PhysicalHandle, Chunk> chunks_;
  std::unordered_map<uint64_t, std::string> tags_;  // of allocations that have one, by address
  PhysicalHandle next_handle_ = 1;
  DeviceMemoryStats stats_;
  Ledger allocations_, mappings_;  // when isolated
};

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_DEVICE_MEMORY_H_
