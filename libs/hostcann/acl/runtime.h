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
#include <functional>
#include <string>

#include "libs/tiling/executor.h"

namespace jumar::hostcann {

// Runs on the worker thread of a stream. A std::exception that leaves it fails the stream: tasks behind it are skipped, and the
// next synchronising call on the stream returns an error and tells the text.
using Task = std::function<void()>;

// Appends a task to a stream (null: the default stream of the thread's device), or records it when the stream is being captured
// or a task group is being updated. `name` must live forever. Returns 0 or an ACL error code, with the reason as recent error.
int Submit(void* stream, const char* name, Task task);

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

// The thread pool of the process. All streams share it, so that the cores are never oversubscribed.
tiling::Executor& ComputeExecutor();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_RUNTIME_H_
