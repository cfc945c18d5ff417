// Events, and waiting for values in memory.
#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/memory.h"
#include "libs/hostcann/acl/runtime.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

// Events of the flag kind are a hardware resource, of which a device has so many (page "aclrtCreateEvent" of the API reference); the
// others are not limited (page "aclrtCreateEventExWithFlag"). Hardware lets a record wait for a free one; a program that never frees
// one would hang, so that it is told here.
size_t MaxFlagEvents() { return ProcessConfig()->soc->architecture == jumar::tiling::Architecture::k310P ? 1023 : 65535; }

int CreateEvent(Event::Kind kind, uint32_t flags, void** handle) {
  if (handle == nullptr) return Fail(kRtParamInvalid, "aclrtCreateEvent: a null pointer");
  if (int code = Runtime::Get().CheckUsable(); code != kOk) return code;
  if ((flags & kEventIpc) != 0) {
    return Fail(kRtFeatureNotSupport, "hostcann has no events that processes share (ACL_EVENT_IPC)");
  }
  if (kind == Event::Kind::kFlag && Runtime::Get().events().size() >= MaxFlagEvents()) {
    return Fail(/*no event resource*/ 207007, absl::StrCat("all ", MaxFlagEvents(), " events are in use; destroy some, or reuse them"));
  }
  *handle = Runtime::Get().events().Add(std::make_shared<Event>(kind, flags));
  return *handle == nullptr ? Fail(207007, "too many events; destroy some, or reuse them") : int{kOk};
}

template <typename F>
int WithEvent(void* handle, const F& f) {
  const std::shared_ptr<Event> event = Runtime::Get().events().Get(handle);
  if (event == nullptr) return Fail(kRtInvalidHandle, "not an event, or destroyed before");
  return f(*event);
}

template <typename F>
int WithEventAndStream(void* event, void* handle, const F& f) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  return stream == nullptr ? int{kRtInvalidHandle} : WithEvent(event, [&](Event& e) { return f(e, *stream); });
}

// All waits for values share one place to wait at, since a value may be written from anywhere.
const std::shared_ptr<SyncPoint>& ValuePoint() {
  static const auto* const point = new std::shared_ptr<SyncPoint>(std::make_shared<SyncPoint>());
  return *point;
}

constexpr int kValuePollMs = 2;  // a copy or an operator may write the value too, without notifying

int CheckValueAddress(const char* what, void* address) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof(uint64_t) != 0) {
    return Fail(kRtParamInvalid, absl::StrFormat("%s: %p is not aligned to 8 bytes", what, address));
  }
  const PointerInfo info = LookUp(address);
  if (info.kind == PointerKind::kPageable) {
    return Fail(kRtParamInvalid, absl::StrFormat("%s: %p is neither device memory nor pinned host memory", what, address));
  }
  return kOk;
}

bool ValueMatches(uint64_t value, uint64_t expected, uint32_t condition) {
  switch (condition) {
    case 0:
      return static_cast<int64_t>(value - expected) >= 0;  // cyclic, as counters wrap
    case 1:
      return value == expected;
    case 2:
      return (value & expected) != 0;
    default:
      return ~(value | expected) != 0;
  }
}

}  // namespace

aclError aclrtCreateEvent(void** event) { return CreateEvent(Event::Kind::kFlag, kEventTimeLine, event); }
aclError aclrtCreateEventWithFlag(void** event, uint32_t flags) { return CreateEvent(Event::Kind::kFlag, flags, event); }
aclError aclrtCreateEventExWithFlag(void** event, uint32_t flags) { return CreateEvent(Event::Kind::kCounted, flags, event); }

aclError aclrtDestroyEvent(void* event) {
  // Tasks that are queued hold the event; only the handle ends here.
  if (Runtime::Get().events().Remove(event) == nullptr) return Fail(kRtInvalidHandle, "not an event, or destroyed before");
  return kOk;
}

aclError aclrtRecordEvent(void* event, void* stream) {
  return WithEventAndStream(event, stream, [](Event& e, Stream& s) { return e.Record(s); });
}
aclError aclrtStreamWaitEvent(void* stream, void* event) {
  return WithEventAndStream(event, stream, [](Event& e, Stream& s) { return e.Wait(s); });
}
aclError aclrtResetEvent(void* event, void* stream) {
  return WithEventAndStream(event, stream, [](Event& e, Stream& s) { return e.Reset(s); });
}
aclError aclrtSynchronizeEvent(void* event) { return aclrtSynchronizeEventWithTimeout(event, -1); }
aclError aclrtSynchronizeEventWithTimeout(void* event, int32_t timeout_ms) {
  return WithEvent(event, [&](Event& e) { return e.Synchronize(timeout_ms); });
}
aclError aclrtQueryEventStatus(void* event, int32_t* status) {
  return WithEvent(event, [&](Event& e) {
    *status = e.Complete() ? 1 : 0;
    return e.CheckDevice();
  });
}
aclError aclrtQueryEventWaitStatus(void* event, int32_t* status) {
  return WithEvent(event, [&](Event& e) {
    *status = e.Complete() ? 0 : 1;  // a waiting task holds the event, so destroying it is safe at any time
    return int{kOk};
  });
}
aclError aclrtEventElapsedTime(float* ms, void* start, void* end) {
  if (ms == nullptr) return Fail(kRtParamInvalid, "aclrtEventElapsedTime: a null pointer");
  return WithEvent(start, [&](Event& s) { return WithEvent(end, [&](Event& e) { return Event::ElapsedMs(s, e, ms); }); });
}
aclError aclrtEventGetTimestamp(void* event, uint64_t* us) {
  if (us == nullptr) return Fail(kRtParamInvalid, "aclrtEventGetTimestamp: a null pointer");
  return WithEvent(event, [&](Event& e) { return e.TimestampUs(us); });
}

aclError aclrtValueWrite(void* address, uint64_t value, uint32_t, void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (int code = CheckValueAddress("aclrtValueWrite", address); code != kOk) return code;
  return stream->Submit(
      "value write",
      [address = DeviceAlias(address), value] {
        const std::shared_ptr<SyncPoint>& point = ValuePoint();
        std::lock_guard lock(point->mutex);
        std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(address)).store(value, std::memory_order_release);
        point->cv.notify_all();
      },
      TaskKind::kControl);
}

aclError aclrtValueWait(void* address, uint64_t value, uint32_t condition, void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (condition > 3) return Fail(kRtParamInvalid, absl::StrCat("aclrtValueWait: there is no condition ", condition));
  if (int code = CheckValueAddress("aclrtValueWait", address); code != kOk) return code;
  return stream->Submit(
      "value wait",
      [address = DeviceAlias(address), value, condition] {
        Stream::Await(
            ValuePoint(),
            [=] {
              return ValueMatches(std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(address)).load(std::memory_order_acquire), value,
                                  condition);
            },
            kValuePollMs);
      },
      TaskKind::kControl);
}
