// Ranks as threads: each has a communicator and a stream, as processes have.
#ifndef LIBS_HOSTCANN_HCCL_TEST_UTIL_H_
#define LIBS_HOSTCANN_HCCL_TEST_UTIL_H_

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace jumar::hostcann {

#define ASSERT_HCCL_OK(call) ASSERT_EQ((call), 0) << aclGetRecentErrMsg()
#define EXPECT_HCCL_OK(call) EXPECT_EQ((call), 0) << aclGetRecentErrMsg()

// Device memory with values. Filled and read by copies, as strict mode asks for.
template <typename T>
class Values {
 public:
  explicit Values(const std::vector<T>& values) : buffer_(values.size() + 1), count_(values.size()) { Write(values); }
  T* get() const { return buffer_.get(); }
  void Write(const std::vector<T>& values) {
    if (count_ > 0) {
      EXPECT_ACL_OK(aclrtMemcpy(get(), buffer_.bytes(), values.data(), count_ * sizeof(T), 1));
    }
  }
  std::vector<T> Read() const {
    std::vector<T> values(count_);
    if (count_ > 0) {
      EXPECT_ACL_OK(aclrtMemcpy(values.data(), count_ * sizeof(T), get(), count_ * sizeof(T), 2));
    }
    return values;
  }

 private:
  DeviceBuffer<T> buffer_;
  uint64_t count_;
};

struct Rank {
  uint32_t rank = 0;
  uint32_t ranks = 0;
  void* comm = nullptr;
  void* stream = nullptr;

  void Wait() const { ASSERT_ACL_OK(aclrtSynchronizeStream(stream)); }
};

// Runs `body` once per rank, each in a thread of its own, on communicators that are destroyed afterwards.
inline void RunRanks(uint32_t ranks, const std::function<void(Rank&)>& body) {
  HcclRoot root;
  ASSERT_HCCL_OK(HcclGetRootInfo(&root));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rank mine{rank, ranks};
      ASSERT_ACL_OK(aclrtSetDevice(static_cast<int>(rank % 2)));
      ASSERT_ACL_OK(aclrtCreateStream(&mine.stream));
      ASSERT_HCCL_OK(HcclCommInitRootInfo(ranks, &root, rank, &mine.comm));
      body(mine);
      if (mine.comm != nullptr) {
        EXPECT_HCCL_OK(HcclCommDestroy(mine.comm));
      }
      EXPECT_ACL_OK(aclrtDestroyStreamForce(mine.stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_TEST_UTIL_H_
