// Strict mode, in this process and in children that die of what it forbids.
#include "libs/hostcann/acl/isolation.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/device.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int32_t kHostToDevice = 1, kDeviceToHost = 2;

const bool kStrict = setenv("JUMAR_STRICT", "1", 1) == 0;

class IsolationTest : public AclTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kStrict);
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    AclTest::SetUp();
  }
};
using IsolationDeathTest = IsolationTest;

void* Malloc(size_t bytes) {
  void* p = nullptr;
  EXPECT_ACL_OK(aclrtMalloc(&p, bytes, 0));
  return p;
}

volatile char* Inaccessible() {
  return static_cast<volatile char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

TEST_F(IsolationTest, TheRuntimeReachesWhatTheProgramDoesNot) {
  DeviceBuffer<char> a(3 * kMiB), b(3 * kMiB);
  std::vector<char> in(3 * kMiB), out(3 * kMiB);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<char>(i * 7);
  ASSERT_ACL_OK(aclrtMemcpy(a.get(), a.bytes(), in.data(), in.size(), kHostToDevice));
  ASSERT_ACL_OK(aclrtMemcpyAsync(b.get(), b.bytes(), a.get(), a.bytes(), 3, a_));
  ASSERT_ACL_OK(aclrtMemcpyAsync(out.data(), out.size(), b.get(), b.bytes(), kDeviceToHost, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  EXPECT_EQ(in, out);
  EXPECT_NE(DeviceAlias(a.get()), a.get());
  EXPECT_EQ(DeviceAlias(DeviceAlias(a.get())), DeviceAlias(a.get()));
  EXPECT_EQ(DeviceAddress(DeviceAlias(a.get() + 5)), a.get() + 5);
  EXPECT_EQ(DeviceAlias(in.data()), in.data());
  EXPECT_TRUE(IsDevicePointer(a.get()));
}

TEST_F(IsolationTest, FreshMemoryIsNaN) {
  DeviceBuffer<float> buffer(1000);
  float got[1000];
  ASSERT_ACL_OK(aclrtMemcpy(got, sizeof(got), buffer.get(), sizeof(got), kDeviceToHost));
  for (const float x : got) ASSERT_TRUE(x != x);
  ASSERT_ACL_OK(aclrtMemset(buffer.get(), sizeof(got), 0, sizeof(got)));
  ASSERT_ACL_OK(aclrtMemcpy(got, sizeof(got), buffer.get(), sizeof(got), kDeviceToHost));
  EXPECT_EQ(got[999], 0);
}

TEST_F(IsolationTest, OutOfMemoryIsTheSameErrorAsEver) {
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, 300 * kMiB, 0), 207001);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("EL0004"), HasSubstr("limit of 256.00 MiB")));
}

TEST_F(IsolationTest, FreedMemoryIsChargedToNobodyAndItsAddressesRest) {
  void* first = Malloc(100 * kMiB);
  ASSERT_ACL_OK(aclrtFree(first));
  void* second = Malloc(200 * kMiB);  // exceeds the budget if the first still counted
  EXPECT_NE(first, second);
  ASSERT_ACL_OK(aclrtFree(second));
  for (int i = 0; i < 100; ++i) ASSERT_ACL_OK(aclrtFree(Malloc(200 * kMiB)));  // addresses come round
}

TEST_F(IsolationTest, ADoubleFreeNamesBothStacks) {
  void* p = Malloc(64);
  ASSERT_ACL_OK(aclrtFree(p));
  EXPECT_EQ(aclrtFree(p), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("freed before"), HasSubstr("an allocation of 64 bytes"), HasSubstr("allocated by:\n    "),
                                          HasSubstr("freed by:\n    ")));
}

TEST_F(IsolationTest, ForeignPointersAreRefused) {
  int host = 0;
  EXPECT_EQ(aclrtFree(&host), 107000);
  DeviceBuffer<char> buffer(4096);
  EXPECT_EQ(aclrtFree(buffer.get() + 16), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("16 bytes into an allocation of 4096"), HasSubstr("allocated by:")));
  EXPECT_EQ(aclrtFree(DeviceAlias(buffer.get())), 107000) << "the alias is not the program's";
}

TEST_F(IsolationTest, CopiesOutOfRangeNameTheAllocation) {
  DeviceBuffer<char> buffer(4096);
  char host[8192] = {};
  EXPECT_EQ(aclrtMemcpy(buffer.get() + 4000, 8192, host, 8192, kHostToDevice), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("96 are left"), HasSubstr("4000 bytes into an allocation of 4096 bytes"), HasSubstr("allocated by:")));
}

TEST_F(IsolationTest, VirtualMemoryIsIsolatedToo) {
  void* va = nullptr;
  ASSERT_ACL_OK(aclrtReserveMemAddress(&va, 1024 * kMiB, 0, nullptr, 1));
  AclPhysicalProperties properties = {0, 0, 4, {0, 1}, 0};
  void* handle = nullptr;
  ASSERT_ACL_OK(aclrtMallocPhysical(&handle, 20 * kMiB, &properties, 0));
  char* at = static_cast<char*>(va) + 40 * kMiB;
  ASSERT_ACL_OK(aclrtMapMem(at, 20 * kMiB, 0, handle, 0));
  uint32_t word = 0;
  ASSERT_ACL_OK(aclrtMemcpy(&word, 4, at, 4, kDeviceToHost));
  EXPECT_EQ(word, 0xffffffffu);
  ASSERT_ACL_OK(aclrtMemset(at, 20 * kMiB, 0, 20 * kMiB));
  ASSERT_ACL_OK(aclrtMemcpy(&word, 4, at + 20 * kMiB - 4, 4, kDeviceToHost));
  EXPECT_EQ(word, 0u);
  EXPECT_EQ(aclrtMemcpy(&word, 4, at - 4, 4, kDeviceToHost), 107000) << "not mapped";
  EXPECT_EQ(aclrtMemset(at, 40 * kMiB, 1, 21 * kMiB), 107000) << "mapped in part";
  ASSERT_ACL_OK(aclrtUnmapMem(at));
  ASSERT_ACL_OK(aclrtFreePhysical(handle));
  ASSERT_ACL_OK(aclrtReleaseMemAddress(va));
}

TEST_F(IsolationTest, ValuesAreWrittenAndAwaitedThroughTheAlias) {
  DeviceBuffer<uint64_t> flag(1);
  ASSERT_ACL_OK(aclrtMemset(flag.get(), 8, 0, 8));
  ASSERT_ACL_OK(aclrtValueWait(flag.get(), 7, 1, a_));
  ASSERT_ACL_OK(aclrtValueWrite(flag.get(), 7, 0, b_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
}

TEST_F(IsolationTest, ALeakReportTellsWhoAllocated) {
  EXPECT_EQ(LeakReport(0), "");
  void* p = Malloc(12345);
  EXPECT_THAT(LeakReport(0), AllOf(HasSubstr("device 0 is reset while 1 allocations"), HasSubstr("12345 bytes at"), HasSubstr("allocated by:\n    ")));
  ASSERT_ACL_OK(aclrtFree(p));
  EXPECT_EQ(LeakReport(0), "");
}

TEST_F(IsolationDeathTest, HostReadsAndWritesFault) {
  EXPECT_DEATH(
      {
        char* p = static_cast<char*>(Malloc(1000));
        *const_cast<volatile char*>(p + 24) = 1;
      },
      "host code touched device memory at 0x[0-9a-f]+ .device 0.\n  the address is 24 bytes into an allocation of 1000 bytes at "
      "0x[0-9a-f]+\n  allocated by:\n    .*touched by:\n    .*copy it first");
  EXPECT_DEATH(
      {
        ASSERT_ACL_OK(aclrtSetDevice(1));
        char* p = static_cast<char*>(Malloc(1000));
        ASSERT_ACL_OK(aclrtFree(p));
        (void)*const_cast<volatile char*>(p);
      },
      "device 1.\n  the address is 0 bytes into an allocation of 1000 bytes at 0x[0-9a-f]+, which was freed\n  allocated "
      "by:\n(.*\n)+  freed by:\n    ");
}

TEST_F(IsolationDeathTest, ATaskThatUsesFreedMemoryIsNamed) {
  EXPECT_DEATH(
      {
        void* p = Malloc(4096);
        Gate gate(a_);
        ASSERT_ACL_OK(aclrtMemsetAsync(p, 4096, 1, 4096, a_));
        ASSERT_ACL_OK(aclrtFree(p));  // too early
        gate.Open();
        (void)aclrtSynchronizeStream(a_);
      },
      "a task touched memory that its device does not hold(.*\n)+  in the task `memset` of a stream\n  the address is 0 bytes "
      "into an allocation of 4096 bytes at 0x[0-9a-f]+, which was freed");
}

TEST_F(IsolationDeathTest, ATaskThatRunsOverTheEndIsNamed) {
  EXPECT_DEATH(
      {
        void* p = Malloc(2 * kMiB);
        ASSERT_ACL_OK(Submit(a_, "aclnnWild", [p] { *static_cast<volatile char*>(DeviceAlias(static_cast<char*>(p) + 2 * kMiB + 8)) = 1; }));
        (void)aclrtSynchronizeStream(a_);
      },
      "in the task `aclnnWild` of a stream\n  the address is 8 bytes behind the end of an allocation of 2097152 bytes");
}

TEST_F(IsolationDeathTest, AFaultOnAComputeThreadNamesTheTasksThatRun) {
  EXPECT_DEATH(
      {
        void* p = Malloc(4096);
        ASSERT_ACL_OK(aclrtFree(p));
        ASSERT_ACL_OK(Submit(a_, "aclnnWide", [p] {
          std::thread([p] { *static_cast<volatile char*>(DeviceAlias(p)) = 1; }).join();
        }));
        (void)aclrtSynchronizeStream(a_);
      },
      "in a thread that is not a stream's; tasks that are running: `aclnnWide`");
}

TEST_F(IsolationDeathTest, AFaultInUnmappedVirtualMemoryIsExplained) {
  EXPECT_DEATH(
      {
        void* va = nullptr;
        ASSERT_ACL_OK(aclrtReserveMemAddress(&va, 64 * kMiB, 0, nullptr, 1));
        *static_cast<volatile char*>(va) = 1;
      },
      "host code touched device memory at 0x[0-9a-f]+ .device 0.\n  the address is in front of all that was ever allocated there");
}

TEST_F(IsolationDeathTest, OtherFaultsKeepTheirHandler) {
  // One that was there before, and the default.
  EXPECT_EXIT(
      {
        struct sigaction action = {};
        action.sa_handler = [](int) { _exit(42); };
        sigaction(SIGSEGV, &action, nullptr);
        const auto mirror = ProcessMirror(2, 256 * kMiB);
        *Inaccessible() = 1;
      },
      testing::ExitedWithCode(42), "");
  EXPECT_EXIT(
      {
        (void)Malloc(64);
        *Inaccessible() = 1;
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST_F(IsolationDeathTest, ResettingADeviceReportsItsLeaksOnce) {
  EXPECT_EXIT(
      {
        (void)Malloc(777);
        ASSERT_ACL_OK(aclInit(nullptr));
        ASSERT_ACL_OK(aclrtResetDeviceForce(0));
        ASSERT_ACL_OK(aclFinalize());
        _exit(0);
      },
      testing::ExitedWithCode(0), "^jumar: strict mode: device 0 is reset while 1 allocations of 4.00 KiB are not freed\n  777 bytes[^r]*");
}

}  // namespace
}  // namespace jumar::hostcann
