#include "libs/memory/onchip/text.h"

#include <string>

#include "absl/status/status.h"
#include "libs/memory/onchip/message.h"

namespace jumar::memory::onchip {

std::string Table(const MapView& map) {
  std::string text = std::string(TableHeader().text) + "\n";
  for (int i = 0; i < map.count; ++i) text += std::string(TableRow(map, i).text) + "\n";
  for (int s = 0; s < kNumSpaces; ++s) {
    if (map.used_bytes[s] > 0) text += std::string(SpaceLine(map, static_cast<Space>(s)).text) + "\n";
  }
  for (int from = 0; from < kNumPipes; ++from) {
    for (int to = 0; to < kNumPipes; ++to) {
      if (map.events[from][to] == 0) continue;
      Line line;
      line.Add("event ids from ").Add(PipeName(static_cast<Pipe>(from))).Add(" to ").Add(PipeName(static_cast<Pipe>(to))).Add(": ");
      line.Add(int64_t{map.events[from][to]}).Add(" of ").Add(int64_t{map.capacities->events_per_pair}).Add("\n");
      text += line.text;
    }
  }
  return text;
}

std::string ErrorText(const MapView& map) {
  if (map.error->ok()) return "";
  return std::string(ErrorLine(map).text) + "\n" + Table(map);
}

absl::Status PlanStatus(const MapView& map) {
  const ErrorKind kind = map.error->kind;
  if (kind == ErrorKind::kNone) return absl::OkStatus();
  if (kind == ErrorKind::kOverCapacity || kind == ErrorKind::kOutOfEvents) return absl::ResourceExhaustedError(ErrorText(map));
  return absl::InvalidArgumentError(ErrorText(map));
}

}  // namespace jumar::memory::onchip
