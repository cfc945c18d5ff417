// Events: order across streams, timing, queries, both kinds, values in memory.
#include "libs/hostcann/acl/event.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

constexpr uint32_t kSync = 0x1;
constexpr uint32_t kTimeLine = 0x8;
constexpr uint32_t kExternal = 0x20;

class EventTest : public AclTest {
 protected:
  void* Make(uint32_t flags = kSync) {
    void* event = nullptr;
    EXPECT_ACL_OK(aclrtCreateEventExWithFlag(&event, flags));
    return event;
  }
  int32_t Status(void* event) {
    int32_t status = -1;
    EXPECT_ACL_OK(aclrtQueryEventStatus(event, &status));
    return status;
  }
};

TEST_F(EventTest, OrdersOneStreamAfterAnother) {
  for (int round = 0; round < 200; ++round) {
    int value = 0;  // written by one stream, read by another: a race without the event
    int seen = -1;
    void* event = Make();
    ASSERT_ACL_OK(Submit(a_, "write", [&] { value = 42; }));
    ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
    ASSERT_ACL_OK(aclrtStreamWaitEvent(b_, event));
    ASSERT_ACL_OK(Submit(b_, "read", [&] { seen = value; }));
    ASSERT_ACL_OK(aclrtDestroyEvent(event)) << "with the wait still queued";
    ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
    ASSERT_EQ(seen, 42);
  }
}

TEST_F(EventTest, AWaitMeansTheRecordBeforeIt) {
  void* event = Make();
  Gate first(a_);
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(b_, event));
  Gate second(a_);
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));  // a later record must not hold the earlier wait
  first.Open();
  EXPECT_ACL_OK(aclrtSynchronizeStreamWithTimeout(b_, 10000));
  EXPECT_EQ(Status(event), 0) << "the second record has not run";
  second.Open();
  EXPECT_ACL_OK(aclrtSynchronizeEvent(event));
  EXPECT_EQ(Status(event), 1);
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(EventTest, AnEventThatWasNeverRecordedHoldsNobody) {
  void* event = Make();
  EXPECT_EQ(Status(event), 1);
  ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, event));
  EXPECT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
  EXPECT_ACL_OK(aclrtSynchronizeEvent(event));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(EventTest, SynchronizeTimesOut) {
  void* event = Make();
  Gate gate(a_);
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  EXPECT_EQ(aclrtSynchronizeEventWithTimeout(event, 10), 507047);
  gate.Open();
  EXPECT_ACL_OK(aclrtSynchronizeEventWithTimeout(event, 10000));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(EventTest, MeasuresTheTimeBetweenTwoMarks) {
  void* start = Make(kSync | kTimeLine);
  void* end = Make(kSync | kTimeLine);
  const auto host_start = std::chrono::steady_clock::now();
  ASSERT_ACL_OK(aclrtRecordEvent(start, a_));
  ASSERT_ACL_OK(Submit(a_, "sleep", [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }));
  ASSERT_ACL_OK(aclrtRecordEvent(end, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  const double host_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - host_start).count();
  float ms = 0;
  ASSERT_ACL_OK(aclrtEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 30);       // the sleep lies between the marks
  EXPECT_LE(ms, host_ms);  // and both within the host's interval
  uint64_t first = 0, second = 0;
  ASSERT_ACL_OK(aclrtEventGetTimestamp(start, &first));
  ASSERT_ACL_OK(aclrtEventGetTimestamp(end, &second));
  EXPECT_GE(second - first, 29999u);
  EXPECT_ACL_OK(aclrtDestroyEvent(start));
  EXPECT_ACL_OK(aclrtDestroyEvent(end));
}

TEST_F(EventTest, TimingNeedsATimeLineAndARecord) {
  void* plain = Make(kSync);
  void* timed = Make(kSync | kTimeLine);
  float ms = 0;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, timed, timed), 107006);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("never recorded"));
  ASSERT_ACL_OK(aclrtRecordEvent(plain, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(aclrtEventElapsedTime(&ms, plain, plain), 107006);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("enable_timing=True"));
  EXPECT_ACL_OK(aclrtDestroyEvent(plain));
  EXPECT_ACL_OK(aclrtDestroyEvent(timed));
}

TEST_F(EventTest, AFlagEventWaitsForALaterRecordAndResets) {
  void* event = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&event, kExternal));
  std::atomic<int> passed{0};
  for (int round = 0; round < 3; ++round) {
    ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, event));
    ASSERT_ACL_OK(aclrtResetEvent(event, a_));
    ASSERT_ACL_OK(Submit(a_, "pass", [&] { ++passed; }));
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, 10), 507046) << "round " << round;
    EXPECT_EQ(passed, round);
    ASSERT_ACL_OK(aclrtRecordEvent(event, b_));
    ASSERT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
    EXPECT_EQ(passed, round + 1);
  }
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(EventTest, RefusesStaleEventsAndSharedOnes) {
  void* event = Make();
  ASSERT_ACL_OK(aclrtDestroyEvent(event));
  EXPECT_EQ(aclrtDestroyEvent(event), 107017);
  EXPECT_EQ(aclrtRecordEvent(event, a_), 107017);
  EXPECT_EQ(aclrtCreateEventExWithFlag(&event, 0x40), 207000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("ACL_EVENT_IPC"));
}

TEST_F(EventTest, AValueInMemoryHoldsAStream) {
  DeviceBuffer<uint64_t> value(4);
  std::atomic<bool> passed{false};
  ASSERT_ACL_OK(aclrtValueWait(value.get(), 1, /*equal=*/1, a_));
  ASSERT_ACL_OK(aclrtValueWrite(value.get(), 0, 0, a_));
  ASSERT_ACL_OK(Submit(a_, "pass", [&] { passed = true; }));
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, 10), 507046);
  EXPECT_FALSE(passed);
  ASSERT_ACL_OK(aclrtValueWrite(value.get(), 1, 0, b_));
  ASSERT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
  EXPECT_TRUE(passed);
  uint64_t host = 99;
  ASSERT_ACL_OK(aclrtMemcpy(&host, 8, value.get(), 8, 2));
  EXPECT_EQ(host, 0u);
}

TEST_F(EventTest, AValueWaitSeesACopyToo) {
  DeviceBuffer<uint64_t> value(1);
  ASSERT_ACL_OK(aclrtValueWait(value.get(), 7, /*at least=*/0, a_));
  const uint64_t nine = 9;
  ASSERT_ACL_OK(aclrtMemcpyAsync(value.get(), 8, &nine, 8, 1, b_));
  EXPECT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
}

TEST_F(EventTest, ValueCallsCheckTheAddress) {
  DeviceBuffer<uint64_t> value(2);
  EXPECT_EQ(aclrtValueWrite(reinterpret_cast<char*>(value.get()) + 4, 1, 0, a_), 107000);
  uint64_t host = 0;
  EXPECT_EQ(aclrtValueWait(&host, 1, 1, a_), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("neither device memory nor pinned"));
}

TEST_F(EventTest, TellsWhatFailedBeforeIt) {
  void* event = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 0));
  ASSERT_ACL_OK(Submit(a_, "aclnnBroken", [] { throw std::runtime_error("no"); }));
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  EXPECT_EQ(aclrtSynchronizeEvent(event), 507015);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("failed in aclnnBroken: no; the event stands behind that"));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  EXPECT_ACL_OK(aclrtSynchronizeEvent(event));
  ASSERT_ACL_OK(aclrtDestroyEvent(event));
}

}  // namespace
}  // namespace jumar::hostcann
