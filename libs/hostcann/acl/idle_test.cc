// An idle device burns no CPU, and streams don't multiply threads. No clock decides: a thread that sleeps is not switched to.
#include <dirent.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

// The delays of schedule fuzzing are sleeps as well.
[[maybe_unused]] const int kNoFuzzing = unsetenv("JUMAR_SCHEDULE_FUZZ");

constexpr int kStreams = 8;
constexpr int kThreads = 2;  // JUMAR_THREADS of test_util.h

struct Thread {
  char state = '?';         // S: sleeping
  uint64_t switches = 0;    // how often the system put it on or took it off a core
};

// All threads of the process but the caller.
std::map<int, Thread> OtherThreads() {
  std::map<int, Thread> threads;
  DIR* directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) {
    const int id = std::atoi(entry->d_name);
    if (id == 0 || id == gettid()) continue;
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/status");
    for (std::string key; file >> key;) {
      if (key == "State:") file >> threads[id].state;
      uint64_t count = 0;
      if ((key == "voluntary_ctxt_switches:" || key == "nonvoluntary_ctxt_switches:") && file >> count) threads[id].switches += count;
    }
  }
  closedir(directory);
  return threads;
}

bool AllSleep(const std::map<int, Thread>& threads) {
  for (const auto& [id, thread] : threads) {
    if (thread.state != 'S') return false;
  }
  return true;
}

class IdleTest : public AclTest {
 protected:
  void SetUp() override {
    AclTest::SetUp();
    streams_.resize(kStreams);
    for (void*& stream : streams_) ASSERT_ACL_OK(aclrtCreateStream(&stream));
  }
  void TearDown() override {
    for (void* stream : streams_) EXPECT_ACL_OK(aclrtDestroyStream(stream));
    AclTest::TearDown();
  }

  // Every stream computes on the pool at once.
  void Compute() {
    for (void* stream : streams_) {
      for (int i = 0; i < 50; ++i) {
        ASSERT_ACL_OK(Submit(stream, "compute", [this] {
          ComputeExecutor().ParallelFor(64, 1, [this](int64_t begin, int64_t end) {
            const int running = ++running_;
            int most = most_.load();
            while (running > most && !most_.compare_exchange_weak(most, running)) {
            }
            items_ += end - begin;
            --running_;
          });
        }));
      }
    }
    for (void* stream : streams_) ASSERT_ACL_OK(aclrtSynchronizeStream(stream));
  }

  std::vector<void*> streams_;
  std::atomic<int> running_{0}, most_{0};
  std::atomic<int64_t> items_{0};
};

TEST_F(IdleTest, StreamsShareThePoolInsteadOfBringingTheirOwn) {
  Compute();
  EXPECT_EQ(items_, kStreams * 50 * 64);
  EXPECT_LE(OtherThreads().size(), static_cast<size_t>(kStreams + kThreads - 1)) << "a worker per stream that worked, and the pool";
  EXPECT_LE(most_, kStreams + kThreads - 1);
}

TEST_F(IdleTest, AnIdleDeviceBurnsNoCpu) {
  Compute();
  // They spin for a moment, then sleep.
  std::map<int, Thread> before;
  do {
    std::this_thread::yield();
    before = OtherThreads();
  } while (!AllSleep(before));
  ASSERT_GE(before.size(), static_cast<size_t>(kStreams));
  // A timer that wakes a thread would be seen within this much work of ours.
  std::atomic<uint64_t> work{0};
  for (uint64_t i = 0; i < 300'000'000; ++i) work.store(i, std::memory_order_relaxed);
  const std::map<int, Thread> after = OtherThreads();
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [id, thread] : after) {
    EXPECT_EQ(thread.state, 'S') << id;
    EXPECT_EQ(thread.switches, before.at(id).switches) << "thread " << id << " ran";
  }
}

TEST_F(IdleTest, AStreamThatWaitsForAnEventBurnsNoCpu) {
  void* event = nullptr;
  ASSERT_ACL_OK(aclrtCreateEventExWithFlag(&event, 1));
  Gate gate(streams_[0]);
  ASSERT_ACL_OK(aclrtRecordEvent(event, streams_[0]));
  for (int i = 1; i < kStreams; ++i) ASSERT_ACL_OK(aclrtStreamWaitEvent(streams_[static_cast<size_t>(i)], event));
  std::map<int, Thread> before;
  do {
    std::this_thread::yield();
    before = OtherThreads();
  } while (before.size() < kStreams || !AllSleep(before));
  std::atomic<uint64_t> work{0};
  for (uint64_t i = 0; i < 300'000'000; ++i) work.store(i, std::memory_order_relaxed);
  for (const auto& [id, thread] : OtherThreads()) EXPECT_EQ(thread.switches, before.at(id).switches) << "thread " << id << " ran";
  gate.Open();
  for (void* stream : streams_) ASSERT_ACL_OK(aclrtSynchronizeStream(stream));
  EXPECT_ACL_OK(aclrtDestroyEvent(event));
}

}  // namespace
}  // namespace jumar::hostcann
