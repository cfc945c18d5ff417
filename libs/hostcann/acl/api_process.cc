// Process: initialisation, versions, error texts, options.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/trace.h"

namespace jumar::hostcann {
namespace {

std::atomic<bool> g_initialized{false};
std::atomic<int64_t> g_options[8] = {};
constexpr int kPackageDriver = 7;

// The device that threads without one use: {"defaultDevice": {"default_device": "0"}}. Returns -1 when the text names none.
int DefaultDeviceOf(const std::string& json) {
  static constexpr char kKey[] = "\"default_device\"";
  const size_t key = json.find(kKey);
  if (key == std::string::npos) return -1;
  size_t at = json.find(':', key + sizeof(kKey) - 1);
  while (at != std::string::npos && at < json.size() && !std::isdigit(static_cast<unsigned char>(json[at]))) ++at;
  return at == std::string::npos || at >= json.size() ? -1 : std::atoi(json.c_str() + at);
}

void CopyText(char* to, size_t capacity, const std::string& text) {
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

std::atomic<int64_t>* OptionOf(int32_t option) {
  return option >= 0 && option < static_cast<int32_t>(std::size(g_options)) ? &g_options[option] : nullptr;
}

int SetOption(int32_t option, int64_t value) {
  std::atomic<int64_t>* slot = OptionOf(option);
  if (slot == nullptr) return Fail(kRtParamInvalid, absl::StrCat("there is no system option ", option));
  slot->store(value);
  return kOk;
}

int GetOption(int32_t option, int64_t* value) {
  std::atomic<int64_t>* slot = OptionOf(option);
  if (slot == nullptr || value == nullptr) return Fail(kRtParamInvalid, absl::StrCat("there is no system option ", option));
  *value = slot->load();
  return kOk;
}

}  // namespace
}  // namespace jumar::hostcann

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

aclError aclInit(const char* config_path) {
  if (int code = Runtime::Get().CheckUsable(); code != kOk) return code;
  if (config_path != nullptr && *config_path != '\0') {
    std::ifstream file(config_path);
    if (!file) return Fail(kInvalidFile, absl::StrCat("aclInit cannot read its configuration ", config_path));
    const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const int device = DefaultDeviceOf(json);
    if (device >= 0) {
      if (int code = Runtime::Get().CheckDevice(device); code != kOk) return code;
      Runtime::Get().SetDefaultDevice(device);
    }
  }
  if (g_initialized.exchange(true)) return Fail(kRepeatInitialize, "aclInit was called before");
  return kOk;
}

aclError aclFinalize() {
  if (!g_initialized.exchange(false)) return Fail(kRepeatFinalize, "aclFinalize without aclInit, or called before");
  for (int id = 0; id < Runtime::Get().num_devices(); ++id) Runtime::Get().ReportLeaks(id);
  Runtime::Get().StopWorkers();
  FlushTrace();
  return kOk;
}

const char* aclGetRecentErrMsg() { return TakeRecentError(); }
aclError aclrtGetLastError(int32_t) { return LastExecutionError(/*clear=*/true); }
aclError aclrtPeekAtLastError(int32_t) { return LastExecutionError(/*clear=*/false); }

void aclAppLog(int32_t level, const char* function, const char* file, uint32_t line, const char* format, ...) {
  // As CANN: silent unless asked for. ASCEND_GLOBAL_LOG_LEVEL: 0 debug, 1 info, 2 warning, 3 error (default), to standard output only
  // with ASCEND_SLOG_PRINT_TO_STDOUT=1.
  static const bool print = [] {
    const char* value = std::getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  static const int threshold = [] {
    const char* value = std::getenv("ASCEND_GLOBAL_LOG_LEVEL");
    return value == nullptr ? 3 : std::atoi(value);
  }();
  if (!print || level < threshold) return;
  static constexpr const char* kLevels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::printf("[%s] %s:%u %s: %s\n", level >= 0 && level < 4 ? kLevels[level] : "LOG", file, line, function, text);
}

aclError aclsysGetCANNVersion(int32_t package, AclPackageVersion* version) {
  if (version == nullptr || package < 0 || package > kPackageDriver) {
    return Fail(kInvalidParam, absl::StrCat("aclsysGetCANNVersion: there is no package ", package));
  }
  const std::string text = package == kPackageDriver ? kDriverVersion : kCannVersion;
  *version = {};
  CopyText(version->version, sizeof(version->version), text);
  const size_t first = text.find('.'), second = text.find('.', first + 1);
  CopyText(version->major, sizeof(version->major), text.substr(0, first));
  CopyText(version->minor, sizeof(version->minor), text.substr(first + 1, second - first - 1));
  CopyText(version->release, sizeof(version->release), text.substr(second + 1));
  return kOk;
}

aclError aclsysGetVersionStr(char* package, char* version) {
  if (package == nullptr || version == nullptr) return Fail(kInvalidParam, "aclsysGetVersionStr: a null pointer");
  CopyText(version, sizeof(AclPackageVersion::version), std::strcmp(package, "driver") == 0 ? kDriverVersion : kCannVersion);
  return kOk;
}

// Ours, for tools/doctor. The text lives as long as the process.
const char* JumarDescribeConfig() {
  static const auto* const text = new std::string(DescribeProcessConfig());
  return text->c_str();
}

const char* aclrtGetSocName() {
  const auto& config = ProcessConfig();
  return config.ok() ? config->soc->name.data() : nullptr;
}

aclError aclGetCannAttributeList(const int32_t** attributes, size_t* count) {
  static constexpr int32_t kAttributes[] = {0, 1};  // infinity and NaN, bfloat16
  if (attributes == nullptr || count == nullptr) return Fail(kInvalidParam, "aclGetCannAttributeList: a null pointer");
  *attributes = kAttributes;
  *count = std::size(kAttributes);
  return kOk;
}

aclError aclGetCannAttribute(int32_t attribute, int32_t* value) {
  if (value == nullptr || attribute < 0 || attribute > 2) {
    return Fail(kInvalidParam, absl::StrCat("aclGetCannAttribute: there is no attribute ", attribute));
  }
  *value = attribute < 2 ? 1 : 0;  // operators are not compiled at run time
  return kOk;
}

aclError aclGetDeviceCapability(uint32_t device, int32_t what, int64_t* value) {
  if (int code = Runtime::Get().CheckDevice(static_cast<int>(device)); code != kOk) return code;
  const Config& config = *ProcessConfig();
  switch (what) {
    case 0:
      *value = config.soc->aic_cores;
      return kOk;
    case 1:
      *value = config.vector_cores();
      return kOk;
    case 2:
      *value = config.soc->l2_bytes;  // 0 when no public source tells it
      return kOk;
    default:
      return Fail(kInvalidParam, absl::StrCat("aclGetDeviceCapability: there is no capability ", what));
  }
}

aclError aclrtCtxSetSysParamOpt(int32_t option, int64_t value) { return SetOption(option, value); }
aclError aclrtCtxGetSysParamOpt(int32_t option, int64_t* value) { return GetOption(option, value); }
aclError aclrtSetSysParamOpt(int32_t option, int64_t value) { return SetOption(option, value); }
aclError aclrtGetSysParamOpt(int32_t option, int64_t* value) { return GetOption(option, value); }

// Operator dumps: accepted when they ask for nothing, which is how torch_npu calls them.
aclError aclmdlInitDump() { return kOk; }
aclError aclmdlSetDump(const char*) { return Fail(kRtFeatureNotSupport, "hostcann does not dump operators; unset ACL_DUMP_DATA"); }
aclError aclmdlFinalizeDump() { return kOk; }
