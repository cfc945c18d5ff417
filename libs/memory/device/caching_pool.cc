#include "libs/memory/device/caching_pool.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::memory {
namespace {

constexpr uint64_t kUnit = 512;  // bytes; what vector and cube units want an operand aligned to

uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) & ~(multiple - 1); }

}  // namespace

double CachingPoolStats::fragmentation() const {
  const uint64_t free = reserved_bytes - allocated_bytes;
  return free == 0 ? 0 : 1 - static_cast<double>(largest_free_bytes) / static_cast<double>(free);
}

CachingPool::CachingPool(CachingPoolOptions options, SegmentSource* source) : options_(std::move(options)), source_(*source) {
  options_.segment_bytes = std::max(options_.segment_bytes, kUnit);
}

CachingPool::~CachingPool() {
  for (const auto& [start, bytes] : segments_) source_.FreeSegment(reinterpret_cast<void*>(start)).IgnoreError();
}

absl::StatusOr<void*> CachingPool::Allocate(uint64_t bytes, OrderedStream& stream) {
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(options_.name, ": an allocation of 0 bytes; ask for at least 1"));
  if (bytes > UINT64_MAX - options_.segment_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(options_.name, ": an allocation of ", bytes, " bytes exceeds any device"));
  }
  const uint64_t need = RoundUp(bytes, kUnit);
  std::lock_guard lock(mutex_);
  void* base = TakeFitting(need, stream.id());
  if (base == nullptr && options_.reuse_reached) {
    Settle();
    base = TakeFitting(need, stream.id());
  }
  if (base == nullptr && options_.reuse_with_wait) {
    const absl::StatusOr<void*> waited = TakeWithWait(need, stream);
    if (!waited.ok()) return waited.status();
    base = *waited;
  }
  if (base == nullptr) {
    if (absl::Status status = Grow(need); !status.ok()) return status;
    base = TakeFitting(need, stream.id());
  }
  stats_.peak_allocated_bytes = std::max(stats_.peak_allocated_bytes, stats_.allocated_bytes);
  return base;
}

absl::Status CachingPool::Free(void* base, OrderedStream& stream) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(reinterpret_cast<uint64_t>(base));
  if (it == blocks_.end() || !it->second.live) {
    return absl::NotFoundError(
        absl::StrFormat("%s: %p is not the start of a live allocation of this pool, or was freed before", options_.name, base));
  }
  auto marker = stream.Record();
  if (!marker.ok()) return marker.status();
  it->second.live = false;
  it->second.stream = stream.id();
  it->second.marker = *std::move(marker);
  stats_.allocated_bytes -= it->second.bytes;
  --stats_.num_allocations;
  Join(it);
  if (stats_.reserved_bytes <= options_.release_threshold_bytes) return absl::OkStatus();
  return TrimLocked(options_.release_threshold_bytes);
}

bool CachingPool::Owns(const void* base) const {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(reinterpret_cast<uint64_t>(base));
  return it != blocks_.end() && it->second.live;
}

absl::Status CachingPool::Trim(uint64_t keep_bytes) {
  std::lock_guard lock(mutex_);
  return TrimLocked(keep_bytes);
}

CachingPoolOptions CachingPool::options() const {
  std::lock_guard lock(mutex_);
  return options_;
}

void CachingPool::SetReuse(bool reached, bool with_wait) {
  std::lock_guard lock(mutex_);
  options_.reuse_reached = reached;
  options_.reuse_with_wait = with_wait;
}

void CachingPool::SetReleaseThreshold(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  options_.release_threshold_bytes = bytes;
}

CachingPoolStats CachingPool::Stats() const {
  std::lock_guard lock(mutex_);
  CachingPoolStats stats = stats_;
  stats.num_segments = segments_.size();
  if (!settled_.empty()) stats.largest_free_bytes = settled_.rbegin()->first;
  for (const auto& [stream, free] : pending_) {
    for (const auto& [bytes, address] : free) stats.pending_bytes += bytes;
    stats.largest_free_bytes = std::max(stats.largest_free_bytes, free.rbegin()->first);
  }
  return stats;
}

void CachingPool::ResetPeaks() {
  std::lock_guard lock(mutex_);
  stats_.peak_allocated_bytes = stats_.allocated_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

CachingPool::FreeSet& CachingPool::FreeSetOf(const Block& block) {
  return block.marker == nullptr ? settled_ : pending_[block.stream];
}

void CachingPool::AddFree(Blocks::iterator it) { FreeSetOf(it->second).emplace(it->second.bytes, it->first); }

void CachingPool::RemoveFree(Blocks::iterator it) {
  FreeSet& free = FreeSetOf(it->second);
  free.erase({it->second.bytes, it->first});
  if (free.empty() && it->second.marker != nullptr) pending_.erase(it->second.stream);
}

// Files a free block that is in no set yet, as one with its neighbours that the same streams may use. Of two markers of a stream the
// block's own is the later one.
CachingPool::Blocks::iterator CachingPool::Join(Blocks::iterator it) {
  const auto joins = [&](Blocks::iterator other) {
    return !other->second.live && other->second.segment == it->second.segment &&
           (other->second.marker == nullptr) == (it->second.marker == nullptr) &&
           (it->second.marker == nullptr || other->second.stream == it->second.stream);
  };
  if (const auto next = std::next(it); next != blocks_.end() && joins(next)) {
    RemoveFree(next);
    it->second.bytes += next->second.bytes;
    blocks_.erase(next);
  }
  if (it != blocks_.begin() && joins(std::prev(it))) {
    const auto previous = std::prev(it);
    RemoveFree(previous);
    previous->second.bytes += it->second.bytes;
    previous->second.marker = it->second.marker;
    blocks_.erase(it);
    it = previous;
  }
  AddFree(it);
  return it;
}

void* CachingPool::Take(uint64_t address, uint64_t need) {
  const auto it = blocks_.find(address);
  RemoveFree(it);
  if (it->second.bytes > need) {
    Block rest = it->second;
    rest.bytes -= need;
    AddFree(blocks_.emplace(address + need, std::move(rest)).first);
    it->second.bytes = need;
  }
  it->second.live = true;
  it->second.marker = nullptr;
  stats_.allocated_bytes += need;
  ++stats_.num_allocations;
  return reinterpret_cast<void*>(address);
}

// The best fit of what the stream may use as it is, or null.
void* CachingPool::TakeFitting(uint64_t need, uint64_t stream) {
  const auto settled = settled_.lower_bound({need, 0});
  const auto own = pending_.find(stream);
  if (own != pending_.end()) {
    const auto pending = own->second.lower_bound({need, 0});
    // What only this stream may use goes first.
    if (pending != own->second.end() && (settled == settled_.end() || pending->first <= settled->first)) {
      return Take(pending->second, need);
    }
  }
  return settled == settled_.end() ? nullptr : Take(settled->second, need);
}

absl::StatusOr<void*> CachingPool::TakeWithWait(uint64_t need, OrderedStream& stream) {
  std::optional<std::pair<uint64_t, uint64_t>> best;
  for (const auto& [id, free] : pending_) {
    const auto fit = free.lower_bound({need, 0});
    if (id != stream.id() && fit != free.end() && (!best.has_value() || *fit < *best)) best = *fit;
  }
  if (!best.has_value()) return nullptr;
  if (absl::Status status = stream.WaitFor(*blocks_.at(best->second).marker); !status.ok()) return status;
  ++stats_.num_waits;
  return Take(best->second, need);
}

// Frees that have been reached are every stream's from now on.
void CachingPool::Settle() {
  std::vector<uint64_t> reached;
  for (const auto& [stream, free] : pending_) {
    for (const auto& [bytes, address] : free) {
      if (blocks_.at(address).marker->Reached()) reached.push_back(address);
    }
  }
  for (const uint64_t address : reached) {
    const auto it = blocks_.find(address);
    RemoveFree(it);
    it->second.marker = nullptr;
    Join(it);
  }
}

absl::Status CachingPool::Grow(uint64_t need) {
  const uint64_t bytes = RoundUp(need, options_.segment_bytes);
  const auto fits = [&] { return bytes <= options_.max_reserved_bytes && stats_.reserved_bytes <= options_.max_reserved_bytes - bytes; };
  if (!fits()) TrimLocked(0).IgnoreError();
  if (!fits()) return Exhausted(need, absl::StrCat("its limit is ", options_.max_reserved_bytes, " bytes"));
  absl::StatusOr<void*> base = source_.AllocateSegment(bytes);
  if (absl::IsResourceExhausted(base.status())) {
    TrimLocked(0).IgnoreError();
    base = source_.AllocateSegment(bytes);
  }
  if (absl::IsResourceExhausted(base.status())) return Exhausted(need, std::string(base.status().message()));
  if (!base.ok()) return base.status();
  const auto start = reinterpret_cast<uint64_t>(*base);
  segments_.emplace(start, bytes);
  AddFree(blocks_.emplace(start, Block{.bytes = bytes, .segment = start, .live = false, .stream = 0, .marker = nullptr}).first);
  stats_.reserved_bytes += bytes;
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  return absl::OkStatus();
}

absl::Status CachingPool::TrimLocked(uint64_t keep_bytes) {
  Settle();
  absl::Status status;
  for (auto segment = segments_.begin(); segment != segments_.end() && stats_.reserved_bytes > keep_bytes;) {
    const auto [start, bytes] = *segment;
    const auto block = blocks_.find(start);
    const bool unused = !block->second.live && block->second.marker == nullptr && block->second.bytes == bytes;
    if (!unused || stats_.reserved_bytes - bytes < keep_bytes) {
      ++segment;
      continue;
    }
    if (absl::Status freed = source_.FreeSegment(reinterpret_cast<void*>(start)); !freed.ok()) {
      status.Update(freed);
      ++segment;
      continue;
    }
    RemoveFree(block);
    blocks_.erase(block);
    segment = segments_.erase(segment);
    stats_.reserved_bytes -= bytes;
  }
  return status;
}

absl::Status CachingPool::Exhausted(uint64_t need, const std::string& why) const {
  uint64_t pending = 0;
  for (const auto& [stream, free] : pending_) {
    for (const auto& [bytes, address] : free) pending += bytes;
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      options_.name, ": no ", need, " bytes in a row are left: ", stats_.reserved_bytes, " bytes are reserved, of which ",
      stats_.allocated_bytes, " in ", stats_.num_allocations, " allocations and ", pending,
      " freed on streams that have not got there (synchronise them to use those); ", why));
}

}  // namespace jumar::memory
