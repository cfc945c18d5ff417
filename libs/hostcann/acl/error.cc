#include "libs/hostcann/acl/error.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {
namespace {

// Plain arrays: they outlive the thread's C++ objects, since destructors at process exit still call the API.
constexpr size_t kTextBytes = 4096;
thread_local char t_pending[kTextBytes];
thread_local char t_taken[kTextBytes];
thread_local size_t t_length = 0;
thread_local int t_execution_error = 0;

}  // namespace

int Fail(int code, std::string_view text) {
  const size_t added = std::min(text.size(), kTextBytes - 2);
  const size_t kept = std::min(t_length, kTextBytes - 2 - added);
  std::memmove(t_pending + added + 1, t_pending, kept);
  std::memcpy(t_pending, text.data(), added);
  t_pending[added] = '\n';
  t_length = added + 1 + kept;
  return code;
}

int FailStatus(int code, const absl::Status& status) {
  if (status.ok()) return kOk;
  if (absl::IsResourceExhausted(status)) {
    // torch_npu recognises an out-of-memory error by this number in the text.
    return Fail(kRtMemoryAllocation, absl::StrCat("EL0004: Failed to allocate memory. ", status.message()));
  }
  return Fail(code, std::string(status.message()));
}

void SetRecentError(const std::string& message) { Fail(kOk, message); }

const char* TakeRecentError() {
  std::memcpy(t_taken, t_pending, t_length);
  t_taken[t_length] = '\0';
  t_length = 0;
  return t_taken;
}

int LastExecutionError(bool clear) {
  const int code = t_execution_error;
  if (clear) t_execution_error = 0;
  return code;
}

void SetLastExecutionError(int code) { t_execution_error = code; }

}  // namespace jumar::hostcann
