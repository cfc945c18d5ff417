// Notifies: order, time-outs, and what is refused; the time-out of waits for events.
#include "libs/hostcann/acl/notify.h"

#include <atomic>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

class NotifyTest : public AclTest {
 protected:
  void SetUp() override {
    AclTest::SetUp();
    ASSERT_ACL_OK(aclrtCreateNotify(&notify_, 0));
  }
  void TearDown() override {
    EXPECT_ACL_OK(aclrtDestroyNotify(notify_));
    AclTest::TearDown();
  }
  void* notify_ = nullptr;
};

TEST_F(NotifyTest, OrdersTwoStreamsAndTakesTheSignalBack) {
  int value = 0;  // a race without the notifies
  void* back = nullptr;
  ASSERT_ACL_OK(aclrtCreateNotify(&back, 0));
  for (int round = 1; round <= 100; ++round) {
    int seen = -1;
    ASSERT_ACL_OK(aclrtWaitAndResetNotify(notify_, b_, 0));
    ASSERT_ACL_OK(Submit(b_, "read", [&] { seen = value; }));
    ASSERT_ACL_OK(aclrtRecordNotify(back, b_));
    ASSERT_ACL_OK(Submit(a_, "write", [&value, round] { value = round; }));
    ASSERT_ACL_OK(aclrtRecordNotify(notify_, a_));
    ASSERT_ACL_OK(aclrtWaitAndResetNotify(back, a_, 0));
    ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
    ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
    ASSERT_EQ(seen, round);
  }
  EXPECT_ACL_OK(aclrtDestroyNotify(back));
}

TEST_F(NotifyTest, AWaitTimesOutAsAnErrorOfTheStream) {
  std::atomic<bool> ran{false};
  ASSERT_ACL_OK(aclrtWaitAndResetNotify(notify_, a_, 10));
  ASSERT_ACL_OK(Submit(a_, "task", [&] { ran = true; }));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 107019);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("was not recorded within 10 ms"));
  EXPECT_FALSE(ran);
}

TEST_F(NotifyTest, AResetTakesTheSignalBack) {
  ASSERT_ACL_OK(aclrtRecordNotify(notify_, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtNotifyBatchReset(&notify_, 1));
  ASSERT_ACL_OK(aclrtWaitAndResetNotify(notify_, a_, 10));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 107019);
}

TEST_F(NotifyTest, HasANumberAndEndsWithItsHandle) {
  void* other = nullptr;
  uint32_t id = 0, other_id = 0;
  ASSERT_ACL_OK(aclrtCreateNotify(&other, 0));
  ASSERT_ACL_OK(aclrtGetNotifyId(notify_, &id));
  ASSERT_ACL_OK(aclrtGetNotifyId(other, &other_id));
  EXPECT_NE(id, other_id);
  ASSERT_ACL_OK(aclrtWaitAndResetNotify(other, a_, 0));
  ASSERT_ACL_OK(aclrtDestroyNotify(other)) << "with the wait still queued";
  EXPECT_EQ(aclrtDestroyNotify(other), 107017);
  EXPECT_EQ(aclrtRecordNotify(other, a_), 107017);
}

TEST_F(NotifyTest, IsNotSharedBetweenProcesses) {
  char key[65];
  EXPECT_EQ(aclrtNotifyGetExportKey(notify_, key, sizeof(key), 0), 207000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("aclrtNotifyGetExportKey: hostcann does not share notifies"));
}

TEST_F(NotifyTest, AGraphWaitsForANotifyFromOutside) {
  void* graph = nullptr;
  std::atomic<int> ran{0};
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, 1));
  ASSERT_ACL_OK(aclrtWaitAndResetNotify(notify_, a_, 0));
  ASSERT_ACL_OK(Submit(a_, "node", [&] { ++ran; }));
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  for (int i = 1; i <= 3; ++i) {
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
    EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, 10), 507046);
    ASSERT_ACL_OK(aclrtRecordNotify(notify_, b_));
    ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
    EXPECT_EQ(ran, i);
  }
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(NotifyTest, AWaitForAnEventHasATimeOutToo) {
  void* event = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&event, 0));
  ASSERT_ACL_OK(aclrtSetOpWaitTimeout(1));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, event));
  ASSERT_ACL_OK(aclrtSetOpWaitTimeout(0));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 107019);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("within the 1 s of aclrtSetOpWaitTimeout"));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

}  // namespace
}  // namespace jumar::hostcann
