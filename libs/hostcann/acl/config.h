// Everything that can be configured about the simulated devices: one typed table, read once from the environment.
//
// Each variable is a row of Variables() (config.cc): its name, what it means, its default, and how it is parsed. The rows describe
// themselves: `./bazelw run //tools/doctor` prints them with the values in force, and docs/configuration.md is tested against them.
#ifndef LIBS_HOSTCANN_ACL_CONFIG_H_
#define LIBS_HOSTCANN_ACL_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/hostcann/acl/faults.h"
#include "libs/tiling/hardware.h"

namespace jumar::hostcann {

// CANN whose interface we have, and a driver that has every feature which torch_npu asks the driver's version for.
inline constexpr char kCannVersion[] = "9.1.0";
inline constexpr char kDriverVersion[] = "26.1.0";

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxStreams = 2048;  // per process, as the hardware's limit per device

struct Machine {
  uint64_t ram_bytes = 0;
  int cpus = 1;
};

struct Config {
  int devices = 1;  // that this process sees
  const tiling::HardwareSpec* soc = nullptr;  // a row of libs/tiling/hardware.h, with cores and memory known
  uint64_t hbm_bytes = 0;
  int threads = 1;
  std::vector<FaultRule> faults;
  std::optional<uint64_t> schedule_fuzz;
  std::string trace;
  bool strict = false;

  int64_t vector_cores() const;  // a core of 310P is both a cube and a vector core
};

struct Variable {
  const char* name;
  const char* meaning;
  const char* default_text;
  // `text` is not empty.
  absl::Status (*parse)(const std::string& text, Config& config);
  std::string (*show)(const Config& config);  // the value in force
};
std::span<const Variable> Variables();

using GetEnv = std::function<std::string(const char*)>;  // "" for a variable that is not set

absl::StatusOr<Config> ParseConfig(const GetEnv& getenv, const Machine& machine);

// A warning for each name that starts with JUMAR_ and is not known, with the known name that is spelled nearly so.
std::vector<std::string> UnknownVariables(std::span<const std::string_view> names);

// {"error": "", "warnings": [...], "variables": [{"name", "meaning", "default", "value", "source"}, ...]}, where source is
// "environment" or "default" and value is what is in force, or the text that is set when there is an error.
std::string DescribeConfig(const GetEnv& getenv, const Machine& machine, std::span<const std::string_view> names);

// "8589934592", "8G", "8GiB", "512 MiB"; units are powers of 1024.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

Machine ThisMachine();  // RAM within the limit of the control group, CPUs within the affinity mask

// The configuration of this process, or what is wrong with it. The first call prints warnings to standard error.
const absl::StatusOr<Config>& ProcessConfig();
std::string DescribeProcessConfig();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_CONFIG_H_
