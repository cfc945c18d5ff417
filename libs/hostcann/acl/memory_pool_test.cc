// Stream-ordered memory pools through the C interface.
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int32_t kReuseOpportunistic = 2, kReuseInternalDependencies = 3;
constexpr int32_t kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7, kUsedHigh = 8;

class MemoryPoolTest : public AclTest {
 protected:
  void* Create(size_t max_bytes = 0) {
    const AclMemPoolProperties properties{0, 0, {0, 1}, max_bytes, {}};
    void* pool = nullptr;
    EXPECT_ACL_OK(aclrtMemPoolCreate(&pool, &properties));
    return pool;
  }
  void* Malloc(void* pool, size_t bytes, void* stream) {
    void* pointer = nullptr;
    EXPECT_ACL_OK(aclrtMemPoolMallocAsync(&pointer, bytes, pool, stream));
    return pointer;
  }
  uint64_t Get(void* pool, int32_t attribute) {
    uint64_t value = 0;
    EXPECT_ACL_OK(aclrtMemPoolGetAttr(pool, attribute, &value));
    return value;
  }
  void TearDown() override {
    for (void* stream : {a_, b_, c_}) EXPECT_ACL_OK(aclrtSynchronizeStream(stream));
    ASSERT_ACL_OK(aclrtMemPoolDestroy(Create()));  // any call tidies up what was destroyed before
    AclTest::TearDown();
  }
  static size_t FreeBytes() {
    size_t free = 0, total = 0;
    EXPECT_ACL_OK(aclrtGetMemInfo(1, &free, &total));
    return free;
  }
  bool Idle(void* stream) {
    int32_t status = 0;
    EXPECT_ACL_OK(aclrtStreamQuery(stream, &status));
    return status == 0;
  }
};

TEST_F(MemoryPoolTest, SameStreamReusesAtOnceAndInOrder) {
  void* pool = Create();
  Gate gate(a_);
  void* first = Malloc(pool, kMiB, a_);
  ASSERT_ACL_OK(aclrtMemsetAsync(first, kMiB, 1, kMiB, a_));
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(first, a_));
  void* second = Malloc(pool, kMiB, a_);
  EXPECT_EQ(second, first);
  ASSERT_ACL_OK(aclrtMemsetAsync(second, kMiB, 2, kMiB, a_));
  gate.Open();
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  std::vector<char> bytes(kMiB);
  ASSERT_ACL_OK(aclrtMemcpy(bytes.data(), kMiB, second, kMiB, 2));
  EXPECT_EQ(bytes.back(), 2);
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(second, a_));
  ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
}

TEST_F(MemoryPoolTest, AnotherStreamIsHeldBackUntilTheFreeIsReached) {
  void* pool = Create();
  Gate gate(a_);
  void* first = Malloc(pool, 2 * kMiB, a_);
  ASSERT_ACL_OK(aclrtMemsetAsync(first, 2 * kMiB, 1, 2 * kMiB, a_));
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(first, a_));
  EXPECT_EQ(Malloc(pool, 2 * kMiB, b_), first) << "behind a wait";
  ASSERT_ACL_OK(aclrtMemsetAsync(first, 2 * kMiB, 2, 2 * kMiB, b_));
  EXPECT_FALSE(Idle(b_));
  // Without waits of the pool's it is other memory, and nobody is held back.
  int32_t off = 0;
  ASSERT_ACL_OK(aclrtMemPoolSetAttr(pool, kReuseInternalDependencies, &off));
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(first, b_));
  void* other = Malloc(pool, 2 * kMiB, c_);
  EXPECT_NE(other, first);
  ASSERT_ACL_OK(aclrtSynchronizeStream(c_));
  gate.Open();
  ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
  char byte = 0;
  ASSERT_ACL_OK(aclrtMemcpy(&byte, 1, first, 1, 2));
  EXPECT_EQ(byte, 2);
  EXPECT_EQ(Malloc(pool, 2 * kMiB, c_), first) << "reached by now";
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(first, c_));
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(other, c_));
  ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
}

TEST_F(MemoryPoolTest, AttributesCountAndTrimGivesBack) {
  const size_t before = FreeBytes();
  void* pool = Create();
  int32_t flag = 0;
  ASSERT_ACL_OK(aclrtMemPoolGetAttr(pool, kReuseOpportunistic, &flag));
  EXPECT_EQ(flag, 1);
  void* small = Malloc(pool, 100, a_);
  void* large = Malloc(pool, 10 * kMiB, a_);
  EXPECT_EQ(Get(pool, kUsedCurrent), 512 + 10 * kMiB);
  EXPECT_EQ(Get(pool, kReservedCurrent), 12 * kMiB);
  EXPECT_EQ(FreeBytes(), before - 12 * kMiB);
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(large, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemPoolTrimTo(pool, 0));
  EXPECT_EQ(Get(pool, kReservedCurrent), 2 * kMiB);
  EXPECT_EQ(Get(pool, kReservedHigh), 12 * kMiB);
  uint64_t zero = 0;
  ASSERT_ACL_OK(aclrtMemPoolSetAttr(pool, kReservedHigh, &zero));
  EXPECT_EQ(Get(pool, kReservedHigh), 2 * kMiB);
  EXPECT_EQ(Get(pool, kUsedHigh), 512u);
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(small, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(MemoryPoolTest, DestroyingKeepsTheMemoryOfWorkThatIsQueued) {
  const size_t before = FreeBytes();
  void* pool = Create();
  {
    Gate gate(a_);
    void* pointer = Malloc(pool, kMiB, a_);
    ASSERT_ACL_OK(aclrtMemsetAsync(pointer, kMiB, 1, kMiB, a_));
    ASSERT_ACL_OK(aclrtMemPoolFreeAsync(pointer, a_));
    ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
    EXPECT_LT(FreeBytes(), before);
  }
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemPoolDestroy(Create()));  // any call tidies up
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(MemoryPoolTest, ErrorsSayWhatIsWrong) {
  void* pool = Create(4 * kMiB);
  void* pointer = Malloc(pool, kMiB, a_);
  void* none = nullptr;
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, 8 * kMiB, pool, a_), 207001);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr("its limit is 4194304"));
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, 0, pool, a_), 107000);
  EXPECT_EQ(aclrtMemPoolDestroy(pool), 107000);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr("1 allocations of the pool are in use"));
  EXPECT_EQ(aclrtMemPoolFreeAsync(static_cast<char*>(pointer) + 512, a_), 107000);
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, 2));
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, kMiB, pool, a_), 107027);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr("allocate before the capture"));
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  ASSERT_ACL_OK(aclmdlRIDestroy(graph));
  ASSERT_ACL_OK(aclrtMemPoolFreeAsync(pointer, a_));
  EXPECT_EQ(aclrtMemPoolFreeAsync(pointer, a_), 107000);
  uint64_t value = 1;
  EXPECT_EQ(aclrtMemPoolSetAttr(pool, kUsedHigh, &value), 107000);
  EXPECT_EQ(aclrtMemPoolSetAttr(pool, kUsedCurrent, &value), 107000);
  EXPECT_EQ(aclrtMemPoolGetAttr(pool, 99, &value), 107000);
  ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
  EXPECT_EQ(aclrtMemPoolTrimTo(pool, 0), 107017);
  AclMemPoolProperties host{0, 0, {0, 0}, 0, {}};
  EXPECT_EQ(aclrtMemPoolCreate(&none, &host), 207000);
  AclMemPoolProperties absent{0, 0, {7, 1}, 0, {}};
  EXPECT_NE(aclrtMemPoolCreate(&none, &absent), 0);
}

TEST_F(MemoryPoolTest, AStreamOfAnotherDeviceIsRefused) {
  void* pool = Create();
  void* stream = nullptr;
  void* none = nullptr;
  ASSERT_ACL_OK(aclrtSetDevice(1));
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, kMiB, pool, stream), 107000);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr("the stream is of device 1 and the pool of device 0"));
  ASSERT_ACL_OK(aclrtDestroyStream(stream));
  ASSERT_ACL_OK(aclrtSetDevice(0));
  ASSERT_ACL_OK(aclrtMemPoolDestroy(pool));
}

}  // namespace
}  // namespace jumar::hostcann
