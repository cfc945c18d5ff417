#include "libs/hostcann/hccl/settings.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace jumar::hostcann {
namespace {

absl::Status ParseSeconds(const char* name, const std::string& text, int64_t least, int64_t most, std::chrono::milliseconds& value) {
  if (text.empty()) return absl::OkStatus();
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(text, &seconds) || seconds < least || seconds > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a whole number of seconds from ", least, " to ", most));
  }
  value = std::chrono::seconds(seconds);
  return absl::OkStatus();
}

bool IsAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

absl::StatusOr<std::string> ChooseInterface(const std::string& rule, const Interfaces& interfaces) {
  absl::string_view list = rule;
  const bool exclude = absl::ConsumePrefix(&list, "^");
  const bool exact = absl::ConsumePrefix(&list, "=");
  const std::vector<std::string> names = absl::StrSplit(list, ',', absl::SkipEmpty());
  std::string known;
  for (const auto& [interface, address] : interfaces) {
    const bool listed = std::any_of(names.begin(), names.end(), [&, &interface = interface](const std::string& name) {
      return exact ? interface == name : absl::StartsWith(interface, name);
    });
    if (listed != exclude) return address;
    absl::StrAppend(&known, known.empty() ? "" : ", ", interface);
  }
  return absl::InvalidArgumentError(absl::StrCat("HCCL_SOCKET_IFNAME=", rule, " matches none of this machine's interfaces: ", known));
}

}  // namespace

Interfaces ThisMachinesInterfaces() {
  Interfaces interfaces;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return interfaces;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof(text));
      interfaces.emplace_back(entry->ifa_name, text);
    }
  }
  freeifaddrs(first);
  return interfaces;
}

absl::StatusOr<HcclSettings> ParseHcclSettings(const std::function<std::string(const char*)>& getenv, const Interfaces& interfaces) {
  HcclSettings settings;
  absl::Status parsed = ParseSeconds("HCCL_CONNECT_TIMEOUT", getenv("HCCL_CONNECT_TIMEOUT"), 1, 7200, settings.connect_timeout);
  if (parsed.ok()) {
    parsed = ParseSeconds("HCCL_EXEC_TIMEOUT", getenv("HCCL_EXEC_TIMEOUT"), 0, std::numeric_limits<int32_t>::max(), settings.exec_timeout);
  }
  if (!parsed.ok()) return parsed;
  const std::string address = getenv("HCCL_IF_IP");
  const std::string rule = getenv("HCCL_SOCKET_IFNAME");
  if (!address.empty()) {
    if (!IsAddress(address)) return absl::InvalidArgumentError(absl::StrCat("HCCL_IF_IP=", address, " is not an IPv4 or IPv6 address"));
    settings.host = address;
  } else if (!rule.empty()) {
    absl::StatusOr<std::string> chosen = ChooseInterface(rule, interfaces);
    if (!chosen.ok()) return chosen.status();
    settings.host = *chosen;
  }
  return settings;
}

absl::StatusOr<HcclSettings> CurrentHcclSettings() {
  const auto get = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  return ParseHcclSettings(get, ThisMachinesInterfaces());
}

}  // namespace jumar::hostcann
