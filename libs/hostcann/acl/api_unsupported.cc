// Features that the wheel links to or looks up and that hostcann does not have. Each call fails and says what is missing.
#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/error.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

namespace {

int NoKernels(const char* function) {
  return Fail(kRtFeatureNotSupport, absl::StrCat(function, ": hostcann cannot run NPU machine code; it has operators (aclnn) only"));
}
int NoSharing(const char* function) {
  return Fail(kRtFeatureNotSupport, absl::StrCat(function, ": hostcann does not share device memory between processes yet"));
}

}  // namespace

aclError aclrtBinaryLoadFromData(const void*, size_t, const void*, void**) { return NoKernels("aclrtBinaryLoadFromData"); }
aclError aclrtBinaryGetFunction(void*, const char*, void**) { return NoKernels("aclrtBinaryGetFunction"); }
aclError aclrtGetFunctionAddr(void*, void**, void**) { return NoKernels("aclrtGetFunctionAddr"); }
int32_t rtDevBinaryRegister(const void*, void**) { return NoKernels("rtDevBinaryRegister"); }
int32_t rtFunctionRegister(void*, const void*, const char*, const void*, uint32_t) { return NoKernels("rtFunctionRegister"); }
int32_t rtKernelLaunch(const void*, uint32_t, void*, uint32_t, void*, void*) { return NoKernels("rtKernelLaunch"); }
int32_t rtGetC2cCtrlAddr(uint64_t*, uint32_t*) { return NoKernels("rtGetC2cCtrlAddr"); }

aclError aclrtMemExportToShareableHandle(void*, int32_t, uint64_t, uint64_t*) { return NoSharing("aclrtMemExportToShareableHandle"); }
aclError aclrtMemImportFromShareableHandle(uint64_t, int32_t, void**) { return NoSharing("aclrtMemImportFromShareableHandle"); }
aclError aclrtMemSetPidToShareableHandle(uint64_t, int32_t*, size_t) { return NoSharing("aclrtMemSetPidToShareableHandle"); }
aclError aclrtIpcMemGetExportKey(void*, size_t, char*, size_t, uint64_t) { return NoSharing("aclrtIpcMemGetExportKey"); }
aclError aclrtIpcMemImportByKey(void**, const char*, uint64_t) { return NoSharing("aclrtIpcMemImportByKey"); }
aclError aclrtIpcMemSetImportPid(const char*, int32_t*, size_t) { return NoSharing("aclrtIpcMemSetImportPid"); }
aclError aclrtIpcMemClose(const char*) { return NoSharing("aclrtIpcMemClose"); }
