// Memory pools whose allocations and frees are ordered by streams (aclrtMemPool*): memory::CachingPool over a device's memory.
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/event.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/memory/device/caching_pool.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace
using jumar::memory::CachingPool;
using jumar::memory::CachingPoolOptions;
using jumar::memory::DeviceMemory;

namespace {

constexpr int32_t kLocationDevice = 1;

// Values of aclrtMemPoolAttr. The first three are int32_t, the others uint64_t.
enum PoolAttribute : int32_t {
  kReuseFollowEvents = 1,
  kReuseOpportunistic = 2,
  kReuseInternalDependencies = 3,
  kReleaseThreshold = 4,
  kReservedCurrent = 5,
  kReservedHigh = 6,
  kUsedCurrent = 7,
  kUsedHigh = 8,
};

class Marker final : public jumar::memory::StreamMarker {
 public:
  bool Reached() const override { return event->Complete(); }
  const std::shared_ptr<Event> event = std::make_shared<Event>(Event::Kind::kCounted, 0);
};

class PoolStream final : public jumar::memory::OrderedStream {
 public:
  explicit PoolStream(Stream& stream) : stream_(stream) {}
  uint64_t id() const override { return static_cast<uint64_t>(stream_.id()); }
  absl::StatusOr<std::shared_ptr<const jumar::memory::StreamMarker>> Record() override {
    auto marker = std::make_shared<Marker>();
    if (marker->event->Record(stream_) != kOk) return absl::InternalError("the stream takes no record of an event");
    return marker;
  }
  absl::Status WaitFor(const jumar::memory::StreamMarker& marker) override {
    const bool ok = static_cast<const Marker&>(marker).event->Wait(stream_) == kOk;
    return ok ? absl::OkStatus() : absl::InternalError("the stream takes no wait for an event");
  }

 private:
  Stream& stream_;
};

class MemoryPool final : public jumar::memory::SegmentSource {
 public:
  MemoryPool(int device, DeviceMemory* memory, CachingPoolOptions options)
      : device_(device), memory_(*memory), pool_(std::move(options), this) {}

  int device() const { return device_; }
  CachingPool& pool() { return pool_; }
  bool follows_events = true;  // kept for who asks: here a wait of the program's own is not looked at

  absl::StatusOr<void*> AllocateSegment(uint64_t bytes) override {
    return memory_.Allocate(bytes, jumar::memory::PageSize::kHuge, "memory pools");
  }
  absl::Status FreeSegment(void* base) override { return memory_.Free(base); }

 private:
  const int device_;
  DeviceMemory& memory_;
  CachingPool pool_;
};

// The pools of the process, never destroyed. A handle is the address of its pool.
class Registry {
 public:
  static Registry& Get() {
    static auto* const registry = new Registry();
    return *registry;
  }
  void* Add(std::shared_ptr<MemoryPool> pool) {
    std::lock_guard lock(mutex_);
    Tidy();
    void* handle = pool.get();
    pools_[handle] = std::move(pool);
    return handle;
  }
  std::shared_ptr<MemoryPool> Find(void* handle) {
    std::lock_guard lock(mutex_);
    const auto it = pools_.find(handle);
    return it == pools_.end() ? nullptr : it->second;
  }
  std::shared_ptr<MemoryPool> OwnerOf(const void* pointer) {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, pool] : pools_) {
      if (pool->pool().Owns(pointer)) return pool;
    }
    return nullptr;
  }
  void Retire(void* handle) {
    std::lock_guard lock(mutex_);
    retired_.push_back(std::move(pools_.at(handle)));
    pools_.erase(handle);
    Tidy();
  }

 private:
  // Streams may still use what was freed on them: such a pool stays until they are done.
  void Tidy() {
    std::erase_if(retired_, [](const std::shared_ptr<MemoryPool>& pool) {
      return pool->pool().Trim(0).ok() && pool->pool().Stats().reserved_bytes == 0;
    });
  }

  std::mutex mutex_;
  std::map<void*, std::shared_ptr<MemoryPool>> pools_;
  std::vector<std::shared_ptr<MemoryPool>> retired_;
};

std::shared_ptr<MemoryPool> PoolOf(const char* what, void* handle) {
  auto pool = Registry::Get().Find(handle);
  if (pool == nullptr) Fail(kRtInvalidHandle, absl::StrFormat("%s: %p is not a memory pool, or was destroyed before", what, handle));
  return pool;
}

// The stream, if the pool can order memory by it.
Stream* StreamFor(const char* what, const MemoryPool& pool, void* handle, int* code) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  *code = kOk;
  if (stream == nullptr) {
    *code = kRtInvalidHandle;
  } else if (stream->device() != pool.device()) {
    *code = Fail(kRtParamInvalid,
                 absl::StrCat(what, ": the stream is of device ", stream->device(), " and the pool of device ", pool.device()));
  } else if (stream->capturing() || stream->updating()) {
    *code = Fail(kRtStreamCaptured, absl::StrCat(what, ": hostcann's graphs hold no allocations; allocate before the capture"));
  }
  return *code == kOk ? stream : nullptr;
}

}  // namespace

aclError aclrtMemPoolCreate(void** handle, const AclMemPoolProperties* properties) {
  if (handle == nullptr || properties == nullptr) return Fail(kRtParamInvalid, "aclrtMemPoolCreate: a null pointer");
  if (properties->location.type != kLocationDevice || properties->handle_type != 0) {
    return Fail(kRtFeatureNotSupport,
                absl::StrCat("aclrtMemPoolCreate: hostcann has pools of device memory that one process uses, not of location type ",
                             properties->location.type, " with handle type ", properties->handle_type));
  }
  const int device = static_cast<int>(properties->location.id);
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  CachingPoolOptions options{.name = absl::StrCat("memory pool of device ", device)};
  if (properties->max_bytes != 0) options.max_reserved_bytes = properties->max_bytes;
  *handle = Registry::Get().Add(std::make_shared<MemoryPool>(device, memory, std::move(options)));
  return kOk;
}

aclError aclrtMemPoolDestroy(void* handle) {
  const auto pool = PoolOf("aclrtMemPoolDestroy", handle);
  if (pool == nullptr) return kRtInvalidHandle;
  if (const uint64_t live = pool->pool().Stats().num_allocations; live > 0) {
    return Fail(kRtParamInvalid, absl::StrCat("aclrtMemPoolDestroy: ", live, " allocations of the pool are in use; free them first"));
  }
  Registry::Get().Retire(handle);
  return kOk;
}

aclError aclrtMemPoolMallocAsync(void** pointer, size_t bytes, void* handle, void* stream_handle) {
  if (pointer == nullptr) return Fail(kRtParamInvalid, "aclrtMemPoolMallocAsync: a null pointer");
  const auto pool = PoolOf("aclrtMemPoolMallocAsync", handle);
  if (pool == nullptr) return kRtInvalidHandle;
  int code;
  Stream* stream = StreamFor("aclrtMemPoolMallocAsync", *pool, stream_handle, &code);
  if (stream == nullptr) return code;
  if (int fault = FaultOnAllocation(pool->device(), bytes); fault != kOk) return fault;
  PoolStream ordered(*stream);
  const auto allocated = pool->pool().Allocate(bytes, ordered);
  if (!allocated.ok()) return FailStatus(kRtParamInvalid, allocated.status());
  *pointer = *allocated;
  return kOk;
}

aclError aclrtMemPoolFreeAsync(void* pointer, void* stream_handle) {
  const auto pool = Registry::Get().OwnerOf(pointer);
  if (pool == nullptr) {
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtMemPoolFreeAsync: %p is not of a memory pool, or was freed before", pointer));
  }
  int code;
  Stream* stream = StreamFor("aclrtMemPoolFreeAsync", *pool, stream_handle, &code);
  if (stream == nullptr) return code;
  PoolStream ordered(*stream);
  return FailStatus(kRtParamInvalid, pool->pool().Free(pointer, ordered));
}

aclError aclrtMemPoolTrimTo(void* handle, size_t keep_bytes) {
  const auto pool = PoolOf("aclrtMemPoolTrimTo", handle);
  return pool == nullptr ? int{kRtInvalidHandle} : FailStatus(kRtInternal, pool->pool().Trim(keep_bytes));
}

aclError aclrtMemPoolSetAttr(void* handle, int32_t attribute, void* value) {
  const auto pool = PoolOf("aclrtMemPoolSetAttr", handle);
  if (pool == nullptr) return kRtInvalidHandle;
  if (value == nullptr) return Fail(kRtParamInvalid, "aclrtMemPoolSetAttr: a null pointer");
  const CachingPoolOptions options = pool->pool().options();
  switch (attribute) {
    case kReuseFollowEvents:
      pool->follows_events = *static_cast<int32_t*>(value) != 0;
      return kOk;
    case kReuseOpportunistic:
      pool->pool().SetReuse(*static_cast<int32_t*>(value) != 0, options.reuse_with_wait);
      return kOk;
    case kReuseInternalDependencies:
      pool->pool().SetReuse(options.reuse_reached, *static_cast<int32_t*>(value) != 0);
      return kOk;
    case kReleaseThreshold:
      pool->pool().SetReleaseThreshold(*static_cast<uint64_t*>(value));
      return kOk;
    case kReservedHigh:
    case kUsedHigh:
      if (*static_cast<uint64_t*>(value) != 0) return Fail(kRtParamInvalid, "aclrtMemPoolSetAttr: a peak can be set to 0 only");
      pool->pool().ResetPeaks();
      return kOk;
    default:
      return Fail(kRtParamInvalid, absl::StrCat("aclrtMemPoolSetAttr: attribute ", attribute, " cannot be set"));
  }
}

aclError aclrtMemPoolGetAttr(void* handle, int32_t attribute, void* value) {
  const auto pool = PoolOf("aclrtMemPoolGetAttr", handle);
  if (pool == nullptr) return kRtInvalidHandle;
  if (value == nullptr) return Fail(kRtParamInvalid, "aclrtMemPoolGetAttr: a null pointer");
  const CachingPoolOptions options = pool->pool().options();
  const auto stats = pool->pool().Stats();
  switch (attribute) {
    case kReuseFollowEvents:
      *static_cast<int32_t*>(value) = pool->follows_events ? 1 : 0;
      return kOk;
    case kReuseOpportunistic:
      *static_cast<int32_t*>(value) = options.reuse_reached ? 1 : 0;
      return kOk;
    case kReuseInternalDependencies:
      *static_cast<int32_t*>(value) = options.reuse_with_wait ? 1 : 0;
      return kOk;
    case kReleaseThreshold:
      *static_cast<uint64_t*>(value) = options.release_threshold_bytes;
      return kOk;
    case kReservedCurrent:
      *static_cast<uint64_t*>(value) = stats.reserved_bytes;
      return kOk;
    case kReservedHigh:
      *static_cast<uint64_t*>(value) = stats.peak_reserved_bytes;
      return kOk;
    case kUsedCurrent:
      *static_cast<uint64_t*>(value) = stats.allocated_bytes;
      return kOk;
    case kUsedHigh:
      *static_cast<uint64_t*>(value) = stats.peak_allocated_bytes;
      return kOk;
    default:
      return Fail(kRtParamInvalid, absl::StrCat("aclrtMemPoolGetAttr: there is no attribute ", attribute));
  }
}
