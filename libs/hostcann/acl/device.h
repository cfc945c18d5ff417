// Devices, contexts, and the process-wide state of the runtime.
#ifndef LIBS_HOSTCANN_ACL_DEVICE_H_
#define LIBS_HOSTCANN_ACL_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/hostcann/acl/config.h"
#include "libs/hostcann/acl/event.h"
#include "libs/hostcann/acl/graph.h"
#include "libs/hostcann/acl/handle_pool.h"
#include "libs/hostcann/acl/notify.h"
#include "libs/hostcann/acl/stream.h"
#include "libs/memory/device/device_memory.h"

namespace jumar::hostcann {

struct Context {
  int device = 0;
  bool primary = false;
  std::mutex mutex;
  std::shared_ptr<Stream> default_stream;  // made at first use
};

struct Device {
  int id = 0;
  std::atomic<int> references{0};  // SetDevice minus ResetDevice
  std::unique_ptr<memory::DeviceMemory> memory;  // made at first use
  void* primary_context = nullptr;
  std::atomic<bool> leaks_reported{false};  // once is enough: reset and finalize come both at exit
};

class Runtime {
 public:
  static Runtime& Get();  // lives until the process ends

  // Refuses a bad configuration and a child process that inherited a used runtime by fork (its workers do not exist there).
  int CheckUsable();
  int num_devices() const { return static_cast<int>(devices_.size()); }
  Device& device(int id) { return *devices_[static_cast<size_t>(id)]; }
  int CheckDevice(int id);
  // The memory of a device, made now if need be; null with a recent error if that fails.
  memory::DeviceMemory* MemoryOf(int id);
  memory::DeviceMemory* ExistingMemory(int id) const { return memories_[id].load(std::memory_order_acquire); }

  // ---- the thread's context
  int SetDevice(int id);
  int ResetDevice(int id);
  void ReportLeaks(int id);  // strict mode: what was not freed, to standard error and as recent error
  int CurrentDevice(int* id);          // kRtContextNull when the thread has none
  void* current_context() const;
  int SetContext(void* handle);
  int CreateContext(int device, void** handle);
  int DestroyContext(void* handle);
  void SetDefaultDevice(int id) { default_device_.store(id, std::memory_order_release); }
  void BindThread(int device);         // for a worker thread

  // ---- streams
  int CreateStream(uint32_t priority, uint32_t flags, void** handle);
  int DestroyStream(void* handle, bool force);
  // Null is the default stream of the thread's device. Null with a recent error when there is none.
  Stream* StreamOf(void* handle);
  std::shared_ptr<Stream> SharedStreamOf(void* handle);
  std::vector<std::shared_ptr<Stream>> StreamsOf(int device);
  int SynchronizeDevice(int device, int64_t timeout_ms);
  size_t num_streams() const { return streams_.size(); }

  HandlePool<Event>& events() { return events_; }
  HandlePool<Notify>& notifies() { return notifies_; }
  HandlePool<Graph>& graphs() { return graphs_; }
  HandlePool<TaskGroup>& groups() { return groups_; }

  void OnFirstWorker();  // registers what ends the workers at process exit
  void StopWorkers();    // aborts every stream; the runtime can go on with new ones

 private:
  Runtime();
  std::shared_ptr<Stream> NewStream(int device, uint32_t priority, uint32_t flags);

  std::vector<std::unique_ptr<Device>> devices_;
  std::atomic<memory::DeviceMemory*> memories_[kMaxDevices] = {};
  std::mutex mutex_;
  std::atomic<int> default_device_{-1};
  std::atomic<bool> used_{false};
  std::atomic<bool> forked_{false};
  std::atomic<int> next_stream_id_{0};
  HandlePool<Context> contexts_;
  HandlePool<Stream> streams_;
  HandlePool<Event> events_;
  HandlePool<Notify> notifies_;
  HandlePool<Graph> graphs_;
  HandlePool<TaskGroup> groups_;
  std::mutex live_mutex_;
  std::vector<std::weak_ptr<Stream>> live_;  // every stream with or without a handle, for the end of the process
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_DEVICE_H_
