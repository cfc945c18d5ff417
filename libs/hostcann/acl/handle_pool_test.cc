#include "libs/hostcann/acl/handle_pool.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "libs/hostcann/acl/task.h"

namespace jumar::hostcann {
namespace {

TEST(HandlePoolTest, FindsWhatLivesAndNothingElse) {
  HandlePool<int> pool;
  void* handle = pool.Add(std::make_shared<int>(7));
  ASSERT_NE(handle, nullptr);
  EXPECT_EQ(*pool.Get(handle), 7);
  EXPECT_EQ(*pool.Peek(handle), 7);
  EXPECT_EQ(pool.Get(static_cast<char*>(handle) + 8), nullptr);
  EXPECT_EQ(pool.Get(reinterpret_cast<void*>(uintptr_t{0x123456789000})), nullptr);
  EXPECT_EQ(pool.Get(nullptr), nullptr);
  EXPECT_EQ(*pool.Remove(handle), 7);
  EXPECT_EQ(pool.Get(handle), nullptr);
  EXPECT_EQ(pool.Remove(handle), nullptr);
  EXPECT_EQ(pool.size(), 0u);
}

TEST(HandlePoolTest, AHandleRestsBeforeItIsReused) {
  HandlePool<int> pool;
  void* first = pool.Add(std::make_shared<int>(0));
  pool.Remove(first);
  for (int i = 0; i < 60; ++i) {
    void* next = pool.Add(std::make_shared<int>(i));
    ASSERT_NE(next, first);
    pool.Remove(next);
  }
}

TEST(HandlePoolTest, Grows) {
  HandlePool<int> pool;
  std::set<void*> handles;
  for (int i = 0; i < 3000; ++i) handles.insert(pool.Add(std::make_shared<int>(i)));
  EXPECT_EQ(handles.size(), 3000u);
  for (void* handle : handles) ASSERT_NE(pool.Get(handle), nullptr);
}

TEST(HandlePoolTest, ThreadsAddFindAndRemove) {
  HandlePool<int> pool;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        void* handle = pool.Add(std::make_shared<int>(t));
        ASSERT_EQ(*pool.Get(handle), t);
        ASSERT_EQ(*pool.Remove(handle), t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(pool.size(), 0u);
}

TEST(SmallTaskTest, RunsSmallAndLargeCallablesAndDestroysThemOnce) {
  const auto counter = std::make_shared<int>(0);
  struct Large {
    std::shared_ptr<int> count;
    char padding[200];
    void operator()() { ++*count; }
  };
  SmallTask small([counter] { ++*counter; });
  SmallTask large(Large{counter, {}});
  SmallTask moved(std::move(small));
  EXPECT_FALSE(static_cast<bool>(small));
  moved();
  large();
  large();
  EXPECT_EQ(*counter, 3);
  small = std::move(large);
  small();
  EXPECT_EQ(*counter, 4);
  small.Reset();
  moved.Reset();
  EXPECT_EQ(counter.use_count(), 1);
}

}  // namespace
}  // namespace jumar::hostcann
