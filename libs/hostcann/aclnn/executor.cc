// The life of an aclOpExecutor, and the hooks by which torch_npu manages its operator cache.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/aclnn/acl_types.h"
#include "libs/hostcann/aclnn/op.h"

#define JUMAR_EXPORT extern "C" __attribute__((visibility("default")))

namespace jumar::hostcann::aclnn {

int Launch(aclOpExecutor* executor, void* stream) {
  if (executor == nullptr) {
    SetRecentError("an aclnn operator was launched without an executor: call its GetWorkspaceSize first");
    return kParamNull;
  }
  std::unique_ptr<aclOpExecutor> owned(executor);
  owned->launches->fetch_add(1, std::memory_order_relaxed);
  return Submit(stream, owned->name, std::move(owned->task), std::move(owned->details));
}

}  // namespace jumar::hostcann::aclnn

JUMAR_EXPORT int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return jumar::hostcann::aclnn::kOk;
}

// torch_npu can keep executors and run them again with other addresses. Making an executor costs less here than
// hashing its arguments, so this cache never hits: no operator may use it.
JUMAR_EXPORT bool CanUsePTACache(const char* /*operator_name*/) { return false; }
JUMAR_EXPORT aclOpExecutor* PTAGetExecCache(uint64_t /*hash*/, uint64_t* /*workspace_size*/) { return nullptr; }
JUMAR_EXPORT aclOpExecutor* PTAFindExecCache(uint8_t* /*key*/, size_t /*size*/, uint64_t* /*workspace_size*/) { return nullptr; }
JUMAR_EXPORT void InitPTACacheThreadLocal() {}
JUMAR_EXPORT void UnInitPTACacheThreadLocal() {}
JUMAR_EXPORT void SetPTAHashKey(uint64_t /*hash*/) {}
JUMAR_EXPORT void SetPTACacheHashKey(uint8_t* /*key*/, size_t /*size*/) {}
JUMAR_EXPORT void AddTensorAddrToCachedList(void* /*address*/) {}

// CANN serves the small objects of a call from a per-thread pool that these bracket. Ours live on the heap.
JUMAR_EXPORT int InitHugeMemThreadLocal(void* /*arg*/, bool /*flag*/) { return jumar::hostcann::aclnn::kOk; }
JUMAR_EXPORT void UnInitHugeMemThreadLocal(void* /*arg*/, bool /*flag*/) {}
JUMAR_EXPORT void ReleaseHugeMem(void* /*arg*/, bool /*flag*/) {}
