// Memory and copies through the C interface.
#include "libs/hostcann/acl/memory.h"

#include <atomic>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int32_t kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefault = 4;
constexpr size_t kMiB = size_t{1} << 20;

using MemoryTest = AclTest;

TEST_F(MemoryTest, OutOfMemoryHasTheCodeAndTextThatTorchNpuLooksFor) {
  void* p = nullptr;
  EXPECT_EQ(aclrtMalloc(&p, 300 * kMiB, 0), 207001);
  const std::string text = aclGetRecentErrMsg();
  EXPECT_THAT(text, AllOf(HasSubstr("EL0004"), HasSubstr("Failed to allocate"), HasSubstr("device 0"), HasSubstr("300.00 MiB requested"),
                          HasSubstr("limit of 256.00 MiB"), HasSubstr("JUMAR_HBM_BYTES")));
}

TEST_F(MemoryTest, OutOfMemorySaysWhoHoldsWhat) {
  const AclPhysicalProperties properties{0, 0, 2, {0, 1}, 0};
  void *weights = nullptr, *cache = nullptr, *other = nullptr, *none = nullptr;
  JumarTagMemory("weights");
  ASSERT_ACL_OK(aclrtMalloc(&weights, 20 * kMiB, 0));
  JumarTagMemory("kv_cache");
  ASSERT_ACL_OK(aclrtMallocPhysical(&cache, 100 * kMiB, &properties, 0));
  JumarTagMemory("");
  ASSERT_ACL_OK(aclrtMalloc(&other, 4 * kMiB, 0));
  const char* held = "Held by: kv_cache 100.00 MiB in 1, weights 20.00 MiB in 1, untagged 4.00 MiB in 1. Free tensors";
  EXPECT_EQ(aclrtMalloc(&none, 300 * kMiB, 0), 207001);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr(held));
  EXPECT_EQ(aclrtMallocPhysical(&none, 300 * kMiB, &properties, 0), 207001);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr(held));
  ASSERT_ACL_OK(aclrtFree(weights));
  ASSERT_ACL_OK(aclrtFreePhysical(cache));
  ASSERT_ACL_OK(aclrtFree(other));
  EXPECT_EQ(aclrtMalloc(&none, 300 * kMiB, 0), 207001);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), Not(HasSubstr("Held by")));
}

TEST_F(MemoryTest, TagsAreShortAndTheThreadsOwn) {
  JumarTagMemory(std::string(1000, 'x').c_str());
  EXPECT_EQ(MemoryTag(), std::string(32, 'x'));
  std::thread([] { EXPECT_EQ(MemoryTag(), ""); }).join();
  JumarTagMemory(nullptr);
  EXPECT_EQ(MemoryTag(), "");
}

TEST_F(MemoryTest, GetMemInfoFollowsTheBudgetOfTheDevice) {
  size_t free = 0, total = 0, free_after = 0;
  ASSERT_ACL_OK(aclrtGetMemInfo(1, &free, &total));
  EXPECT_EQ(total, 256 * kMiB);
  {
    DeviceBuffer<char> buffer(10 * kMiB);
    ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_after, &total));
    EXPECT_EQ(free - free_after, 10 * kMiB);
    ASSERT_ACL_OK(aclrtSetDevice(1));
    ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_after, &total));
    EXPECT_EQ(free_after, 256 * kMiB) << "the other device has a budget of its own";
    ASSERT_ACL_OK(aclrtSetDevice(0));
  }
  ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_after, &total));
  EXPECT_EQ(free_after, free);
}

TEST_F(MemoryTest, CopiesThereAndBack) {
  std::vector<int> in(100000), out(100000);
  std::iota(in.begin(), in.end(), 0);
  DeviceBuffer<int> first(in.size()), second(in.size());
  ASSERT_ACL_OK(aclrtMemcpy(first.get(), first.bytes(), in.data(), first.bytes(), kHostToDevice));
  ASSERT_ACL_OK(aclrtMemcpyAsync(second.get(), second.bytes(), first.get(), first.bytes(), kDeviceToDevice, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemcpy(out.data(), first.bytes(), second.get(), first.bytes(), kDeviceToHost));
  EXPECT_EQ(in, out);
}

TEST_F(MemoryTest, APageableSourceMayBeReusedAtOnce) {
  for (const size_t bytes : {size_t{4096}, 4 * kMiB}) {  // staged, waited for
    SCOPED_TRACE(bytes);
    std::vector<char> host(bytes, 1);
    DeviceBuffer<char> device(bytes);
    {
      // A source of 4 MiB is waited for, so the gate must be open for it.
      Gate gate(a_);
      if (bytes > kMiB) gate.Open();
      ASSERT_ACL_OK(aclrtMemcpyAsync(device.get(), bytes, host.data(), bytes, kHostToDevice, a_));
      std::fill(host.begin(), host.end(), 2);
    }
    ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
    std::vector<char> got(bytes);
    ASSERT_ACL_OK(aclrtMemcpy(got.data(), bytes, device.get(), bytes, kDeviceToHost));
    EXPECT_EQ(got, std::vector<char>(bytes, 1));
  }
}

TEST_F(MemoryTest, APageableDestinationIsCompleteOnReturn) {
  DeviceBuffer<char> device(4096);
  ASSERT_ACL_OK(aclrtMemsetAsync(device.get(), 4096, 9, 4096, a_));
  char host[4096] = {};
  ASSERT_ACL_OK(aclrtMemcpyAsyncWithCondition(host, 4096, device.get(), 4096, kDeviceToHost, a_));
  EXPECT_EQ(host[0], 9);
  EXPECT_EQ(host[4095], 9);
}

TEST_F(MemoryTest, APinnedSourceIsReadWhenTheStreamGetsThere) {
  void* pinned = nullptr;
  ASSERT_ACL_OK(aclrtMallocHost(&pinned, 64));
  std::memset(pinned, 1, 64);
  DeviceBuffer<char> device(64);
  {
    Gate gate(a_);
    ASSERT_ACL_OK(aclrtMemcpyAsync(device.get(), 64, pinned, 64, kHostToDevice, a_));
    std::memset(pinned, 2, 64);  // a real device would see this too: that is the point of asynchronous copies
  }
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  char got = 0;
  ASSERT_ACL_OK(aclrtMemcpy(&got, 1, device.get(), 1, kDeviceToHost));
  EXPECT_EQ(got, 2);
  EXPECT_ACL_OK(aclrtFreeHost(pinned));
  EXPECT_EQ(aclrtFreeHost(pinned), 107000);
}

TEST_F(MemoryTest, RefusesCopiesThatDoNotFit) {
  DeviceBuffer<char> device(4096);
  char host[8192] = {};
  EXPECT_EQ(aclrtMemcpy(device.get(), 100, host, 200, kHostToDevice), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("200 bytes do not fit the destination of 100"));
  EXPECT_EQ(aclrtMemcpy(device.get() + 4000, 8192, host, 8192, kHostToDevice), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), AllOf(HasSubstr("leave its allocation"), HasSubstr("96 are left")));
  EXPECT_EQ(aclrtMemcpy(host, 64, host + 64, 64, kHostToDevice), 107000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("expects the destination"));
  EXPECT_EQ(aclrtMemcpy(host, 64, device.get(), 64, kHostToHost), 107000);
  EXPECT_EQ(aclrtMemcpyAsync(nullptr, 64, host, 64, kHostToDevice, a_), 107000);
  EXPECT_EQ(aclrtMemset(device.get(), 100, 0, 101), 107000);
  EXPECT_ACL_OK(aclrtMemcpy(host, 64, device.get(), 64, kDefault));
  EXPECT_ACL_OK(aclrtMemcpy(nullptr, 0, nullptr, 0, kHostToDevice));
}

TEST_F(MemoryTest, FreeRefusesWhatIsNotDeviceMemory) {
  int host = 0;
  EXPECT_EQ(aclrtFree(&host), 107000);
  void* p = nullptr;
  ASSERT_ACL_OK(aclrtMallocAlign32(&p, 32, 2));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 32, 0u);
  EXPECT_EQ(aclrtFree(static_cast<char*>(p) + 8), 107000);
  EXPECT_ACL_OK(aclrtFree(p));
  EXPECT_EQ(aclrtFree(p), 107000);
  EXPECT_EQ(aclrtMalloc(&p, 0, 0), 107000);
}

TEST_F(MemoryTest, PointerAttributesTellThePlace) {
  AclPointerAttributes attributes;
  DeviceBuffer<char> device(64);
  ASSERT_ACL_OK(aclrtPointerGetAttributes(device.get() + 5, &attributes));
  EXPECT_EQ(attributes.location.type, 1);
  EXPECT_EQ(attributes.location.id, 0u);
  EXPECT_TRUE(IsDevicePointer(device.get()));

  std::vector<char> host(4096);
  ASSERT_ACL_OK(aclrtPointerGetAttributes(host.data(), &attributes));
  EXPECT_EQ(attributes.location.type, 2);
  EXPECT_FALSE(IsDevicePointer(host.data()));

  void* mapped = nullptr;
  ASSERT_ACL_OK(aclrtHostRegister(host.data(), host.size(), 0, &mapped));
  EXPECT_EQ(mapped, host.data());
  ASSERT_ACL_OK(aclrtPointerGetAttributes(host.data() + 100, &attributes));
  EXPECT_EQ(attributes.location.type, 0);
  EXPECT_EQ(aclrtHostRegisterV2(host.data(), host.size(), 0), 107000) << "registered already";
  EXPECT_ACL_OK(aclrtHostUnregister(host.data()));
  EXPECT_EQ(aclrtHostUnregister(host.data()), 107000);

  void* pinned = nullptr;
  ASSERT_ACL_OK(aclrtMallocHost(&pinned, 64));
  EXPECT_ACL_OK(aclrtHostRegisterV2(pinned, 64, 2));
  EXPECT_EQ(aclrtHostRegisterV2(pinned, 64, 2), 107000);
  EXPECT_ACL_OK(aclrtHostUnregister(pinned));
  EXPECT_EQ(aclrtHostUnregister(pinned), 107000);
  EXPECT_ACL_OK(aclrtFreeHost(pinned));
}

TEST_F(MemoryTest, CopiesPitchedRows) {
  DeviceBuffer<char> device(64);
  const char rows[] = "abcdefghij";  // two rows of 5, of which 3 are copied to rows of 8
  ASSERT_ACL_OK(aclrtMemset(device.get(), 64, '.', 64));
  ASSERT_ACL_OK(aclrtMemcpy2d(device.get(), 8, rows, 5, 3, 2, kHostToDevice));
  char got[12] = {};
  ASSERT_ACL_OK(aclrtMemcpy(got, 12, device.get(), 11, kDeviceToHost));
  EXPECT_STREQ(got, "abc.....fgh");
  ASSERT_ACL_OK(aclrtMemcpy2dAsync(device.get(), 8, device.get() + 8, 8, 3, 1, kDeviceToDevice, a_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemcpy(got, 12, device.get(), 3, kDeviceToHost));
  EXPECT_EQ(std::string(got, 3), "fgh");
  EXPECT_EQ(aclrtMemcpy2d(device.get(), 2, rows, 5, 3, 2, kHostToDevice), 107000);
  EXPECT_EQ(aclrtMemcpy2d(device.get(), 4096, rows, 5, 3, 2, kHostToDevice), 107000) << "the second row is outside";
}

TEST_F(MemoryTest, CopiesABatchAndNamesTheFirstThatFails) {
  DeviceBuffer<char> device(64);
  char x[8] = "1234567", y[8] = "abcdefg";
  void* dsts[] = {device.get(), device.get() + 8};
  void* srcs[] = {x, y};
  size_t sizes[] = {8, 8}, indexes[] = {0}, failed = 99;
  AclCopyBatchAttributes attributes = {{0, 1}, {0, 0}, {}};
  ASSERT_ACL_OK(aclrtMemcpyBatch(dsts, sizes, srcs, sizes, 2, &attributes, indexes, 1, &failed));
  char got[16];
  ASSERT_ACL_OK(aclrtMemcpy(got, 16, device.get(), 16, kDeviceToHost));
  EXPECT_STREQ(got, "1234567");
  EXPECT_STREQ(got + 8, "abcdefg");
  dsts[1] = y;  // not device memory
  EXPECT_EQ(aclrtMemcpyBatchAsync(dsts, sizes, srcs, sizes, 2, &attributes, indexes, 1, &failed, a_), 107000);
  EXPECT_EQ(failed, 1u);
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
}

TEST_F(MemoryTest, VirtualMemoryGrowsInPlace) {
  size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_before, &total));
  void* va = nullptr;
  ASSERT_ACL_OK(aclrtReserveMemAddress(&va, 1024 * kMiB, 0, nullptr, 1));
  EXPECT_TRUE(IsDevicePointer(static_cast<char*>(va) + 1000 * kMiB));
  AclPhysicalProperties properties = {0, 0, 4, {0, 1}, 0};
  std::vector<void*> handles;
  for (size_t i = 0; i < 3; ++i) {
    void* handle = nullptr;
    ASSERT_ACL_OK(aclrtMallocPhysical(&handle, 20 * kMiB, &properties, 0));
    ASSERT_ACL_OK(aclrtMapMem(static_cast<char*>(va) + i * 20 * kMiB, 20 * kMiB, 0, handle, 0));
    handles.push_back(handle);
  }
  ASSERT_ACL_OK(aclrtMemset(va, 60 * kMiB, 3, 60 * kMiB));
  ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_after, &total));
  EXPECT_EQ(free_before - free_after, 60 * kMiB);
  EXPECT_EQ(aclrtReleaseMemAddress(va), 107000) << "still mapped";
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_ACL_OK(aclrtUnmapMem(static_cast<char*>(va) + i * 20 * kMiB));
    ASSERT_ACL_OK(aclrtFreePhysical(handles[i]));
  }
  ASSERT_ACL_OK(aclrtReleaseMemAddress(va));
  ASSERT_ACL_OK(aclrtGetMemInfo(1, &free_after, &total));
  EXPECT_EQ(free_after, free_before);
  void* handle = nullptr;
  EXPECT_EQ(aclrtMallocPhysical(&handle, 300 * kMiB, &properties, 0), 207001);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("EL0004"));
  EXPECT_EQ(aclrtFreePhysical(nullptr), 107017);
}

}  // namespace
}  // namespace jumar::hostcann
