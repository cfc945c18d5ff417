#ifndef LIBS_MEMORY_ONCHIP_SVG_H_
#define LIBS_MEMORY_ONCHIP_SVG_H_

#include <string>

#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {

// A picture of the map: for each space in use the addresses (upwards) over the steps, every copy a box, the capacity a line, and beside it
// who is who, with offsets, sizes and event ids. What reaches beyond the capacity is hatched, the buffer that is to blame for an error
// framed. Steps in which nothing starts or ends are one column. A capacity of more than twice what is used is drawn behind a break.
std::string Svg(const MapView& map);

// "32 KiB", "500 B", "1.5 KiB".
std::string BytesText(int64_t bytes);

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_SVG_H_
