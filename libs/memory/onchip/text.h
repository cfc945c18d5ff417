#ifndef LIBS_MEMORY_ONCHIP_TEXT_H_
#define LIBS_MEMORY_ONCHIP_TEXT_H_

// For programs that plan at run time; not for kernels.

#include <string>

#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {

// A line for each buffer, for each space that is in use, for each pair of pipes with event ids.
std::string Table(const MapView& map);

// What is wrong, then the table. Empty when nothing is.
std::string ErrorText(const MapView& map);

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_TEXT_H_
