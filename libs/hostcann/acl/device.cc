#include "libs/hostcann/acl/device.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/isolation.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/acl/trace.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::hostcann {
namespace {

thread_local void* t_context = nullptr;

constexpr char kOomMend[] =
    "Free tensors, lower the model's length, batch or vLLM's --gpu-memory-utilization, or raise JUMAR_HBM_BYTES";

}  // namespace

Runtime& Runtime::Get() {
  static auto* const runtime = new Runtime();  // never destroyed: destructors of other libraries still call us at exit
  return *runtime;
}

Runtime::Runtime() {
  const absl::StatusOr<Config>& config = ProcessConfig();
  const int count = config.ok() ? config->devices : 0;
  for (int id = 0; id < count; ++id) {
    auto device = std::make_unique<Device>();
    device->id = id;
    auto context = std::make_shared<Context>();
    context->device = id;
    context->primary = true;
    device->primary_context = contexts_.Add(std::move(context));
    devices_.push_back(std::move(device));
  }
  if (config.ok()) InstallHooks(*config);
  pthread_atfork(nullptr, nullptr, [] {
    Runtime& runtime = Runtime::Get();
    if (!runtime.used_.load(std::memory_order_relaxed)) return;
    runtime.forked_.store(true, std::memory_order_relaxed);
    g_hooks.store(0, std::memory_order_relaxed);  // the trace is the parent's
  });
}

int Runtime::CheckUsable() {
  if (forked_.load(std::memory_order_relaxed)) {
    return Fail(kRtInternal,
                "this process was forked from one that had used the NPU, whose streams do not exist here; start child processes "
                "with spawn (multiprocessing.set_start_method('spawn'))");
  }
  const absl::StatusOr<Config>& config = ProcessConfig();
  return config.ok() ? kOk : FailStatus(kInvalidParam, config.status());
}

int Runtime::CheckDevice(int id) {
  if (int code = CheckUsable(); code != kOk) return code;
  if (id >= 0 && id < num_devices()) return kOk;
  return Fail(kRtInvalidDevice, absl::StrCat("device ", id, " does not exist: there are ", num_devices(),
                                             ", numbered from 0; set JUMAR_DEVICES for more"));
}

memory::DeviceMemory* Runtime::MemoryOf(int id) {
  if (memory::DeviceMemory* memory = ExistingMemory(id)) return memory;
  std::lock_guard lock(mutex_);
  Device& dev = device(id);
  if (dev.memory == nullptr) {
    memory::DeviceMemoryOptions options;
    options.name = absl::StrCat("device ", id);
    options.limit_bytes = ProcessConfig()->hbm_bytes;
    options.mend = kOomMend;
    if (ProcessConfig()->strict) {
      const absl::StatusOr<memory::AddressMirror*> mirror = ProcessMirror(num_devices(), options.limit_bytes);
      if (!mirror.ok()) {
        FailStatus(kRtInternal, mirror.status());
        return nullptr;
      }
      options.mirror = *mirror;
    }
    auto created = memory::DeviceMemory::Create(std::move(options));
    if (!created.ok()) {
      FailStatus(kRtInternal, created.status());
      return nullptr;
    }
    dev.memory = *std::move(created);
    used_.store(true, std::memory_order_relaxed);
    memories_[id].store(dev.memory.get(), std::memory_order_release);
  }
  return dev.memory.get();
}

int Runtime::SetDevice(int id) {
  if (int code = CheckDevice(id); code != kOk) return code;
  // A device that is in use already is only selected: torch_npu does so in destructors, also when the device is lost.
  if (device(id).references.load() == 0) {
    if (int code = CheckNotLost(id); code != kOk) return code;
  }
  device(id).references.fetch_add(1);
  device(id).leaks_reported.store(false);
  t_context = device(id).primary_context;
  return kOk;
}

int Runtime::ResetDevice(int id) {
  if (int code = CheckDevice(id); code != kOk) return code;
  Device& dev = device(id);
  int references = dev.references.load();
  while (references > 0 && !dev.references.compare_exchange_weak(references, references - 1)) {
  }
  if (references > 1) return kOk;
  ReportLeaks(id);
  for (const auto& stream : StreamsOf(id)) stream->Abort();
  ReviveDevice(id);
  const std::shared_ptr<Context> context = contexts_.Get(dev.primary_context);
  std::lock_guard lock(context->mutex);
  context->default_stream = nullptr;
  return kOk;
}

void Runtime::ReportLeaks(int id) {
  if (device(id).leaks_reported.exchange(true)) return;
  const std::string report = LeakReport(id);
  if (report.empty()) return;
  std::fputs(report.c_str(), stderr);
  Fail(kOk, report);
}

void* Runtime::current_context() const { return t_context; }

int Runtime::CurrentDevice(int* id) {
  if (int code = CheckUsable(); code != kOk) return code;
  if (t_context == nullptr) {
    const int fallback = default_device_.load(std::memory_order_acquire);
    if (fallback < 0) return kRtContextNull;  // no text: torch_npu asks so to find out
    t_context = device(fallback).primary_context;
    device(fallback).references.fetch_add(1);
  }
  const Context* context = contexts_.Peek(t_context);
  if (context == nullptr) {
    t_context = nullptr;
    return Fail(kRtContextNull, "the context of this thread was destroyed; call aclrtSetDevice or aclrtSetCurrentContext");
  }
  *id = context->device;
  return kOk;
}

void Runtime::BindThread(int id) { t_context = device(id).primary_context; }

int Runtime::SetContext(void* handle) {
  if (int code = CheckUsable(); code != kOk) return code;
  if (contexts_.Peek(handle) == nullptr) return Fail(kRtContextNull, "not a context, or destroyed");
  t_context = handle;
  return kOk;
}

int Runtime::CreateContext(int id, void** handle) {
  if (int code = CheckDevice(id); code != kOk) return code;
  auto context = std::make_shared<Context>();
  context->device = id;
  *handle = contexts_.Add(std::move(context));
  if (*handle == nullptr) return Fail(kRtInternal, "too many contexts");
  t_context = *handle;
  return kOk;
}

int Runtime::DestroyContext(void* handle) {
  const Context* context = contexts_.Peek(handle);
  if (context == nullptr) return Fail(kRtContextNull, "not a context, or destroyed");
  if (context->primary) return Fail(kRtParamInvalid, "the primary context of a device ends with aclrtResetDevice");
  const std::shared_ptr<Context> removed = contexts_.Remove(handle);
  if (removed->default_stream != nullptr) removed->default_stream->CloseWhenIdle();
  if (t_context == handle) t_context = nullptr;
  return kOk;
}

std::shared_ptr<Stream> Runtime::NewStream(int id, uint32_t priority, uint32_t flags) {
  used_.store(true, std::memory_order_relaxed);
  auto stream = std::make_shared<Stream>(id, next_stream_id_.fetch_add(1), flags, priority);
  std::lock_guard lock(live_mutex_);
  live_.erase(std::remove_if(live_.begin(), live_.end(), [](const auto& weak) { return weak.expired(); }), live_.end());
  live_.push_back(stream);
  return stream;
}

int Runtime::CreateStream(uint32_t priority, uint32_t flags, void** handle) {
  int id;
  if (int code = CurrentDevice(&id); code != kOk) {
    return code == kRtContextNull ? Fail(code, "this thread has no device; call aclrtSetDevice first") : code;
  }
  if (int code = CheckNotLost(id); code != kOk) return code;
  if (streams_.size() >= kMaxStreams) {
    return Fail(kRtNoStreamResource, absl::StrCat("all ", kMaxStreams, " streams are in use; destroy some, or reuse them"));
  }
  *handle = streams_.Add(NewStream(id, priority, flags));
  return kOk;
}

int Runtime::DestroyStream(void* handle, bool force) {
  if (int code = CheckUsable(); code != kOk) return code;
  if (handle == nullptr) return Fail(kRtParamInvalid, "the default stream cannot be destroyed");
  Stream* peek = streams_.Peek(handle);
  if (peek == nullptr) return Fail(kRtInvalidHandle, "not a stream, or destroyed before");
  if (peek->capturing()) {
    return Fail(kRtStreamCaptured, absl::StrCat("stream ", peek->id(), " is being captured; end the capture first"));
  }
  const std::shared_ptr<Stream> stream = streams_.Remove(handle);
  if (stream == nullptr) return Fail(kRtInvalidHandle, "not a stream, or destroyed before");
  if (force) {
    stream->Abort();
  } else {
    stream->CloseWhenIdle();
  }
  return kOk;
}

Stream* Runtime::StreamOf(void* handle) {
  if (handle != nullptr) {
    if (forked_.load(std::memory_order_relaxed) && CheckUsable() != kOk) return nullptr;
    Stream* stream = streams_.Peek(handle);
    if (stream == nullptr) Fail(kRtInvalidHandle, "not a stream, or destroyed before");
    return stream;
  }
  return SharedStreamOf(nullptr).get();  // the context keeps it alive
}

std::shared_ptr<Stream> Runtime::SharedStreamOf(void* handle) {
  if (handle != nullptr) {
    if (forked_.load(std::memory_order_relaxed) && CheckUsable() != kOk) return nullptr;
    std::shared_ptr<Stream> stream = streams_.Get(handle);
    if (stream == nullptr) Fail(kRtInvalidHandle, "not a stream, or destroyed before");
    return stream;
  }
  int id;
  if (int code = CurrentDevice(&id); code != kOk) {
    Fail(code, "this thread has no device and so no default stream; call aclrtSetDevice first");
    return nullptr;
  }
  const std::shared_ptr<Context> context = contexts_.Get(t_context);
  std::lock_guard lock(context->mutex);
  if (context->default_stream == nullptr || context->default_stream->aborted()) context->default_stream = NewStream(id, 0, 0);
  return context->default_stream;
}

std::vector<std::shared_ptr<Stream>> Runtime::StreamsOf(int id) {
  std::vector<std::shared_ptr<Stream>> streams;
  std::lock_guard lock(live_mutex_);
  for (const auto& weak : live_) {
    std::shared_ptr<Stream> stream = weak.lock();
    if (stream != nullptr && stream->device() == id) streams.push_back(std::move(stream));
  }
  return streams;
}

int Runtime::SynchronizeDevice(int id, int64_t timeout_ms) {
  if (int code = CheckDeviceSynchronize(); code != kOk) return code;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max<int64_t>(timeout_ms, 0));
  int result = kOk;
  for (const auto& stream : StreamsOf(id)) {
    int64_t left = -1;
    if (timeout_ms >= 0) {
      left = std::max<int64_t>(
          0, std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count());
    }
    if (int code = stream->Synchronize(left); code != kOk) result = code;
  }
  return result;
}

void Runtime::OnFirstWorker() {
  static std::once_flag once;
  // Registered late, so it runs before the static objects of earlier libraries (ATen's) are destroyed under a running task.
  std::call_once(once, [] {
    std::atexit([] {
      Runtime::Get().StopWorkers();
      FinishTrace();
    });
  });
}

void Runtime::StopWorkers() {
  if (forked_.load(std::memory_order_relaxed)) return;  // no worker lives in this process, and a lock may be held for ever
  std::vector<std::shared_ptr<Stream>> streams;
  {
    std::lock_guard lock(live_mutex_);
    for (const auto& weak : live_) {
      if (std::shared_ptr<Stream> stream = weak.lock()) streams.push_back(std::move(stream));
    }
  }
  for (const auto& stream : streams) stream->Abort();
}

// ---- runtime.h

int Submit(void* stream, const char* name, Task task) {
  Stream* target = Runtime::Get().StreamOf(stream);
  if (target == nullptr) return stream == nullptr ? kRtContextNull : kRtInvalidHandle;
  return target->Submit(name, SmallTask(std::move(task)));
}

int Submit(void* stream, const char* name, Task task, std::unique_ptr<const TaskDetails> details) {
  Stream* target = Runtime::Get().StreamOf(stream);
  if (target == nullptr) return stream == nullptr ? kRtContextNull : kRtInvalidHandle;
  return target->Submit(NamedTask{name, std::move(details), SmallTask(std::move(task))});
}

bool Tracing() { return Hooked(kHookTrace); }

bool IsDevicePointer(const void* pointer) {
  Runtime& runtime = Runtime::Get();
  for (int id = 0; id < runtime.num_devices(); ++id) {
    const memory::DeviceMemory* memory = runtime.ExistingMemory(id);
    if (memory != nullptr && memory->Find(pointer).has_value()) return true;
  }
  return false;
}

void ZeroDeviceMemory(void* pointer, size_t bytes) {
  pointer = DeviceAddress(pointer);
  Runtime& runtime = Runtime::Get();
  for (int id = 0; id < runtime.num_devices(); ++id) {
    memory::DeviceMemory* memory = runtime.ExistingMemory(id);
    if (memory != nullptr && memory->Find(pointer).has_value()) return memory->Zero(pointer, bytes);
  }
  std::memset(pointer, 0, bytes);
}

tiling::Executor& ComputeExecutor() {
  static auto* const pool = new tiling::ThreadPool(ProcessConfig().ok() ? ProcessConfig()->threads : 1);
  return *pool;
}

}  // namespace jumar::hostcann
