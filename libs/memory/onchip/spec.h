#ifndef LIBS_MEMORY_ONCHIP_SPEC_H_
#define LIBS_MEMORY_ONCHIP_SPEC_H_

// Buffers and capacities as one writes them on a command line. Errors are InvalidArgument, say what was read and what is allowed.

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/onchip/types.h"

namespace jumar::memory::onchip {

// "500", "500B", "32KiB", "2MiB".
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

absl::StatusOr<Space> ParseSpace(std::string_view text);    // "UB", capitals or not
absl::StatusOr<Pipe> ParsePipe(std::string_view text);      // "MTE2"
absl::StatusOr<Policy> ParsePolicy(std::string_view text);  // "double"

// "NAME:SPACE:BYTES", then in any order: a policy ("double"), steps ("0-3", "2", "4-end"), pipes ("MTE2>V"), "align=BYTES", "at=OFFSET",
// "alias=NAME". Syntax only: whether it makes sense is for Plan to say.
absl::StatusOr<Buffer> ParseBuffer(std::string_view text);

// "UB=192KiB,L1=512KiB" into those.
absl::Status ParseCapacities(std::string_view text, Capacities& capacities);

}  // namespace jumar::memory::onchip

#endif  // LIBS_MEMORY_ONCHIP_SPEC_H_
