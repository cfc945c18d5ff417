// Error codes of the ACL interface (by value) and the error text that a thread can ask for.
#ifndef LIBS_HOSTCANN_ACL_ERROR_H_
#define LIBS_HOSTCANN_ACL_ERROR_H_

#include <stdexcept>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace jumar::hostcann {

enum ErrorCode : int {
  kOk = 0,
  kInvalidParam = 100000,
  kRepeatInitialize = 100002,
  kInvalidFile = 100003,
  kParseFile = 100006,
  kOpNotFound = 100024,
  kRepeatFinalize = 100037,
  kRtParamInvalid = 107000,
  kRtInvalidDevice = 107001,
  kRtContextNull = 107002,
  kRtTimestampInvalid = 107006,
  kRtStreamSubscribe = 107011,
  kRtThreadSubscribe = 107012,
  kRtStreamNoCallback = 107015,
  kRtInvalidHandle = 107017,
  kRtWaitTimeout = 107019,
  kRtCaptureDependency = 107024,
  kRtStreamUnjoined = 107025,
  kRtStreamCaptured = 107027,
  kRtEventCaptured = 107028,
  kRtStreamNotCaptured = 107029,
  kRtCaptureModeNotSupport = 107030,
  kRtCaptureUnmatched = 107036,
  kRtCaptureWrongThread = 107038,
  kRtModelUpdateFailed = 107040,
  kRtCaptureBlocksAsync = 107041,
  kApiNotSupport = 200001,
  kRtFeatureNotSupport = 207000,
  kRtMemoryAllocation = 207001,
  kRtMemoryFree = 207002,
  kRtNoStreamResource = 207008,
  kRtInternal = 507000,
  kRtLostHeartbeat = 507010,
  kRtReportTimeout = 507012,
  kRtAicoreException = 507015,
  kRtStreamSyncTimeout = 507046,
  kRtEventSyncTimeout = 507047,
  kRtCaptureInvalidated = 507903,
};

// Stores `text` as the newest error of this thread and returns `code`: `return Fail(kRtParamInvalid, "...")`.
int Fail(int code, std::string_view text);
// Ok -> 0; ResourceExhausted -> out of memory; otherwise `code`.
int FailStatus(int code, const absl::Status& status);

// The texts since the last call in this thread, newest first, then forgets them. Valid until the next call in this thread.
const char* TakeRecentError();

// The code of the last failed device execution that this thread was told of (0: none).
int LastExecutionError(bool clear);
void SetLastExecutionError(int code);

// Thrown by a task that fails with a code of its own.
class TaskError : public std::runtime_error {
 public:
  TaskError(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_ERROR_H_
