// Memory and copies.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/isolation.h"
#include "libs/hostcann/acl/memory.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/acl/trace.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace
using jumar::memory::DeviceMemory;
using jumar::memory::PageSize;

namespace {

// Allocation policies by value. HUGE_FIRST takes normal pages for what would waste a huge one.
constexpr int32_t kHugeFirst = 0;
constexpr int32_t kNormalOnly = 2;
constexpr int32_t kHugeFirstP2p = 3;
constexpr int32_t kNormalOnlyP2p = 5;
constexpr size_t kHugeFrom = size_t{1} << 20;

int Allocate(void** pointer, size_t bytes, int32_t policy) {
  if (pointer == nullptr) return Fail(kRtParamInvalid, "aclrtMalloc: a null pointer");
  if (bytes == 0) return Fail(kRtParamInvalid, "aclrtMalloc: 0 bytes");
  int device;
  if (int code = Runtime::Get().CurrentDevice(&device); code != kOk) {
    return code == kRtContextNull ? Fail(code, "this thread has no device; call aclrtSetDevice first") : code;
  }
  DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  const int32_t kind = policy & 0xff;  // the rest says which memory to prefer; there is one
  const bool normal = kind == kNormalOnly || kind == kNormalOnlyP2p ||
                      ((kind == kHugeFirst || kind == kHugeFirstP2p) && bytes < kHugeFrom);
  if (int fault = FaultOnAllocation(device, bytes); fault != kOk) return fault;
  const auto allocated = memory->Allocate(bytes, normal ? PageSize::kNormal : PageSize::kHuge, MemoryTag());
  if (!allocated.ok()) return FailStatus(kRtParamInvalid, allocated.status());
  *pointer = *allocated;
  return kOk;
}

void Set(void* pointer, int32_t value, size_t bytes) {
  if (value == 0) {
    ZeroDeviceMemory(pointer, bytes);
  } else {
    std::memset(DeviceAlias(pointer), value, bytes);
  }
}

int CheckSet(const char* what, void* pointer, size_t capacity, size_t bytes) {
  return CheckCopy(what, pointer, capacity, pointer, bytes, kCopyDefault);
}

// A copy kind from the places that a batch names.
int KindOf(const AclCopyBatchAttributes& attributes) {
  const bool to_device = attributes.dst.type == 1, from_device = attributes.src.type == 1;
  return to_device ? (from_device ? kCopyDeviceToDevice : kCopyHostToDevice)
                   : (from_device ? kCopyDeviceToHost : kCopyHostToHost);
}

template <typename Copy>
int CopyBatch(const char* what, void** dsts, size_t* dst_bytes, void** srcs, size_t* bytes, size_t count,
              AclCopyBatchAttributes* attributes, size_t* indexes, size_t num_attributes, size_t* failed, const Copy& copy) {
  if (dsts == nullptr || dst_bytes == nullptr || srcs == nullptr || bytes == nullptr || count == 0) {
    return Fail(kRtParamInvalid, absl::StrCat(what, ": a null pointer or an empty batch"));
  }
  // attributes[k] holds from copy indexes[k] up to indexes[k + 1].
  size_t k = 0;
  for (size_t i = 0; i < count; ++i) {
    while (indexes != nullptr && k + 1 < num_attributes && indexes[k + 1] <= i) ++k;
    const int kind = attributes != nullptr && num_attributes > 0 ? KindOf(attributes[k]) : kCopyDefault;
    int code = CheckCopy(what, dsts[i], dst_bytes[i], srcs[i], bytes[i], kind);
    if (code == kOk) code = copy(dsts[i], srcs[i], bytes[i]);
    if (code != kOk) {
      if (failed != nullptr) *failed = i;
      return code;
    }
  }
  return kOk;
}

int CheckCopy2d(const char* what, const Copy2d& copy, int32_t kind) {
  if (copy.height == 0 || copy.width_bytes == 0) return kOk;
  if (copy.width_bytes > copy.dst_pitch || copy.width_bytes > copy.src_pitch) {
    return Fail(kRtParamInvalid, absl::StrCat(what, ": rows of ", copy.width_bytes, " bytes exceed the pitch of ", copy.dst_pitch,
                                              " (destination) or ", copy.src_pitch, " (source)"));
  }
  const uint64_t dst_bytes = (copy.height - 1) * copy.dst_pitch + copy.width_bytes;
  const uint64_t src_bytes = (copy.height - 1) * copy.src_pitch + copy.width_bytes;
  // The places by the shorter of both spans, then each span by itself.
  if (int code = CheckCopy(what, copy.dst, dst_bytes, copy.src, std::min(dst_bytes, src_bytes), kind); code != kOk) return code;
  if (int code = CheckCopy(what, copy.dst, dst_bytes, copy.dst, dst_bytes, kCopyDefault); code != kOk) return code;
  return CheckCopy(what, copy.src, src_bytes, copy.src, src_bytes, kCopyDefault);
}

}  // namespace

void JumarTagMemory(const char* tag) { SetMemoryTag(tag == nullptr ? "" : tag); }

aclError aclrtMalloc(void** pointer, size_t bytes, int32_t policy) { return Allocate(pointer, bytes, policy); }
aclError aclrtMallocAlign32(void** pointer, size_t bytes, int32_t policy) { return Allocate(pointer, bytes, policy); }
aclError aclrtMallocCached(void** pointer, size_t bytes, int32_t policy) { return Allocate(pointer, bytes, policy); }
aclError aclrtMallocWithCfg(void** pointer, size_t bytes, int32_t policy, AclMallocConfig*) { return Allocate(pointer, bytes, policy); }

aclError aclrtFree(void* pointer) {
  const PointerInfo info = LookUp(pointer);
  if (info.kind != PointerKind::kDevice) {
    const std::string freed = DescribeFreed(pointer);
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtFree: %p is not device memory, or was freed before%s%s", pointer,
                                                 freed.empty() ? "" : ". It points ", freed));
  }
  return FailStatus(kRtParamInvalid, Runtime::Get().MemoryOf(info.device)->Free(pointer));
}

aclError aclrtMallocHost(void** pointer, size_t bytes) { return MallocHost(pointer, bytes); }
aclError aclrtMallocHostWithCfg(void** pointer, uint64_t bytes, AclMallocConfig*) { return MallocHost(pointer, bytes); }
aclError aclrtFreeHost(void* pointer) { return FreeHost(pointer); }

aclError aclrtHostRegister(void* pointer, uint64_t bytes, int32_t, void** device_pointer) {
  if (int code = RegisterHost(pointer, bytes); code != kOk) return code;
  if (device_pointer != nullptr) *device_pointer = pointer;
  return kOk;
}
aclError aclrtHostRegisterV2(void* pointer, uint64_t bytes, uint32_t) { return RegisterHost(pointer, bytes); }
aclError aclrtHostGetDevicePointer(void* host, void** device, uint32_t) {
  if (device == nullptr || LookUp(host).kind != PointerKind::kPinned) {
    return Fail(kRtParamInvalid, absl::StrFormat("aclrtHostGetDevicePointer: %p is not registered host memory", host));
  }
  *device = host;
  return kOk;
}
aclError aclrtHostUnregister(void* pointer) { return UnregisterHost(pointer); }

aclError aclrtPointerGetAttributes(const void* pointer, AclPointerAttributes* attributes) {
  if (attributes == nullptr) return Fail(kRtParamInvalid, "aclrtPointerGetAttributes: a null pointer");
  const PointerInfo info = LookUp(pointer);
  *attributes = {};
  switch (info.kind) {
    case PointerKind::kPageable:
      attributes->location.type = 2;
      break;
    case PointerKind::kPinned:
      attributes->location.type = 0;
      attributes->page_size = jumar::memory::kNormalPageBytes;
      break;
    case PointerKind::kDevice:
      attributes->location = {static_cast<uint32_t>(info.device), 1};
      attributes->page_size = jumar::memory::kHugePageBytes;
      break;
  }
  return kOk;
}

aclError aclrtGetMemInfo(int32_t, size_t* free, size_t* total) {
  if (free == nullptr || total == nullptr) return Fail(kRtParamInvalid, "aclrtGetMemInfo: a null pointer");
  int device;
  if (int code = Runtime::Get().CurrentDevice(&device); code != kOk) return code;
  const DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  const auto stats = memory->Stats();
  *total = stats.limit_bytes;
  *free = stats.limit_bytes - stats.used_bytes;
  return kOk;
}

aclError aclrtGetMemUsageInfo(int32_t device, AclMemUsage* usage, size_t capacity, size_t* count) {
  if (usage == nullptr || count == nullptr || capacity == 0) return Fail(kRtParamInvalid, "aclrtGetMemUsageInfo: nowhere to write to");
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  const DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  const auto stats = memory->Stats();
  usage[0] = {};
  std::strncpy(usage[0].name, "RUNTIME", sizeof(usage[0].name) - 1);
  usage[0].current_bytes = stats.used_bytes;
  usage[0].peak_bytes = stats.peak_bytes;
  *count = 1;
  return kOk;
}

aclError aclrtMemcpy(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind) {
  if (int code = CheckUnsafeCall("aclrtMemcpy"); code != kOk) return code;
  if (int code = CheckCopy("aclrtMemcpy", dst, dst_bytes, src, bytes, kind); code != kOk) return code;
  if (bytes == 0) return kOk;
  if (!Tracing()) {
    std::memcpy(DeviceAlias(dst), DeviceAlias(src), bytes);
    return kOk;
  }
  const auto details = CopyDetails(dst, src, bytes);
  const TraceSpan span("aclrtMemcpy", details.get());
  std::memcpy(DeviceAlias(dst), DeviceAlias(src), bytes);
  return kOk;
}

aclError aclrtMemcpyAsync(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind, void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (int code = CheckCopy("aclrtMemcpyAsync", dst, dst_bytes, src, bytes, kind); code != kOk) return code;
  return CopyAsync(*stream, dst, src, bytes);
}

// On hardware this variant decides by the kind of host memory whether the copy is asynchronous, as CopyAsync always does.
aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t dst_bytes, const void* src, size_t bytes, int32_t kind, void* stream) {
  return aclrtMemcpyAsync(dst, dst_bytes, src, bytes, kind, stream);
}

aclError aclrtMemcpy2d(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int32_t kind) {
  if (int code = CheckUnsafeCall("aclrtMemcpy2d"); code != kOk) return code;
  const Copy2d copy{dst, dst_pitch, src, src_pitch, width, height};
  if (int code = CheckCopy2d("aclrtMemcpy2d", copy, kind); code != kOk) return code;
  copy.Run();
  return kOk;
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int32_t kind,
                            void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  const Copy2d copy{dst, dst_pitch, src, src_pitch, width, height};
  if (int code = CheckCopy2d("aclrtMemcpy2dAsync", copy, kind); code != kOk) return code;
  auto details = Tracing() ? CopyDetails(dst, src, width * height) : nullptr;
  return stream->Submit({"memcpy2d", std::move(details), [copy] { copy.Run(); }});
}

aclError aclrtMemcpyBatch(void** dsts, size_t* dst_bytes, void** srcs, size_t* bytes, size_t count, AclCopyBatchAttributes* attributes,
                          size_t* indexes, size_t num_attributes, size_t* failed) {
  if (int code = CheckUnsafeCall("aclrtMemcpyBatch"); code != kOk) return code;
  return CopyBatch("aclrtMemcpyBatch", dsts, dst_bytes, srcs, bytes, count, attributes, indexes, num_attributes, failed,
                   [](void* dst, const void* src, size_t size) {
                     if (size > 0) std::memcpy(DeviceAlias(dst), DeviceAlias(src), size);
                     return int{kOk};
                   });
}

aclError aclrtMemcpyBatchAsync(void** dsts, size_t* dst_bytes, void** srcs, size_t* bytes, size_t count,
                               AclCopyBatchAttributes* attributes, size_t* indexes, size_t num_attributes, size_t* failed,
                               void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  return CopyBatch("aclrtMemcpyBatchAsync", dsts, dst_bytes, srcs, bytes, count, attributes, indexes, num_attributes, failed,
                   [&](void* dst, const void* src, size_t size) { return CopyAsync(*stream, dst, src, size); });
}

aclError aclrtMemset(void* pointer, size_t capacity, int32_t value, size_t bytes) {
  if (int code = CheckUnsafeCall("aclrtMemset"); code != kOk) return code;
  if (int code = CheckSet("aclrtMemset", pointer, capacity, bytes); code != kOk) return code;
  if (bytes > 0) Set(pointer, value, bytes);
  return kOk;
}

aclError aclrtMemsetAsync(void* pointer, size_t capacity, int32_t value, size_t bytes, void* handle) {
  Stream* stream = Runtime::Get().StreamOf(handle);
  if (stream == nullptr) return kRtInvalidHandle;
  if (int code = CheckSet("aclrtMemsetAsync", pointer, capacity, bytes); code != kOk) return code;
  if (bytes == 0) return kOk;
  return stream->Submit("memset", [pointer, value, bytes] { Set(pointer, value, bytes); });
}

// The host's caches are coherent with the "device's".
aclError aclrtMemFlush(void*, size_t) { return kOk; }
aclError aclrtMemInvalidate(void*, size_t) { return kOk; }
aclError aclrtCmoAsync(void*, size_t, int32_t, void* stream) {
  return Runtime::Get().StreamOf(stream) == nullptr ? kRtInvalidHandle : kOk;
}
