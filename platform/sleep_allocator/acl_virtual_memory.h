// A device's virtual memory through ACL's C interface, whichever CANN of the process implements it.
//
// The functions are looked up in the libascendcl.so that torch_npu loaded: nothing is linked, and the same file runs on the vendor's
// CANN and on hostcann.
#ifndef PLATFORM_SLEEP_ALLOCATOR_ACL_VIRTUAL_MEMORY_H_
#define PLATFORM_SLEEP_ALLOCATOR_ACL_VIRTUAL_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/device/sleep_pool.h"

namespace jumar::platform {

struct AclFunctions;  // those that are used, by name

class AclVirtualMemory final : public memory::VirtualMemory {
 public:
  // FailedPrecondition if the process has no libascendcl.so, or one without virtual memory.
  static absl::StatusOr<std::unique_ptr<AclVirtualMemory>> Create(int device);

  uint64_t granularity() const override { return granularity_; }
  absl::StatusOr<void*> Reserve(uint64_t bytes) override;
  absl::Status Release(void* base, uint64_t bytes) override;
  absl::StatusOr<Handle> CreatePhysical(uint64_t bytes, const std::string& tag) override;
  absl::Status DestroyPhysical(Handle handle) override;
  absl::Status Map(void* base, uint64_t bytes, Handle handle) override;
  absl::Status Unmap(void* base, uint64_t bytes) override;
  absl::StatusOr<void*> AllocateHost(uint64_t bytes) override;
  void FreeHost(void* host) override;
  absl::Status CopyToHost(void* host, const void* device, uint64_t bytes) override;
  absl::Status CopyToDevice(void* device, const void* host, uint64_t bytes) override;
  absl::Status Synchronize() override;

 private:
  AclVirtualMemory(const AclFunctions& acl, int device) : acl_(acl), device_(device) {}

  const AclFunctions& acl_;
  const int device_;
  uint64_t granularity_ = 0;
};

}  // namespace jumar::platform

#endif  // PLATFORM_SLEEP_ALLOCATOR_ACL_VIRTUAL_MEMORY_H_
