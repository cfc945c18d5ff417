#include "libs/hostcann/acl/config.h"

#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "libs/tiling/spelling.h"

namespace jumar::hostcann {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMinHbmBytes = uint64_t{64} << 20;
constexpr char kDefaultSoc[] = "Ascend910B2";

absl::Status ParseCount(const char* name, const std::string& text, int max, int& value) {
  if (!absl::SimpleAtoi(text, &value) || value < 1 || value > max) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a whole number from 1 to ", max));
  }
  return absl::OkStatus();
}

absl::Status ParseDevices(const std::string& text, Config& config) {
  return ParseCount("JUMAR_DEVICES", text, kMaxDevices, config.devices);
}

absl::Status ParseThreads(const std::string& text, Config& config) { return ParseCount("JUMAR_THREADS", text, 1024, config.threads); }

// What a device has to tell about itself: cores and memory. Its L2 may be unknown, and is 0 then.
bool Usable(const tiling::HardwareSpec& spec) {
  return spec.architecture != tiling::Architecture::kHost && spec.aic_cores != tiling::kUnknown && spec.memory_bytes != tiling::kUnknown;
}

absl::Status ParseSoc(const std::string& text, Config& config) {
  const auto found = tiling::FindHardware(text);
  if (found.ok() && Usable(**found)) {
    config.soc = *found;
    return absl::OkStatus();
  }
  std::vector<std::string> usable;
  for (const tiling::HardwareSpec& spec : tiling::AllHardware()) {
    if (Usable(spec)) usable.emplace_back(spec.name);
  }
  const std::string why = !found.ok() ? std::string(found.status().message())
                                      : absl::StrCat("the number of its cores or the size of its memory is not public, so it cannot be simulated");
  return absl::InvalidArgumentError(absl::StrCat("JUMAR_SOC=", text, ": ", why, "; usable are ", absl::StrJoin(usable, ", ")));
}

absl::Status ParseHbm(const std::string& text, Config& config) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat("JUMAR_HBM_BYTES: ", bytes.status().message()));
  if (*bytes < kMinHbmBytes || *bytes > 1024 * kGiB) {
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_HBM_BYTES=", text, " is not within 64MiB and 1TiB"));
  }
  config.hbm_bytes = *bytes;
  return absl::OkStatus();
}

absl::Status ParseSwitch(const char* name, const std::string& text, bool& value) {
  value = text == "1";
  if (text == "0" || text == "1") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is neither 0 nor 1"));
}

absl::Status ParseStrict(const std::string& text, Config& config) { return ParseSwitch("JUMAR_STRICT", text, config.strict); }

absl::Status ParseStopOnFailure(const std::string& text, Config& config) {
  return ParseSwitch("JUMAR_STOP_ON_FAILURE", text, config.stop_on_failure);
}

absl::Status ParseFaultRules(const std::string& text, Config& config) {
  absl::StatusOr<std::vector<FaultRule>> faults = ParseFaults(text);
  if (!faults.ok()) return faults.status();
  config.faults = *std::move(faults);
  return absl::OkStatus();
}

absl::Status ParseScheduleFuzz(const std::string& text, Config& config) {
  uint64_t seed = 0;
  if (!absl::SimpleAtoi(text, &seed)) {
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_SCHEDULE_FUZZ=", text, " is not a whole number from 0 on, the seed"));
  }
  config.schedule_fuzz = seed;
  return absl::OkStatus();
}

// A trace is written into a folder that must be there.
absl::Status ParseTrace(const std::string& path, Config& config) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (slash != std::string::npos && slash + 1 == path.size()) {
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_TRACE=", path, " names a folder; name a file, such as ", path, "out.json"));
  }
  config.trace = path;
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("JUMAR_TRACE=", path, ": no file can be made in ", folder, " (", std::strerror(errno), ")"));
}

// How many of the devices the list ("0,2") names. Parsed last: the memory is shared by all of JUMAR_DEVICES.
absl::Status ParseVisible(const std::string& text, Config& config) {
  std::set<int> ids;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int id = -1;
    if (!absl::SimpleAtoi(part, &id) || id < 0 || id >= config.devices || !ids.insert(id).second) {
      return absl::InvalidArgumentError(absl::StrCat("ASCEND_RT_VISIBLE_DEVICES=", text, " is not a list of different devices from 0 to ",
                                                     config.devices - 1, " (JUMAR_DEVICES=", config.devices, ")"));
    }
  }
  config.devices = static_cast<int>(ids.size());
  return absl::OkStatus();
}

std::string ShowBytes(uint64_t bytes) {
  return bytes % kGiB == 0 ? absl::StrCat(bytes / kGiB, "GiB") : absl::StrCat(bytes >> 20, "MiB");
}

constexpr Variable kVariables[] = {
    {"JUMAR_DEVICES", "simulated devices, 1 to 16", "1", ParseDevices, [](const Config& c) { return absl::StrCat(c.devices); }},
    {"JUMAR_SOC", "the chip that they say they are", kDefaultSoc, ParseSoc, [](const Config& c) { return std::string(c.soc->name); }},
    {"JUMAR_HBM_BYTES", "memory of one simulated device: `8589934592`, `8GiB`, `512M`",
     "the chip's, at most half of the machine's memory, shared by the devices", ParseHbm,
     [](const Config& c) { return ShowBytes(c.hbm_bytes); }},
    {"JUMAR_THREADS", "threads that compute, for all streams together", "CPUs that the process may use", ParseThreads,
     [](const Config& c) { return absl::StrCat(c.threads); }},
    {"JUMAR_STRICT", "1: host code that touches device memory faults, and the message names the allocation", "0", ParseStrict,
     [](const Config& c) { return absl::StrCat(c.strict ? 1 : 0); }},
    {"JUMAR_STOP_ON_FAILURE", "1: a task that fails stops its device until it is reset, as on hardware", "0", ParseStopOnFailure,
     [](const Config& c) { return absl::StrCat(c.stop_on_failure ? 1 : 0); }},
    {"JUMAR_FAULTS", "faults on demand: rules, or `@file` with one rule a line", "none", ParseFaultRules,
     [](const Config& c) { return absl::StrCat(c.faults.size(), " rules"); }},
    {"JUMAR_SCHEDULE_FUZZ", "seed of random delays of tasks, to find missing synchronisation", "none", ParseScheduleFuzz,
     [](const Config& c) { return c.schedule_fuzz.has_value() ? absl::StrCat(*c.schedule_fuzz) : "none"; }},
    {"JUMAR_TRACE", "file for a trace of streams, operators and copies", "none", ParseTrace,
     [](const Config& c) { return c.trace.empty() ? "none" : c.trace; }},
    {"ASCEND_RT_VISIBLE_DEVICES", "the devices that the process sees, such as `0,2`; it numbers them from 0", "all", ParseVisible,
     [](const Config& c) { return absl::StrCat(c.devices, " devices"); }},
};

// Variables of other parts, so that they are not taken for misspelled ones.
constexpr std::string_view kElsewhere[] = {
    "JUMAR_BACKEND",  "JUMAR_BAZEL",      "JUMAR_BENCH_THREADS", "JUMAR_CACHE_DIR", "JUMAR_DEBIAN_DIR",
    "JUMAR_PYTHON",   "JUMAR_PAGED_BENCH", "JUMAR_SIMD",          "JUMAR_STATUS_FD", "JUMAR_TRACEBACK",
};

// The limit of the control group that this process is in, or no limit.
uint64_t CgroupLimitBytes() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    uint64_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;
  }
  return std::numeric_limits<uint64_t>::max();
}

std::string Quoted(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return json + "\"";
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string_view> EnvironmentNames() {
  std::vector<std::string_view> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.push_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace

int64_t Config::vector_cores() const { return soc->aiv_cores != tiling::kUnknown ? soc->aiv_cores : soc->aic_cores; }

std::span<const Variable> Variables() { return kVariables; }

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

absl::StatusOr<Config> ParseConfig(const GetEnv& getenv, const Machine& machine) {
  Config config;
  config.threads = std::max(machine.cpus, 1);
  if (absl::Status status = ParseSoc(kDefaultSoc, config); !status.ok()) return status;
  int all_devices = 1;  // those that this process does not see take memory too
  for (const Variable& variable : kVariables) {
    if (variable.parse == &ParseVisible) all_devices = config.devices;
    const std::string text = getenv(variable.name);
    if (text.empty()) continue;
    if (absl::Status status = variable.parse(text, config); !status.ok()) return status;
  }
  if (config.hbm_bytes == 0) {
    const uint64_t share = machine.ram_bytes / 2 / static_cast<uint64_t>(all_devices);
    config.hbm_bytes = std::max(std::min(static_cast<uint64_t>(config.soc->memory_bytes), share), kMinHbmBytes);
  }
  config.hbm_bytes &= ~((uint64_t{2} << 20) - 1);  // whole pages
  return config;
}

std::vector<std::string> UnknownVariables(std::span<const std::string_view> names) {
  std::vector<std::string_view> known(std::begin(kElsewhere), std::end(kElsewhere));
  for (const Variable& variable : kVariables) known.push_back(variable.name);
  std::vector<std::string> warnings;
  for (const std::string_view name : names) {
    if (!name.starts_with("JUMAR_") || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::vector<std::string> near = tiling::NearNames(name, known);
    warnings.push_back(absl::StrCat("the variable ", std::string(name), " is not known and does nothing",
                                    near.empty() ? "" : absl::StrCat("; did you mean ", absl::StrJoin(near, ", "), "?")));
  }
  return warnings;
}

std::string DescribeConfig(const GetEnv& getenv, const Machine& machine, std::span<const std::string_view> names) {
  const absl::StatusOr<Config> config = ParseConfig(getenv, machine);
  std::vector<std::string> rows, warnings;
  for (const Variable& variable : kVariables) {
    const std::string text = getenv(variable.name);
    const std::string value = config.ok() ? variable.show(*config) : text;
    rows.push_back(absl::StrCat("{\"name\": ", Quoted(variable.name), ", \"meaning\": ", Quoted(variable.meaning), ", \"default\": ",
                                Quoted(variable.default_text), ", \"value\": ", Quoted(value), ", \"source\": ",
                                text.empty() ? "\"default\"" : "\"environment\"", "}"));
  }
  for (const std::string& warning : UnknownVariables(names)) warnings.push_back(Quoted(warning));
  return absl::StrCat("{\"error\": ", Quoted(config.ok() ? "" : std::string(config.status().message())), ", \"warnings\": [",
                      absl::StrJoin(warnings, ", "), "], \"variables\": [", absl::StrJoin(rows, ", "), "]}");
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
  static const auto* const config = [] {
    for (const std::string& warning : UnknownVariables(EnvironmentNames())) std::fprintf(stderr, "jumar: warning: %s\n", warning.c_str());
    return new absl::StatusOr<Config>(ParseConfig(FromEnvironment, ThisMachine()));
  }();
  return *config;
}

std::string DescribeProcessConfig() { return DescribeConfig(FromEnvironment, ThisMachine(), EnvironmentNames()); }

}  // namespace jumar::hostcann
