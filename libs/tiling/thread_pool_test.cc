#include "libs/tiling/thread_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

void ExpectCoversOnce(Executor& executor, int64_t n, int64_t grain, bool streams = false) {
  std::vector<std::atomic<int>> visits(n > 0 ? n : 0);
  std::atomic<bool> short_range{false};
  const auto visit = [&](int64_t begin, int64_t end) {
    if (end - begin < std::min(grain, n)) short_range = true;
    for (int64_t i = begin; i < end; ++i) visits[i].fetch_add(1);
  };
  if (streams) {
    ParallelForStreams(executor, n, grain, visit);
  } else {
    executor.ParallelFor(n, grain, visit);
  }
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(visits[i], 1) << "item " << i << " of " << n << ", grain " << grain;
  EXPECT_FALSE(short_range) << "a range below the grain " << grain << " of " << n;
}

TEST(ThreadPoolTest, CoversEveryItemOnceInRangesOfAtLeastTheGrain) {
  for (int workers : {1, 2, 3, 8}) {
    ThreadPool pool(workers);
    for (int64_t n : {-1, 0, 1, 2, 3, 7, 8, 64, 1000, 4097}) {
      for (int64_t grain : {1, 2, 3, 16, 1000, 100000}) {
        for (const bool streams : {false, true}) ExpectCoversOnce(pool, n, grain, streams);
      }
    }
  }
  for (const bool streams : {false, true}) ExpectCoversOnce(InlineExecutor(), 17, 4, streams);
}

TEST(ThreadPoolTest, AWorkersFirstRangeOfStreamsIsMostOfItsShare) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::vector<int64_t> sizes;
  ParallelForStreams(pool, 120, 1, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    sizes.push_back(end - begin);
  });
  std::sort(sizes.begin(), sizes.end());
  EXPECT_EQ(sizes, (std::vector<int64_t>{10, 10, 10, 30, 30, 30}));
}

TEST(ThreadPoolTest, ManySmallLoopsInARow) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  for (int loop = 0; loop < 20000; ++loop) {
    pool.ParallelFor(8, 1, [&](int64_t begin, int64_t end) { sum.fetch_add(end - begin, std::memory_order_relaxed); });
    ASSERT_EQ(sum.load(), int64_t{8} * (loop + 1));  // the loop has ended when the call returns
  }
}

TEST(ThreadPoolTest, UsesItsWorkersAndWakesThemFromSleep) {
  ThreadPool pool(2);
  std::mutex mutex;
  for (int round = 0; round < 3; ++round) {
    std::set<std::thread::id> ids;
    pool.ParallelFor(8, 1, [&](int64_t, int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // leaves time for the other thread to come
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(ids.size(), 2u) << "round " << round;
  }
}

TEST(ThreadPoolTest, NestedLoopsRunInline) {
  ThreadPool pool(4);
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(16, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto self = std::this_thread::get_id();
      pool.ParallelFor(100, 1, [&](int64_t b, int64_t e) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        sum.fetch_add(e - b);
      });
    }
  });
  EXPECT_EQ(sum, 1600);
}

TEST(ThreadPoolTest, ConcurrentCallersAllFinish) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int loop = 0; loop < 2000; ++loop) {
        int64_t own[64] = {};
        pool.ParallelFor(64, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) own[i] = i;
        });
        for (int64_t value : own) sum.fetch_add(value, std::memory_order_relaxed);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, int64_t{4} * 2000 * (63 * 64 / 2));
}

TEST(ThreadPoolTest, RethrowsToTheCallerAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(pool.ParallelFor(32, 1,
                                  [](int64_t begin, int64_t) {
                                    if (begin >= 8) throw std::runtime_error("range failed");
                                  }),
                 std::runtime_error);
    ExpectCoversOnce(pool, 100, 1);
  }
}

TEST(ThreadPoolTest, StartsAndStopsWithoutALoop) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(4);
}

TEST(ThreadPoolTest, StopsWhileWorkersSpinOrSleep) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
    pool.ParallelFor(8, 1, [](int64_t, int64_t) {});
    if (i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Runs `body` in a forked child, which must exit with 0 within ten seconds.
void ExpectChildFinishes(const std::function<bool()>& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(10);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThreadPoolTest, WorksInAForkedChildAndInItsParent) {
  if (kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer does not support threads after fork";
  auto pool = std::make_unique<ThreadPool>(2);
  ExpectCoversOnce(*pool, 100, 1);
  ExpectChildFinishes([&] {
    std::mutex mutex;
    std::set<std::thread::id> ids;
    pool->ParallelFor(8, 1, [&](int64_t, int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    pool.reset();
    return ids.size() == 2;  // the child has a worker of its own
  });
  ExpectCoversOnce(*pool, 100, 1);
}

TEST(ThreadPoolTest, ForkDuringALoopLeavesTheChildUsable) {
  if (kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer does not support threads after fork";
  ThreadPool pool(2);
  std::atomic<bool> running{false}, go_on{false};
  std::thread other([&] {
    pool.ParallelFor(2, 1, [&](int64_t, int64_t) {
      running = true;
      while (!go_on) std::this_thread::yield();
    });
  });
  while (!running) std::this_thread::yield();
  ExpectChildFinishes([&] {
    int64_t sum = 0;
    std::mutex mutex;
    for (int i = 0; i < 100; ++i) {
      pool.ParallelFor(8, 1, [&](int64_t begin, int64_t end) {
        std::lock_guard lock(mutex);
        sum += end - begin;
      });
    }
    return sum == 800;
  });
  go_on = true;
  other.join();
}

TEST(ThreadPoolTest, ADestructorInTheChildDoesNotHang) {
  if (kThreadSanitizer) GTEST_SKIP() << "the thread sanitizer does not support threads after fork";
  auto pool = std::make_unique<ThreadPool>(3);
  ExpectCoversOnce(*pool, 100, 1);
  ExpectChildFinishes([&] {
    pool.reset();
    return true;
  });
}

}  // namespace
}  // namespace jumar::tiling
