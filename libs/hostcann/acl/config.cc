#include "libs/hostcann/acl/config.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace jumar::hostcann {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMinHbmBytes = uint64_t{64} << 20;

constexpr SocSpec kSocs[] = {
    {"Ascend910B1", 24, 48, 64 * kGiB, 192ull << 20},   {"Ascend910B2", 24, 48, 64 * kGiB, 192ull << 20},
    {"Ascend910B3", 20, 40, 64 * kGiB, 192ull << 20},   {"Ascend910B4", 20, 40, 32 * kGiB, 96ull << 20},
    {"Ascend910_9391", 24, 48, 64 * kGiB, 192ull << 20}, {"Ascend910_9392", 24, 48, 64 * kGiB, 192ull << 20},
    {"Ascend910_9381", 24, 48, 64 * kGiB, 192ull << 20}, {"Ascend910_9382", 24, 48, 64 * kGiB, 192ull << 20},
    {"Ascend910_9372", 20, 40, 64 * kGiB, 192ull << 20}, {"Ascend910_9362", 20, 40, 64 * kGiB, 192ull << 20},
    {"Ascend310P3", 8, 7, 24 * kGiB, 16ull << 20},
};

absl::Status ParseCount(const std::string& name, const std::string& text, int max, int& value) {
  if (text.empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a whole number from 1 to ", max));
  }
  return absl::OkStatus();
}

absl::Status ParseSwitch(const std::string& name, const std::string& text, bool& value) {
  if (text.empty() || text == "0" || text == "1") {
    value = text == "1";
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is neither 0 nor 1"));
}

// How many of `devices` the list `text` ("0,2") names.
absl::StatusOr<int> CountVisible(const std::string& text, int devices) {
  std::set<int> ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int id = -1;
    if (!absl::SimpleAtoi(part, &id) || id < 0 || id >= devices || !ids.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("ASCEND_RT_VISIBLE_DEVICES=", text, " is not a list of different devices from 0 to ",
                                                     devices - 1, " (JUMAR_DEVICES=", devices, ")"));
    }
  }
  return static_cast<int>(ids.size());
}

// A trace is written into a folder that must be there.
absl::Status CheckTracePath(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (slash + 1 == path.size()) {
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_TRACE=", path, " names a folder; name a file, such as ", path, "out.json"));
  }
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("JUMAR_TRACE=", path, ": no file can be made in ", folder, " (", std::strerror(errno), ")"));
}

// The limit of the control group that this process is in, or no limit.
uint64_t CgroupLimitBytes() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;
  }
  return std::numeric_limits<uint64_t>::max();
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  uint64_t value = 0;
  absl::string_view unit = absl::string_view(text).substr(digits);
  unit = absl::StripLeadingAsciiWhitespace(absl::StripTrailingAsciiWhitespace(unit));
  const absl::string_view letters = "KMGT";
  int shift = 0;
  bool known = unit.empty();
  if (!unit.empty()) {
    const size_t index = letters.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    const absl::string_view rest = unit.substr(1);
    known = index != absl::string_view::npos && (rest.empty() || rest == "iB" || rest == "B" || rest == "ib" || rest == "b");
    shift = known ? 10 * (static_cast<int>(index) + 1) : 0;
  }
  if (!known || !absl::SimpleAtoi(absl::string_view(text).substr(0, digits), &value) ||
      value > (std::numeric_limits<uint64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a size such as 8589934592, 8GiB or 512M"));
  }
  return value << shift;
}

absl::StatusOr<Config> ParseConfig(const std::function<std::string(const char*)>& getenv, const Machine& machine) {
  Config config;
  config.threads = std::max(machine.cpus, 1);
  if (absl::Status s = ParseCount("JUMAR_DEVICES", getenv("JUMAR_DEVICES"), kMaxDevices, config.devices); !s.ok()) return s;
  if (absl::Status s = ParseCount("JUMAR_THREADS", getenv("JUMAR_THREADS"), 1024, config.threads); !s.ok()) return s;

  if (absl::Status s = ParseSwitch("JUMAR_STRICT", getenv("JUMAR_STRICT"), config.strict); !s.ok()) return s;
  if (absl::Status s = ParseSwitch("JUMAR_STOP_ON_FAILURE", getenv("JUMAR_STOP_ON_FAILURE"), config.stop_on_failure); !s.ok()) return s;

  std::string soc = getenv("JUMAR_SOC");
  if (soc.empty()) soc = "Ascend910B2";
  const SocSpec* found = std::find_if(std::begin(kSocs), std::end(kSocs), [&](const SocSpec& s) { return soc == s.name; });
  if (found == std::end(kSocs)) {
    std::string known;
    for (const SocSpec& s : kSocs) absl::StrAppend(&known, known.empty() ? "" : ", ", s.name);
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_SOC=", soc, " is not a chip that we know: ", known));
  }
  config.soc = *found;

  const std::string hbm = getenv("JUMAR_HBM_BYTES");
  if (hbm.empty()) {
    const uint64_t share = machine.ram_bytes / 2 / static_cast<uint64_t>(config.devices);
    config.hbm_bytes = std::max(std::min(config.soc.hbm_bytes, share), kMinHbmBytes);
  } else {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(hbm);
    if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat("JUMAR_HBM_BYTES: ", bytes.status().message()));
    if (*bytes < kMinHbmBytes || *bytes > 1024 * kGiB) {
      return absl::InvalidArgumentError(absl::StrCat("JUMAR_HBM_BYTES=", hbm, " is not within 64MiB and 1TiB"));
    }
    config.hbm_bytes = *bytes;
  }
  if (const std::string visible = getenv("ASCEND_RT_VISIBLE_DEVICES"); !visible.empty()) {
    const absl::StatusOr<int> count = CountVisible(visible, config.devices);
    if (!count.ok()) return count.status();
    config.devices = *count;
  }
  absl::StatusOr<std::vector<FaultRule>> faults = ParseFaults(getenv("JUMAR_FAULTS"));
  if (!faults.ok()) return faults.status();
  config.faults = *std::move(faults);
  if (const std::string seed = getenv("JUMAR_SCHEDULE_FUZZ"); !seed.empty()) {
    uint64_t value = 0;
    if (!absl::SimpleAtoi(seed, &value)) {
      return absl::InvalidArgumentError(absl::StrCat("JUMAR_SCHEDULE_FUZZ=", seed, " is not a whole number from 0 on, the seed"));
    }
    config.schedule_fuzz = value;
  }
  config.trace = getenv("JUMAR_TRACE");
  if (absl::Status s = CheckTracePath(config.trace); !s.ok()) return s;
  config.hbm_bytes &= ~((uint64_t{2} << 20) - 1);  // whole pages
  return config;
}

Machine ThisMachine() {
  Machine machine;
  struct sysinfo info;
  if (sysinfo(&info) == 0) machine.ram_bytes = static_cast<uint64_t>(info.totalram) * info.mem_unit;
  machine.ram_bytes = std::min(machine.ram_bytes, CgroupLimitBytes());
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) machine.cpus = CPU_COUNT(&cpus);
  return machine;
}

const absl::StatusOr<Config>& ProcessConfig() {
  static const auto* const config = new absl::StatusOr<Config>(ParseConfig(
      [](const char* name) {
        const char* value = std::getenv(name);
        return std::string(value == nullptr ? "" : value);
      },
      ThisMachine()));
  return *config;
}

}  // namespace jumar::hostcann
