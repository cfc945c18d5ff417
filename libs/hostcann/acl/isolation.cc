#include "libs/hostcann/acl/isolation.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/memory/device/call_stack.h"

namespace jumar::hostcann {
namespace {

using memory::AddressMirror;
using memory::CallStack;
using memory::SignalWriter;

// Addresses per byte of device memory. Each stream of torch_npu's expandable segments reserves more than all of the memory.
constexpr uint64_t kAddressesPerByte = 64;
constexpr uint64_t kMinAddressesPerByte = 20;
constexpr uint64_t kMaxAddresses = uint64_t{32} << 40;

std::atomic<AddressMirror*> g_mirror{nullptr};

// Tasks that run, by thread. More threads than slots run tasks without a name.
struct Running {
  std::atomic<int> thread{0};
  std::atomic<const char*> name{nullptr};
};
Running g_running[256];

int ThreadId() { return static_cast<int>(syscall(SYS_gettid)); }

// ---- the handler: nothing here may allocate

struct sigaction g_previous_segv, g_previous_bus;

void WriteRunning(SignalWriter& out) {
  const int self = ThreadId();
  for (const Running& running : g_running) {
    const char* name = running.name.load();
    if (running.thread.load() != self || name == nullptr) continue;
    out << "  in the task `" << name << "` of a stream\n";
    return;
  }
  const char* separator = "  in a thread that is not a stream's; tasks that are running: ";
  for (const Running& running : g_running) {
    const char* name = running.name.load();
    if (running.thread.load() == 0 || name == nullptr) continue;
    out << separator << "`" << name << "`";
    separator = ", ";
  }
  out << "\n";
}

void Explain(const AddressMirror& mirror, uint64_t fault) {
  SignalWriter out(STDERR_FILENO);
  const bool from_host = mirror.Holds(fault);
  const auto* address = reinterpret_cast<const void*>(from_host ? fault : fault - mirror.distance());
  const memory::DeviceMemory* memory = nullptr;
  int device = Runtime::Get().num_devices();
  while (device > 0 && memory == nullptr) {
    const memory::DeviceMemory* candidate = Runtime::Get().ExistingMemory(--device);
    if (candidate != nullptr && candidate->OwnsAddress(address)) memory = candidate;
  }
  out << "\njumar: strict mode: " << (from_host ? "host code touched device memory" : "a task touched memory that its device does not hold")
      << " at " << address << " (";
  if (memory == nullptr) {
    out << "no device";
  } else {
    out << "device " << static_cast<uint64_t>(device);
  }
  out << ")\n";
  if (!from_host) WriteRunning(out);
  if (memory != nullptr) {
    out << "  the address is ";
    memory->Describe(address, out);
  }
  out << "  touched by:\n";
  CallStack::Capture().Write(out);
  out << (from_host ? "  The host cannot read or write device memory: copy it first (tensor.cpu(), aclrtMemcpy).\n"
                    : "  Keep memory alive until every stream that uses it is done (tensor.record_stream, an event), and stay inside it.\n");
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const AddressMirror* mirror = g_mirror.load();
  const auto fault = reinterpret_cast<uint64_t>(info->si_addr);
  // One report per process: faults that follow in other threads, or in here, only end it.
  static std::atomic<bool> explained{false};
  const bool ours = info->si_code > 0 && mirror != nullptr && (mirror->Holds(fault) || mirror->MirrorHolds(fault));
  if (ours && !explained.exchange(true)) Explain(*mirror, fault);
  errno = error;
  const struct sigaction& previous = signal == SIGBUS ? g_previous_bus : g_previous_segv;
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // The access is repeated after the return and takes the default action.
  struct sigaction fatal = {};
  fatal.sa_handler = SIG_DFL;
  sigaction(signal, &fatal, nullptr);
}

void InstallHandler() {
  (void)CallStack::Capture();  // loads the unwinder, which allocates
  struct sigaction action = {};
  action.sa_sigaction = &OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &g_previous_segv);
  sigaction(SIGBUS, &action, &g_previous_bus);
}

absl::StatusOr<std::unique_ptr<AddressMirror>> MakeMirror(uint64_t memory_bytes) {
  absl::StatusOr<std::unique_ptr<AddressMirror>> mirror = absl::ResourceExhaustedError("");
  for (uint64_t times = kAddressesPerByte; times >= kMinAddressesPerByte && !mirror.ok(); times /= 2) {
    mirror = AddressMirror::Create(std::min(times * memory_bytes, kMaxAddresses));
  }
  return mirror;
}

}  // namespace

absl::StatusOr<AddressMirror*> ProcessMirror(int devices, uint64_t limit_bytes) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (AddressMirror* mirror = g_mirror.load()) return mirror;
  absl::StatusOr<std::unique_ptr<AddressMirror>> mirror = MakeMirror(static_cast<uint64_t>(devices) * limit_bytes);
  if (!mirror.ok()) return absl::Status(mirror.status().code(), absl::StrCat("JUMAR_STRICT=1: ", mirror.status().message()));
  InstallHandler();
  g_mirror.store(mirror->release());  // lives until the process ends
  return g_mirror.load();
}

bool Isolated() { return g_mirror.load(std::memory_order_relaxed) != nullptr; }

void* DeviceAlias(const void* pointer) {
  const AddressMirror* mirror = g_mirror.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  return reinterpret_cast<void*>(mirror != nullptr && mirror->Holds(address) ? address + mirror->distance() : address);
}

void* DeviceAddress(const void* alias) {
  const AddressMirror* mirror = g_mirror.load(std::memory_order_relaxed);
  const auto address = reinterpret_cast<uint64_t>(alias);
  return reinterpret_cast<void*>(mirror != nullptr && mirror->MirrorHolds(address) ? address - mirror->distance() : address);
}

void RunningTask::Enter(const char* name) {
  const int self = ThreadId();
  for (int i = 0; i < static_cast<int>(std::size(g_running)); ++i) {
    int owner = g_running[i].thread.load(std::memory_order_relaxed);
    if (owner != self && !(owner == 0 && g_running[i].thread.compare_exchange_strong(owner, self))) continue;
    slot_ = i;
    outer_ = g_running[i].name.exchange(name);
    return;
  }
}

void RunningTask::Leave() {
  g_running[slot_].name.store(outer_);
  if (outer_ == nullptr) g_running[slot_].thread.store(0);
}

std::string DescribeFreed(const void* pointer) {
  std::string text;
  for (int id = 0; id < Runtime::Get().num_devices() && text.empty(); ++id) {
    if (const memory::DeviceMemory* memory = Runtime::Get().ExistingMemory(id)) text = memory->Describe(pointer);
  }
  return text;
}

std::string LeakReport(int device) {
  const memory::DeviceMemory* memory = Isolated() ? Runtime::Get().ExistingMemory(device) : nullptr;
  if (memory == nullptr) return "";
  constexpr size_t kMaxShown = 10;
  std::string text;
  size_t count = 0;
  uint64_t bytes = 0;
  for (const memory::AllocationRecord& record : memory->Live()) {
    if (record.allocated_by.PassesThrough("libtorch_npu.so")) continue;
    ++count;
    bytes += record.size_bytes;
    if (count > kMaxShown) continue;
    absl::StrAppend(&text, "  ", record.requested_bytes, " bytes at ", absl::StrFormat("%p", reinterpret_cast<void*>(record.base)),
                    ", allocated by:\n", record.allocated_by.ToString());
  }
  if (count == 0) return "";
  return absl::StrCat("jumar: strict mode: device ", device, " is reset while ", count, " allocations of ", memory::FormatBytes(bytes),
                      " are not freed", count > kMaxShown ? "; the first are" : "", "\n", text);
}

}  // namespace jumar::hostcann
