// Events: marks in streams that other streams and the host can wait for.
//
// Two kinds, as in ACL. A *counted* event (aclrtCreateEventExWithFlag) behaves as a wait on the most recent record at the time of the
// wait call; a wait on one that was never recorded passes. A *flag* event (aclrtCreateEvent, aclrtCreateEventWithFlag) is a flag that a
// record sets, a reset clears, and a wait waits for, even if the record comes later.
#ifndef LIBS_HOSTCANN_ACL_EVENT_H_
#define LIBS_HOSTCANN_ACL_EVENT_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "libs/hostcann/acl/stream.h"

namespace jumar::hostcann {

inline constexpr uint32_t kEventTimeLine = 0x08;
inline constexpr uint32_t kEventExternal = 0x20;
inline constexpr uint32_t kEventIpc = 0x40;

// How many tasks of each stream of a capture come before a point.
using CaptureClock = std::map<const Stream*, uint64_t>;

// How long a stream waits for an event before the wait fails (aclrtSetOpWaitTimeout); 0: for ever. Waits that are submitted later use it.
void SetEventWaitTimeout(int64_t ms);

class Event : public std::enable_shared_from_this<Event> {
 public:
  enum class Kind { kCounted, kFlag };
  Event(Kind kind, uint32_t flags);

  Kind kind() const { return kind_; }
  uint32_t flags() const { return flags_; }
  bool external() const { return (flags_ & kEventExternal) != 0; }

  int Record(Stream& stream);
  int Wait(Stream& stream);
  int Reset(Stream& stream);
  // Waits in the calling thread; a negative time-out waits for ever.
  int Synchronize(int64_t timeout_ms);
  bool Complete() const;     // every record so far has run
  int CheckDevice() const;   // 0, or the error when the device of the last record is lost
  int CheckNotCaptured() const;  // 0, or the error when it was recorded into a capture that is still open

  // Milliseconds from `start` to `end`, both recorded with a time line.
  static int ElapsedMs(const Event& start, const Event& end, float* ms);
  int TimestampUs(uint64_t* us) const;

 private:
  void Finish(uint64_t record);
  // The arrow that a trace draws from a record to its waits.
  uint64_t ArrowOf(uint64_t record) const { return (number_ << 24) + record; }
  int SubmitWait(Stream& stream, uint64_t record);
  bool InCapture() const;  // recorded into a capture that is still open

  const uint64_t number_;
  const Kind kind_;
  const uint32_t flags_;
  const std::shared_ptr<SyncPoint> point_ = std::make_shared<SyncPoint>();  // its mutex guards all below
  uint64_t recorded_ = 0;
  int device_ = -1;  // of the last record
  std::atomic<uint64_t> done_{0};
  bool flag_ = false;
  int failure_code_ = 0;  // of the stream, when the last record got there
  std::string failure_text_;
  int64_t timestamp_ns_ = -1;
  std::weak_ptr<Capture> capture_;
  CaptureClock clock_;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_EVENT_H_
