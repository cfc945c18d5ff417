// Callbacks that run in a thread of the user's: the stream hands the callback over, and the thread that subscribed to the stream runs
// it inside aclrtProcessReport.
#ifndef LIBS_HOSTCANN_ACL_REPORT_H_
#define LIBS_HOSTCANN_ACL_REPORT_H_

#include <cstdint>

#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/stream.h"

namespace jumar::hostcann {

int SubscribeReport(uint64_t thread, const Stream& stream);
int UnsubscribeReport(uint64_t thread, const Stream& stream);
// Runs the callbacks that wait for the calling thread; waits up to `timeout_ms` (negative: for ever) for the first.
int ProcessReport(int timeout_ms);
// With `block`, the stream goes on once the callback has returned.
int LaunchCallback(Stream& stream, AclCallback callback, void* user_data, bool block);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_REPORT_H_
