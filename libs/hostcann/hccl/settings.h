// HCCL's environment variables, read when a communicator is made.
//
//   HCCL_CONNECT_TIMEOUT  seconds that the ranks of a new communicator wait for each other, 1 to 7200             (120)
//   HCCL_EXEC_TIMEOUT     seconds that a collective waits for the other ranks, 0 for ever, up to 2147483647       (1836)
//   HCCL_IF_IP            address on which this process listens                                              (127.0.0.1)
//   HCCL_SOCKET_IFNAME    or the interface: eth,ib by the beginning of the name, =eth0 exactly, ^eth or ^=eth0 all but those
#ifndef LIBS_HOSTCANN_HCCL_SETTINGS_H_
#define LIBS_HOSTCANN_HCCL_SETTINGS_H_

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace jumar::hostcann {

struct HcclSettings {
  std::chrono::milliseconds connect_timeout{120000};
  std::chrono::milliseconds exec_timeout{1836000};  // 0: none
  std::string host = "127.0.0.1";
};

// Names of interfaces with their addresses.
using Interfaces = std::vector<std::pair<std::string, std::string>>;
Interfaces ThisMachinesInterfaces();

// `getenv` returns "" for a variable that is not set.
absl::StatusOr<HcclSettings> ParseHcclSettings(const std::function<std::string(const char*)>& getenv, const Interfaces& interfaces);
absl::StatusOr<HcclSettings> CurrentHcclSettings();

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_SETTINGS_H_
