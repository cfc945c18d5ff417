// libacl_op_compiler.so: the legacy operator path (aclop). hostcann has no compiler of operators, so every operator that comes this way
// is one that the wheel found no aclnn symbol for.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/runtime.h"

namespace {

constexpr aclError kOk = 0;
constexpr aclError kInvalidParam = 100000;
constexpr aclError kOpNotFound = 100024;
constexpr int32_t kJitCompile = 10;
constexpr int32_t kMaxOption = 16;

std::mutex g_mutex;
std::map<int32_t, std::string>& Options() {
  static auto* const options = new std::map<int32_t, std::string>{{kJitCompile, "disable"}};
  return *options;
}

aclError RefuseOperator(const char* type) {
  jumar::hostcann::SetRecentError(std::string("operator ") + (type == nullptr ? "(no name)" : type) +
                                  " is not available: hostcann has no aclnn operator for this call, and the legacy path (aclop) "
                                  "compiles operators for hardware only. See libs/hostcann/README.md for how to add an operator");
  return kOpNotFound;
}

}  // namespace

aclError aclopCompileAndExecute(const char* type, int, const AclTensorDesc* const*, const AclDataBuffer* const*, int,
                                const AclTensorDesc* const*, AclDataBuffer* const*, const AclOpAttributes*, int32_t, int32_t,
                                const char*, void*) {
  return RefuseOperator(type);
}
aclError aclopCompileAndExecuteV2(const char* type, int, AclTensorDesc**, AclDataBuffer**, int, AclTensorDesc**, AclDataBuffer**,
                                  AclOpAttributes*, int32_t, int32_t, const char*, void*) {
  return RefuseOperator(type);
}

// Options of the compiler are kept, so that what was set can be asked for.
aclError aclSetCompileopt(int32_t option, const char* value) {
  if (value == nullptr || option < 0 || option > kMaxOption) return kInvalidParam;
  std::lock_guard lock(g_mutex);
  Options()[option] = value;
  return kOk;
}
size_t aclGetCompileoptSize(int32_t option) {
  std::lock_guard lock(g_mutex);
  const auto it = Options().find(option);
  return it == Options().end() ? 1 : it->second.size() + 1;
}
aclError aclGetCompileopt(int32_t option, char* value, size_t length) {
  if (value == nullptr || length == 0) return kInvalidParam;
  std::lock_guard lock(g_mutex);
  const auto it = Options().find(option);
  const std::string text = it == Options().end() ? "" : it->second;
  const size_t copied = std::min(text.size(), length - 1);
  std::memcpy(value, text.data(), copied);
  value[copied] = '\0';
  return kOk;
}
