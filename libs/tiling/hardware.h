#ifndef LIBS_TILING_HARDWARE_H_
#define LIBS_TILING_HARDWARE_H_

// Looks chips up by the names that users give them.
//
//   auto spec = FindHardware("Ascend910B2");
//   if (!spec.ok()) return spec.status();          // names the chips that are spelled nearly so
//   const int64_t ub = (*spec)->ub_bytes;
//
// The figures themselves are in hardware_table.h, with their sources; what a kernel needs at compile time it takes from there.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/tiling/hardware_spec.h"

namespace jumar::tiling {

std::span<const HardwareSpec> AllHardware();

// By name, capitals or not; a suffix behind an underscore is a variant of the same row ("Ascend950PR_9599"). NotFound lists the names
// that are spelled nearly so, or all.
absl::StatusOr<const HardwareSpec*> FindHardware(std::string_view name);

// By name, such as "memory_bytes_per_second". NotFound lists the names that are spelled nearly so, or all.
absl::StatusOr<const SpecFigure*> FindFigure(std::string_view name);

// Sets a figure that is not the table's: what a user wants to compute with instead, or in place of an unknown one. InvalidArgument if the
// value isn't positive; NotFound as FindFigure.
absl::Status OverrideFigure(HardwareSpec& spec, std::string_view figure, int64_t value);

std::string_view ArchitectureName(Architecture architecture);  // "A2", "A3", "A5", "310P", "host"
std::string FormatNames(uint32_t formats);                     // "fp32 fp16 bf16 int8"

}  // namespace jumar::tiling

#endif  // LIBS_TILING_HARDWARE_H_
