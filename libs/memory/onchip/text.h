#ifndef LIBS_MEMORY_ONCHIP_TEXT_H_
#define LIBS_MEMORY_ONCHIP_TEXT_H_

// For programs that plan at run time; not for kernels.

#include <string>

#include "absl/status/status.h"
#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {

// A line for each buffer, for each space that is in use, for each pair of pipes with event ids.
std::string Table(const MapView& map);

// What is wrong, then the table. Empty when nothing is.
std::string ErrorText(const MapView& map);

// That as a status: ResourceExhausted when a capacity or event ids don't suffice, else InvalidArgument.
absl::Status PlanStatus(const MapView& map);

// The same map with another error, such as what Verify found.
inline MapView WithError(MapView map, const Error& error) {
  map.error = &error;
  return map;
}

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_TEXT_H_
