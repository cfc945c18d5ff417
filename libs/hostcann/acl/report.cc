#include "libs/hostcann/acl/report.h"

#include <pthread.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/error.h"

namespace jumar::hostcann {
namespace {

struct Call {
  AclCallback callback = nullptr;
  void* user_data = nullptr;
  std::shared_ptr<SyncPoint> done_point;  // null when nobody waits
  bool* done = nullptr;                   // on the waiting worker's stack, guarded by done_point
};

// The mailbox of one thread that subscribed.
struct Mailbox {
  std::mutex mutex;
  std::condition_variable cv;
  std::deque<Call> calls;
};

struct Mailboxes {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<Mailbox>> by_thread;
  std::map<int, uint64_t> thread_of_stream;

  static Mailboxes& Get() {
    static auto* const boxes = new Mailboxes();
    return *boxes;
  }
};

std::shared_ptr<Mailbox> MailboxOfThread(uint64_t thread) {
  Mailboxes& boxes = Mailboxes::Get();
  std::lock_guard lock(boxes.mutex);
  const auto it = boxes.by_thread.find(thread);
  return it == boxes.by_thread.end() ? nullptr : it->second;
}

std::shared_ptr<Mailbox> MailboxOfStream(int stream) {
  Mailboxes& boxes = Mailboxes::Get();
  std::lock_guard lock(boxes.mutex);
  const auto it = boxes.thread_of_stream.find(stream);
  return it == boxes.thread_of_stream.end() ? nullptr : boxes.by_thread.at(it->second);
}

}  // namespace

int SubscribeReport(uint64_t thread, const Stream& stream) {
  Mailboxes& boxes = Mailboxes::Get();
  std::lock_guard lock(boxes.mutex);
  const auto [it, added] = boxes.thread_of_stream.emplace(stream.id(), thread);
  if (!added) {
    return Fail(kRtStreamSubscribe, absl::StrCat("stream ", stream.id(), " is subscribed by thread ", it->second, " already"));
  }
  auto& box = boxes.by_thread[thread];
  if (box == nullptr) box = std::make_shared<Mailbox>();
  return kOk;
}

int UnsubscribeReport(uint64_t thread, const Stream& stream) {
  Mailboxes& boxes = Mailboxes::Get();
  std::lock_guard lock(boxes.mutex);
  const auto it = boxes.thread_of_stream.find(stream.id());
  if (it == boxes.thread_of_stream.end() || it->second != thread) {
    return Fail(kRtStreamSubscribe, absl::StrCat("stream ", stream.id(), " is not subscribed by thread ", thread));
  }
  boxes.thread_of_stream.erase(it);
  return kOk;
}

int ProcessReport(int timeout_ms) {
  const std::shared_ptr<Mailbox> box = MailboxOfThread(static_cast<uint64_t>(pthread_self()));
  if (box == nullptr) {
    // A callback thread may get here before its subscription; it comes again.
    std::this_thread::sleep_for(std::chrono::milliseconds(timeout_ms < 0 ? 1 : std::min(timeout_ms, 10)));
    return kRtThreadSubscribe;
  }
  std::deque<Call> calls;
  {
    std::unique_lock lock(box->mutex);
    const auto some = [&] { return !box->calls.empty(); };
    if (timeout_ms < 0) {
      box->cv.wait(lock, some);
    } else if (!box->cv.wait_for(lock, std::chrono::milliseconds(timeout_ms), some)) {
      return kRtReportTimeout;
    }
    std::swap(calls, box->calls);
  }
  for (const Call& call : calls) {
    call.callback(call.user_data);
    if (call.done_point == nullptr) continue;
    std::lock_guard lock(call.done_point->mutex);
    *call.done = true;
    call.done_point->cv.notify_all();
  }
  return kOk;
}

int LaunchCallback(Stream& stream, AclCallback callback, void* user_data, bool block) {
  if (callback == nullptr) return Fail(kRtParamInvalid, "aclrtLaunchCallback needs a callback");
  std::shared_ptr<Mailbox> box = MailboxOfStream(stream.id());
  if (box == nullptr) {
    return Fail(kRtStreamNoCallback, absl::StrCat("no thread has subscribed to the callbacks of stream ", stream.id(),
                                                  "; call aclrtSubscribeReport first"));
  }
  const auto task = [box = std::move(box), callback, user_data, block] {
    bool done = false;
    Call call{callback, user_data, nullptr, nullptr};
    if (block) {
      call.done_point = std::make_shared<SyncPoint>();
      call.done = &done;
    }
    const std::shared_ptr<SyncPoint> point = call.done_point;
    {
      std::lock_guard lock(box->mutex);
      box->calls.push_back(call);
    }
    box->cv.notify_one();
    if (block && !Stream::Await(point, [&] { return done; })) {
      // Aborted: take the call back, since `done` ends here. A callback that runs right now is waited for.
      {
        std::lock_guard lock(box->mutex);
        for (auto it = box->calls.begin(); it != box->calls.end(); ++it) {
          if (it->done == &done) {
            box->calls.erase(it);
            return;
          }
        }
      }
      std::unique_lock lock(point->mutex);
      point->cv.wait(lock, [&] { return done; });
    }
  };
  return stream.Submit("callback", task, TaskKind::kControl);
}

}  // namespace jumar::hostcann
