// Notifies.
#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

template <typename F>
int WithNotify(void* handle, const F& f) {
  const std::shared_ptr<Notify> notify = Runtime::Get().notifies().Get(handle);
  if (notify == nullptr) return Fail(kRtInvalidHandle, "not a notify, or destroyed before");
  return f(*notify);
}

template <typename F>
int WithNotifyAndStream(void* handle, void* stream_handle, const F& f) {
  Stream* stream = Runtime::Get().StreamOf(stream_handle);
  return stream == nullptr ? int{kRtInvalidHandle} : WithNotify(handle, [&](Notify& notify) { return f(notify, *stream); });
}

int NoSharing(const char* function) {
  return Fail(kRtFeatureNotSupport, absl::StrCat(function, ": hostcann does not share notifies between processes"));
}

}  // namespace

aclError aclrtCreateNotify(void** handle, uint64_t) {
  static std::atomic<uint32_t> next_id{0};
  if (handle == nullptr) return Fail(kRtParamInvalid, "aclrtCreateNotify: a null pointer");
  if (int code = Runtime::Get().CheckUsable(); code != kOk) return code;
  *handle = Runtime::Get().notifies().Add(std::make_shared<Notify>(next_id.fetch_add(1)));
  return *handle == nullptr ? Fail(/*no notify resource*/ 207009, "too many notifies; destroy some, or reuse them") : int{kOk};
}

aclError aclrtDestroyNotify(void* handle) {
  // Tasks that are queued hold the notify; only the handle ends here.
  if (Runtime::Get().notifies().Remove(handle) == nullptr) return Fail(kRtInvalidHandle, "not a notify, or destroyed before");
  return kOk;
}

aclError aclrtRecordNotify(void* handle, void* stream) {
  return WithNotifyAndStream(handle, stream, [](Notify& n, Stream& s) { return n.Record(s); });
}

aclError aclrtWaitAndResetNotify(void* handle, void* stream, uint32_t timeout_ms) {
  return WithNotifyAndStream(handle, stream, [&](Notify& n, Stream& s) { return n.WaitAndReset(s, timeout_ms); });
}

aclError aclrtGetNotifyId(void* handle, uint32_t* id) {
  if (id == nullptr) return Fail(kRtParamInvalid, "aclrtGetNotifyId: a null pointer");
  return WithNotify(handle, [&](Notify& n) {
    *id = n.id();
    return int{kOk};
  });
}

aclError aclrtNotifyBatchReset(void** handles, size_t count) {
  if (handles == nullptr || count == 0) return Fail(kRtParamInvalid, "aclrtNotifyBatchReset: no notifies");
  for (size_t i = 0; i < count; ++i) {
    const int code = WithNotify(handles[i], [](Notify& n) {
      n.Reset();
      return int{kOk};
    });
    if (code != kOk) return code;
  }
  return kOk;
}

aclError aclrtNotifyGetExportKey(void*, char*, size_t, uint64_t) { return NoSharing("aclrtNotifyGetExportKey"); }
aclError aclrtNotifyImportByKey(void**, const char*, uint64_t) { return NoSharing("aclrtNotifyImportByKey"); }
aclError aclrtNotifySetImportPid(void*, int32_t*, size_t) { return NoSharing("aclrtNotifySetImportPid"); }
