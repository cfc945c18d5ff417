// The half of DeviceMemory that separates addresses from bytes.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "libs/memory/device/address.h"
#include "libs/memory/device/device_memory.h"

namespace jumar::memory {

absl::StatusOr<void*> DeviceMemory::Reserve(uint64_t bytes, uint64_t alignment) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "a reservation of 0 bytes");
  if (alignment == 0) alignment = kHugePageBytes;
  if (!IsPowerOfTwo(alignment)) {
    return Error(absl::StatusCode::kInvalidArgument, absl::StrCat("alignment ", alignment, " is not a power of two"));
  }
  alignment = std::max(alignment, kNormalPageBytes);
  const uint64_t size = RoundUp(bytes, kNormalPageBytes);
  const absl::StatusOr<void*> base = TakeAddresses(size, alignment);
  if (!base.ok()) return Error(base.status().code(), std::string(base.status().message()));
  std::unique_lock lock(mutex_);
  reservations_[Address(*base)].size_bytes = size;
  stats_.reserved_bytes += size;
  return *base;
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
  GiveAddresses(base, it->second.size_bytes);
  stats_.reserved_bytes -= it->second.size_bytes;
  reservations_.erase(it);
  return absl::OkStatus();
}

absl::StatusOr<PhysicalHandle> DeviceMemory::CreatePhysical(uint64_t bytes, std::string_view tag) {
  if (bytes == 0) return Error(absl::StatusCode::kInvalidArgument, "a physical chunk of 0 bytes");
  const uint64_t size = RoundUp(bytes, kHugePageBytes);
  std::unique_lock lock(mutex_);
  if (absl::Status status = Charge(size, bytes); !status.ok()) return status;
  const std::optional<uint64_t> offset = offsets_.Take(size, 0);
  if (!offset.has_value()) {
    stats_.used_bytes -= size;
    return Error(absl::StatusCode::kResourceExhausted, absl::StrCat("no contiguous ", FormatBytes(size), " left"));
  }
  if (isolated()) {
    const uint64_t poisoned = std::min(size, kPoisonBytes);
    void* chunk = mmap(nullptr, poisoned, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(*offset));
    if (chunk != MAP_FAILED) {
      memset(chunk, kPoisonByte, poisoned);
      munmap(chunk, poisoned);
    }
  }
  chunks_[next_handle_] = Chunk{.tag = std::string(tag), .offset = *offset, .size_bytes = size, .num_mappings = 0};
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
  if (mmap(Access(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_,
           static_cast<off_t>(chunk->second.offset + offset)) == MAP_FAILED) {
    return Error(absl::StatusCode::kResourceExhausted, absl::StrCat("the host refused a mapping (", strerror(errno), ")"));
  }
  mappings[Address(address)] = Mapping{.size_bytes = bytes, .handle = handle};
  ++chunk->second.num_mappings;
  if (isolated()) mappings_.Add(Address(address), bytes, bytes);
  return absl::OkStatus();
}

absl::Status DeviceMemory::Unmap(void* address) {
  std::unique_lock lock(mutex_);
  auto holder = reservations_.upper_bound(Address(address));
  if (holder != reservations_.begin()) {
    --holder;
    const auto it = holder->second.mappings.find(Address(address));
    if (it != holder->second.mappings.end()) {
      mmap(Access(address), it->second.size_bytes, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0);
      if (isolated()) {
        mappings_.MarkFreed(Address(address));
        if (mappings_.num_freed() > kMaxFreed) mappings_.ForgetOldestFreed();
      }
      --chunks_.at(it->second.handle).num_mappings;
      holder->second.mappings.erase(it);
      return absl::OkStatus();
    }
  }
  return Error(absl::StatusCode::kNotFound, absl::StrCat("nothing is mapped at ", Hex(address)));
}

}  // namespace jumar::memory
