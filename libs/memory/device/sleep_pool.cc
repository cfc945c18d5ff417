#include "libs/memory/device/sleep_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace jumar::memory {
namespace {

bool Contains(absl::Span<const std::string> tags, const std::string& tag) {
  return std::find(tags.begin(), tags.end(), tag) != tags.end();
}

absl::Status Because(const absl::Status& status, const std::string& what) {
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

}  // namespace

SleepPool::~SleepPool() {
  for (auto& [base, allocation] : allocations_) Dispose(base, allocation).IgnoreError();
  Tidy();
}

absl::StatusOr<void*> SleepPool::Allocate(uint64_t bytes, std::string_view tag) {
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat("an allocation of 0 bytes for ", tag, "; ask for at least 1"));
  const uint64_t page = memory_.granularity();
  if (bytes > UINT64_MAX - (page - 1)) {
    return absl::InvalidArgumentError(absl::StrCat("an allocation of ", bytes, " bytes for ", tag, " exceeds any device"));
  }
  std::lock_guard lock(mutex_);
  Tidy();
  Allocation allocation{.tag = std::string(tag), .bytes = (bytes + page - 1) & ~(page - 1)};
  const absl::StatusOr<void*> base = memory_.Reserve(allocation.bytes);
  if (!base.ok()) return base.status();
  allocation.asleep = true;
  if (absl::Status status = WakeOne(*base, allocation); !status.ok()) {
    if (!Dispose(*base, allocation).ok()) left_over_.emplace(*base, std::move(allocation));
    return status;
  }
  allocations_.emplace(*base, std::move(allocation));
  return *base;
}

absl::Status SleepPool::Free(void* base) {
  std::lock_guard lock(mutex_);
  const auto it = allocations_.find(base);
  if (it == allocations_.end()) {
    return absl::NotFoundError(absl::StrFormat("%p is not an allocation of the sleep pool, or was freed before", base));
  }
  if (!it->second.asleep) {
    if (absl::Status status = memory_.Synchronize(); !status.ok()) return status;
  }
  if (absl::Status status = Dispose(base, it->second); !status.ok()) return status;
  allocations_.erase(it);
  return absl::OkStatus();
}

absl::Status SleepPool::Sleep(absl::Span<const std::string> offload) {
  std::lock_guard lock(mutex_);
  Tidy();
  std::vector<void*> awake;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.asleep) awake.push_back(base);
  }
  // Copies first: if one fails, nothing was dropped.
  std::stable_partition(awake.begin(), awake.end(), [&](void* base) { return Contains(offload, allocations_.at(base).tag); });
  return SleepThrough(offload, awake);
}

absl::Status SleepPool::Discard(absl::Span<const std::string> tags) {
  std::lock_guard lock(mutex_);
  Tidy();
  std::vector<void*> awake;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.asleep && Contains(tags, allocation.tag)) awake.push_back(base);
  }
  return SleepThrough({}, awake);
}

absl::Status SleepPool::SleepThrough(absl::Span<const std::string> offload, const std::vector<void*>& candidates) {
  if (absl::Status status = memory_.Synchronize(); !status.ok()) return status;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Allocation& allocation = allocations_.at(candidates[i]);
    absl::Status status = PutToSleep(candidates[i], allocation, Contains(offload, allocation.tag));
    if (status.ok()) continue;
    status = Because(status, absl::StrCat("cannot put ", allocation.bytes, " bytes of ", allocation.tag, " to sleep"));
    for (size_t undone = i + 1; undone-- > 0;) {
      Allocation& done = allocations_.at(candidates[undone]);
      if (!done.asleep) continue;
      if (absl::Status back = WakeOne(candidates[undone], done); !back.ok()) {
        return Because(status, absl::StrCat("some memory stays asleep, wake it when there is room (", back.message(), ")"));
      }
    }
    return status;
  }
  return absl::OkStatus();
}

absl::Status SleepPool::Wake(absl::Span<const std::string> tags) {
  std::lock_guard lock(mutex_);
  Tidy();
  bool any = false;
  for (auto& [base, allocation] : allocations_) {
    if (!allocation.asleep || (!tags.empty() && !Contains(tags, allocation.tag))) continue;
    any = true;
    if (absl::Status status = WakeOne(base, allocation); !status.ok()) {
      return Because(status, absl::StrCat("cannot wake ", allocation.bytes, " bytes of ", allocation.tag,
                                          "; nothing is lost, free memory of the device and wake again"));
    }
  }
  if (any) return absl::OkStatus();
  return absl::FailedPreconditionError(
      tags.empty() ? "nothing sleeps" : absl::StrCat("nothing of ", absl::StrJoin(tags, ", "), " sleeps"));
}

bool SleepPool::IsAwake(void* base) const {
  std::lock_guard lock(mutex_);
  const auto it = allocations_.find(base);
  return it != allocations_.end() && !it->second.asleep;
}

std::vector<SleepTagStats> SleepPool::Stats() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, SleepTagStats> by_tag;
  for (const auto& [base, allocation] : allocations_) {
    SleepTagStats& stats = by_tag[allocation.tag];
    stats.tag = allocation.tag;
    ++stats.num_allocations;
    stats.num_asleep += allocation.asleep ? 1 : 0;
    stats.size_bytes += allocation.bytes;
    stats.device_bytes += allocation.handle != 0 ? allocation.bytes : 0;
    stats.host_bytes += allocation.host != nullptr ? allocation.bytes : 0;
  }
  std::vector<SleepTagStats> all;
  for (auto& [tag, stats] : by_tag) all.push_back(std::move(stats));
  return all;
}

absl::Status SleepPool::PutToSleep(void* base, Allocation& allocation, bool offload) {
  if (offload) {
    const absl::StatusOr<void*> host = memory_.AllocateHost(allocation.bytes);
    if (!host.ok()) return host.status();
    if (absl::Status status = memory_.CopyToHost(*host, base, allocation.bytes); !status.ok()) {
      memory_.FreeHost(*host);
      return status;
    }
    allocation.host = *host;
  }
  allocation.asleep = true;
  if (absl::Status status = Unback(base, allocation); !status.ok()) {
    if (!allocation.mapped) return status;
    // Nothing happened yet, and so it is still awake.
    allocation.asleep = false;
    if (allocation.host != nullptr) memory_.FreeHost(std::exchange(allocation.host, nullptr));
    return status;
  }
  return absl::OkStatus();
}

absl::Status SleepPool::WakeOne(void* base, Allocation& allocation) {
  if (allocation.handle == 0) {
    const absl::StatusOr<VirtualMemory::Handle> handle = memory_.CreatePhysical(allocation.bytes, allocation.tag);
    if (!handle.ok()) return handle.status();
    allocation.handle = *handle;
  }
  absl::Status status = allocation.mapped ? absl::OkStatus() : memory_.Map(base, allocation.bytes, allocation.handle);
  if (status.ok()) {
    allocation.mapped = true;
    if (allocation.host != nullptr) status = memory_.CopyToDevice(base, allocation.host, allocation.bytes);
  }
  if (!status.ok()) {
    Unback(base, allocation).IgnoreError();  // what is left of it is used by the next attempt
    return status;
  }
  if (allocation.host != nullptr) memory_.FreeHost(std::exchange(allocation.host, nullptr));
  allocation.asleep = false;
  return absl::OkStatus();
}

absl::Status SleepPool::Unback(void* base, Allocation& allocation) {
  if (allocation.mapped) {
    if (absl::Status status = memory_.Unmap(base, allocation.bytes); !status.ok()) return status;
    allocation.mapped = false;
  }
  if (allocation.handle != 0) {
    if (absl::Status status = memory_.DestroyPhysical(allocation.handle); !status.ok()) return status;
    allocation.handle = 0;
  }
  return absl::OkStatus();
}

absl::Status SleepPool::Dispose(void* base, Allocation& allocation) {
  if (absl::Status status = Unback(base, allocation); !status.ok()) {
    allocation.asleep = allocation.asleep || !allocation.mapped;
    return status;
  }
  allocation.asleep = true;
  if (allocation.host != nullptr) memory_.FreeHost(std::exchange(allocation.host, nullptr));
  return memory_.Release(base, allocation.bytes);
}

// Offers the system again what it refused to take back.
void SleepPool::Tidy() {
  for (auto it = left_over_.begin(); it != left_over_.end();) {
    it = Dispose(it->first, it->second).ok() ? left_over_.erase(it) : std::next(it);
  }
  for (auto& [base, allocation] : allocations_) {
    if (allocation.asleep) Unback(base, allocation).IgnoreError();
  }
}

}  // namespace jumar::memory
