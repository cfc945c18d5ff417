// Devices and contexts.
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

std::atomic<int32_t> g_saturation_mode{1};  // infinity and NaN

int NullPointer(const char* function) { return Fail(kRtParamInvalid, absl::StrCat(function, ": a null pointer")); }

// Cores that a device, stream or thread may use. Operators share the CPU's cores whatever the number says.
int CoresOf(int32_t type, uint32_t* value) {
  if (value == nullptr) return NullPointer("aclrtGetDeviceResLimit");
  if (type != 0 && type != 1) return Fail(kRtParamInvalid, absl::StrCat("there is no core type ", type));
  if (int code = Runtime::Get().CheckUsable(); code != kOk) return code;
  const Config& config = *ProcessConfig();
  *value = static_cast<uint32_t>(type == 0 ? config.soc->aic_cores : config.vector_cores());
  return kOk;
}

int RefuseCoreLimit() {
  return Fail(kRtFeatureNotSupport, "hostcann does not limit the cores of a device or stream; use JUMAR_THREADS for the process");
}

}  // namespace

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (count == nullptr) return NullPointer("aclrtGetDeviceCount");
  const auto& config = ProcessConfig();
  *count = config.ok() ? static_cast<uint32_t>(config->devices) : 0;
  return config.ok() ? kOk : FailStatus(kInvalidParam, config.status());
}

aclError aclrtSetDevice(int32_t device) { return Runtime::Get().SetDevice(device); }
aclError aclrtResetDevice(int32_t device) { return Runtime::Get().ResetDevice(device); }
aclError aclrtResetDeviceForce(int32_t device) {
  Runtime& runtime = Runtime::Get();
  if (int code = runtime.CheckDevice(device); code != kOk) return code;
  runtime.device(device).references.store(1);
  return runtime.ResetDevice(device);
}
aclError aclrtGetDevice(int32_t* device) {
  return device == nullptr ? NullPointer("aclrtGetDevice") : Runtime::Get().CurrentDevice(device);
}
aclError aclrtGetRunMode(int32_t* mode) {
  if (mode == nullptr) return NullPointer("aclrtGetRunMode");
  *mode = 1;  // the program runs on the host
  return kOk;
}

aclError aclrtSynchronizeDevice() { return aclrtSynchronizeDeviceWithTimeout(-1); }
aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout_ms) {
  int device;
  if (int code = Runtime::Get().CurrentDevice(&device); code != kOk) return code;
  return Runtime::Get().SynchronizeDevice(device, timeout_ms);
}

aclError aclrtCreateContext(void** context, int32_t device) {
  return context == nullptr ? NullPointer("aclrtCreateContext") : Runtime::Get().CreateContext(device, context);
}
aclError aclrtDestroyContext(void* context) { return Runtime::Get().DestroyContext(context); }
aclError aclrtSetCurrentContext(void* context) { return Runtime::Get().SetContext(context); }
aclError aclrtGetCurrentContext(void** context) {
  if (context == nullptr) return NullPointer("aclrtGetCurrentContext");
  int device;
  if (int code = Runtime::Get().CurrentDevice(&device); code != kOk) return code;
  *context = Runtime::Get().current_context();
  return kOk;
}
aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t* flags, int32_t* active) {
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = Runtime::Get().device(device).references.load() > 0 ? 1 : 0;
  return kOk;
}

// Every device is in the memory of one process, so each reaches the others.
aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t device, int32_t peer) {
  if (can == nullptr) return NullPointer("aclrtDeviceCanAccessPeer");
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  if (int code = Runtime::Get().CheckDevice(peer); code != kOk) return code;
  *can = 1;
  return kOk;
}
aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t) { return Runtime::Get().CheckDevice(peer); }
aclError aclrtDeviceDisablePeerAccess(int32_t peer) { return Runtime::Get().CheckDevice(peer); }

aclError aclrtGetDeviceInfo(uint32_t device, int32_t attribute, int64_t* value) {
  if (value == nullptr) return NullPointer("aclrtGetDeviceInfo");
  if (int code = Runtime::Get().CheckDevice(static_cast<int>(device)); code != kOk) return code;
  const Config& config = *ProcessConfig();
  switch (attribute) {
    case 1:  // cores of the AI CPU: none is modelled
      *value = 0;
      return kOk;
    case 101:
    case 102:
      *value = config.soc->aic_cores;
      return kOk;
    case 201:
      *value = config.vector_cores();
      return kOk;
    case 204:
      *value = config.soc->ub_bytes;
      return kOk;
    case 301:
      *value = static_cast<int64_t>(config.hbm_bytes);
      return kOk;
    case 302:
      *value = config.soc->l2_bytes;  // 0 when no public source tells it
      return kOk;
    case 402:  // physical chip
      *value = device;
      return kOk;
    case 501:  // not a slice of a device
      *value = 0;
      return kOk;
    default:
      return Fail(kRtFeatureNotSupport, absl::StrCat("aclrtGetDeviceInfo: hostcann does not know attribute ", attribute));
  }
}

aclError aclrtGetDeviceUtilizationRate(int32_t device, AclUtilization* utilization) {
  if (utilization == nullptr) return NullPointer("aclrtGetDeviceUtilizationRate");
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  // A stream with work is all that is known of a device's load.
  int32_t busy = 0;
  for (const auto& stream : Runtime::Get().StreamsOf(device)) {
    if (!stream->Idle()) busy = 100;
  }
  int32_t used = 0;
  if (const auto* memory = Runtime::Get().ExistingMemory(device)) {
    const auto stats = memory->Stats();
    used = static_cast<int32_t>(100 * stats.used_bytes / stats.limit_bytes);
  }
  *utilization = {busy, busy, -1, used, nullptr};
  return kOk;
}

aclError aclrtDeviceGetUuid(int32_t device, AclUuid* uuid) {
  if (uuid == nullptr) return NullPointer("aclrtDeviceGetUuid");
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  std::memcpy(uuid->bytes, "jumar-hostcann-", 15);
  uuid->bytes[15] = static_cast<char>(device);
  return kOk;
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  if (pid == nullptr) return NullPointer("aclrtDeviceGetBareTgid");
  *pid = getpid();
  return kOk;
}

aclError aclrtGetLogicDevIdByUserDevId(int32_t user, int32_t* logic) {
  if (logic == nullptr) return NullPointer("aclrtGetLogicDevIdByUserDevId");
  if (int code = Runtime::Get().CheckDevice(user); code != kOk) return code;
  *logic = user;
  return kOk;
}

aclError aclrtSetDeviceSatMode(int32_t mode) {
  if (mode != 1) {
    return Fail(kRtFeatureNotSupport, absl::StrCat("overflow mode ", mode, ": hostcann has only infinity and NaN (mode 1)"));
  }
  g_saturation_mode.store(mode);
  return kOk;
}
aclError aclrtGetDeviceSatMode(int32_t* mode) {
  if (mode == nullptr) return NullPointer("aclrtGetDeviceSatMode");
  *mode = g_saturation_mode.load();
  return kOk;
}

aclError aclrtSetOpWaitTimeout(uint32_t seconds) {
  SetEventWaitTimeout(int64_t{seconds} * 1000);
  return kOk;
}
// Time-outs of operators guard hardware against hanging kernels; an operator on the host ends.
aclError aclrtSetOpExecuteTimeOut(uint32_t) { return kOk; }
aclError aclrtSetOpExecuteTimeOutV2(uint64_t us, uint64_t* actual_us) {
  if (actual_us != nullptr) *actual_us = us;
  return kOk;
}

aclError aclrtGetDeviceResLimit(int32_t device, int32_t type, uint32_t* value) {
  if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
  return CoresOf(type, value);
}
aclError aclrtSetDeviceResLimit(int32_t, int32_t, uint32_t) { return RefuseCoreLimit(); }
aclError aclrtResetDeviceResLimit(int32_t device) { return Runtime::Get().CheckDevice(device); }
aclError aclrtGetStreamResLimit(void* stream, int32_t type, uint32_t* value) {
  return Runtime::Get().StreamOf(stream) == nullptr ? int{kRtInvalidHandle} : CoresOf(type, value);
}
aclError aclrtSetStreamResLimit(void*, int32_t, uint32_t) { return RefuseCoreLimit(); }
aclError aclrtResetStreamResLimit(void*) { return kOk; }
aclError aclrtUseStreamResInCurrentThread(void*) { return kOk; }
aclError aclrtUnuseStreamResInCurrentThread(void*) { return kOk; }
aclError aclrtGetResInCurrentThread(int32_t type, uint32_t* value) { return CoresOf(type, value); }
