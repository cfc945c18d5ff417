#include "libs/hostcann/acl/config.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {

bool StrictMode() {
  const absl::StatusOr<Config>& config = ProcessConfig();
  return config.ok() && config->strict;
}

}  // namespace jumar::hostcann
