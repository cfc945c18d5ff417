#include "libs/hostcann/acl/event.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/graph.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/trace.h"

namespace jumar::hostcann {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::atomic<int64_t> g_wait_timeout_ms{0};

int FailCaptured() {
  return Fail(kRtEventCaptured,
              "the event was recorded into a capture that is still open, and nothing of it runs before the graph is launched: the event "
              "can neither be waited for nor queried from outside. Do it after the capture, with an event that was recorded then");
}

uint64_t NextNumber() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

void SetEventWaitTimeout(int64_t ms) { g_wait_timeout_ms.store(ms, std::memory_order_relaxed); }

Event::Event(Kind kind, uint32_t flags) : number_(NextNumber()), kind_(kind), flags_(flags) {}

bool Event::InCapture() const {
  const std::shared_ptr<Capture> capture = capture_.lock();
  return capture != nullptr && capture->open();
}

void Event::Finish(uint64_t record) {
  TraceArrow(ArrowOf(record), /*starts=*/true);
  // Whoever waits for the event must not take what the skipped tasks left behind for their results.
  std::string text;
  Stream* const stream = Stream::Current();
  const int failure = stream == nullptr ? kOk : stream->Failure(&text);
  std::lock_guard lock(point_->mutex);
  failure_code_ = failure;
  failure_text_ = std::move(text);
  done_.store(std::max(done_.load(std::memory_order_relaxed), record), std::memory_order_release);
  flag_ = true;
  timestamp_ns_ = NowNs();
  point_->cv.notify_all();
}

int Event::Record(Stream& stream) {
  if (stream.capturing() && !external()) {
    // Nothing runs: the event marks a place in the graph, for streams that fork from it or join it.
    const std::shared_ptr<Capture> capture = stream.capture();
    std::lock_guard lock(point_->mutex);
    capture_ = capture;
    return capture == nullptr ? kOk : capture->Mark(stream, &clock_);
  }
  uint64_t record;
  {
    std::lock_guard lock(point_->mutex);
    capture_.reset();
    record = ++recorded_;
    device_ = stream.device();
  }
  // A captured external event completes anew at every replay, so it counts as done from its own record on.
  const int code = stream.Submit("event record", [self = shared_from_this(), record] { self->Finish(record); }, TaskKind::kControl);
  if (code != kOk) Finish(record);  // nobody shall wait for what will not come
  return code;
}

int Event::Wait(Stream& stream) {
  if (!external()) {
    std::unique_lock lock(point_->mutex);
    const std::shared_ptr<Capture> capture = capture_.lock();
    if (capture != nullptr && capture->open()) {
      const CaptureClock clock = clock_;
      lock.unlock();
      return capture->Join(stream, clock);
    }
    if (const std::shared_ptr<Capture> other = stream.capture(); other != nullptr) {
      lock.unlock();
      return other->Refuse(kRtCaptureDependency,
                           absl::StrCat("stream ", stream.id(),
                                        " is being captured and waits for an event that was recorded outside of the capture; "
                                        "record it in the capture, or use an external event"));
    }
  }
  if (kind_ == Kind::kFlag) return SubmitWait(stream, 0);
  uint64_t record;
  {
    std::lock_guard lock(point_->mutex);
    record = recorded_;
  }
  // Nothing to wait for; a trace shows the wait all the same, for its arrow.
  if (done_.load(std::memory_order_acquire) >= record && !external() && !Hooked(kHookTrace)) return kOk;
  return SubmitWait(stream, record);
}

int Event::SubmitWait(Stream& stream, uint64_t record) {
  const int64_t timeout_ms = g_wait_timeout_ms.load(std::memory_order_relaxed);
  const auto wait = [self = shared_from_this(), record, timeout_ms] {
    const auto ready = [&] {
      return self->kind_ == Kind::kFlag ? self->flag_ : self->done_.load(std::memory_order_relaxed) >= record;
    };
    Stream::AwaitWithin(self->point_, ready, timeout_ms, [&] {
      return absl::StrCat("an event was not recorded within the ", timeout_ms / 1000, " s of aclrtSetOpWaitTimeout");
    });
    if (self->kind_ == Kind::kCounted) TraceArrow(self->ArrowOf(record), /*starts=*/false);
  };
  return stream.Submit("event wait", wait, TaskKind::kControl);
}

int Event::Reset(Stream& stream) {
  return stream.Submit(
      "event reset",
      [self = shared_from_this()] {
        std::lock_guard lock(self->point_->mutex);
        self->flag_ = false;
      },
      TaskKind::kControl);
}

int Event::Synchronize(int64_t timeout_ms) {
  std::unique_lock lock(point_->mutex);
  if (InCapture()) return FailCaptured();
  const uint64_t record = recorded_;
  const auto ready = [&] { return done_.load(std::memory_order_relaxed) >= record; };
  if (timeout_ms < 0) {
    point_->cv.wait(lock, ready);
  } else if (!point_->cv.wait_for(lock, std::chrono::milliseconds(timeout_ms), ready)) {
    return Fail(kRtEventSyncTimeout, absl::StrCat("an event was not reached within ", timeout_ms, " ms"));
  }
  if (failure_code_ != kOk) {
    SetLastExecutionError(failure_code_);
    return Fail(failure_code_, absl::StrCat(failure_text_, "; the event stands behind that"));
  }
  lock.unlock();
  return CheckDevice();
}

int Event::CheckNotCaptured() const {
  std::lock_guard lock(point_->mutex);
  return InCapture() ? FailCaptured() : int{kOk};
}

int Event::CheckDevice() const {
  std::lock_guard lock(point_->mutex);
  return device_ < 0 ? int{kOk} : CheckNotLost(device_);
}

bool Event::Complete() const {
  std::lock_guard lock(point_->mutex);
  return !InCapture() && done_.load(std::memory_order_relaxed) >= recorded_;
}

int Event::ElapsedMs(const Event& start, const Event& end, float* ms) {
  uint64_t unused;
  if (int code = start.TimestampUs(&unused); code != kOk) return code;
  if (int code = end.TimestampUs(&unused); code != kOk) return code;
  const auto stamp = [](const Event& event) {
    std::lock_guard lock(event.point_->mutex);
    return event.timestamp_ns_;
  };
  *ms = static_cast<float>(static_cast<double>(stamp(end) - stamp(start)) * 1e-6);
  return kOk;
}

int Event::TimestampUs(uint64_t* us) const {
  if ((flags_ & kEventTimeLine) == 0) {
    return Fail(kRtTimestampInvalid, "the event has no time line; create it with ACL_EVENT_TIME_LINE (torch: enable_timing=True)");
  }
  std::lock_guard lock(point_->mutex);
  if (InCapture()) return FailCaptured();
  if (timestamp_ns_ < 0) return Fail(kRtTimestampInvalid, "the event was never recorded, or its record has not run yet");
  *us = static_cast<uint64_t>(timestamp_ns_ / 1000);
  return kOk;
}

}  // namespace jumar::hostcann
