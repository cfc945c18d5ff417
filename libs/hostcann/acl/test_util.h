// Helpers for tests of the C interface: a device of 256 MiB, streams that end with the test, a gate to hold a stream.
#ifndef LIBS_HOSTCANN_ACL_TEST_UTIL_H_
#define LIBS_HOSTCANN_ACL_TEST_UTIL_H_

#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {

#define EXPECT_ACL_OK(call) EXPECT_EQ((call), 0) << aclGetRecentErrMsg()
#define ASSERT_ACL_OK(call) ASSERT_EQ((call), 0) << aclGetRecentErrMsg()

inline const bool kTestEnvironment = [] {
  setenv("JUMAR_HBM_BYTES", "256MiB", 1);
  setenv("JUMAR_DEVICES", "2", 1);
  setenv("JUMAR_THREADS", "2", 1);
  unsetenv("JUMAR_SOC");
  return true;
}();

// Memory of the device, freed with the object.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : count_(count) {
    EXPECT_ACL_OK(aclrtMalloc(&pointer_, count * sizeof(T), 0));
  }
  ~DeviceBuffer() { EXPECT_ACL_OK(aclrtFree(pointer_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  T* get() const { return static_cast<T*>(pointer_); }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  size_t count_;
  void* pointer_ = nullptr;
};

// Holds a stream: what is submitted after it runs once the gate is opened.
class Gate {
 public:
  explicit Gate(void* stream) {
    EXPECT_ACL_OK(Submit(stream, "gate", [future = future_] { future.wait(); }));
  }
  ~Gate() { Open(); }
  void Open() {
    if (!open_) promise_->set_value();
    open_ = true;
  }

 private:
  std::shared_ptr<std::promise<void>> promise_ = std::make_shared<std::promise<void>>();
  std::shared_future<void> future_ = promise_->get_future().share();
  bool open_ = false;
};

class AclTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_ACL_OK(aclrtSetDevice(0));
    (void)aclGetRecentErrMsg();
    for (void** stream : {&a_, &b_, &c_}) ASSERT_ACL_OK(aclrtCreateStream(stream));
  }
  void TearDown() override {
    for (void* stream : {a_, b_, c_}) EXPECT_ACL_OK(aclrtDestroyStreamForce(stream));
  }

  void* a_ = nullptr;
  void* b_ = nullptr;
  void* c_ = nullptr;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_TEST_UTIL_H_
