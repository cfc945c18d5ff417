// Faults in the runtime: each ends in an error, and nothing hangs.
#include "libs/hostcann/acl/hooks.h"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FaultTest : public AclTest {
 protected:
  void Use(const std::string& text) {
    auto rules = ParseFaults(text);
    ASSERT_TRUE(rules.ok()) << rules.status();
    InstallFaults(*std::move(rules));
  }
  void TearDown() override {
    InstallFaults({});
    AclTest::TearDown();
  }
};

TEST_F(FaultTest, AnAllocationFailsLikeOneForWantOfMemory) {
  Use("fail-alloc nth=2 above=1000");
  void *small = nullptr, *first = nullptr, *second = nullptr;
  ASSERT_ACL_OK(aclrtMalloc(&small, 500, 0));
  ASSERT_ACL_OK(aclrtMallocAlign32(&first, 5000, 0));
  EXPECT_EQ(aclrtMalloc(&second, 5000, 0), 207001);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("EL0004: Failed to allocate"), HasSubstr("JUMAR_FAULTS rule 1, 'fail-alloc nth=2")));
  EXPECT_ACL_OK(aclrtMalloc(&second, 5000, 0));
  for (void* pointer : {small, first, second}) EXPECT_ACL_OK(aclrtFree(pointer));
}

TEST_F(FaultTest, PhysicalMemoryCountsToo) {
  Use("fail-alloc");
  AclPhysicalProperties properties{};
  properties.location.type = 1;
  void* handle = nullptr;
  EXPECT_EQ(aclrtMallocPhysical(&handle, 2 << 20, &properties, 0), 207001);
}

TEST_F(FaultTest, AnOperatorFailsAndTheStreamSkipsTheRest) {
  Use("fail-op op=aclnnB nth=2");
  std::string ran;
  for (const char* name : {"aclnnA", "aclnnB", "aclnnB", "aclnnA"}) {
    ASSERT_ACL_OK(Submit(a_, name, [&ran, name] { ran += name[5]; }));
  }
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("failed in aclnnB: the task failed as JUMAR_FAULTS rule 1, 'fail-op op=aclnnB nth=2' asks"));
  EXPECT_EQ(ran, "AB");
}

TEST_F(FaultTest, AnOperatorInAGraphFailsToo) {
  void* graph = nullptr;
  std::atomic<int> ran{0};
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, 1));
  for (const char* name : {"aclnnA", "aclnnB"}) ASSERT_ACL_OK(Submit(a_, name, [&ran] { ++ran; }));
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  Use("fail-op op=aclnnB nth=2");
  ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
  EXPECT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("node 1 (aclnnB): the task failed as JUMAR_FAULTS"));
  EXPECT_EQ(ran, 3);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(FaultTest, AStreamIsSlow) {
  int32_t id = -1;
  ASSERT_ACL_OK(aclrtStreamGetId(a_, &id));
  Use("slow-stream us=20000 stream=" + std::to_string(id));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_ACL_OK(Submit(a_, "task", [] {}));
  ASSERT_ACL_OK(Submit(a_, "task", [] {}));
  ASSERT_ACL_OK(Submit(b_, "task", [] {}));
  ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(40));
}

TEST_F(FaultTest, EveryCallOfALostDeviceFails) {
  DeviceBuffer<char> buffer(64);
  void *event = nullptr, *later = nullptr, *stream = nullptr, *memory = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 1));
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&later, 1));
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  Use("lose-device device=0 after=1");
  std::atomic<int> ran{0};
  Gate gate(b_);
  for (int i = 0; i < 3; ++i) ASSERT_ACL_OK(Submit(b_, "task", [&] { ++ran; }));
  gate.Open();
  EXPECT_EQ(aclrtSynchronizeStream(b_), 507010);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("device 0 is lost"), HasSubstr("JUMAR_FAULTS rule 1")));
  EXPECT_EQ(ran, 0) << "the gate was the one task before the loss";
  int32_t status;
  char host[64];
  EXPECT_EQ(Submit(a_, "task", [] {}), 507010);
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507010);
  EXPECT_EQ(aclrtSynchronizeDevice(), 507010);
  EXPECT_EQ(aclrtStreamQuery(a_, &status), 507010);
  EXPECT_EQ(aclrtRecordEvent(event, a_), 507010);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 507010);
  EXPECT_EQ(aclrtQueryEventStatus(event, &status), 507010);
  EXPECT_EQ(aclrtStreamWaitEvent(a_, later), 0) << "it was never recorded";
  EXPECT_EQ(aclrtMalloc(&memory, 64, 0), 507010);
  EXPECT_EQ(aclrtMemcpy(host, 64, buffer.get(), 64, 2), 507010);
  EXPECT_EQ(aclrtMemcpyAsync(host, 64, buffer.get(), 64, 2, a_), 507010);
  EXPECT_EQ(aclrtCreateStream(&stream), 507010);
  EXPECT_ACL_OK(aclrtSetDevice(0)) << "it is in use and only selected again";
  ASSERT_ACL_OK(aclrtSetDevice(1));
  ASSERT_ACL_OK(aclrtCreateStream(&stream)) << "the other device works";
  ASSERT_ACL_OK(Submit(stream, "task", [] {}));
  EXPECT_ACL_OK(aclrtSynchronizeStream(stream));
  EXPECT_ACL_OK(aclrtDestroyStream(stream));
  for (void* e : {event, later}) EXPECT_ACL_OK(aclrtDestroyEvent(e));
}

TEST_F(FaultTest, ALossFreesAStreamThatWaits) {
  Use("lose-device device=0");
  void* never = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&never, 0));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, never));
  std::thread([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that the stream waits, most times
    EXPECT_ACL_OK(Submit(b_, "task", [] {}));
  }).join();
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(a_, 20000), 507010);
  EXPECT_ACL_OK(aclrtDestroyEvent(never));
}

TEST_F(FaultTest, AFailureStopsTheDeviceUntilItIsReset) {
  InstallStopOnFailure(true);
  std::atomic<bool> ran{false};
  void* never = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&never, 0));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(c_, never));
  Gate gate(b_);
  ASSERT_ACL_OK(Submit(b_, "other", [&] { ran = true; }));
  ASSERT_ACL_OK(Submit(a_, "broken", [] { throw std::runtime_error("no"); }));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  gate.Open();
  for (void* stream : {a_, b_, c_}) EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 20000), 507015) << "it sticks";
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("device 0 has stopped, since stream"), HasSubstr("failed in broken: no")));
  EXPECT_FALSE(ran);
  EXPECT_EQ(Submit(b_, "other", [&] { ran = true; }), 507015);
  ASSERT_ACL_OK(aclrtResetDeviceForce(0));
  ASSERT_ACL_OK(aclrtSetDevice(0));
  void* fresh = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&fresh));
  ASSERT_ACL_OK(Submit(fresh, "other", [&] { ran = true; }));
  EXPECT_ACL_OK(aclrtSynchronizeStream(fresh));
  EXPECT_TRUE(ran);
  EXPECT_ACL_OK(aclrtDestroyStream(fresh));
  EXPECT_ACL_OK(aclrtDestroyEvent(never));
  InstallStopOnFailure(false);
}

TEST_F(FaultTest, AStreamThatContinuesOnFailureDoesNotStopTheDevice) {
  InstallStopOnFailure(true);
  ASSERT_ACL_OK(aclrtSetStreamFailureMode(a_, 0));
  ASSERT_ACL_OK(Submit(a_, "broken", [] { throw std::runtime_error("no"); }));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  ASSERT_ACL_OK(Submit(b_, "other", [] {}));
  EXPECT_ACL_OK(aclrtSynchronizeStream(b_));
  EXPECT_ACL_OK(aclrtSynchronizeStream(a_));
  InstallStopOnFailure(false);
}

TEST_F(FaultTest, CollectivesAreToldWhatToDo) {
  EXPECT_EQ(NextCollectiveFault("HcclAllReduce", 0).kind, CollectiveFault::kNone);
  Use("drop-collective op=HcclAllGather; corrupt-collective op=HcclAllReduce nth=2; delay-collective op=HcclSend ms=30; "
      "exit-collective op=HcclRecv rank=1 code=7");
  EXPECT_EQ(NextCollectiveFault("HcclAllGather", 0).kind, CollectiveFault::kDrop);
  EXPECT_EQ(NextCollectiveFault("HcclAllReduce", 0).kind, CollectiveFault::kNone);
  EXPECT_EQ(NextCollectiveFault("HcclAllReduce", 0).kind, CollectiveFault::kCorrupt);
  EXPECT_EQ(NextCollectiveFault("HcclSend", 1).delay_ms, 30);
  EXPECT_EQ(NextCollectiveFault("HcclRecv", 0).kind, CollectiveFault::kNone);
  const CollectiveFault exit = NextCollectiveFault("HcclRecv", 1);
  EXPECT_EQ(exit.kind, CollectiveFault::kExit);
  EXPECT_EQ(exit.exit_code, 7);
  EXPECT_THAT(exit.rule, HasSubstr("JUMAR_FAULTS rule 4"));
}

}  // namespace
}  // namespace jumar::hostcann
