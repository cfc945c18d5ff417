// Streams: order, asynchrony, failures, limits, callbacks.
#include "libs/hostcann/acl/stream.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/config.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

TEST_F(AclTest, RunsTasksInOrder) {
  std::vector<int> order;
  for (int i = 0; i < 2000; ++i) ASSERT_ACL_OK(Submit(a_, "task", [&order, i] { order.push_back(i); }));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_EQ(order.size(), 2000u);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(order[i], i);
}

TEST_F(AclTest, SubmitReturnsBeforeTheTaskRuns) {
  std::atomic<bool> ran{false};
  Gate gate(a_);
  ASSERT_ACL_OK(Submit(a_, "task", [&] { ran = true; }));
  int32_t status = -1;
  ASSERT_ACL_OK(aclrtStreamQuery(a_, &status));
  EXPECT_EQ(status, 1) << "not ready";
  EXPECT_FALSE(ran);
  gate.Open();
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_TRUE(ran);
  ASSERT_ACL_OK(aclrtStreamQuery(a_, &status));
  EXPECT_EQ(status, 0);
}

TEST_F(AclTest, StreamsDoNotWaitForEachOther) {
  Gate gate(a_);
  std::atomic<bool> ran{false};
  ASSERT_ACL_OK(Submit(b_, "task", [&] { ran = true; }));
  ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
  EXPECT_TRUE(ran);
}

TEST_F(AclTest, ManyThreadsSubmitToOneStream) {
  int count = 0;  // unguarded on purpose: one worker runs all tasks
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) ASSERT_ACL_OK(Submit(a_, "count", [&] { ++count; }));
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(count, 20000);
}

TEST_F(AclTest, SynchronizeTimesOut) {
  Gate gate(a_);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, 20), 507046);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("did not finish within 20 ms; 1 tasks are left"));
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(20), 507046);
  gate.Open();
  EXPECT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
}

TEST_F(AclTest, SynchronizeDeviceWaitsForEveryStream) {
  std::atomic<int> ran{0};
  for (void* stream : {a_, b_, c_, static_cast<void*>(nullptr)}) {
    ASSERT_ACL_OK(Submit(stream, "task", [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++ran;
    }));
  }
  ASSERT_ACL_OK(aclrtSynchronizeDevice());
  EXPECT_EQ(ran, 4);
}

TEST_F(AclTest, AFailureSkipsWhatFollowsAndIsToldOnce) {
  ASSERT_ACL_OK(aclrtSetStreamFailureMode(a_, 1));
  std::atomic<bool> ran{false};
  Gate gate(a_);
  ASSERT_ACL_OK(Submit(a_, "aclnnBroken", [] { throw std::runtime_error("shape [2, 3] does not match [4]"); }));
  ASSERT_ACL_OK(Submit(a_, "after", [&] { ran = true; }));
  gate.Open();
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("aclnnBroken: shape [2, 3] does not match [4]"));
  EXPECT_FALSE(ran);
  EXPECT_EQ(aclrtPeekAtLastError(0), 507015);
  EXPECT_EQ(aclrtGetLastError(0), 507015);
  EXPECT_EQ(aclrtPeekAtLastError(0), 0);
  // Once told, the stream works again.
  ASSERT_ACL_OK(Submit(a_, "later", [&] { ran = true; }));
  EXPECT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_TRUE(ran);
}

TEST_F(AclTest, AStreamTellsItsAttributes) {
  void* stream = nullptr;
  AclStreamAttribute value{};
  ASSERT_ACL_OK(aclrtCreateStreamWithConfig(&stream, /*priority=*/5, 0));
  ASSERT_ACL_OK(aclrtGetStreamAttribute(stream, 5, &value));
  EXPECT_EQ(value.values[0], 5u);
  for (const uint32_t mode : {0u, 1u}) {
    value.values[0] = mode;
    ASSERT_ACL_OK(aclrtSetStreamAttribute(stream, 1, &value));
    ASSERT_ACL_OK(aclrtGetStreamAttribute(stream, 1, &value));
    EXPECT_EQ(value.values[0], mode);
  }
  EXPECT_EQ(aclrtGetStreamAttribute(stream, 99, &value), 107000);
  EXPECT_ACL_OK(aclrtDestroyStream(stream));
}

TEST_F(AclTest, ContinueOnFailureRunsWhatFollows) {
  ASSERT_ACL_OK(aclrtSetStreamFailureMode(a_, 0));
  std::atomic<bool> ran{false};
  ASSERT_ACL_OK(Submit(a_, "broken", [] { throw std::runtime_error("no"); }));
  ASSERT_ACL_OK(Submit(a_, "after", [&] { ran = true; }));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_TRUE(ran);
}

TEST_F(AclTest, AnEventBehindAFailureIsStillReached) {
  void* event = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 1));
  ASSERT_ACL_OK(Submit(a_, "broken", [] { throw std::runtime_error("no"); }));
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(b_, event));
  EXPECT_ACL_OK(aclrtSynchronizeStreamWithTimeout(b_, 10000));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(AclTest, ErrorsOfOneThreadAreNotSeenByAnother) {
  EXPECT_EQ(aclrtSetDevice(77), 107001);
  std::string other;
  std::thread([&] { other = aclGetRecentErrMsg(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("device 77 does not exist: there are 2"));
  EXPECT_STREQ(aclGetRecentErrMsg(), "") << "asking clears the text";
}

TEST_F(AclTest, RecentErrorsComeNewestFirst) {
  SetRecentError("first");
  SetRecentError("second");
  EXPECT_STREQ(aclGetRecentErrMsg(), "second\nfirst\n");
  for (int i = 0; i < 1000; ++i) SetRecentError("a long message, which must not grow without limit " + std::to_string(i));
  const std::string text = aclGetRecentErrMsg();
  EXPECT_LT(text.size(), 5000u);
  EXPECT_THAT(text, testing::StartsWith("a long message, which must not grow without limit 999"));
}

TEST_F(AclTest, RefusesStaleAndForeignHandles) {
  void* stream = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  ASSERT_ACL_OK(aclrtDestroyStream(stream));
  EXPECT_EQ(aclrtSynchronizeStream(stream), 107017);
  EXPECT_EQ(aclrtDestroyStream(stream), 107017);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("destroyed before"));
  int foreign = 0;
  EXPECT_EQ(Submit(&foreign, "task", [] {}), 107017);
}

TEST_F(AclTest, DestroyLetsQueuedWorkFinish) {
  void* stream = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  std::promise<void> ran;
  {
    Gate gate(stream);
    ASSERT_ACL_OK(Submit(stream, "task", [&] { ran.set_value(); }));
    ASSERT_ACL_OK(aclrtDestroyStream(stream)) << "must not wait for the gate";
  }
  EXPECT_EQ(ran.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST_F(AclTest, ForcedDestroyDropsQueuedWorkAndWakesAWait) {
  void *stream = nullptr, *event = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&event, 0x20));  // a flag that nobody sets
  std::atomic<bool> ran{false};
  ASSERT_ACL_OK(aclrtStreamWaitEvent(stream, event));
  ASSERT_ACL_OK(Submit(stream, "task", [&] { ran = true; }));
  ASSERT_ACL_OK(aclrtDestroyStreamForce(stream));
  EXPECT_FALSE(ran);
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(AclTest, StreamsAreLimited) {
  uint32_t available = 0;
  ASSERT_ACL_OK(aclrtGetStreamAvailableNum(&available));
  std::vector<void*> streams(available);
  for (void*& stream : streams) ASSERT_ACL_OK(aclrtCreateStream(&stream));
  void* extra = nullptr;
  EXPECT_EQ(aclrtCreateStream(&extra), 207008);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("all 2048 streams are in use"));
  for (void* stream : streams) ASSERT_ACL_OK(aclrtDestroyStream(stream));
  EXPECT_ACL_OK(aclrtCreateStream(&extra));
  EXPECT_ACL_OK(aclrtDestroyStream(extra));
}

TEST_F(AclTest, AThreadWithoutADeviceHasNoDefaultStream) {
  std::thread([] {
    int32_t device = -1;
    EXPECT_EQ(aclrtGetDevice(&device), 107002);
    EXPECT_EQ(Submit(nullptr, "task", [] {}), 107002);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("call aclrtSetDevice first"));
    void* context = nullptr;
    EXPECT_EQ(aclrtGetCurrentContext(&context), 107002);
    EXPECT_ACL_OK(aclrtSetDevice(1));
    EXPECT_ACL_OK(Submit(nullptr, "task", [] {}));
    EXPECT_ACL_OK(aclrtSynchronizeStream(nullptr));
  }).join();
}

TEST_F(AclTest, AWorkerHasTheDeviceOfItsStream) {
  ASSERT_ACL_OK(aclrtSetDevice(1));
  void* stream = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  ASSERT_ACL_OK(aclrtSetDevice(0));
  int32_t device = -1;
  ASSERT_ACL_OK(Submit(stream, "task", [&] { aclrtGetDevice(&device); }));
  ASSERT_ACL_OK(aclrtSynchronizeStream(stream));
  EXPECT_EQ(device, 1);
  EXPECT_ACL_OK(aclrtDestroyStreamForce(stream));
}

TEST_F(AclTest, ATaskCannotWaitForItsOwnStream) {
  int code = 0;
  ASSERT_ACL_OK(Submit(a_, "task", [&] { code = aclrtSynchronizeStream(a_); }));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(code, 507000);
}

struct CallbackLog {
  std::atomic<int> runs{0};
  std::thread::id thread;
};
void LogCallback(void* data) {
  auto* log = static_cast<CallbackLog*>(data);
  log->thread = std::this_thread::get_id();
  ++log->runs;
}

TEST_F(AclTest, CallbacksRunInTheThreadThatSubscribed) {
  CallbackLog log;
  EXPECT_EQ(aclrtLaunchCallback(&LogCallback, &log, 1, a_), 107015) << "nobody subscribed";
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> thread_id{0};
  std::thread thread([&] {
    thread_id = static_cast<uint64_t>(pthread_self());
    while (!stop) aclrtProcessReport(10);
  });
  while (thread_id == 0) std::this_thread::yield();
  ASSERT_ACL_OK(aclrtSubscribeReport(thread_id, a_));
  EXPECT_EQ(aclrtSubscribeReport(thread_id, a_), 107011) << "subscribed already";
  std::atomic<int> seen{-1};
  ASSERT_ACL_OK(aclrtLaunchCallback(&LogCallback, &log, /*block=*/1, a_));
  ASSERT_ACL_OK(Submit(a_, "after", [&] { seen = log.runs.load(); }));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(seen, 1) << "a blocking callback holds the stream until it has run";
  EXPECT_EQ(log.thread, thread.get_id());
  EXPECT_ACL_OK(aclrtUnSubscribeReport(thread_id, a_));
  stop = true;
  thread.join();
}

TEST_F(AclTest, HostFunctionsRunInStreamOrder) {
  CallbackLog log;
  ASSERT_ACL_OK(aclrtLaunchHostFunc(a_, &LogCallback, &log));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(log.runs, 1);
}

TEST_F(AclTest, AnAbortedStreamTakesABlockedCallbackBack) {
  CallbackLog log;
  ASSERT_ACL_OK(aclrtSubscribeReport(12345, a_));  // a thread that never processes
  ASSERT_ACL_OK(aclrtLaunchCallback(&LogCallback, &log, /*block=*/1, a_));
  EXPECT_ACL_OK(aclrtUnSubscribeReport(12345, a_));
  ASSERT_ACL_OK(aclrtStreamAbort(a_));  // must not hang
  EXPECT_EQ(log.runs, 0);
}

TEST(ComputeExecutorTest, CoversTheRangeFromASeveralStreamsAtOnce) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  void* streams[2];
  std::atomic<int64_t> sums[2] = {};
  for (int s = 0; s < 2; ++s) {
    ASSERT_ACL_OK(aclrtCreateStream(&streams[s]));
    ASSERT_ACL_OK(Submit(streams[s], "loop", [&sums, s] {
      ComputeExecutor().ParallelFor(10000, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sums[s] += i;
      });
    }));
  }
  for (int s = 0; s < 2; ++s) {
    ASSERT_ACL_OK(aclrtSynchronizeStream(streams[s]));
    EXPECT_EQ(sums[s], 10000 * 9999 / 2);
    EXPECT_ACL_OK(aclrtDestroyStream(streams[s]));
  }
  EXPECT_EQ(ComputeExecutor().num_workers(), 2);
}

}  // namespace
}  // namespace jumar::hostcann
