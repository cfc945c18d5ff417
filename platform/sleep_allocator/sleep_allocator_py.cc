// The Python module jumar_sleep_allocator, and the two C functions that torch_npu's pluggable allocator calls.
//
// torch_npu calls them with or without the interpreter's lock, so neither they nor what they call touches Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "libs/memory/device/sleep_pool.h"
#include "libs/memory/python/status.h"
#include "platform/sleep_allocator/acl_virtual_memory.h"

namespace py = pybind11;
using jumar::memory::SleepPool;
using jumar::memory::SleepTagStats;
using jumar::platform::AclVirtualMemory;

namespace {

struct DevicePool {
  std::unique_ptr<AclVirtualMemory> memory;
  std::unique_ptr<SleepPool> pool;
};

// The pools of the process, one for a device. Never destroyed: torch_npu frees memory while the process ends.
class Pools {
 public:
  static Pools& Get() {
    static auto* const pools = new Pools();
    return *pools;
  }
  absl::StatusOr<SleepPool*> Of(int device) {
    std::lock_guard lock(mutex_);
    DevicePool& entry = pools_[device];
    if (entry.pool == nullptr) {
      auto memory = AclVirtualMemory::Create(device);
      if (!memory.ok()) return memory.status();
      entry.memory = *std::move(memory);
      entry.pool = std::make_unique<SleepPool>(entry.memory.get());
    }
    return entry.pool.get();
  }

 private:
  std::mutex mutex_;
  std::map<int, DevicePool> pools_;
};

// torch_npu's pool context routes the allocations of one thread, and so the tag is that thread's.
thread_local std::string current_tag = "other";

std::string SetTag(std::string tag) { return std::exchange(current_tag, std::move(tag)); }

SleepPool& PoolOf(int device) {
  auto pool = Pools::Get().Of(device);
  jumar::python::Unwrap(pool.status());
  return **pool;
}

// Runs `step` without the interpreter's lock, which is back before an error becomes an exception.
template <typename Step>
void Unlocked(const Step& step) {
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = step();
  }
  jumar::python::Unwrap(status);
}

void Sleep(int device, const std::vector<std::string>& offload) {
  SleepPool& pool = PoolOf(device);
  Unlocked([&] { return pool.Sleep(offload); });
}
void Discard(int device, const std::vector<std::string>& tags) {
  SleepPool& pool = PoolOf(device);
  Unlocked([&] { return pool.Discard(tags); });
}
void Wake(int device, const std::vector<std::string>& tags) {
  SleepPool& pool = PoolOf(device);
  Unlocked([&] { return pool.Wake(tags); });
}
std::vector<SleepTagStats> Stats(int device) { return PoolOf(device).Stats(); }

void Report(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "jumar: sleep allocator: cannot %s: %s\n", what, std::string(status.message()).c_str());
}

}  // namespace

// Null makes torch_npu free what it caches, try again, and then raise its out-of-memory error.
extern "C" __attribute__((visibility("default"))) void* jumar_sleep_malloc(ssize_t bytes, int device, void* /*stream*/) {
  const auto pool = Pools::Get().Of(device);
  if (!pool.ok()) {
    Report("allocate", pool.status());
    return nullptr;
  }
  const auto base = (*pool)->Allocate(static_cast<uint64_t>(bytes), current_tag);
  return base.ok() ? *base : nullptr;
}

extern "C" __attribute__((visibility("default"))) void jumar_sleep_free(void* base, ssize_t /*bytes*/, int device, void* /*stream*/) {
  const auto pool = Pools::Get().Of(device);
  if (absl::Status status = pool.ok() ? (*pool)->Free(base) : pool.status(); !status.ok()) Report("free", status);
}

PYBIND11_MODULE(jumar_sleep_allocator, m) {
  m.doc() = "Device memory that can sleep: the allocator of torch_npu's memory pools for sleep mode.";
  m.attr("MALLOC") = "jumar_sleep_malloc";
  m.attr("FREE") = "jumar_sleep_free";
  py::class_<SleepTagStats>(m, "TagStats", "The memory of one tag, in bytes.")
      .def_readonly("tag", &SleepTagStats::tag)
      .def_readonly("num_allocations", &SleepTagStats::num_allocations)
      .def_readonly("num_asleep", &SleepTagStats::num_asleep)
      .def_readonly("size_bytes", &SleepTagStats::size_bytes)
      .def_readonly("device_bytes", &SleepTagStats::device_bytes)
      .def_readonly("host_bytes", &SleepTagStats::host_bytes);
  m.def("set_tag", &SetTag, py::arg("tag"), "Tags what this thread allocates from now on. Returns the tag before.");
  m.def("sleep", &Sleep, py::arg("device"), py::arg("offload"),
        "Copies the tags `offload` to the host, drops the others, and returns the device's memory.");
  m.def("discard", &Discard, py::arg("device"), py::arg("tags"), "Drops these tags and returns their memory.");
  m.def("wake", &Wake, py::arg("device"), py::arg("tags"),
        "Brings these tags back to their addresses, all if there are none. MemoryError: nothing is lost, wake again.");
  m.def("stats", &Stats, py::arg("device"), "The tags in use.");
}
