// Streams, callbacks.
#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/report.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

constexpr int32_t kAttributeFailureMode = 1;
constexpr int32_t kAttributeOverflow = 2;
constexpr int32_t kAttributeCacheOpInfo = 4;
constexpr int32_t kAttributePriority = 5;

template <typename F>
int WithStream(void* handle, const F& f) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  return stream == nullptr ? int{kRtInvalidHandle} : f(*stream);
}

// What hardware refuses on a stream that is being captured, which also makes the capture invalid.
int RefuseOnCaptured(Stream& stream, const char* what) {
  const std::shared_ptr<Capture> capture = stream.capture();
  const std::string text = absl::StrCat(what, ": stream ", stream.id(),
                                        " is being captured, so nothing on it runs before the graph is launched; do it before or "
                                        "after the capture");
  return capture == nullptr ? Fail(kRtStreamCaptured, text) : capture->Refuse(kRtStreamCaptured, text);
}

}  // namespace

aclError aclrtCreateStream(void** stream) { return aclrtCreateStreamWithConfig(stream, 0, 0); }
aclError aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t flags) {
  if (stream == nullptr) return Fail(kRtParamInvalid, "aclrtCreateStream: a null pointer");
  return Runtime::Get().CreateStream(priority, flags, stream);
}
aclError aclrtDestroyStream(void* stream) { return Runtime::Get().DestroyStream(stream, /*force=*/false); }
aclError aclrtDestroyStreamForce(void* stream) { return Runtime::Get().DestroyStream(stream, /*force=*/true); }

aclError aclrtSynchronizeStream(void* stream) { return aclrtSynchronizeStreamWithTimeout(stream, -1); }
aclError aclrtSynchronizeStreamWithTimeout(void* handle, int32_t timeout_ms) {
  // Held, since another thread may destroy the stream while this one waits.
  const std::shared_ptr<Stream> stream = Runtime::Get().SharedStreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (stream->capturing()) return RefuseOnCaptured(*stream, "aclrtSynchronizeStream");
  return stream->Synchronize(timeout_ms);
}

aclError aclrtStreamQuery(void* handle, int32_t* status) {
  if (status == nullptr) return Fail(kRtParamInvalid, "aclrtStreamQuery: a null pointer");
  return WithStream(handle, [&](Stream& stream) {
    if (stream.capturing()) return RefuseOnCaptured(stream, "aclrtStreamQuery");
    if (int code = CheckNotLost(stream.device()); code != kOk) return code;
    *status = stream.Idle() ? 0 : 1;
    return int{kOk};
  });
}

aclError aclrtStreamGetId(void* handle, int32_t* id) {
  return WithStream(handle, [&](Stream& stream) {
    *id = stream.id();
    return int{kOk};
  });
}
aclError aclrtStreamGetPriority(void* handle, uint32_t* priority) {
  return WithStream(handle, [&](Stream& stream) {
    *priority = stream.priority();
    return int{kOk};
  });
}
aclError aclrtStreamGetFlags(void* handle, uint32_t* flags) {
  return WithStream(handle, [&](Stream& stream) {
    *flags = stream.flags();
    return int{kOk};
  });
}
aclError aclrtStreamAbort(void* handle) {
  return WithStream(handle, [&](Stream& stream) {
    if (stream.capturing()) return RefuseOnCaptured(stream, "aclrtStreamAbort");
    stream.Abort();
    return int{kOk};
  });
}
aclError aclrtGetStreamAvailableNum(uint32_t* count) {
  if (count == nullptr) return Fail(kRtParamInvalid, "aclrtGetStreamAvailableNum: a null pointer");
  *count = static_cast<uint32_t>(kMaxStreams - Runtime::Get().num_streams());
  return kOk;
}

aclError aclrtSetStreamFailureMode(void* handle, uint64_t mode) {
  if (mode > 1) return Fail(kRtParamInvalid, absl::StrCat("aclrtSetStreamFailureMode: mode ", mode, " is neither 0 nor 1"));
  return WithStream(handle, [&](Stream& stream) {
    stream.SetStopOnFailure(mode == 1);
    return int{kOk};
  });
}

aclError aclrtSetStreamAttribute(void* handle, int32_t attribute, AclStreamAttribute* value) {
  if (value == nullptr) return Fail(kRtParamInvalid, "aclrtSetStreamAttribute: a null pointer");
  switch (attribute) {
    case kAttributeFailureMode:
      return aclrtSetStreamFailureMode(handle, value->values[0]);
    case kAttributeOverflow:
      return aclrtSetStreamOverflowSwitch(handle, value->values[0]);
    case kAttributeCacheOpInfo:  // shapes for the profiler, which collects nothing
    case kAttributePriority:
      return WithStream(handle, [](Stream&) { return int{kOk}; });
    default:
      return Fail(kRtParamInvalid, absl::StrCat("aclrtSetStreamAttribute: hostcann does not know attribute ", attribute));
  }
}

aclError aclrtGetStreamAttribute(void* handle, int32_t attribute, AclStreamAttribute* value) {
  if (value == nullptr) return Fail(kRtParamInvalid, "aclrtGetStreamAttribute: a null pointer");
  return WithStream(handle, [&](Stream& stream) {
    *value = {};
    switch (attribute) {
      case kAttributeFailureMode:
        value->values[0] = stream.stop_on_failure() ? 1 : 0;
        return int{kOk};
      case kAttributePriority:
        value->values[0] = stream.priority();
        return int{kOk};
      case kAttributeOverflow:
      case kAttributeCacheOpInfo:
        return int{kOk};  // off
      default:
        return Fail(kRtParamInvalid, absl::StrCat("aclrtGetStreamAttribute: hostcann does not know attribute ", attribute));
    }
  });
}

// Overflow detection belongs to the saturating mode, which hostcann does not have.
aclError aclrtSetStreamOverflowSwitch(void* handle, uint32_t flag) {
  if (flag != 0) return Fail(kRtFeatureNotSupport, "hostcann does not detect overflow: it computes with infinity and NaN");
  return WithStream(handle, [](Stream&) { return int{kOk}; });
}
aclError aclrtGetStreamOverflowSwitch(void* handle, uint32_t* flag) {
  return WithStream(handle, [&](Stream&) {
    *flag = 0;
    return int{kOk};
  });
}

aclError aclrtSubscribeReport(uint64_t thread, void* handle) {
  return WithStream(handle, [&](Stream& stream) { return SubscribeReport(thread, stream); });
}
aclError aclrtUnSubscribeReport(uint64_t thread, void* handle) {
  return WithStream(handle, [&](Stream& stream) { return UnsubscribeReport(thread, stream); });
}
aclError aclrtProcessReport(int32_t timeout_ms) { return ProcessReport(timeout_ms); }
aclError aclrtLaunchCallback(AclCallback callback, void* user_data, int32_t block, void* handle) {
  return WithStream(handle, [&](Stream& stream) { return LaunchCallback(stream, callback, user_data, block != 0); });
}
aclError aclrtLaunchHostFunc(void* handle, AclCallback callback, void* user_data) {
  if (callback == nullptr) return Fail(kRtParamInvalid, "aclrtLaunchHostFunc needs a function");
  return WithStream(handle, [&](Stream& stream) {
    return stream.Submit("host function", [callback, user_data] { callback(user_data); }, TaskKind::kControl);
  });
}

aclError aclrtCtxGetCurrentDefaultStream(void** stream) {
  if (stream == nullptr) return Fail(kRtParamInvalid, "aclrtCtxGetCurrentDefaultStream: a null pointer");
  *stream = nullptr;  // null means the default stream wherever a stream is asked for
  return kOk;
}
