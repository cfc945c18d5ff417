// What goes wrong between ranks is an error that tells who and what, and never a hang.
#include <atomic>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/hccl/handshake.h"
#include "libs/hostcann/hccl/rendezvous.h"
#include "libs/hostcann/hccl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int32_t kInt32 = 2, kFp32 = 4;

// Waits until the rank's stream has failed, and returns the text.
std::string Failure(const Rank& my) {
  EXPECT_EQ(aclrtSynchronizeStream(my.stream), 507015);
  return aclGetRecentErrMsg();
}

int32_t AsyncError(const Rank& my) {
  int32_t error = -1;
  EXPECT_HCCL_OK(HcclGetCommAsyncError(my.comm, &error));
  return error;
}

TEST(FailureTest, DifferentCollectivesNameBothSides) {
  RunRanks(2, [](Rank& my) {
    DeviceBuffer<float> buffer(8);
    if (my.rank == 0) {
      ASSERT_HCCL_OK(HcclAllReduce(buffer.get(), buffer.get(), 4, kFp32, 0, my.comm, my.stream));
    } else {
      ASSERT_HCCL_OK(HcclAllReduce(buffer.get(), buffer.get(), 4, kInt32, 2, my.comm, my.stream));
    }
    EXPECT_THAT(Failure(my), AllOf(HasSubstr("the ranks don't call the same collective"), HasSubstr("HcclAllReduce (4 x fp32, sum)"),
                                   HasSubstr("HcclAllReduce (4 x int32, maximum)"), HasSubstr("of 2")));
    EXPECT_NE(AsyncError(my), 0);
    ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    EXPECT_THAT(Failure(my), HasSubstr("the communicator has failed before"));
  });
}

TEST(FailureTest, AMessageOfAnotherLengthIsRefused) {
  RunRanks(2, [](Rank& my) {
    DeviceBuffer<float> buffer(8);
    if (my.rank == 0) {
      ASSERT_HCCL_OK(HcclSend(buffer.get(), 8, kFp32, 1, my.comm, my.stream));
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    } else {
      ASSERT_HCCL_OK(HcclRecv(buffer.get(), 4, kFp32, 0, my.comm, my.stream));
    }
    EXPECT_THAT(Failure(my), AllOf(HasSubstr("8 x fp32"), HasSubstr("4 x fp32")));
  });
}

TEST(FailureTest, ASilentRankIsNamedAfterTheTimeout) {
  setenv("HCCL_EXEC_TIMEOUT", "1", 1);
  std::atomic<int> failed{0};
  RunRanks(3, [&](Rank& my) {
    if (my.rank != 2) {
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
      // Both run out of time at once; the one that is first tells the other.
      EXPECT_THAT(Failure(my), AllOf(HasSubstr("HcclBarrier"), HasSubstr("no answer in time from rank(s) 2"), HasSubstr("rank ")));
      EXPECT_THAT(AsyncError(my), AnyOf(kHcclTimeout, kHcclRemote));
      ++failed;
    }
    while (failed < 2) std::this_thread::yield();
  });
  unsetenv("HCCL_EXEC_TIMEOUT");
}

TEST(FailureTest, ARankThatLeavesIsNamed) {
  RunRanks(2, [](Rank& my) {
    if (my.rank == 1) {
      ASSERT_HCCL_OK(HcclCommDestroy(my.comm));
      my.comm = nullptr;
      return;
    }
    ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    EXPECT_THAT(Failure(my), HasSubstr("rank 1 has destroyed its communicator"));
    EXPECT_EQ(AsyncError(my), kHcclRemote);
  });
}

TEST(FailureTest, DestroyWakesACollectiveThatWaits) {
  RunRanks(2, [](Rank& my) {
    if (my.rank == 0) {
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
      ASSERT_HCCL_OK(HcclCommDestroy(std::exchange(my.comm, nullptr)));
      EXPECT_THAT(Failure(my), HasSubstr("the communicator was destroyed"));
      return;
    }
    EXPECT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    (void)aclrtSynchronizeStream(my.stream);  // the other may be gone before it has said all
  });
}

TEST(FailureTest, AbortOfTheStreamWakesACollectiveThatWaits) {
  std::atomic<bool> aborted{false};
  RunRanks(2, [&](Rank& my) {
    if (my.rank == 0) {
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
      void* other = nullptr;
      ASSERT_ACL_OK(aclrtCreateStream(&other));
      ASSERT_HCCL_OK(HcclBarrier(my.comm, other));  // waits for the first one
      ASSERT_ACL_OK(aclrtDestroyStreamForce(other));
      ASSERT_ACL_OK(aclrtDestroyStreamForce(my.stream));
      ASSERT_ACL_OK(aclrtCreateStream(&my.stream));
      aborted = true;
    }
    while (!aborted) std::this_thread::yield();
    // Everybody can go on after that.
    ASSERT_HCCL_OK(HcclCommResume(my.comm));
    EXPECT_EQ(AsyncError(my), 0);
    Values<int32_t> one({1});
    ASSERT_HCCL_OK(HcclAllReduce(one.get(), one.get(), 1, kInt32, 0, my.comm, my.stream));
    my.Wait();
    EXPECT_EQ(one.Read()[0], 2);
  });
}

TEST(FailureTest, AWaitingCollectiveHoldsUpNoOtherStream) {
  RunRanks(2, [](Rank& my) {
    void* other = nullptr;
    ASSERT_ACL_OK(aclrtCreateStream(&other));
    std::atomic<bool> ran{false};
    if (my.rank == 0) {
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    }
    ASSERT_ACL_OK(Submit(other, "other", [&ran] { ran = true; }));
    ASSERT_ACL_OK(aclrtSynchronizeStream(other));
    EXPECT_TRUE(ran);
    if (my.rank == 1) {
      ASSERT_HCCL_OK(HcclBarrier(my.comm, my.stream));
    }
    my.Wait();
    EXPECT_ACL_OK(aclrtDestroyStream(other));
  });
}

TEST(FailureTest, AMissingRankIsNamedWhenTheTimeIsOver) {
  setenv("HCCL_CONNECT_TIMEOUT", "1", 1);
  HcclRoot root;
  void* comm = nullptr;
  ASSERT_HCCL_OK(HcclGetRootInfo(&root));
  EXPECT_EQ(HcclCommInitRootInfo(3, &root, 0, &comm), kHcclTimeout);
  EXPECT_THAT(aclGetRecentErrMsg(),
              AllOf(HasSubstr("rank 0 of 3"), HasSubstr("these never came: 1, 2"), HasSubstr("HCCL_CONNECT_TIMEOUT is 1 s")));
  EXPECT_EQ(HcclCommInitRootInfo(3, &root, 1, &comm), kHcclTcpConnect) << "the store is gone";
  unsetenv("HCCL_CONNECT_TIMEOUT");
}

TEST(FailureTest, WhoDoesNotKnowTheSecretIsNotLetIn) {
  auto store = RendezvousStore::Start("127.0.0.1");
  ASSERT_TRUE(store.ok()) << store.status();
  RootInfo wrong = (*store)->root();
  wrong.token[3] ^= 1;
  const auto joined = JoinGroup(wrong, 0, 0, 1, {"127.0.0.1", 1}, std::chrono::seconds(20));
  EXPECT_FALSE(joined.ok());
  EXPECT_THAT(std::string(joined.status().message()), HasSubstr("the handshake with 127.0.0.1"));
  // One that says nothing doesn't hold the others up.
  const auto silent = Connect((*store)->root().store, Clock::now() + std::chrono::seconds(20));
  ASSERT_TRUE(silent.ok());
  EXPECT_TRUE(JoinGroup((*store)->root(), 0, 0, 1, {"127.0.0.1", 1}, std::chrono::seconds(20)).ok());
}

TEST(FailureTest, WrongArgumentsAreRefusedAtTheCall) {
  RunRanks(1, [](Rank& my) {
    int value = 0;
    EXPECT_EQ(HcclAllReduce(&value, &value, 1, 99, 0, my.comm, my.stream), kHcclParameter);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("no data type 99"));
    EXPECT_EQ(HcclAllReduce(&value, &value, 1, 2, 9, my.comm, my.stream), kHcclParameter);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("no reduction 9"));
    EXPECT_EQ(HcclAllReduce(&value, &value, 1, 14, 0, my.comm, my.stream), kHcclNotSupport);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("no arithmetic for hif8"));
    EXPECT_EQ(HcclAllReduce(nullptr, &value, 1, 2, 0, my.comm, my.stream), kHcclPointer);
    EXPECT_EQ(HcclBroadcast(&value, 1, 2, 1, my.comm, my.stream), kHcclParameter);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("root 1 in a communicator of 1 ranks"));
    EXPECT_EQ(HcclSend(&value, 1, 2, 3, my.comm, my.stream), kHcclParameter);
    EXPECT_EQ(HcclSend(&value, 1, 2, 0, my.comm, my.stream), kHcclParameter) << "to itself";
    EXPECT_EQ(HcclGroupEnd(), kHcclParameter);
    EXPECT_EQ(HcclBarrier(&value, my.stream), kHcclParameter);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("this is no communicator"));
    HcclRoot root{};
    void* comm = nullptr;
    EXPECT_EQ(HcclCommInitRootInfo(2, &root, 0, &comm), kHcclParameter);
    EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("not from hostcann's HcclGetRootInfo"));
    EXPECT_EQ(HcclCommInitRootInfo(2, nullptr, 0, &comm), kHcclPointer);
    EXPECT_EQ(HcclCommInitRootInfo(2, &root, 2, &comm), kHcclParameter);
  });
}

}  // namespace
}  // namespace jumar::hostcann
