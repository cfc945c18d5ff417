#include "libs/memory/device/device_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/memory/device/address.h"

namespace jumar::memory {
namespace {

// Inaccessible addresses from the system. Asks for more than needed, so that they can be aligned, and returns the rest.
absl::StatusOr<void*> ReserveAddresses(uint64_t bytes, uint64_t alignment) {
  void* raw = mmap(nullptr, bytes + alignment, PROT_NONE, kReserveFlags, -1, 0);
  if (raw == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", FormatBytes(bytes), " of addresses (", strerror(errno), "); raise `ulimit -v`"));
  }
  char* base = reinterpret_cast<char*>(RoundUp(Address(raw), alignment));
  const uint64_t head = Address(base) - Address(raw);
  if (head > 0) munmap(raw, head);
  if (head < alignment) munmap(base + bytes, alignment - head);
  return base;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Create(DeviceMemoryOptions options) {
  if (options.limit_bytes < kHugePageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": a budget of ", FormatBytes(options.limit_bytes),
                                                   " is less than one page of ", FormatBytes(kHugePageBytes)));
  }
  // Isolated: room for addresses that wait to be reused, and for the pages behind allocations.
  const uint64_t times = options.mirror == nullptr ? 4 : 16;
  const uint64_t window_bytes = RoundUp(options.window_bytes != 0 ? options.window_bytes : times * options.limit_bytes, kHugePageBytes);
  const absl::StatusOr<void*> taken =
      options.mirror == nullptr ? ReserveAddresses(window_bytes, kHugePageBytes) : options.mirror->Take(window_bytes, kHugePageBytes);
  if (!taken.ok()) return absl::Status(taken.status().code(), absl::StrCat(options.name, ": ", taken.status().message()));
  void* const window = *taken;

  const int file = memfd_create("jumar-device-memory", MFD_CLOEXEC);
  // The file is sparse: its length costs nothing, and room beyond the budget keeps chunks contiguous.
  if (file < 0 || ftruncate(file, static_cast<off_t>(RoundUp(4 * options.limit_bytes, kHugePageBytes))) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    if (options.mirror == nullptr) {
      munmap(window, window_bytes);
    } else {
      options.mirror->Give(window);
    }
    return absl::ResourceExhaustedError(absl::StrCat(options.name, ": cannot create a memory file (", strerror(error), ")"));
  }
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(std::move(options), window, window_bytes, file));
}

DeviceMemory::DeviceMemory(DeviceMemoryOptions options, void* window, uint64_t window_bytes, int file)
    : options_(std::move(options)),
      window_(static_cast<char*>(window)),
      window_bytes_(window_bytes),
      distance_(options_.mirror == nullptr ? 0 : options_.mirror->distance()),
      guard_bytes_(options_.mirror == nullptr ? 0 : kNormalPageBytes),
      file_(file),
      addresses_(Address(window), window_bytes, kNormalPageBytes),
      offsets_(0, RoundUp(4 * options_.limit_bytes, kHugePageBytes), kHugePageBytes) {
  stats_.limit_bytes = options_.limit_bytes;
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [address, reservation] : reservations_) GiveAddresses(Pointer(address), reservation.size_bytes);
  GiveAddresses(window_, window_bytes_);
  close(file_);
}

absl::Status DeviceMemory::Error(absl::StatusCode code, const std::string& text) const {
  return absl::Status(code, absl::StrCat(options_.name, ": ", text));
}

absl::Status DeviceMemory::Charge(uint64_t bytes, uint64_t requested) {
  if (bytes < requested || bytes > stats_.limit_bytes - stats_.used_bytes) {
    ++stats_.num_refused;
    const std::string holders = DescribeHolders(HoldersLocked());
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("out of memory: ", FormatBytes(requested), " requested, ", FormatBytes(stats_.used_bytes),
                              " used of a limit of ", FormatBytes(stats_.limit_bytes), " (",
                              FormatBytes(stats_.limit_bytes - stats_.used_bytes), " free, peak ",
                              FormatBytes(stats_.peak_bytes), ")", holders.empty() ? "" : ". Held by: ", holders,
                              options_.mend.empty() ? "" : ". ", options_.mend));
  }
  stats_.used_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.used_bytes);
  return absl::OkStatus();
}

absl::StatusOr<void*> DeviceMemory::Allocate(uint64_t bytes, PageSize page, std::string_view tag) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "an allocation of 0 bytes; ask for at least 1");
  const uint64_t page_bytes = page == PageSize::kHuge ? kHugePageBytes : kNormalPageBytes;
  const uint64_t charged = RoundUp(bytes, page_bytes);
  std::unique_lock lock(mutex_);
  if (absl::Status status = Charge(charged, bytes); !status.ok()) return status;
  std::optional<uint64_t> address;
  while (!(address = addresses_.Take(charged + guard_bytes_, page_bytes)).has_value()) {
    const std::optional<uint64_t> freed = allocations_.ForgetOldestFreed();
    if (!freed.has_value()) break;
    addresses_.Give(*freed);
  }
  if (!address.has_value()) {
    stats_.used_bytes -= charged;
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("no free address range of ", FormatBytes(charged), " in a window of ",
                              FormatBytes(window_bytes_), ", the longest is ", FormatBytes(addresses_.largest_free_bytes())));
  }
  void* const pointer = Pointer(*address);
  if (mprotect(Access(pointer), charged, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    addresses_.Give(*address);
    stats_.used_bytes -= charged;
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("the host refused ", FormatBytes(charged), " (", strerror(error),
                              "); set a smaller limit or free memory of the machine"));
  }
  // Weights and KV pages are streamed: fewer TLB misses. Only advice, so a kernel without it changes nothing.
  if (page == PageSize::kHuge) madvise(Access(pointer), charged, MADV_HUGEPAGE);
  ++stats_.num_allocations;
  if (!tag.empty()) tags_.emplace(*address, tag);
  if (isolated()) {
    memset(Access(pointer), kPoisonByte, std::min(charged, kPoisonBytes));
    allocations_.Add(*address, charged, bytes);
  }
  return pointer;
}

absl::Status DeviceMemory::Free(void* base) {
  std::unique_lock lock(mutex_);
  const std::optional<Region> region = FindLocked(base);
  if (!region.has_value() || region->kind != RegionKind::kAllocation || region->base != base) {
    const std::string what = DescribeLocked(base);
    return Error(absl::StatusCode::kNotFound,
                 region.has_value() && region->base != base
                     ? absl::StrCat("cannot free ", Hex(base), ": it points ", Address(base) - Address(region->base),
                                    " bytes into an allocation; pass its start", what.empty() ? "" : ". It is ", what)
                     : absl::StrCat("cannot free ", Hex(base), ": not an allocation of this device, or freed before",
                                    what.empty() ? "" : ". It is ", what));
  }
  // A fresh inaccessible mapping gives the bytes back to the host and makes a later access fault.
  mmap(Access(base), region->size_bytes, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
  stats_.used_bytes -= region->size_bytes;
  --stats_.num_allocations;
  tags_.erase(Address(base));
  if (!isolated()) {
    addresses_.Give(Address(base));
    return absl::OkStatus();
  }
  allocations_.MarkFreed(Address(base));
  if (allocations_.num_freed() > kMaxFreed) addresses_.Give(*allocations_.ForgetOldestFreed());
  return absl::OkStatus();
}

absl::StatusOr<void*> DeviceMemory::TakeAddresses(uint64_t bytes, uint64_t alignment) {
  return isolated() ? options_.mirror->Take(bytes + guard_bytes_, alignment) : ReserveAddresses(bytes, alignment);
}

void DeviceMemory::GiveAddresses(void* base, uint64_t bytes) {
  if (isolated()) {
    options_.mirror->Give(base);
  } else {
    munmap(base, bytes);
  }
}

void DeviceMemory::Zero(void* pointer, uint64_t bytes) {
  // Below this, writing is cheaper than faulting the pages in again.
  constexpr uint64_t kGiveBackFrom = 8 * kHugePageBytes;
  char* const begin = static_cast<char*>(Access(pointer));
  char* const end = begin + bytes;
  char* const first = reinterpret_cast<char*>(RoundUp(Address(begin), kHugePageBytes));
  char* const last = reinterpret_cast<char*>(Address(end) & ~(kHugePageBytes - 1));
  if (bytes >= kGiveBackFrom && first < last) {
    // Private pages (allocations) read as zero after MADV_DONTNEED; pages of the file (mapped chunks) after MADV_REMOVE.
    const std::optional<Region> region = Find(pointer);
    const int advice = region.has_value() && region->kind == RegionKind::kReservation ? MADV_REMOVE : MADV_DONTNEED;
    if (region.has_value() && madvise(first, static_cast<size_t>(last - first), advice) == 0) {
      memset(begin, 0, static_cast<size_t>(first - begin));
      memset(last, 0, static_cast<size_t>(end - last));
      return;
    }
  }
  memset(begin, 0, bytes);
}

std::optional<Region> DeviceMemory::Find(const void* pointer) const {
  std::shared_lock lock(mutex_);
  return FindLocked(pointer);
}

std::optional<Region> DeviceMemory::FindLocked(const void* pointer) const {
  const uint64_t address = Address(pointer);
  if (InWindow(pointer)) {
    const auto found = addresses_.Find(address);
    if (!found.has_value()) return std::nullopt;
    if (isolated()) {
      const AllocationRecord* record = allocations_.Holding(address);
      if (record == nullptr || record->freed != 0) return std::nullopt;
    }
    return Region{Pointer(found->first), found->second - guard_bytes_, RegionKind::kAllocation};
  }
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second.size_bytes) return std::nullopt;
  return Region{Pointer(it->first), it->second.size_bytes, RegionKind::kReservation};
}

uint64_t DeviceMemory::UsableBytes(const void* pointer, uint64_t wanted) const {
  std::shared_lock lock(mutex_);
  const std::optional<Region> region = FindLocked(pointer);
  if (!region.has_value()) return 0;
  const uint64_t address = Address(pointer);
  if (region->kind == RegionKind::kAllocation) return std::min(wanted, Address(region->base) + region->size_bytes - address);
  const auto& mappings = reservations_.at(Address(region->base)).mappings;
  uint64_t end = address;  // of what is mapped from the address on
  auto it = mappings.upper_bound(address);
  if (it != mappings.begin()) --it;
  for (; it != mappings.end() && it->first <= end && end - address < wanted; ++it) {
    end = std::max(end, it->first + it->second.size_bytes);
  }
  return std::min(wanted, end - address);
}

std::string DeviceMemory::DescribeLocked(const void* pointer) const {
  for (const Ledger* ledger : {&allocations_, &mappings_}) {
    if (const AllocationRecord* record = ledger->Holding(Address(pointer))) return memory::Describe(*record, Address(pointer));
  }
  return "";
}

std::string DeviceMemory::Describe(const void* pointer) const {
  std::shared_lock lock(mutex_);
  return DescribeLocked(pointer);
}

bool DeviceMemory::InWindow(const void* pointer) const { return Address(pointer) - Address(window_) < window_bytes_; }

bool DeviceMemory::LockForSignal() const {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (mutex_.try_lock_shared()) return true;
    const timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

void DeviceMemory::Describe(const void* pointer, SignalWriter& out) const {
  if (!LockForSignal()) {
    out << "not known: another thread is changing the device's memory\n";
    return;
  }
  if (const AllocationRecord* record = (InWindow(pointer) ? allocations_ : mappings_).Nearest(Address(pointer))) {
    memory::Describe(*record, Address(pointer), out);
  } else {
    out << "in front of all that was ever allocated there\n";
  }
  mutex_.unlock_shared();
}

bool DeviceMemory::OwnsAddress(const void* pointer) const {
  if (InWindow(pointer)) return true;
  if (!LockForSignal()) return false;
  const bool owns = FindLocked(pointer).has_value();
  mutex_.unlock_shared();
  return owns;
}

std::vector<AllocationRecord> DeviceMemory::Live() const {
  std::shared_lock lock(mutex_);
  std::vector<AllocationRecord> live = allocations_.Live();
  for (AllocationRecord& record : mappings_.Live()) live.push_back(std::move(record));
  return live;
}

DeviceMemoryStats DeviceMemory::Stats() const {
  std::shared_lock lock(mutex_);
  DeviceMemoryStats stats = stats_;
  stats.addresses = {addresses_.free_bytes(), addresses_.largest_free_bytes()};
  stats.physical = {offsets_.free_bytes(), offsets_.largest_free_bytes()};
  return stats;
}

std::vector<MemoryHolder> DeviceMemory::Holders() const {
  std::shared_lock lock(mutex_);
  return HoldersLocked();
}

std::vector<MemoryHolder> DeviceMemory::HoldersLocked() const {
  HolderSums sums;
  const auto add_allocation = [&](uint64_t address, uint64_t bytes) {
    const auto tag = tags_.find(address);
    sums.Add(tag == tags_.end() ? std::string_view() : tag->second, bytes);
  };
  if (isolated()) {  // addresses that rest are taken too
    for (const AllocationRecord& record : allocations_.Live()) add_allocation(record.base, record.size_bytes);
  } else {
    for (const auto& [address, bytes] : addresses_.taken()) add_allocation(address, bytes);
  }
  for (const auto& [handle, chunk] : chunks_) sums.Add(chunk.tag, chunk.size_bytes);
  return sums.Sorted();
}

}  // namespace jumar::memory
