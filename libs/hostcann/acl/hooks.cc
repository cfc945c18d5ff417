#include "libs/hostcann/acl/hooks.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {
namespace {

// What other threads may still be looking at lives as long as the process; here it stays in reach, so that it is no leak.
template <typename T>
T* Keep(std::unique_ptr<T> object) {
  static auto* const mutex = new std::mutex();
  static auto* const kept = new std::vector<std::unique_ptr<T>>();
  const std::lock_guard lock(*mutex);
  return kept->emplace_back(std::move(object)).get();
}

std::atomic<FaultPlan*> g_plan{nullptr};
std::atomic<const FaultRule*> g_lost[kMaxDevices] = {};
std::atomic<uint64_t> g_fuzz_seed{0};

struct Stopped {
  int code;
  std::string text;
};
std::atomic<const Stopped*> g_stopped[kMaxDevices] = {};

void Turn(uint32_t hook, bool on) {
  if (on) {
    g_hooks.fetch_or(hook);
  } else {
    g_hooks.fetch_and(~hook);
  }
}

std::string LostText(int device, const FaultRule& rule) {
  return absl::StrCat("device ", device, " is lost: it no longer answers (", rule.text,
                      "). Nothing on it can be saved; end the process and start it anew");
}

}  // namespace

std::atomic<uint32_t> g_hooks{0};

void InstallHooks(const Config& config) {
  if (!config.faults.empty()) InstallFaults(config.faults);
  if (config.schedule_fuzz.has_value()) InstallFuzz(config.schedule_fuzz);
  Turn(kHookTrace, !config.trace.empty());
  Turn(kHookStop, config.stop_on_failure);
}

void InstallStopOnFailure(bool on) {
  for (auto& stopped : g_stopped) stopped.store(nullptr);
  Turn(kHookStop, on);
}

void StopDevice(int device, int code, const std::string& text) {
  const Stopped* expected = nullptr;
  const Stopped* stopped = Keep(std::make_unique<Stopped>(Stopped{code, text}));
  if (!g_stopped[device].compare_exchange_strong(expected, stopped)) return;  // the first failure is the cause
  for (const auto& stream : Runtime::Get().StreamsOf(device)) stream->WakeBlocked();
}

void ReviveDevice(int device) { g_stopped[device].store(nullptr); }

bool DeviceStopped(int device) { return Hooked(kHookStop) && g_stopped[device].load(std::memory_order_acquire) != nullptr; }

int CheckRunning(int device) {
  if (int code = CheckNotLost(device); code != kOk) return code;
  const Stopped* stopped = Hooked(kHookStop) ? g_stopped[device].load(std::memory_order_acquire) : nullptr;
  if (stopped == nullptr) return kOk;
  SetLastExecutionError(stopped->code);
  return Fail(stopped->code, absl::StrCat("device ", device, " has stopped, since ", stopped->text,
                                          "; reset the device (aclrtResetDeviceForce) or start the process anew"));
}

void InstallFuzz(std::optional<uint64_t> seed) {
  g_fuzz_seed.store(seed.value_or(0));
  Turn(kHookFuzz, seed.has_value());
}

uint64_t FuzzSeed() { return g_fuzz_seed.load(); }

void InstallFaults(std::vector<FaultRule> rules) {
  for (auto& lost : g_lost) lost.store(nullptr);
  const bool on = !rules.empty();
  g_plan.store(on ? Keep(std::make_unique<FaultPlan>(std::move(rules))) : nullptr);
  Turn(kHookFaults, on);
}

int FaultOnAllocation(int device, uint64_t bytes) {
  if (!Hooked(kHookFaults)) return kOk;
  if (int code = CheckNotLost(device); code != kOk) return code;
  FaultPlan* plan = g_plan.load(std::memory_order_acquire);
  const FaultRule* rule = plan == nullptr ? nullptr : plan->OnAllocation(device, static_cast<int64_t>(bytes));
  if (rule == nullptr) return kOk;
  return FailStatus(kRtMemoryAllocation,
                    absl::ResourceExhaustedError(absl::StrCat("device ", device, ": ", bytes, " bytes, refused by ", rule->text)));
}

bool DeviceLost(int device) { return Hooked(kHookFaults) && g_lost[device].load(std::memory_order_acquire) != nullptr; }

int CheckNotLost(int device) {
  if (!Hooked(kHookFaults)) return kOk;
  const FaultRule* rule = g_lost[device].load(std::memory_order_acquire);
  return rule == nullptr ? int{kOk} : Fail(kRtLostHeartbeat, LostText(device, *rule));
}

void FaultBeforeTask(int device, int stream, const char* name) {
  FaultPlan* plan = g_plan.load(std::memory_order_acquire);
  if (plan == nullptr) return;
  if (const FaultRule* rule = plan->OnDeviceTask(device); rule != nullptr) {
    const FaultRule* expected = nullptr;
    if (g_lost[device].compare_exchange_strong(expected, rule)) {
      for (const auto& other : Runtime::Get().StreamsOf(device)) other->WakeBlocked();
    }
  }
  if (const FaultRule* rule = g_lost[device].load(std::memory_order_acquire); rule != nullptr) {
    throw TaskError(kRtLostHeartbeat, LostText(device, *rule));
  }
  if (const int64_t us = plan->DelayUs(device, stream); us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
  if (const FaultRule* rule = plan->OnOperator(device, name); rule != nullptr) {
    throw TaskError(kRtAicoreException, absl::StrCat("the task failed as ", rule->text, " asks for"));
  }
}

// ---- runtime.h

CollectiveFault NextCollectiveFault(const char* op, int rank) {
  CollectiveFault fault;
  FaultPlan* plan = Hooked(kHookFaults) ? g_plan.load(std::memory_order_acquire) : nullptr;
  const FaultRule* rule = plan == nullptr ? nullptr : plan->OnCollective(op, rank);
  if (rule == nullptr) return fault;
  fault.rule = rule->text.c_str();
  switch (rule->action) {
    case FaultRule::Action::kDropCollective:
      fault.kind = CollectiveFault::kDrop;
      break;
    case FaultRule::Action::kCorruptCollective:
      fault.kind = CollectiveFault::kCorrupt;
      break;
    case FaultRule::Action::kDelayCollective:
      fault.kind = CollectiveFault::kDelay;
      fault.delay_ms = static_cast<int>(rule->ms);
      break;
    default:
      fault.kind = CollectiveFault::kExit;
      fault.exit_code = static_cast<int>(rule->code);
      break;
  }
  return fault;
}

}  // namespace jumar::hostcann
