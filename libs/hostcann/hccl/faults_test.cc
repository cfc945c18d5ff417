// JUMAR_FAULTS on collectives. The rules count per process, and here the ranks are threads of one.
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/hccl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr int32_t kInt32 = 2;

const bool kFaults = [] {
  setenv("JUMAR_FAULTS",
         "corrupt-collective op=HcclAllReduce rank=1 nth=2; delay-collective op=HcclBroadcast rank=0 ms=50; "
         "drop-collective op=HcclReduce rank=1; exit-collective op=HcclScatter code=7",
         1);
  return true;
}();

TEST(CollectiveFaultTest, OneRankHasAWrongResultOnce) {
  RunRanks(2, [](Rank& my) {
    for (int round = 1; round <= 3; ++round) {
      Values<int32_t> value({5});
      ASSERT_HCCL_OK(HcclAllReduce(value.get(), value.get(), 1, kInt32, 0, my.comm, my.stream));
      my.Wait();
      EXPECT_EQ(value.Read()[0], my.rank == 1 && round == 2 ? ~10 : 10);
    }
  });
}

TEST(CollectiveFaultTest, ALateRankIsWaitedFor) {
  RunRanks(2, [](Rank& my) {
    Values<int32_t> value({static_cast<int32_t>(my.rank)});
    ASSERT_HCCL_OK(HcclBroadcast(value.get(), 1, kInt32, 0, my.comm, my.stream));
    my.Wait();
    EXPECT_EQ(value.Read()[0], 0);
  });
}

TEST(CollectiveFaultTest, ADroppedCollectiveIsAnErrorAtTheOthers) {
  RunRanks(2, [](Rank& my) {
    Values<int32_t> value({1});
    ASSERT_HCCL_OK(HcclReduce(value.get(), value.get(), 1, kInt32, 0, 0, my.comm, my.stream));
    // The rank that takes no part goes on, and its next collective isn't taken for the dropped one.
    ASSERT_HCCL_OK(HcclReduce(value.get(), value.get(), 1, kInt32, 0, 0, my.comm, my.stream));
    const int code = aclrtSynchronizeStream(my.stream);
    if (my.rank == 0) {
      EXPECT_EQ(code, 507015);
      EXPECT_THAT(aclGetRecentErrMsg(), AnyOf(HasSubstr("number 1"), HasSubstr("rank 1 has destroyed its communicator")));
    }
  });
}

TEST(CollectiveFaultTest, TheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      RunRanks(1,
               [](Rank& my) {
                 Values<int32_t> value({1});
                 ASSERT_HCCL_OK(HcclScatter(value.get(), value.get(), 1, kInt32, 0, my.comm, my.stream));
                 my.Wait();
               }),
      testing::ExitedWithCode(7), "exit-collective op=HcclScatter code=7' ends this process in HcclScatter \\(1 x int32, root 0\\)");
}

}  // namespace
}  // namespace jumar::hostcann
