// The C functions that make and describe the opaque objects, called as an outsider calls them.
#include "libs/hostcann/aclnn/acl_types.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "libs/hostcann/acl/runtime.h"

extern "C" {
aclTensor* aclCreateTensor(const int64_t*, uint64_t, int, const int64_t*, int64_t, int, const int64_t*, uint64_t, void*);
aclScalar* aclCreateScalar(void*, int);
aclIntArray* aclCreateIntArray(const int64_t*, uint64_t);
aclTensorList* aclCreateTensorList(const aclTensor* const*, uint64_t);
int aclDestroyTensor(const aclTensor*);
int aclDestroyScalar(const aclScalar*);
int aclDestroyIntArray(const aclIntArray*);
int aclDestroyTensorList(const aclTensorList*);
int aclGetViewShape(const aclTensor*, int64_t**, uint64_t*);
int aclGetDataType(const aclTensor*, int*);
int aclGetFormat(const aclTensor*, int*);
int aclGetRawTensorAddr(const aclTensor*, void**);
}

// The runtime's part, so that the test needs no device.
namespace jumar::hostcann {
static std::string recent_error;
void SetRecentError(const std::string& message) { recent_error = message; }
static uint64_t alias_distance = 0;
void* DeviceAlias(const void* pointer) { return reinterpret_cast<void*>(reinterpret_cast<uint64_t>(pointer) + alias_distance); }
}  // namespace jumar::hostcann

namespace jumar::hostcann::aclnn {
namespace {

TEST(AclTensorTest, DescribesAStridedView) {
  float data[12] = {};
  const int64_t sizes[] = {2, 3}, strides[] = {1, 4}, storage[] = {12};
  aclTensor* t = aclCreateTensor(sizes, 2, 0, strides, 5, kFormatND, storage, 1, data);
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->data(), data + 5);
  EXPECT_EQ(t->numel(), 6);
  int64_t* shape = nullptr;
  uint64_t rank = 0;
  ASSERT_EQ(aclGetViewShape(t, &shape, &rank), kOk);
  EXPECT_EQ(std::vector<int64_t>(shape, shape + rank), (std::vector<int64_t>{2, 3}));
  delete[] shape;
  int value = -1;
  void* address = nullptr;
  EXPECT_EQ(aclGetDataType(t, &value), kOk);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(aclGetFormat(t, &value), kOk);
  EXPECT_EQ(value, kFormatND);
  EXPECT_EQ(aclGetRawTensorAddr(t, &address), kOk);
  EXPECT_EQ(address, data);
  EXPECT_EQ(aclDestroyTensor(t), kOk);
}

TEST(AclTensorTest, OperatorsSeeTheAliasAndTheProgramItsOwnAddress) {
  alias_distance = 1 << 20;
  float data[4] = {};
  const int64_t sizes[] = {4};
  aclTensor* t = aclCreateTensor(sizes, 1, 0, nullptr, 1, kFormatND, sizes, 1, data);
  alias_distance = 0;
  EXPECT_EQ(reinterpret_cast<uint64_t>(t->data()), reinterpret_cast<uint64_t>(data + 1) + (1 << 20));
  void* address = nullptr;
  EXPECT_EQ(aclGetRawTensorAddr(t, &address), kOk);
  EXPECT_EQ(address, data);
  aclDestroyTensor(t);
}

TEST(AclTensorTest, IsContiguousWithoutStrides) {
  const int64_t sizes[] = {2, 3, 4};
  aclTensor* t = aclCreateTensor(sizes, 3, 27, nullptr, 0, kFormatND, nullptr, 0, nullptr);
  EXPECT_EQ(ToString(t->strides), "[12, 4, 1]");
  EXPECT_EQ(ToString(t->storage_sizes), "[2, 3, 4]");
  aclDestroyTensor(t);
}

TEST(AclTensorTest, TakesAScalarAndAnEmptyTensor) {
  const int64_t empty[] = {0, 4};
  for (uint64_t rank : {0, 2}) {
    aclTensor* t = aclCreateTensor(empty, rank, 9, empty, 0, kFormatND, empty, rank, nullptr);
    EXPECT_EQ(t->numel(), rank == 0 ? 1 : 0);
    aclDestroyTensor(t);
  }
}

TEST(AclTensorTest, RefusesWhatItCannotHold) {
  const std::vector<int64_t> many(kMaxDims + 1, 1);
  EXPECT_EQ(aclCreateTensor(many.data(), many.size(), 0, many.data(), 0, kFormatND, many.data(), 1, nullptr), nullptr);
  EXPECT_NE(recent_error.find("17 dimensions; the limit is 16"), std::string::npos) << recent_error;
  EXPECT_EQ(aclCreateTensor(many.data(), 1, 99, many.data(), 0, kFormatND, many.data(), 1, nullptr), nullptr);
  EXPECT_NE(recent_error.find("data type 99"), std::string::npos) << recent_error;
  EXPECT_EQ(aclGetViewShape(nullptr, nullptr, nullptr), kParamNull);
  EXPECT_EQ(aclDestroyTensor(nullptr), kOk);
}

TEST(AclScalarTest, CopiesItsValue) {
  double value = 2.5;
  aclScalar* s = aclCreateScalar(&value, 11);
  value = 0;
  double kept;
  std::memcpy(&kept, s->value, sizeof kept);
  EXPECT_EQ(kept, 2.5);
  aclDestroyScalar(s);
  EXPECT_EQ(aclCreateScalar(nullptr, 11), nullptr);
}

TEST(AclListTest, OwnsItsElements) {  // the leak checker of the address sanitizer sees it if not
  const int64_t sizes[] = {4};
  const aclTensor* tensors[] = {aclCreateTensor(sizes, 1, 0, nullptr, 0, kFormatND, nullptr, 0, nullptr), nullptr};
  aclTensorList* list = aclCreateTensorList(tensors, 2);
  ASSERT_EQ(list->v.size(), 2u);
  aclDestroyTensorList(list);
  aclDestroyTensorList(nullptr);
  aclIntArray* none = aclCreateIntArray(nullptr, 0);
  EXPECT_TRUE(none->v.empty());
  aclDestroyIntArray(none);
}

TEST(FormatTest, OnlyNamesOfAxesAreBaseFormats) {
  for (int32_t base : {-1, 0, 1, 2, 30, 47}) EXPECT_TRUE(IsBaseFormat(base)) << base;
  for (int32_t own : {3, 4, 29, 32, 33, 50, 51}) EXPECT_FALSE(IsBaseFormat(own)) << own;
  EXPECT_EQ(FormatName(29), "FRACTAL_NZ (29)");
  EXPECT_EQ(FormatName(77), "format 77");
}

}  // namespace
}  // namespace jumar::hostcann::aclnn
