// What watches or disturbs the runtime when it is asked to: faults (faults.h), schedule fuzzing (fuzz.h), tracing (trace.h).
//
// One word says what is on. With all of it off, a call or a task pays one predictable branch.
#ifndef LIBS_HOSTCANN_ACL_HOOKS_H_
#define LIBS_HOSTCANN_ACL_HOOKS_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libs/hostcann/acl/config.h"
#include "libs/hostcann/acl/faults.h"

namespace jumar::hostcann {

inline constexpr uint32_t kHookFaults = 1;
inline constexpr uint32_t kHookTrace = 2;
inline constexpr uint32_t kHookFuzz = 4;
inline constexpr uint32_t kHookStop = 8;

extern std::atomic<uint32_t> g_hooks;
inline uint32_t Hooks() { return g_hooks.load(std::memory_order_relaxed); }
inline bool Hooked() { return __builtin_expect(Hooks() != 0, 0); }
inline bool Hooked(uint32_t which) { return __builtin_expect((Hooks() & which) != 0, 0); }

// Turns on what the configuration asks for; before the first stream.
void InstallHooks(const Config& config);

// The seed of schedule fuzzing; streams that are made later use it. Null turns it off.
void InstallFuzz(std::optional<uint64_t> seed);
uint64_t FuzzSeed();

// ---- faults
// Replaces the rules in force and revives lost devices: for tests. No stream may be running.
void InstallFaults(std::vector<FaultRule> rules);

// 0, or the error that an allocation of device memory must return.
int FaultOnAllocation(int device, uint64_t bytes);

bool DeviceLost(int device);
// 0, or the error that every call returns for a device that is lost.
int CheckNotLost(int device);

// ---- stopping on a failure (JUMAR_STOP_ON_FAILURE=1), as hardware does: after a task has failed in a stream that stops on failure, no
// stream of the device runs a task or takes one, until the device is reset.
void InstallStopOnFailure(bool on);  // also lets all devices go on
void StopDevice(int device, int code, const std::string& text);
void ReviveDevice(int device);
bool DeviceStopped(int device);
// 0, or the error that every call returns which submits to the device or waits for it, when it is lost or has stopped.
int CheckRunning(int device);

// Before a task runs: holds it up, or throws the TaskError that it shall fail with.
void FaultBeforeTask(int device, int stream, const char* name);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_HOOKS_H_
