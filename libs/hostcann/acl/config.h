// Everything that can be configured about the simulated devices: one typed table, read once from the environment.
//
//   JUMAR_DEVICES    number of devices, 1 to 16                        (1)
//   JUMAR_SOC        chip that aclrtGetSocName tells                   (Ascend910B2)
//   JUMAR_HBM_BYTES  memory of one device, e.g. 8589934592, 8GiB, 512M (the chip's, at most half of the RAM, shared by the devices)
//   JUMAR_THREADS    threads for computing, all streams together       (CPUs in the affinity mask)
//   JUMAR_FAULTS     faults on demand, see faults.h                      (none)
//   JUMAR_SCHEDULE_FUZZ  seed of random delays, see fuzz.h                (none)
//   JUMAR_TRACE      file for a trace, see trace.h                       (none)
//   JUMAR_STOP_ON_FAILURE  1: a task that fails stops its device   (0)
//   JUMAR_STRICT     1: host code cannot touch device memory           (0)
//   ASCEND_RT_VISIBLE_DEVICES  the devices that this process sees, e.g. 0,2; it numbers them from 0        (all)
#ifndef LIBS_HOSTCANN_ACL_CONFIG_H_
#define LIBS_HOSTCANN_ACL_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/hostcann/acl/faults.h"

namespace jumar::hostcann {

// CANN whose interface we have, and a driver that has every feature which torch_npu asks the driver's version for.
inline constexpr char kCannVersion[] = "9.1.0";
inline constexpr char kDriverVersion[] = "26.1.0";

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxStreams = 2048;  // per process, as the hardware's limit per device

struct SocSpec {
  const char* name;
  int cube_cores;
  int vector_cores;
  uint64_t hbm_bytes;
  uint64_t l2_bytes;
};

struct Machine {
  uint64_t ram_bytes = 0;
  int cpus = 1;
};

struct Config {
  int devices = 1;  // that this process sees
  SocSpec soc;
  uint64_t hbm_bytes = 0;
  int threads = 1;
  std::vector<FaultRule> faults;
  std::optional<uint64_t> schedule_fuzz;
  std::string trace;
  bool strict = false;
  bool stop_on_failure = false;
};

// `getenv` returns "" for a variable that is not set.
absl::StatusOr<Config> ParseConfig(const std::function<std::string(const char*)>& getenv, const Machine& machine);

// "8589934592", "8G", "8GiB", "512 MiB"; units are powers of 1024.
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);

Machine ThisMachine();  // RAM within the limit of the control group, CPUs within the affinity mask

// The configuration of this process, or what is wrong with it.
const absl::StatusOr<Config>& ProcessConfig();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_CONFIG_H_
