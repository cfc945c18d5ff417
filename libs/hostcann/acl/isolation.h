// Strict mode (JUMAR_STRICT=1): device memory is out of the program's reach, as on hardware.
//
// The addresses that the program gets are never accessible; the runtime works on their mirror (libs/memory/device/address_mirror.h,
// DeviceAlias in runtime.h). A load or store of the program's through a device pointer faults at once and a message names the
// allocation; so does a task that touches memory which was freed or never mapped, and the message names the task.
#ifndef LIBS_HOSTCANN_ACL_ISOLATION_H_
#define LIBS_HOSTCANN_ACL_ISOLATION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "libs/memory/device/address_mirror.h"

namespace jumar::hostcann {

// The addresses of all devices, made at the first call; installs the handler of faults.
absl::StatusOr<memory::AddressMirror*> ProcessMirror(int devices, uint64_t limit_bytes);
bool Isolated();  // ProcessMirror was called

// The device address of an alias; any other pointer comes back as it is.
void* DeviceAddress(const void* alias);

// While it lives, a fault on this thread is told to be in the task `name`. Free when not isolated.
class RunningTask {
 public:
  explicit RunningTask(const char* name) {
    if (Isolated()) Enter(name);
  }
  ~RunningTask() {
    if (slot_ >= 0) Leave();
  }
  RunningTask(const RunningTask&) = delete;
  RunningTask& operator=(const RunningTask&) = delete;

 private:
  void Enter(const char* name);
  void Leave();

  int slot_ = -1;
  const char* outer_ = nullptr;
};

// The freed allocation that held the address, and who allocated and freed it; "" if there is none, or when not isolated.
std::string DescribeFreed(const void* pointer);

// What the device still holds, with who allocated it; "" if nothing, or when not isolated. Segments of torch_npu's caching allocator
// don't count: at its exit, tensors of modules and globals are alive as a rule.
std::string LeakReport(int device);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_ISOLATION_H_
