// libascend_hal.so: what torch_npu's profiler asks of the driver, to read the clock of MsprofSysCycleTime.
#include <cstdint>

namespace {

constexpr int32_t kUnknown = 3;
constexpr int32_t kClockKhz = 24;              // the information asked for, by number
constexpr int64_t kNanosecondsKhz = 1'000'000;  // MsprofSysCycleTime counts nanoseconds

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int32_t halGetDeviceInfo(uint32_t, int32_t, int32_t info, int64_t* value) {
  if (info != kClockKhz || value == nullptr) return kUnknown;
  *value = kNanosecondsKhz;
  return 0;
}

// No version: the host's clock is the one to use, since the "device" has no other.
__attribute__((visibility("default"))) int32_t halGetAPIVersion(int32_t* version) {
  if (version == nullptr) return kUnknown;
  *version = 0;
  return 0;
}

}  // extern "C"
