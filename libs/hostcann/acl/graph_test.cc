// Capture, replay, update, and what a capture refuses.
#include "libs/hostcann/acl/graph.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

constexpr int32_t kGlobal = 0;
constexpr int32_t kThreadLocal = 1;
constexpr int32_t kRelaxed = 2;

class GraphTest : public AclTest {
 protected:
  void* Capture(const std::function<void()>& body, int32_t mode = kGlobal) {
    void* graph = nullptr;
    EXPECT_ACL_OK(aclmdlRICaptureBegin(a_, mode));
    body();
    EXPECT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
    return graph;
  }
  void Replay(void* graph, void* stream) {
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, stream));
    ASSERT_ACL_OK(aclrtSynchronizeStream(stream));
  }
  int32_t Status(void* stream, void** graph = nullptr) {
    int32_t status = -1;
    EXPECT_ACL_OK(aclmdlRICaptureGetInfo(stream, &status, graph));
    return status;
  }
};

TEST_F(GraphTest, RecordsWithoutRunningAndRunsAtEveryReplay) {
  std::vector<int> log;
  void* graph = Capture([&] {
    for (int i = 0; i < 3; ++i) ASSERT_ACL_OK(Submit(a_, "op", [&log, i] { log.push_back(i); }));
  });
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_TRUE(log.empty());
  Replay(graph, a_);
  Replay(graph, b_);
  EXPECT_THAT(log, testing::ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, CapturesCopiesThatReadTheirSourceAtReplay) {
  void* pinned = nullptr;
  ASSERT_ACL_OK(aclrtMallocHost(&pinned, 4096));
  DeviceBuffer<int> device(1024);
  void* graph = Capture([&] {
    ASSERT_ACL_OK(aclrtMemcpyAsync(device.get(), 4096, pinned, 4096, 1, a_));
    ASSERT_ACL_OK(aclrtMemsetAsync(device.get(), 4096, 0xff, 8, a_));
  });
  for (int value : {5, 6}) {
    for (int i = 0; i < 1024; ++i) static_cast<int*>(pinned)[i] = value;
    Replay(graph, b_);
    int got[1024];
    ASSERT_ACL_OK(aclrtMemcpy(got, sizeof(got), device.get(), sizeof(got), 2));
    EXPECT_EQ(got[0], -1);
    EXPECT_EQ(got[2], value);
  }
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_ACL_OK(aclrtFreeHost(pinned));
}

TEST_F(GraphTest, TellsTheStatusAndTheGraph) {
  EXPECT_EQ(Status(a_), 0);
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  void *during = nullptr, *graph = nullptr;
  EXPECT_EQ(Status(a_, &during), 1);
  EXPECT_EQ(Status(b_), 0);
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  EXPECT_EQ(graph, during);
  uint32_t id = 0;
  EXPECT_ACL_OK(aclmdlRIGetId(graph, &id));
  EXPECT_GT(id, 0u);
  EXPECT_EQ(Status(a_), 0);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_EQ(aclmdlRIDestroy(graph), 107017);
}

TEST_F(GraphTest, EventsForkAndJoinStreamsInACapture) {
  int x = 1, y = 0, z = 0;
  void *fork = nullptr, *join = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&fork, 1));
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&join, 1));
  void* graph = Capture([&] {
    ASSERT_ACL_OK(Submit(a_, "x", [&] { x *= 2; }));
    ASSERT_ACL_OK(aclrtRecordEvent(fork, a_));
    ASSERT_ACL_OK(aclrtStreamWaitEvent(b_, fork));
    EXPECT_EQ(Status(b_), 1) << "the wait brings the stream into the capture";
    ASSERT_ACL_OK(Submit(b_, "y", [&] { y = x + 1; }));
    ASSERT_ACL_OK(aclrtRecordEvent(join, b_));
    ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, join));
    ASSERT_ACL_OK(Submit(a_, "z", [&] { z = x + y; }));
  });
  EXPECT_EQ(Status(b_), 0);
  EXPECT_EQ(z, 0);
  Replay(graph, c_);
  EXPECT_EQ(z, 2 + 3);
  Replay(graph, c_);
  EXPECT_EQ(z, 4 + 5);
  // The events are free for ordinary use afterwards.
  ASSERT_ACL_OK(aclrtRecordEvent(fork, b_));
  EXPECT_ACL_OK(aclrtSynchronizeEvent(fork));
  for (void* event : {fork, join}) EXPECT_ACL_OK(aclrtDestroyEvent(event));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, RefusesAForkThatIsNotJoined) {
  void *fork = nullptr, *graph = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&fork, 1));
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  ASSERT_ACL_OK(aclrtRecordEvent(fork, a_));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(b_, fork));
  ASSERT_ACL_OK(Submit(b_, "lost", [] {}));
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 107025);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("nothing joins"));
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(Status(b_), 0) << "the stream is free again";
  EXPECT_ACL_OK(aclrtSynchronizeStream(b_));
  EXPECT_ACL_OK(aclrtDestroyEvent(fork));
}

TEST_F(GraphTest, RefusesAWaitForSomethingOutside) {
  void *event = nullptr, *graph = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 1));
  ASSERT_ACL_OK(aclrtRecordEvent(event, b_));
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  EXPECT_EQ(aclrtStreamWaitEvent(a_, event), 107024);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("recorded outside of the capture"));
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 507903);
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(GraphTest, SynchronisingACapturedStreamIsRefusedAndInvalidates) {
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kRelaxed));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 107027);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("is being captured"));
  EXPECT_EQ(Status(a_), 2) << "invalidated";
  EXPECT_EQ(Submit(a_, "op", [] {}), 507903);
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 507903);
  EXPECT_ACL_OK(Submit(a_, "op", [] {}));
  EXPECT_ACL_OK(aclrtSynchronizeStream(a_));
}

TEST_F(GraphTest, ACapturedEventCannotBeWaitedForByTheHost) {
  void *event = nullptr, *graph = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 1));
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  ASSERT_ACL_OK(aclrtRecordEvent(event, a_));
  EXPECT_EQ(aclrtSynchronizeEvent(event), 107028);
  int32_t status;
  EXPECT_EQ(aclrtQueryEventStatus(event, &status), 107028);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("can neither be waited for nor queried"));
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(GraphTest, ACapturedStreamCannotBeDestroyedOrAborted) {
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  EXPECT_EQ(aclrtDestroyStream(a_), 107027);
  EXPECT_EQ(aclrtDestroyStreamForce(a_), 107027);
  EXPECT_EQ(aclrtStreamAbort(a_), 107027);
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 507903);
}

TEST_F(GraphTest, UnsafeCallsFollowTheCaptureMode) {
  DeviceBuffer<char> device(64);
  char host[64] = {};
  const auto unsafe = [&] { return aclrtMemcpy(device.get(), 64, host, 64, 1); };
  const auto unsafe_elsewhere = [&] {
    int code = -1;
    std::thread([&] { code = unsafe(); }).join();
    return code;
  };
  struct Case {
    int32_t mode;
    bool own, other;  // allowed in the capturing thread, in another
  };
  for (const Case& c : {Case{kGlobal, false, false}, Case{kThreadLocal, false, true}, Case{kRelaxed, true, true}}) {
    for (const bool own : {true, false}) {
      void* graph = nullptr;
      ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, c.mode));
      const bool allowed = own ? c.own : c.other;
      EXPECT_EQ(own ? unsafe() : unsafe_elsewhere(), allowed ? 0 : 107030) << "mode " << c.mode << " own " << own;
      EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), allowed ? 0 : 507903);
      if (graph != nullptr) {
        EXPECT_ACL_OK(aclmdlRIDestroy(graph));
      }
    }
  }
}

TEST_F(GraphTest, AThreadMayExchangeItsMode) {
  DeviceBuffer<char> device(64);
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  int32_t mode = kRelaxed;
  ASSERT_ACL_OK(aclmdlRICaptureThreadExchangeMode(&mode));
  EXPECT_EQ(mode, kGlobal);
  EXPECT_ACL_OK(aclrtMemset(device.get(), 64, 0, 64));
  ASSERT_ACL_OK(aclmdlRICaptureThreadExchangeMode(&mode));
  EXPECT_EQ(mode, kRelaxed);
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  mode = 9;
  EXPECT_EQ(aclmdlRICaptureThreadExchangeMode(&mode), 107000);
}

TEST_F(GraphTest, PageableMemoryInACaptureIsRefused) {
  DeviceBuffer<char> device(64);
  char host[64] = {};
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  EXPECT_EQ(aclrtMemcpyAsync(device.get(), 64, host, 64, 1, a_), 107041);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("pageable host memory"));
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 507903);
}

TEST_F(GraphTest, DeviceSynchronisationIsRefused) {
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kGlobal));
  EXPECT_EQ(aclrtSynchronizeDevice(), 107027);
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 507903);
}

TEST_F(GraphTest, BeginAndEndCheckStreamAndThread) {
  void* graph = nullptr;
  EXPECT_EQ(aclmdlRICaptureBegin(nullptr, kGlobal), 107000);
  EXPECT_EQ(aclmdlRICaptureBegin(a_, 7), 107000);
  EXPECT_EQ(aclmdlRICaptureEnd(a_, &graph), 107029);
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, kThreadLocal));
  EXPECT_EQ(aclmdlRICaptureBegin(a_, kGlobal), 107027);
  EXPECT_EQ(aclmdlRICaptureEnd(b_, &graph), 107029);
  int code = 0;
  std::thread([&] { code = aclmdlRICaptureEnd(a_, &graph); }).join();
  EXPECT_EQ(code, 107038);
  EXPECT_EQ(aclrtDestroyStream(a_), 107027);
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, ATaskGroupIsReplaced) {
  int before = 0, value = 0, after = 0;
  void* group = nullptr;
  void* graph = Capture([&] {
    ASSERT_ACL_OK(Submit(a_, "before", [&] { ++before; }));
    ASSERT_ACL_OK(aclmdlRICaptureTaskGrpBegin(a_));
    ASSERT_ACL_OK(Submit(a_, "attention", [&] { value = 1; }));
    ASSERT_ACL_OK(aclmdlRICaptureTaskGrpEnd(a_, &group));
    ASSERT_ACL_OK(Submit(a_, "after", [&] { after = value; }));
  });
  Replay(graph, a_);
  EXPECT_EQ(after, 1);
  ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateBegin(b_, group));
  ASSERT_ACL_OK(Submit(b_, "attention", [&] { value = 2; }));
  ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateEnd(b_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
  EXPECT_EQ(value, 1) << "an update does not run the task";
  Replay(graph, a_);
  EXPECT_EQ(after, 2);
  EXPECT_EQ(before, 2);

  ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateBegin(b_, group));
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(b_), 107040);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("has 1 tasks and the update brings 0"));
  ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateBegin(b_, group));
  ASSERT_ACL_OK(Submit(b_, "matmul", [] {}));
  EXPECT_EQ(aclmdlRICaptureTaskUpdateEnd(b_), 107040);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("captured as attention and cannot become matmul"));
  Replay(graph, a_);
  EXPECT_EQ(after, 2) << "a refused update changes nothing";

  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_EQ(aclmdlRICaptureTaskUpdateBegin(b_, group), 107017) << "the group ends with its graph";
}

TEST_F(GraphTest, AnExternalEventHoldsAReplayUntilTheUpdate) {
  int value = 0;
  std::vector<int> seen;
  void *event = nullptr, *group = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&event, 0x20));
  void* graph = Capture([&] {
    ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, event));
    ASSERT_ACL_OK(aclrtResetEvent(event, a_));
    ASSERT_ACL_OK(aclmdlRICaptureTaskGrpBegin(a_));
    ASSERT_ACL_OK(Submit(a_, "op", [&] { value = 0; }));
    ASSERT_ACL_OK(aclmdlRICaptureTaskGrpEnd(a_, &group));
    ASSERT_ACL_OK(Submit(a_, "log", [&] { seen.push_back(value); }));
  });
  for (int round = 1; round <= 20; ++round) {
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));  // launched first, as serving engines do
    ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateBegin(b_, group));
    ASSERT_ACL_OK(Submit(b_, "op", [&value, round] { value = round; }));
    ASSERT_ACL_OK(aclmdlRICaptureTaskUpdateEnd(b_));
    ASSERT_ACL_OK(aclrtRecordEvent(event, b_));
    ASSERT_ACL_OK(aclrtSynchronizeStreamWithTimeout(a_, 10000));
  }
  ASSERT_EQ(seen.size(), 20u);
  for (int round = 1; round <= 20; ++round) EXPECT_EQ(seen[round - 1], round);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

TEST_F(GraphTest, DestroyWithQueuedReplaysLetsThemRun) {
  int runs = 0;
  void* graph = Capture([&] { ASSERT_ACL_OK(Submit(a_, "op", [&] { ++runs; })); });
  {
    Gate gate(a_);
    for (int i = 0; i < 3; ++i) ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
    ASSERT_ACL_OK(aclmdlRIDestroy(graph));
  }
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(aclmdlRIExecuteAsync(graph, a_), 107017);
}

TEST_F(GraphTest, AFailingNodeIsNamed) {
  void* graph = Capture([&] {
    ASSERT_ACL_OK(Submit(a_, "fine", [] {}));
    ASSERT_ACL_OK(Submit(a_, "aclnnBad", [] { throw std::runtime_error("divided by zero"); }));
  });
  ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
  EXPECT_EQ(aclrtSynchronizeStream(a_), 507015);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("graph replay: node 1 (aclnnBad): divided by zero"));
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, OneGraphOnTwoStreamsRunsOneReplayAtATime) {
  int inside = 0, worst = 0;  // unguarded: replays must not overlap
  void* graph = Capture([&] {
    ASSERT_ACL_OK(Submit(a_, "enter", [&] { worst = std::max(worst, ++inside); }));
    ASSERT_ACL_OK(Submit(a_, "leave", [&] { --inside; }));
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, a_));
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, b_));
  }
  ASSERT_ACL_OK(aclrtSynchronizeDevice());
  EXPECT_EQ(worst, 1);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, WritesItsNodesAsJson) {
  void* graph = Capture([&] {
    ASSERT_ACL_OK(Submit(a_, "aclnnAdd", [] {}));
    ASSERT_ACL_OK(Submit(a_, "aclnnMul", [] {}));
  });
  const std::string path = testing::TempDir() + "/graph.json";
  ASSERT_ACL_OK(aclmdlRIDebugJsonPrint(graph, path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), testing::AllOf(HasSubstr("\"name\": \"aclnnAdd\""), HasSubstr("\"Task Id\": 1"), HasSubstr("aclnnMul")));
  EXPECT_EQ(aclmdlRIDebugJsonPrint(graph, "/no/such/folder/graph.json", 0), 107010);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(GraphTest, ForcedDestroyWakesAReplayThatWaits) {
  void *event = nullptr, *stream = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&event, 0x20));
  bool after = false;
  void* graph = Capture([&] {
    ASSERT_ACL_OK(aclrtStreamWaitEvent(a_, event));
    ASSERT_ACL_OK(Submit(a_, "after", [&] { after = true; }));
  });
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, stream));
  ASSERT_ACL_OK(aclrtDestroyStreamForce(stream));
  EXPECT_FALSE(after);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

}  // namespace
}  // namespace jumar::hostcann
