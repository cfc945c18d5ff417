// The profiler's interface. torch_npu.profiler records the host's side by itself; a session here makes no data of the device, which is
// what JUMAR_TRACE does. The wheel reports every operator through the Msprof hooks; CANN drops such reports outside of a session, and
// here they are always dropped.
#include <atomic>
#include <chrono>
#include <cstdio>

#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/error.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

struct AclProfConfig {
  uint64_t data_types = 0;
};
struct AclProfStepInfo {};

namespace {

constexpr int kConflict = 148047;
std::atomic<bool> g_session{false};

}  // namespace

aclError aclprofInit(const char* folder, size_t length) {
  if (folder == nullptr || length == 0) return Fail(kInvalidParam, "aclprofInit: no folder");
  if (g_session.exchange(true)) return Fail(kConflict, "aclprofInit: a session is open; end it with aclprofFinalize");
  std::fputs("hostcann: torch_npu.profiler records the host's side only; JUMAR_TRACE=out.json traces the device\n", stderr);
  return kOk;
}
aclError aclprofFinalize() {
  return g_session.exchange(false) ? int{kOk} : Fail(kConflict, "aclprofFinalize: no session is open; begin one with aclprofInit");
}
AclProfConfig* aclprofCreateConfig(uint32_t* devices, uint32_t count, int32_t, const void*, uint64_t data_types) {
  if (devices == nullptr || count == 0) {
    Fail(kInvalidParam, "aclprofCreateConfig: no devices");
    return nullptr;
  }
  return new AclProfConfig{data_types};
}
aclError aclprofDestroyConfig(const AclProfConfig* config) {
  delete config;
  return kOk;
}
aclError aclprofStart(const AclProfConfig* config) {
  return config == nullptr ? Fail(kInvalidParam, "aclprofStart: no configuration") : int{kOk};
}
aclError aclprofStop(const AclProfConfig* config) {
  return config == nullptr ? Fail(kInvalidParam, "aclprofStop: no configuration") : int{kOk};
}
AclProfStepInfo* aclprofCreateStepInfo() { return new AclProfStepInfo; }
aclError aclprofGetStepTimestamp(AclProfStepInfo* step, int32_t, void*) {
  return step == nullptr ? Fail(kInvalidParam, "aclprofGetStepTimestamp: no step") : int{kOk};
}
void aclprofDestroyStepInfo(AclProfStepInfo* step) { delete step; }

uint64_t MsprofGetHashId(const char* text, size_t length) {
  uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211ull;
  return hash;
}
int32_t MsprofRegisterCallback(uint32_t, int32_t (*)(uint32_t, void*, uint32_t)) { return 0; }
int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
uint64_t MsprofSysCycleTime() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count());
}
