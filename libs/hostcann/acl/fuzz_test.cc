// Schedule fuzzing: a program that forgot to wait gets a wrong result under some seed, a right program under none.
#include "libs/hostcann/acl/fuzz.h"

#include <atomic>
#include <chrono>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "libs/hostcann/acl/hooks.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

constexpr int kSeeds = 12;
constexpr int kRounds = 10;

// A stream that writes a value and one that reads it; how often the reader saw what was written before.
int StaleReads(uint64_t seed, bool waits) {
  InstallFuzz(seed);
  void *writer = nullptr, *reader = nullptr, *written = nullptr;
  EXPECT_ACL_OK(aclrtCreateStream(&writer));
  EXPECT_ACL_OK(aclrtCreateStream(&reader));
  EXPECT_ACL_OK(aclrtCreateEventExWithFlag(&written, 1));
  std::atomic<int> value{0}, seen{0};
  int stale = 0;
  for (int round = 1; round <= kRounds; ++round) {
    EXPECT_ACL_OK(Submit(writer, "write", [&value, round] { value = round; }));
    EXPECT_ACL_OK(aclrtRecordEvent(written, writer));
    if (waits) {
      EXPECT_ACL_OK(aclrtStreamWaitEvent(reader, written));
    }
    EXPECT_ACL_OK(Submit(reader, "read", [&value, &seen] { seen = value.load(); }));
    EXPECT_ACL_OK(aclrtSynchronizeStream(reader));
    if (seen != round) ++stale;
    EXPECT_ACL_OK(aclrtSynchronizeStream(writer));
  }
  EXPECT_ACL_OK(aclrtDestroyEvent(written));
  for (void* stream : {writer, reader}) EXPECT_ACL_OK(aclrtDestroyStream(stream));
  InstallFuzz(std::nullopt);
  return stale;
}

TEST(FuzzTest, AForgottenWaitGoesWrong) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  int stale = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) stale += StaleReads(seed, /*waits=*/false);
  EXPECT_GT(stale, 0) << "of " << kSeeds * kRounds;
}

TEST(FuzzTest, ARightProgramStaysRight) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  for (uint64_t seed = 0; seed < kSeeds; ++seed) EXPECT_EQ(StaleReads(seed, /*waits=*/true), 0) << "seed " << seed;
}

// A graph with a writer on one branch and a reader on another; the results of replays.
std::set<int> GraphResults(bool waits) {
  InstallFuzz(3);
  void *first = nullptr, *side = nullptr, *fork = nullptr, *written = nullptr, *join = nullptr, *graph = nullptr;
  for (void** stream : {&first, &side}) EXPECT_ACL_OK(aclrtCreateStream(stream));
  for (void** event : {&fork, &written, &join}) EXPECT_ACL_OK(aclrtCreateEventExWithFlag(event, 1));
  std::atomic<int> value{0}, seen{0};
  EXPECT_ACL_OK(aclmdlRICaptureBegin(first, 1));
  EXPECT_ACL_OK(Submit(first, "clear", [&value] { value = 0; }));
  EXPECT_ACL_OK(aclrtRecordEvent(fork, first));
  EXPECT_ACL_OK(aclrtStreamWaitEvent(side, fork));
  EXPECT_ACL_OK(Submit(first, "write", [&value] { value = 1; }));
  EXPECT_ACL_OK(aclrtRecordEvent(written, first));
  if (waits) {
    EXPECT_ACL_OK(aclrtStreamWaitEvent(side, written));
  }
  EXPECT_ACL_OK(Submit(side, "read", [&value, &seen] { seen = value.load(); }));
  EXPECT_ACL_OK(aclrtRecordEvent(join, side));
  EXPECT_ACL_OK(aclrtStreamWaitEvent(first, join));
  EXPECT_ACL_OK(aclmdlRICaptureEnd(first, &graph));
  std::set<int> results;
  for (int i = 0; i < 50; ++i) {
    EXPECT_ACL_OK(aclmdlRIExecuteAsync(graph, first));
    EXPECT_ACL_OK(aclrtSynchronizeStream(first));
    results.insert(seen);
  }
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
  for (void* event : {fork, written, join}) EXPECT_ACL_OK(aclrtDestroyEvent(event));
  for (void* stream : {first, side}) EXPECT_ACL_OK(aclrtDestroyStream(stream));
  InstallFuzz(std::nullopt);
  return results;
}

TEST(FuzzTest, TheBranchesOfAGraphAreInterleaved) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  EXPECT_EQ(GraphResults(/*waits=*/false), (std::set<int>{0, 1}));
  EXPECT_EQ(GraphResults(/*waits=*/true), (std::set<int>{1}));
}

// An external event that one branch records and another waits for must not be waited for first.
TEST(FuzzTest, AnExternalEventInAGraphDoesNotHang) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  InstallFuzz(5);
  void *first = nullptr, *side = nullptr, *fork = nullptr, *join = nullptr, *external = nullptr, *graph = nullptr;
  for (void** stream : {&first, &side}) ASSERT_ACL_OK(aclrtCreateStream(stream));
  for (void** event : {&fork, &join}) ASSERT_ACL_OK(aclrtCreateEventExWithFlag(event, 1));
  ASSERT_ACL_OK(aclrtCreateEventWithFlag(&external, 0x20));
  std::atomic<int> value{0}, seen{0};
  ASSERT_ACL_OK(aclmdlRICaptureBegin(first, 1));
  ASSERT_ACL_OK(aclrtRecordEvent(fork, first));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(side, fork));
  ASSERT_ACL_OK(Submit(side, "write", [&value] { ++value; }));
  ASSERT_ACL_OK(aclrtRecordEvent(external, side));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(first, external));
  ASSERT_ACL_OK(aclrtResetEvent(external, first));
  ASSERT_ACL_OK(Submit(first, "read", [&value, &seen] { seen = value.load(); }));
  ASSERT_ACL_OK(aclrtRecordEvent(join, side));
  ASSERT_ACL_OK(aclrtStreamWaitEvent(first, join));
  ASSERT_ACL_OK(aclmdlRICaptureEnd(first, &graph));
  for (int i = 1; i <= 30; ++i) {
    ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, first));
    ASSERT_ACL_OK(aclrtSynchronizeStreamWithTimeout(first, 60000));
    ASSERT_EQ(seen, i);
  }
  ASSERT_ACL_OK(aclmdlRIDestroy(graph));
  for (void* event : {fork, join, external}) EXPECT_ACL_OK(aclrtDestroyEvent(event));
  for (void* stream : {first, side}) EXPECT_ACL_OK(aclrtDestroyStream(stream));
  InstallFuzz(std::nullopt);
}

TEST(FuzzRandomTest, DependsOnTheSeedAndTheStreamOnly) {
  FuzzRandom a(1, 2), same(1, 2), other_seed(2, 2), other_stream(1, 3);
  const uint64_t first = a.Next();
  EXPECT_EQ(first, same.Next());
  EXPECT_NE(first, other_seed.Next());
  EXPECT_NE(first, other_stream.Next());
}

}  // namespace
}  // namespace jumar::hostcann
