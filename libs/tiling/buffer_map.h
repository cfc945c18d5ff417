#ifndef LIBS_TILING_BUFFER_MAP_H_
#define LIBS_TILING_BUFFER_MAP_H_

#include <vector>

#include "libs/memory/onchip/onchip.h"
#include "libs/tiling/hardware_spec.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

// Where a solution's buffers lie on a core: offsets by the planner of libs/memory/onchip, for the chip's capacities. It tells what is wrong
// in its `error` (more than 32 buffers, a capacity exceeded); solutions of the solvers fit.
memory::onchip::Map PlanBuffers(const std::vector<Buffer>& buffers, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_BUFFER_MAP_H_
