// The life of a process: initialisation, versions, exit with work left, fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

std::string WriteFile(const std::string& text) {
  const std::string path = testing::TempDir() + "/acl.json";
  std::ofstream(path) << text;
  return path;
}

TEST(ProcessTest, InitTakesTheDefaultDeviceAndRunsOnce) {
  EXPECT_EQ(aclInit("/no/such/file.json"), 100003);
  const std::string path = WriteFile(R"({"dump":{}, "defaultDevice":{"default_device":"1"}})");
  EXPECT_ACL_OK(aclInit(path.c_str()));
  EXPECT_EQ(aclInit(nullptr), 100002);
  std::thread([] {
    int32_t device = -1;
    EXPECT_ACL_OK(aclrtGetDevice(&device));
    EXPECT_EQ(device, 1) << "a thread without a device of its own uses the default one";
  }).join();
  EXPECT_ACL_OK(aclFinalize());
  EXPECT_EQ(aclFinalize(), 100037);
}

TEST(ProcessTest, TellsVersions) {
  AclPackageVersion version;
  ASSERT_ACL_OK(aclsysGetCANNVersion(0, &version));
  EXPECT_STREQ(version.version, "9.1.0");
  EXPECT_STREQ(version.major, "9");
  EXPECT_STREQ(version.minor, "1");
  EXPECT_STREQ(version.release, "0");
  ASSERT_ACL_OK(aclsysGetCANNVersion(7, &version));
  EXPECT_STREQ(version.version, "26.1.0");
  EXPECT_EQ(aclsysGetCANNVersion(8, &version), 100000);
  char runtime[] = "runtime", text[128];
  ASSERT_ACL_OK(aclsysGetVersionStr(runtime, text));
  EXPECT_STREQ(text, "9.1.0");
  EXPECT_STREQ(aclrtGetSocName(), "Ascend910B2");
  int64_t cores = 0;
  ASSERT_ACL_OK(aclGetDeviceCapability(0, 0, &cores));
  EXPECT_EQ(cores, 24);
  uint32_t count = 0;
  ASSERT_ACL_OK(aclrtGetDeviceCount(&count));
  EXPECT_EQ(count, 2u);
}

TEST(ProcessTest, AbsentFeaturesSayWhatIsMissing) {
  void* handle = nullptr;
  EXPECT_EQ(aclrtBinaryLoadFromData("x", 1, nullptr, &handle), 207000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("aclrtBinaryLoadFromData: hostcann cannot run NPU machine code"));
  uint64_t shareable;
  EXPECT_EQ(aclrtMemExportToShareableHandle(nullptr, 0, 0, &shareable), 207000);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("does not share device memory between processes"));
}

TEST(ProcessTest, AProfilerSessionIsOpenedOnceAndCollectsNothing) {
  uint32_t device = 0;
  ASSERT_ACL_OK(aclprofInit("/tmp", 4));
  EXPECT_EQ(aclprofInit("/tmp", 4), 148047);
  AclProfConfig* config = aclprofCreateConfig(&device, 1, 0, nullptr, 0);
  ASSERT_NE(config, nullptr);
  EXPECT_ACL_OK(aclprofStart(config));
  EXPECT_ACL_OK(aclprofStop(config));
  EXPECT_ACL_OK(aclprofDestroyConfig(config));
  EXPECT_ACL_OK(aclprofFinalize());
  EXPECT_EQ(aclprofFinalize(), 148047);
  EXPECT_EQ(aclprofStart(nullptr), 100000);
}

void ExitWithWorkLeft() {
  aclrtSetDevice(0);
  void *busy = nullptr, *waiting = nullptr, *event = nullptr;
  aclrtCreateStream(&busy);
  aclrtCreateStream(&waiting);
  aclrtCreateEventWithFlag(&event, 0x20);
  aclrtStreamWaitEvent(waiting, event);  // nobody records it
  for (int i = 0; i < 1000; ++i) Submit(busy, "work", [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  std::exit(42);
}

TEST(ProcessDeathTest, ExitWithWorkLeftNeitherHangsNorCrashes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWithWorkLeft(), testing::ExitedWithCode(42), "");
}

void ExitFromAWorker() {
  aclrtSetDevice(0);
  Submit(nullptr, "exit", [] { std::exit(43); });
  aclrtSynchronizeStreamWithTimeout(nullptr, 20000);
  std::this_thread::sleep_for(std::chrono::seconds(20));
  std::_Exit(1);
}

TEST(ProcessDeathTest, ExitFromAWorkerEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitFromAWorker(), testing::ExitedWithCode(43), "");
}

// A child that a used process forks can exit, and is told to use spawn when it touches the device.
TEST(ProcessTest, AForkedChildIsRefusedAndExitsCleanly) {
  ASSERT_ACL_OK(aclrtSetDevice(0));
  void* stream = nullptr;
  ASSERT_ACL_OK(aclrtCreateStream(&stream));
  ASSERT_ACL_OK(Submit(stream, "task", [] {}));
  ASSERT_ACL_OK(aclrtSynchronizeStream(stream));
  const pid_t child = fork();
  if (child == 0) {
    void* p = nullptr;
    const bool refused = aclrtSetDevice(0) == 507000 && aclrtMalloc(&p, 64, 0) == 507000 && Submit(stream, "task", [] {}) != 0;
    const bool told = std::string(aclGetRecentErrMsg()).find("spawn") != std::string::npos;
    std::exit(refused && told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_ACL_OK(Submit(stream, "task", [] {}));
  EXPECT_ACL_OK(aclrtSynchronizeStream(stream)) << "the parent goes on";
  EXPECT_ACL_OK(aclrtDestroyStream(stream));
}

void ForkBeforeUse() {
  uint32_t count = 0;
  aclrtGetDeviceCount(&count);
  const pid_t child = fork();
  if (child == 0) {
    int ran = 0;
    const bool ok = aclrtSetDevice(0) == 0 && Submit(nullptr, "task", [&] { ran = 1; }) == 0 && aclrtSynchronizeStream(nullptr) == 0;
    std::exit(ok && ran == 1 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

TEST(ProcessDeathTest, AForkBeforeUseLeavesTheDeviceToTheChild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, in which nothing was used
  EXPECT_EXIT(ForkBeforeUse(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace jumar::hostcann
