// What this machine can do at most, measured in a tenth of a second on the threads of a pool.
#ifndef LIBS_HOSTCANN_ACL_MACHINE_LIMITS_H_
#define LIBS_HOSTCANN_ACL_MACHINE_LIMITS_H_

#include "libs/hostcann/acl/trace_summary.h"
#include "libs/tiling/executor.h"

namespace jumar::hostcann {

MachineLimits MeasureMachine(tiling::Executor& pool);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_MACHINE_LIMITS_H_
