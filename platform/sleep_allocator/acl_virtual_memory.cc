#include "platform/sleep_allocator/acl_virtual_memory.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"

namespace jumar::platform {

// Each member has the name and the type of its function.
struct AclFunctions {
  decltype(&::aclrtGetDevice) aclrtGetDevice = nullptr;
  decltype(&::aclrtSetDevice) aclrtSetDevice = nullptr;
  decltype(&::aclrtSynchronizeDevice) aclrtSynchronizeDevice = nullptr;
  decltype(&::aclrtReserveMemAddress) aclrtReserveMemAddress = nullptr;
  decltype(&::aclrtReleaseMemAddress) aclrtReleaseMemAddress = nullptr;
  decltype(&::aclrtMallocPhysical) aclrtMallocPhysical = nullptr;
  decltype(&::aclrtFreePhysical) aclrtFreePhysical = nullptr;
  decltype(&::aclrtMapMem) aclrtMapMem = nullptr;
  decltype(&::aclrtUnmapMem) aclrtUnmapMem = nullptr;
  decltype(&::aclrtMemGetAllocationGranularity) aclrtMemGetAllocationGranularity = nullptr;
  decltype(&::aclrtMallocHost) aclrtMallocHost = nullptr;
  decltype(&::aclrtFreeHost) aclrtFreeHost = nullptr;
  decltype(&::aclrtMemcpy) aclrtMemcpy = nullptr;
  decltype(&::aclGetRecentErrMsg) aclGetRecentErrMsg = nullptr;
  decltype(&::JumarTagMemory) JumarTagMemory = nullptr;  // hostcann's; null elsewhere
};

namespace {

// Values of ACL's enumerations.
constexpr int32_t kHandleTypeNone = 0;
constexpr int32_t kAllocationTypePinned = 0;
constexpr int32_t kHbmHugePages = 2;
constexpr int32_t kLocationDevice = 1;
constexpr int32_t kGranularityMinimum = 0;
constexpr int32_t kHostToDevice = 1;
constexpr int32_t kDeviceToHost = 2;
constexpr aclError kMemoryAllocationFailed = 207001;  // ACL_ERROR_RT_MEMORY_ALLOCATION
constexpr aclError kBadAlloc = 200000;                // ACL_ERROR_BAD_ALLOC

absl::StatusOr<const AclFunctions*> LoadFunctions() {
  static const absl::StatusOr<AclFunctions> loaded = []() -> absl::StatusOr<AclFunctions> {
    void* library = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
      return absl::FailedPreconditionError("libascendcl.so is not in this process; import torch_npu first");
    }
    AclFunctions acl;
#define JUMAR_LOAD(name)                                                                                            \
  acl.name = reinterpret_cast<decltype(acl.name)>(dlsym(library, #name));                                           \
  if (acl.name == nullptr) {                                                                                        \
    return absl::FailedPreconditionError("libascendcl.so lacks " #name ", which sleep mode needs; update CANN"); \
  }
    JUMAR_LOAD(aclrtGetDevice)
    JUMAR_LOAD(aclrtSetDevice)
    JUMAR_LOAD(aclrtSynchronizeDevice)
    JUMAR_LOAD(aclrtReserveMemAddress)
    JUMAR_LOAD(aclrtReleaseMemAddress)
    JUMAR_LOAD(aclrtMallocPhysical)
    JUMAR_LOAD(aclrtFreePhysical)
    JUMAR_LOAD(aclrtMapMem)
    JUMAR_LOAD(aclrtUnmapMem)
    JUMAR_LOAD(aclrtMemGetAllocationGranularity)
    JUMAR_LOAD(aclrtMallocHost)
    JUMAR_LOAD(aclrtFreeHost)
    JUMAR_LOAD(aclrtMemcpy)
    JUMAR_LOAD(aclGetRecentErrMsg)
#undef JUMAR_LOAD
    acl.JumarTagMemory = reinterpret_cast<decltype(acl.JumarTagMemory)>(dlsym(library, "JumarTagMemory"));
    return acl;
  }();
  if (!loaded.ok()) return loaded.status();
  return &*loaded;
}

absl::Status Check(const AclFunctions& acl, const char* function, aclError code) {
  if (code == 0) return absl::OkStatus();
  const char* why = acl.aclGetRecentErrMsg();
  const bool exhausted = code == kMemoryAllocationFailed || code == kBadAlloc;
  return absl::Status(exhausted ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
                      absl::StrCat(function, " failed with ", code, why == nullptr ? "" : ": ", why == nullptr ? "" : why));
}

AclPhysicalProperties PropertiesOf(int device) {
  return {kHandleTypeNone, kAllocationTypePinned, kHbmHugePages, {static_cast<uint32_t>(device), kLocationDevice}, 0};
}

// Makes the device the thread's for the duration of a call: the allocator is called from any thread.
class OnDevice {
 public:
  OnDevice(const AclFunctions& acl, int device) : acl_(acl) {
    if (acl.aclrtGetDevice(&previous_) != 0) previous_ = -1;
    status_ = previous_ == device ? absl::OkStatus() : Check(acl, "aclrtSetDevice", acl.aclrtSetDevice(device));
    changed_ = status_.ok() && previous_ >= 0 && previous_ != device;
  }
  ~OnDevice() {
    if (changed_) acl_.aclrtSetDevice(previous_);
  }
  const absl::Status& status() const { return status_; }

 private:
  const AclFunctions& acl_;
  int32_t previous_ = -1;
  bool changed_ = false;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AclVirtualMemory>> AclVirtualMemory::Create(int device) {
  const auto acl = LoadFunctions();
  if (!acl.ok()) return acl.status();
  auto memory = std::unique_ptr<AclVirtualMemory>(new AclVirtualMemory(**acl, device));
  const OnDevice on(**acl, device);
  if (!on.status().ok()) return on.status();
  AclPhysicalProperties properties = PropertiesOf(device);
  size_t granularity = 0;
  absl::Status status = Check(**acl, "aclrtMemGetAllocationGranularity",
                              (*acl)->aclrtMemGetAllocationGranularity(&properties, kGranularityMinimum, &granularity));
  if (!status.ok()) return status;
  if (granularity == 0 || (granularity & (granularity - 1)) != 0) {
    return absl::InternalError(absl::StrCat("a granularity of ", granularity, " bytes of device memory is not a power of two"));
  }
  memory->granularity_ = granularity;
  return memory;
}

absl::StatusOr<void*> AclVirtualMemory::Reserve(uint64_t bytes) {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  void* base = nullptr;
  absl::Status status = Check(acl_, "aclrtReserveMemAddress",
                              acl_.aclrtReserveMemAddress(&base, bytes, /*alignment=*/0, /*expected=*/nullptr, /*flags=*/0));
  if (!status.ok()) return status;
  return base;
}

absl::Status AclVirtualMemory::Release(void* base, uint64_t) {
  return Check(acl_, "aclrtReleaseMemAddress", acl_.aclrtReleaseMemAddress(base));
}

absl::StatusOr<memory::VirtualMemory::Handle> AclVirtualMemory::CreatePhysical(uint64_t bytes, const std::string& tag) {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  const AclPhysicalProperties properties = PropertiesOf(device_);
  void* handle = nullptr;
  if (acl_.JumarTagMemory != nullptr) acl_.JumarTagMemory(tag.c_str());
  absl::Status status = Check(acl_, "aclrtMallocPhysical", acl_.aclrtMallocPhysical(&handle, bytes, &properties, /*flags=*/0));
  if (acl_.JumarTagMemory != nullptr) acl_.JumarTagMemory("");
  if (!status.ok()) return status;
  return reinterpret_cast<Handle>(handle);
}

absl::Status AclVirtualMemory::DestroyPhysical(Handle handle) {
  return Check(acl_, "aclrtFreePhysical", acl_.aclrtFreePhysical(reinterpret_cast<void*>(handle)));
}

absl::Status AclVirtualMemory::Map(void* base, uint64_t bytes, Handle handle) {
  return Check(acl_, "aclrtMapMem", acl_.aclrtMapMem(base, bytes, /*offset=*/0, reinterpret_cast<void*>(handle), /*flags=*/0));
}

absl::Status AclVirtualMemory::Unmap(void* base, uint64_t) { return Check(acl_, "aclrtUnmapMem", acl_.aclrtUnmapMem(base)); }

absl::StatusOr<void*> AclVirtualMemory::AllocateHost(uint64_t bytes) {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  void* host = nullptr;
  if (absl::Status status = Check(acl_, "aclrtMallocHost", acl_.aclrtMallocHost(&host, bytes)); !status.ok()) return status;
  return host;
}

void AclVirtualMemory::FreeHost(void* host) { acl_.aclrtFreeHost(host); }

absl::Status AclVirtualMemory::CopyToHost(void* host, const void* device, uint64_t bytes) {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  return Check(acl_, "aclrtMemcpy", acl_.aclrtMemcpy(host, bytes, device, bytes, kDeviceToHost));
}

absl::Status AclVirtualMemory::CopyToDevice(void* device, const void* host, uint64_t bytes) {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  return Check(acl_, "aclrtMemcpy", acl_.aclrtMemcpy(device, bytes, host, bytes, kHostToDevice));
}

absl::Status AclVirtualMemory::Synchronize() {
  const OnDevice on(acl_, device_);
  if (!on.status().ok()) return on.status();
  return Check(acl_, "aclrtSynchronizeDevice", acl_.aclrtSynchronizeDevice());
}

}  // namespace jumar::platform
