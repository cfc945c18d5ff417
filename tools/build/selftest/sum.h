#ifndef JUMAR_TOOLS_BUILD_SELFTEST_SUM_H_
#define JUMAR_TOOLS_BUILD_SELFTEST_SUM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace jumar::selftest {

// The sum of `values`. InvalidArgument if there are none, or if it exceeds int32.
absl::StatusOr<int32_t> Sum(absl::Span<const int32_t> values);

}  // namespace jumar::selftest

#endif  // JUMAR_TOOLS_BUILD_SELFTEST_SUM_H_
