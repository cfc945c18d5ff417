#include "libs/hostcann/acl/stream.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/graph.h"
#include "libs/hostcann/acl/interrupt.h"
#include "libs/hostcann/acl/isolation.h"
#include "libs/hostcann/acl/openmp.h"
#include "libs/hostcann/acl/trace.h"

namespace jumar::hostcann {
namespace {

// A short wait is cheaper by polling than by sleeping; a long one must not burn a core.
constexpr auto kSpin = std::chrono::microseconds(30);
constexpr size_t kMaxQueued = 16384;

thread_local Stream* t_current = nullptr;

// Polls `ready` for a short while, yielding, so that a machine with few cores gets on.
template <typename Ready>
bool SpinUntil(const Ready& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
    }
    std::this_thread::yield();
  } while (Clock::now() < end);
  return ready();
}

}  // namespace

Stream::Stream(int device, int id, uint32_t flags, uint32_t priority)
    : device_(device), id_(id), flags_(flags), priority_(priority), fuzz_(FuzzSeed(), static_cast<uint64_t>(id)) {}

Stream::~Stream() {
  if (worker_.joinable()) worker_.detach();  // only a worker that closes itself (CloseWhenIdle) gets here
}

Stream* Stream::Current() { return t_current; }

bool TaskInterrupted() { return t_current != nullptr && t_current->aborted(); }

void Stream::Push(NamedTask&& named, TaskKind kind) {
  bool wake;
  {
    std::unique_lock lock(mutex_);
    if (incoming_.size() >= kMaxQueued && t_current != this) {
      ++waiting_for_space_;
      space_.wait(lock, [&] { return incoming_.size() < kMaxQueued || aborted(); });
      --waiting_for_space_;
    }
    if (aborted()) return;
    if (!started_) {
      started_ = true;
      Runtime::Get().OnFirstWorker();
      worker_ = std::thread([self = shared_from_this()] { self->Run(); });
    }
    incoming_.emplace_back(std::move(named), kind);
    submitted_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    wake = std::exchange(sleeping_, false);
  }
  if (wake) wake_.notify_one();
}

bool Stream::TakeBatch() {
  // completed_ counts what this thread took, all of which has run by now.
  const auto some = [&] { return submitted_.load(std::memory_order_relaxed) != completed_.load(std::memory_order_relaxed); };
  was_idle_ = !some();
  if (!SpinUntil(some)) TraceIdle();
  std::unique_lock lock(mutex_);
  while (incoming_.empty()) {
    if (closing_ || aborted()) return false;
    sleeping_ = true;
    wake_.wait(lock, [&] { return !sleeping_ || closing_ || aborted(); });
    sleeping_ = false;
  }
  std::swap(batch_, incoming_);
  if (waiting_for_space_ > 0) space_.notify_all();
  return true;
}

void Stream::Run() {
  t_current = this;
  pthread_setname_np(pthread_self(), absl::StrCat("jumar-s", id_).c_str());
  Runtime::Get().BindThread(device_);
  UseOneOpenMpThread();
  uint64_t done = 0;
  while (TakeBatch()) {
    for (Entry& entry : batch_) {
      Execute(entry);
      entry.named.task.Reset();
      completed_.store(++done, std::memory_order_seq_cst);
      if (done >= awaited_.load(std::memory_order_seq_cst)) {
        std::lock_guard lock(sync_mutex_);
        sync_.notify_all();
      }
    }
    batch_.clear();
  }
  t_current = nullptr;
}

void Stream::Execute(Entry& entry) {
  const bool skip =
      aborted() || (failed_.load(std::memory_order_relaxed) && stop_on_failure_.load(std::memory_order_relaxed));
  if ((skip || DeviceStopped(device_)) && entry.kind == TaskKind::kWork) return;
  const RunningTask running(entry.named.name);
  try {
    if (Hooked()) {
      RunHooked(entry);
    } else {
      entry.named.task();
    }
  } catch (const TaskError& error) {
    RecordFailure(error.code(), absl::StrCat(entry.named.name, ": ", error.what()));
  } catch (const std::exception& error) {
    RecordFailure(kRtAicoreException, absl::StrCat(entry.named.name, ": ", error.what()));
  } catch (...) {
    RecordFailure(kRtAicoreException, absl::StrCat(entry.named.name, ": failed without a message"));
  }
}

void Stream::RunHooked(Entry& entry) {
  if (Hooked(kHookFuzz)) FuzzDelay(fuzz_, std::exchange(was_idle_, false));
  if (Hooked(kHookFaults) && entry.kind == TaskKind::kWork) FaultBeforeTask(device_, id_, entry.named.name);
  if (!Hooked(kHookTrace)) return entry.named.task();
  const TraceSpan span(device_, id_, entry.named.name, entry.named.details.get());
  entry.named.task();
}

void Stream::RecordFailure(int code, const std::string& text) {
  std::lock_guard lock(failure_mutex_);
  if (failure_code_ != 0) return;  // the first one is the cause
  failure_code_ = code;
  failure_text_ = text;
  failed_.store(true, std::memory_order_relaxed);
  if (Hooked(kHookStop) && stop_on_failure_.load(std::memory_order_relaxed)) {
    StopDevice(device_, code, absl::StrCat("stream ", id_, " failed in ", text));
  }
}

int Stream::Synchronize(int64_t timeout_ms) {
  const uint64_t target = submitted_.load(std::memory_order_seq_cst);
  const auto reached = [&] { return completed_.load(std::memory_order_seq_cst) >= target || aborted(); };
  if (t_current == this) return Fail(kRtInternal, absl::StrCat("stream ", id_, ": a task must not synchronise its own stream"));
  if (!reached() && !SpinUntil(reached)) {
    std::unique_lock lock(sync_mutex_);
    targets_.push_back(target);
    const auto update = [&] {
      awaited_.store(targets_.empty() ? UINT64_MAX : *std::min_element(targets_.begin(), targets_.end()),
                     std::memory_order_seq_cst);
    };
    update();
    bool in_time = true;
    if (timeout_ms < 0) {
      sync_.wait(lock, reached);
    } else {
      in_time = sync_.wait_for(lock, std::chrono::milliseconds(timeout_ms), reached);
    }
    targets_.erase(std::find(targets_.begin(), targets_.end(), target));
    update();
    if (!in_time) {
      return Fail(kRtStreamSyncTimeout, absl::StrCat("stream ", id_, " did not finish within ", timeout_ms, " ms; ",
                                                     submitted_.load() - completed_.load(), " tasks are left"));
    }
  }
  if (int code = CheckRunning(device_); code != kOk) return code;
  std::string text;
  const int code = Failure(&text);
  if (code == kOk) return kOk;
  {
    std::lock_guard lock(failure_mutex_);
    failure_code_ = 0;
    failed_.store(false, std::memory_order_relaxed);
  }
  SetLastExecutionError(code);
  return Fail(code, text);
}

int Stream::Failure(std::string* text) {
  if (!failed_.load(std::memory_order_relaxed)) return kOk;
  std::lock_guard lock(failure_mutex_);
  if (failure_code_ != 0) *text = absl::StrCat("stream ", id_, " of device ", device_, " failed in ", failure_text_);
  return failure_code_;
}

void Stream::CloseWhenIdle() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
}

void Stream::Abort() {
  {
    std::lock_guard lock(mutex_);
    aborted_.store(true, std::memory_order_release);
    closing_ = true;
  }
  wake_.notify_all();
  space_.notify_all();
  WakeBlocked();
  if (worker_.joinable()) {
    if (t_current == this) {
      worker_.detach();
    } else {
      worker_.join();
    }
  }
  std::lock_guard lock(sync_mutex_);
  sync_.notify_all();
}

void Stream::WakeBlocked() {
  std::shared_ptr<SyncPoint> point;
  {
    std::lock_guard lock(blocked_mutex_);
    point = blocked_on_;
  }
  if (point == nullptr) return;
  std::lock_guard lock(point->mutex);
  point->cv.notify_all();
}

bool Stream::Await(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int poll_ms) {
  return AwaitUntil(point, ready, poll_ms, Clock::time_point::max()) == Waited::kReady;
}

void Stream::AwaitWithin(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int64_t timeout_ms,
                         const std::function<std::string()>& text, int poll_ms) {
  const auto end = timeout_ms == 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(timeout_ms);
  if (AwaitUntil(point, ready, poll_ms, end) == Waited::kTooLong) throw TaskError(kRtWaitTimeout, text());
}

Stream::Waited Stream::AwaitUntil(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int poll_ms,
                                  Clock::time_point end) {
  Stream* self = t_current;
  if (self != nullptr) {
    std::lock_guard lock(self->blocked_mutex_);
    self->blocked_on_ = point;
  }
  Waited result = Waited::kReady;
  {
    std::unique_lock lock(point->mutex);
    while (!ready()) {
      if (self != nullptr && (self->aborted() || DeviceLost(self->device_) || DeviceStopped(self->device_))) {
        result = Waited::kGaveUp;
        break;
      }
      if (end != Clock::time_point::max() && Clock::now() >= end) {
        result = Waited::kTooLong;
        break;
      }
      Clock::time_point until = end;
      if (poll_ms > 0) until = std::min(until, Clock::now() + std::chrono::milliseconds(poll_ms));
      if (until == Clock::time_point::max()) {
        point->cv.wait(lock);
      } else {
        point->cv.wait_until(lock, until);
      }
    }
  }
  if (self != nullptr) {
    std::lock_guard lock(self->blocked_mutex_);
    self->blocked_on_ = nullptr;
  }
  return result;
}

std::shared_ptr<Capture> Stream::capture() const {
  std::lock_guard lock(mode_mutex_);
  return capture_;
}

void Stream::EnterCapture(std::shared_ptr<Capture> capture) {
  std::lock_guard lock(mode_mutex_);
  capture_ = std::move(capture);
  mode_.store(Mode::kCapture, std::memory_order_release);
}

void Stream::LeaveCapture() {
  std::lock_guard lock(mode_mutex_);
  capture_ = nullptr;
  mode_.store(Mode::kQueue, std::memory_order_release);
}

void Stream::EnterUpdate(std::shared_ptr<TaskGroup> group) {
  std::lock_guard lock(mode_mutex_);
  update_group_ = std::move(group);
  update_tasks_.clear();
  mode_.store(Mode::kUpdate, std::memory_order_release);
}

std::vector<NamedTask> Stream::LeaveUpdate(std::shared_ptr<TaskGroup>* group) {
  std::lock_guard lock(mode_mutex_);
  *group = std::move(update_group_);
  mode_.store(Mode::kQueue, std::memory_order_release);
  return std::move(update_tasks_);
}

int Stream::SubmitSlow(NamedTask&& named, TaskKind kind) {
  std::unique_lock lock(mode_mutex_);
  switch (mode_.load(std::memory_order_relaxed)) {
    case Mode::kQueue:
      break;
    case Mode::kCapture: {
      const std::shared_ptr<Capture> capture = capture_;
      lock.unlock();
      return capture->Add(*this, std::move(named), kind);
    }
    case Mode::kUpdate:
      update_tasks_.push_back(std::move(named));
      return kOk;
  }
  lock.unlock();
  Push(std::move(named), kind);
  return kOk;
}

}  // namespace jumar::hostcann
