// Virtual memory: addresses and physical chunks apart.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/memory.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace
using jumar::memory::DeviceMemory;

namespace {

constexpr int32_t kLocationDevice = 1;

// A handle is (device + 1) << 48 | chunk, so that it tells its device and is never null.
constexpr int kDeviceShift = 48;

void* HandleOf(int device, uint64_t chunk) {
  return reinterpret_cast<void*>((static_cast<uint64_t>(device + 1) << kDeviceShift) | chunk);
}

DeviceMemory* MemoryOfHandle(void* handle, uint64_t* chunk) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  const int device = static_cast<int>(value >> kDeviceShift) - 1;
  *chunk = value & ((uint64_t{1} << kDeviceShift) - 1);
  if (device < 0 || device >= Runtime::Get().num_devices() || Runtime::Get().ExistingMemory(device) == nullptr) {
    Fail(kRtInvalidHandle, absl::StrFormat("%p is not a handle of physical memory", handle));
    return nullptr;
  }
  return Runtime::Get().ExistingMemory(device);
}

DeviceMemory* MemoryOfReservation(const char* what, void* address) {
  const PointerInfo info = LookUp(address);
  if (info.kind != PointerKind::kDevice) {
    Fail(kRtParamInvalid, absl::StrFormat("%s: %p is not in a reserved address range", what, address));
    return nullptr;
  }
  return Runtime::Get().ExistingMemory(info.device);
}

}  // namespace

aclError aclrtReserveMemAddress(void** address, size_t bytes, size_t alignment, void* expected, uint64_t) {
  if (address == nullptr) return Fail(kRtParamInvalid, "aclrtReserveMemAddress: a null pointer");
  if (expected != nullptr) return Fail(kRtFeatureNotSupport, "aclrtReserveMemAddress: hostcann chooses the address; pass null");
  int device;
  if (int code = Runtime::Get().CurrentDevice(&device); code != kOk) {
    return code == kRtContextNull ? Fail(code, "this thread has no device; call aclrtSetDevice first") : code;
  }
  DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  const auto reserved = memory->Reserve(bytes, alignment);
  if (!reserved.ok()) return FailStatus(kRtParamInvalid, reserved.status());
  *address = *reserved;
  return kOk;
}

aclError aclrtReleaseMemAddress(void* address) {
  DeviceMemory* memory = MemoryOfReservation("aclrtReleaseMemAddress", address);
  return memory == nullptr ? int{kRtParamInvalid} : FailStatus(kRtParamInvalid, memory->Release(address));
}

aclError aclrtMallocPhysical(void** handle, size_t bytes, const AclPhysicalProperties* properties, uint64_t) {
  if (handle == nullptr || properties == nullptr) return Fail(kRtParamInvalid, "aclrtMallocPhysical: a null pointer");
  if (properties->location.type != kLocationDevice) {
    return Fail(kRtFeatureNotSupport, absl::StrCat("aclrtMallocPhysical: hostcann has physical memory of devices only, not of location type ",
                                                   properties->location.type));
  }
  const int device = static_cast<int>(properties->location.id);
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  DeviceMemory* memory = Runtime::Get().MemoryOf(device);
  if (memory == nullptr) return kRtInternal;
  if (int fault = FaultOnAllocation(device, bytes); fault != kOk) return fault;
  const auto chunk = memory->CreatePhysical(bytes, MemoryTag());
  if (!chunk.ok()) return FailStatus(kRtParamInvalid, chunk.status());
  *handle = HandleOf(device, *chunk);
  return kOk;
}

aclError aclrtFreePhysical(void* handle) {
  uint64_t chunk;
  DeviceMemory* memory = MemoryOfHandle(handle, &chunk);
  return memory == nullptr ? int{kRtInvalidHandle} : FailStatus(kRtInvalidHandle, memory->DestroyPhysical(chunk));
}

aclError aclrtMapMem(void* address, size_t bytes, size_t offset, void* handle, uint64_t) {
  uint64_t chunk;
  DeviceMemory* memory = MemoryOfHandle(handle, &chunk);
  return memory == nullptr ? int{kRtInvalidHandle} : FailStatus(kRtParamInvalid, memory->Map(address, bytes, offset, chunk));
}

aclError aclrtUnmapMem(void* address) {
  DeviceMemory* memory = MemoryOfReservation("aclrtUnmapMem", address);
  return memory == nullptr ? int{kRtParamInvalid} : FailStatus(kRtParamInvalid, memory->Unmap(address));
}

aclError aclrtMemGetAllocationGranularity(AclPhysicalProperties*, int32_t, size_t* bytes) {
  if (bytes == nullptr) return Fail(kRtParamInvalid, "aclrtMemGetAllocationGranularity: a null pointer");
  *bytes = jumar::memory::kHugePageBytes;
  return kOk;
}
