// A stream: an in-order queue with a worker thread of its own, asynchronous to whoever submits.
//
// A stream is in one of three modes. Normally, Submit appends to the queue. While it is captured, Submit records into a graph.
// While a task group is updated, Submit collects the tasks that will replace the group's.
#ifndef LIBS_HOSTCANN_ACL_STREAM_H_
#define LIBS_HOSTCANN_ACL_STREAM_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libs/hostcann/acl/fuzz.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/acl/task.h"

namespace jumar::hostcann {

class Capture;
class TaskGroup;

// Something that a worker can wait for. Kept alive by the task that waits.
struct SyncPoint {
  std::mutex mutex;
  std::condition_variable cv;
};

struct NamedTask {
  const char* name = "";
  std::unique_ptr<const TaskDetails> details;  // while tracing, or null
  SmallTask task;
};

// kWork is skipped after a failure in the stream; kControl (events, callbacks that others wait for) always runs.
enum class TaskKind : uint8_t { kWork, kControl };

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(int device, int id, uint32_t flags, uint32_t priority);
  ~Stream();

  int device() const { return device_; }
  int id() const { return id_; }
  uint32_t flags() const { return flags_; }
  uint32_t priority() const { return priority_; }

  // Appends, records or collects (see above). Returns an error code.
  int Submit(const char* name, SmallTask task, TaskKind kind = TaskKind::kWork) {
    return Submit(NamedTask{name, nullptr, std::move(task)}, kind);
  }
  int Submit(NamedTask&& named, TaskKind kind = TaskKind::kWork) {
    if (Hooked()) {
      if (int code = CheckRunning(device_); code != 0) return code;
    }
    if (mode_.load(std::memory_order_acquire) != Mode::kQueue) return SubmitSlow(std::move(named), kind);
    Push(std::move(named), kind);
    return 0;
  }
  // Appends to the queue in any mode.
  void Push(NamedTask&& named, TaskKind kind);

  // Waits until all that was submitted has run. A negative time-out waits for ever. Tells and clears the stream's failure.
  int Synchronize(int64_t timeout_ms);
  bool Idle() const { return completed_.load() == submitted_.load(); }

  // After a failure: skip what follows until the failure was told (true, as torch_npu asks for), or go on.
  // The failure that was not told yet: its code, and its text in `text`; 0 if there is none.
  int Failure(std::string* text);

  void SetStopOnFailure(bool stop) { stop_on_failure_.store(stop, std::memory_order_relaxed); }
  bool stop_on_failure() const { return stop_on_failure_.load(std::memory_order_relaxed); }

  // Lets the queue run empty in the background, then ends the worker. No Submit afterwards.
  void CloseWhenIdle();
  // Drops what is queued, wakes a waiting task, and joins the worker once the running task has returned.
  void Abort();
  // Lets a task that waits look again (see Await).
  void WakeBlocked();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // For a task that runs on a worker: waits at `point` until `ready()` (called under its mutex), or until the stream is aborted or its
  // device lost, which returns false. `poll_ms` > 0 also looks again every so often.
  static bool Await(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int poll_ms = 0);
  // The same for at most `timeout_ms` (0: for ever), after which it throws the TaskError 107019 with text().
  static void AwaitWithin(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int64_t timeout_ms,
                          const std::function<std::string()>& text, int poll_ms = 0);
  static Stream* Current();  // of this worker thread, or null

  FuzzRandom& fuzz() { return fuzz_; }  // for tasks of this stream, while schedule fuzzing is on

  // ---- capture; see graph.h. The fields below are guarded by the capture's mutex, except for the mode.
  bool capturing() const { return mode_.load(std::memory_order_acquire) == Mode::kCapture; }
  bool updating() const { return mode_.load(std::memory_order_acquire) == Mode::kUpdate; }
  std::shared_ptr<Capture> capture() const;
  void EnterCapture(std::shared_ptr<Capture> capture);
  void LeaveCapture();
  void EnterUpdate(std::shared_ptr<TaskGroup> group);
  std::vector<NamedTask> LeaveUpdate(std::shared_ptr<TaskGroup>* group);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Mode : uint8_t { kQueue, kCapture, kUpdate };
  struct Entry {
    NamedTask named;
    TaskKind kind = TaskKind::kWork;
  };

  enum class Waited { kReady, kGaveUp, kTooLong };
  static Waited AwaitUntil(const std::shared_ptr<SyncPoint>& point, const std::function<bool()>& ready, int poll_ms, Clock::time_point end);

  int SubmitSlow(NamedTask&& named, TaskKind kind);
  void Run();
  bool TakeBatch();
  void Execute(Entry& entry);
  void RunHooked(Entry& entry);
  void RecordFailure(int code, const std::string& text);

  const int device_;
  const int id_;
  const uint32_t flags_;
  const uint32_t priority_;

  // Queue. Producers append to incoming_ under mutex_; the worker swaps the whole vector out.
  std::mutex mutex_;
  std::condition_variable wake_;   // the worker sleeps here
  std::condition_variable space_;  // producers sleep here when the queue is full
  std::vector<Entry> incoming_;
  FuzzRandom fuzz_;
  bool was_idle_ = true;      // before the batch; the worker's own
  std::vector<Entry> batch_;  // the worker's own; a member so that a forked child still owns it
  bool sleeping_ = false;
  bool closing_ = false;
  bool started_ = false;
  int waiting_for_space_ = 0;
  std::thread worker_;
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<bool> aborted_{false};

  // Synchronisation. The worker notifies once completed_ reaches the smallest awaited count.
  std::mutex sync_mutex_;
  std::condition_variable sync_;
  std::atomic<uint64_t> awaited_{UINT64_MAX};
  std::vector<uint64_t> targets_;

  // Failure of a task.
  std::atomic<bool> failed_{false};
  std::atomic<bool> stop_on_failure_{true};
  std::mutex failure_mutex_;
  int failure_code_ = 0;
  std::string failure_text_;

  // Where the worker waits, for Abort.
  std::mutex blocked_mutex_;
  std::shared_ptr<SyncPoint> blocked_on_;

  std::atomic<Mode> mode_{Mode::kQueue};
  mutable std::mutex mode_mutex_;
  std::shared_ptr<Capture> capture_;
  std::shared_ptr<TaskGroup> update_group_;
  std::vector<NamedTask> update_tasks_;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_STREAM_H_
