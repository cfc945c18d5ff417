// What the operator library (libopapi.so) and the collectives (libhccl.so) need of the runtime (libascendcl.so).
//
// These symbols cross a shared-library border: only std types, and no exception leaves them.
//
//   int code = Submit(stream, "aclnnAdd", [=] { Add(a, b, out); });   // returns at once; the stream's worker runs the task
//
// A task may run more than once: a captured task runs at every replay of its graph. It must therefore own what it reads.
#ifndef LIBS_HOSTCANN_ACL_RUNTIME_H_
#define LIBS_HOSTCANN_ACL_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "libs/tiling/executor.h"

namespace jumar::hostcann {

// Runs on the worker thread of a stream. A std::exception that leaves it fails the stream: tasks behind it are skipped, and the
// next synchronising call on the stream returns an error and tells the text.
using Task = std::function<void()>;

// Appends a task to a stream (null: the default stream of the thread's device), or records it when the stream is being captured
// or a task group is being updated. `name` must live forever. Returns 0 or an ACL error code, with the reason as recent error.
int Submit(void* stream, const char* name, Task task);

// What a trace (JUMAR_TRACE) tells of a task besides its name and its times. To be made only while Tracing().
struct TaskDetails {
  enum Kind : int { kOperator, kCopy, kCollective };
  Kind kind = kOperator;
  uint64_t bytes = 0;     // read and written, together
  double flops = 0;       // multiplications and additions; 0: not counted
  std::string arguments;  // members of a JSON object: "\"self\": \"float16[2, 3]\", \"dim\": 1"
};
bool Tracing();
int Submit(void* stream, const char* name, Task task, std::unique_ptr<const TaskDetails> details);

// What aclGetRecentErrMsg returns to this thread; the newest message comes first.
void SetRecentError(const std::string& message);

// Where the runtime reaches the memory at a device address. In strict mode (JUMAR_STRICT=1) the addresses that the program has are not
// accessible, and this is their alias; otherwise, and for host memory and aliases, it is the pointer itself. What a program gives to
// the runtime is passed through here before a task reads or writes it; what the program gets back never is.
void* DeviceAlias(const void* pointer);

// True for an address inside device memory of any device (allocated, or reserved as virtual memory).
bool IsDevicePointer(const void* pointer);

// Sets device memory (an address or its alias) to zero, within a task. Pages of a long range go back to the system instead of being written, so that zeroing a
// cache of many GiB takes no memory until it is used.
void ZeroDeviceMemory(void* pointer, size_t bytes);

// What JUMAR_FAULTS asks of the next collective of this rank (docs/faults.md). Whoever runs the collective does it.
struct CollectiveFault {
  enum Kind : int {
    kNone,
    kDrop,     // this rank takes no part, so that the others time out
    kCorrupt,  // this rank's result gets wrong bytes
    kDelay,    // by delay_ms, before it takes part
    kExit,     // the process ends at once with exit_code
  };
  Kind kind = kNone;
  int delay_ms = 0;
  int exit_code = 0;
  const char* rule = "";  // "JUMAR_FAULTS rule 1, '...'", for the message
};
// Call once per collective and rank, in the order of the calls: the rules count. `op` is the name of the C function, "HcclAllReduce".
CollectiveFault NextCollectiveFault(const char* op, int rank);

// JUMAR_STRICT=1: what hardware or its documents refuse is refused here, too, where that costs time or goes beyond what works.
bool StrictMode();

// The thread pool of the process. All streams share it, so that the cores are never oversubscribed.
tiling::Executor& ComputeExecutor();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_RUNTIME_H_
