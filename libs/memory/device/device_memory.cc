#include "libs/memory/device/device_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::memory {
namespace {

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }
uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
std::string Hex(const void* pointer) { return absl::StrFormat("%p", pointer); }
bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Create(DeviceMemoryOptions options) {
  if (options.limit_bytes < kHugePageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(options.name, ": a budget of ", FormatBytes(options.limit_bytes),
                                                   " is less than one page of ", FormatBytes(kHugePageBytes)));
  }
  const uint64_t window_bytes =
      RoundUp(options.window_bytes != 0 ? options.window_bytes : 4 * options.limit_bytes, kHugePageBytes);
  // One page more than the window, so that the window can start at a huge page.
  void* raw = mmap(nullptr, window_bytes + kHugePageBytes, PROT_NONE, kReserveFlags, -1, 0);
  if (raw == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(options.name, ": cannot reserve ", FormatBytes(window_bytes),
                                                     " of addresses (", strerror(errno), "); raise `ulimit -v`"));
  }
  char* window = reinterpret_cast<char*>(RoundUp(Address(raw), kHugePageBytes));
  const size_t head = static_cast<size_t>(window - static_cast<char*>(raw));
  if (head > 0) munmap(raw, head);
  if (head < kHugePageBytes) munmap(window + window_bytes, kHugePageBytes - head);

  const int file = memfd_create("jumar-device-memory", MFD_CLOEXEC);
  // The file is sparse: its length costs nothing, and room beyond the budget keeps chunks contiguous.
  if (file < 0 || ftruncate(file, static_cast<off_t>(RoundUp(4 * options.limit_bytes, kHugePageBytes))) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    munmap(window, window_bytes);
    return absl::ResourceExhaustedError(absl::StrCat(options.name, ": cannot create a memory file (", strerror(error), ")"));
  }
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(std::move(options), window, window_bytes, file));
}

DeviceMemory::DeviceMemory(DeviceMemoryOptions options, void* window, uint64_t window_bytes, int file)
    : options_(std::move(options)),
      window_(static_cast<char*>(window)),
      window_bytes_(window_bytes),
      file_(file),
      addresses_(Address(window), window_bytes, kNormalPageBytes),
      offsets_(0, RoundUp(4 * options_.limit_bytes, kHugePageBytes), kHugePageBytes) {
  stats_.limit_bytes = options_.limit_bytes;
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [address, reservation] : reservations_) {
    munmap(reinterpret_cast<void*>(address), reservation.size_bytes);
  }
  munmap(window_, window_bytes_);
  close(file_);
}

absl::Status DeviceMemory::Error(absl::StatusCode code, const std::string& text) const {
  return absl::Status(code, absl::StrCat(options_.name, ": ", text));
}

absl::Status DeviceMemory::Charge(uint64_t bytes, uint64_t requested) {
  if (bytes < requested || bytes > stats_.limit_bytes - stats_.used_bytes) {
    ++stats_.num_refused;
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("out of memory: ", FormatBytes(requested), " requested, ", FormatBytes(stats_.used_bytes),
                              " used of a limit of ", FormatBytes(stats_.limit_bytes), " (",
                              FormatBytes(stats_.limit_bytes - stats_.used_bytes), " free, peak ",
                              FormatBytes(stats_.peak_bytes), ")", options_.mend.empty() ? "" : ". ", options_.mend));
  }
  stats_.used_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.used_bytes);
  return absl::OkStatus();
}

absl::StatusOr<void*> DeviceMemory::Allocate(uint64_t bytes, PageSize page) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "an allocation of 0 bytes; ask for at least 1");
  const uint64_t page_bytes = page == PageSize::kHuge ? kHugePageBytes : kNormalPageBytes;
  const uint64_t charged = RoundUp(bytes, page_bytes);
  std::unique_lock lock(mutex_);
  if (absl::Status status = Charge(charged, bytes); !status.ok()) return status;
  const std::optional<uint64_t> address = addresses_.Take(charged, page_bytes);
  void* pointer = address.has_value() ? reinterpret_cast<void*>(*address) : nullptr;
  if (pointer == nullptr) {
    stats_.used_bytes -= charged;
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("no free address range of ", FormatBytes(charged), " in a window of ",
                              FormatBytes(window_bytes_), ", the longest is ", FormatBytes(addresses_.largest_free_bytes())));
  }
  if (mprotect(pointer, charged, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    addresses_.Give(*address);
    stats_.used_bytes -= charged;
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("the host refused ", FormatBytes(charged), " (", strerror(error),
                              "); set a smaller limit or free memory of the machine"));
  }
  // Weights and KV pages are streamed: fewer TLB misses. Only advice, so a kernel without it changes nothing.
  if (page == PageSize::kHuge) madvise(pointer, charged, MADV_HUGEPAGE);
  ++stats_.num_allocations;
  return pointer;
}

absl::Status DeviceMemory::Free(void* base) {
  std::unique_lock lock(mutex_);
  const uint64_t size = addresses_.Give(Address(base));
  if (size == 0) {
    const auto holder = addresses_.Find(Address(base));
    return Error(absl::StatusCode::kNotFound,
                 holder.has_value()
                     ? absl::StrCat("cannot free ", Hex(base), ": it points ", Address(base) - holder->first,
                                    " bytes into an allocation; pass its start")
                     : absl::StrCat("cannot free ", Hex(base), ": not an allocation of this device, or freed before"));
  }
  // A fresh inaccessible mapping gives the bytes back to the host and makes a later access fault.
  mmap(base, size, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
  stats_.used_bytes -= size;
  --stats_.num_allocations;
  return absl::OkStatus();
}

absl::StatusOr<void*> DeviceMemory::Reserve(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "a reservation of 0 bytes");
  if (alignment == 0) alignment = kHugePageBytes;
  if (!IsPowerOfTwo(alignment)) {
    return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("alignment ", alignment, " is not a power of two"));
  }
  alignment = std::max(alignment, kNormalPageBytes);
  const uint64_t size = RoundUp(bytes, kNormalPageBytes);
  void* raw = mmap(nullptr, size + alignment, PROT_NONE, kReserveFlags, -1, 0);
  if (raw == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted,
                 absl::StrCat("cannot reserve ", FormatBytes(size), " of addresses (", strerror(errno), ")"));
  }
  char* base = reinterpret_cast<char*>(RoundUp(Address(raw), alignment));
  const uint64_t head = Address(base) - Address(raw);
  if (head > 0) munmap(raw, head);
  if (head < alignment) munmap(base + size, alignment - head);
  std::unique_lock lock(mutex_);
  reservations_[Address(base)].size_bytes = size;
  stats_.reserved_bytes += size;
  return base;
}

absl::Status DeviceMemory::Release(void* base) {
  std::unique_lock lock(mutex_);
  const auto it = reservations_.find(Address(base));
  if (it == reservations_.end()) {
    return Error(absl::StatusCode::kNotFound, absl::StrCat(Hex(base), " is not the start of a reservation"));
  }
  if (!it->second.mappings.empty()) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("cannot release ", Hex(base), ": ", it->second.mappings.size(),
                              " mappings are left in it; unmap them first"));
  }
  munmap(base, it->second.size_bytes);
  stats_.reserved_bytes -= it->second.size_bytes;
  reservations_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<PhysicalHandle> DeviceMemory::CreatePhysical(uint64_t bytes) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "a physical chunk of 0 bytes");
  const uint64_t size = RoundUp(bytes, kHugePageBytes);
  std::unique_lock lock(mutex_);
  if (absl::Status status = Charge(size, bytes); !status.ok()) return status;
  const std::optional<uint64_t> offset = offsets_.Take(size, 0);
  if (!offset.has_value()) {
    stats_.used_bytes -= size;
    return Error(absl::StatusCode::kResourceExhausted, absl::StrCat("no contiguous ", FormatBytes(size), " left"));
  }
  chunks_[next_handle_] = Chunk{.offset = *offset, .size_bytes = size};
  ++stats_.num_chunks;
  return next_handle_++;
}

absl::Status DeviceMemory::DestroyPhysical(PhysicalHandle handle) {
  std::unique_lock lock(mutex_);
  const auto it = chunks_.find(handle);
  if (it == chunks_.end()) {
    return Error(absl::StatusCode::kNotFound, absl::StrCat("no physical chunk with handle ", handle));
  }
  if (it->second.num_mappings > 0) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("physical chunk ", handle, " is still mapped ", it->second.num_mappings, " times; unmap it first"));
  }
  // Gives the bytes back to the host; the next user of the offsets reads zeros.
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(it->second.offset),
                static_cast<off_t>(it->second.size_bytes)) != 0) {
    return Error(absl::StatusCode::kInternal, absl::StrCat("cannot give back a physical chunk (", strerror(errno), ")"));
  }
  offsets_.Give(it->second.offset);
  stats_.used_bytes -= it->second.size_bytes;
  --stats_.num_chunks;
  chunks_.erase(it);
  return absl::OkStatus();
}

absl::Status DeviceMemory::Map(void* address, uint64_t bytes, uint64_t offset, PhysicalHandle handle) {
  if (bytes == 0 || bytes % kNormalPageBytes != 0 || offset % kNormalPageBytes != 0 || Address(address) % kNormalPageBytes != 0) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("map of ", bytes, " bytes from offset ", offset, " at ", Hex(address),
                              ": all three must be multiples of ", kNormalPageBytes));
  }
  std::unique_lock lock(mutex_);
  const auto chunk = chunks_.find(handle);
  if (chunk == chunks_.end()) {
    return Error(absl::StatusCode::kNotFound, absl::StrCat("no physical chunk with handle ", handle));
  }
  if (offset > chunk->second.size_bytes || bytes > chunk->second.size_bytes - offset) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("map of ", bytes, " bytes from offset ", offset, " exceeds the chunk of ",
                              chunk->second.size_bytes, " bytes"));
  }
  auto holder = reservations_.upper_bound(Address(address));
  if (holder != reservations_.begin()) --holder;
  const uint64_t inside = holder == reservations_.end() ? 0 : Address(address) - holder->first;
  if (holder == reservations_.end() || Address(address) < holder->first || inside > holder->second.size_bytes ||
      bytes > holder->second.size_bytes - inside) {
    return Error(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("[", Hex(address), ", +", bytes, ") is not inside one reservation"));
  }
  auto& mappings = holder->second.mappings;
  const auto next = mappings.lower_bound(Address(address));
  const bool hits_next = next != mappings.end() && next->first < Address(address) + bytes;
  const bool hits_previous =
      next != mappings.begin() && std::prev(next)->first + std::prev(next)->second.size_bytes > Address(address);
  if (hits_next || hits_previous) {
    return Error(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("[", Hex(address), ", +", bytes, ") is mapped already; unmap it first"));
  }
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
           static_cast<off_t>(chunk->second.offset + offset)) == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted, absl::StrCat("the host refused a mapping (", strerror(errno), ")"));
  }
  mappings[Address(address)] = Mapping{.size_bytes = bytes, .handle = handle};
  ++chunk->second.num_mappings;
  return absl::OkStatus();
}

absl::Status DeviceMemory::Unmap(void* address) {
  std::unique_lock lock(mutex_);
  auto holder = reservations_.upper_bound(Address(address));
  if (holder != reservations_.begin()) {
    --holder;
    const auto it = holder->second.mappings.find(Address(address));
    if (it != holder->second.mappings.end()) {
      mmap(address, it->second.size_bytes, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
      --chunks_.at(it->second.handle).num_mappings;
      holder->second.mappings.erase(it);
      return absl::OkStatus();
    }
  }
  return Error(absl::StatusCode::kNotFound, absl::StrCat("nothing is mapped at ", Hex(address)));
}

void DeviceMemory::Zero(void* pointer, uint64_t bytes) {
  // Below this, writing is cheaper than faulting the pages in again.
  constexpr uint64_t kGiveBackFrom = 8 * kHugePageBytes;
  char* const begin = static_cast<char*>(pointer);
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
  memset(pointer, 0, bytes);
}

std::optional<Region> DeviceMemory::Find(const void* pointer) const {
  const uint64_t address = Address(pointer);
  std::shared_lock lock(mutex_);
  if (address - Address(window_) < window_bytes_) {
    const auto found = addresses_.Find(address);
    if (!found.has_value()) return std::nullopt;
    return Region{reinterpret_cast<void*>(found->first), found->second, RegionKind::kAllocation};
  }
  auto it = reservations_.upper_bound(address);
  if (it == reservations_.begin()) return std::nullopt;
  --it;
  if (address - it->first >= it->second.size_bytes) return std::nullopt;
  return Region{reinterpret_cast<void*>(it->first), it->second.size_bytes, RegionKind::kReservation};
}

DeviceMemoryStats DeviceMemory::Stats() const {
  std::shared_lock lock(mutex_);
  return stats_;
}

}  // namespace jumar::memory
