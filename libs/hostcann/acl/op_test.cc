// The legacy operator path, and collectives of one rank.
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/hccl_api.h"
#include "libs/hostcann/acl/test_util.h"

namespace jumar::hostcann {
namespace {

using testing::HasSubstr;

TEST(LegacyOperatorTest, CompilingNamesTheOperator) {
  EXPECT_EQ(aclopCompileAndExecute("SoftmaxV2", 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0, 0, nullptr, nullptr), 100024);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("operator SoftmaxV2 is not available"));
  EXPECT_EQ(aclopCompileAndExecuteV2("Pad", 0, nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0, 0, nullptr, nullptr), 100024);
}

TEST(LegacyOperatorTest, OptionsAreKept) {
  char value[32];
  ASSERT_GE(sizeof(value), aclGetCompileoptSize(10));
  ASSERT_EQ(aclGetCompileopt(10, value, sizeof(value)), 0);
  EXPECT_STREQ(value, "disable");
  ASSERT_EQ(aclSetCompileopt(0, "must_keep_origin_dtype"), 0);
  EXPECT_EQ(aclGetCompileoptSize(0), std::strlen("must_keep_origin_dtype") + 1);
  ASSERT_EQ(aclGetCompileopt(0, value, 5), 0);
  EXPECT_STREQ(value, "must");
  EXPECT_EQ(aclSetCompileopt(99, "x"), 100000);
}

TEST(LegacyOperatorTest, DescriptionsTellWhatTheyWereGiven) {
  const int64_t dims[] = {2, 3};
  AclTensorDesc* desc = aclCreateTensorDesc(1, 2, dims, 2);
  ASSERT_NE(desc, nullptr);
  EXPECT_EQ(aclGetTensorDescType(desc), 1);
  EXPECT_EQ(aclGetTensorDescFormat(desc), 2);
  EXPECT_EQ(aclGetTensorDescNumDims(desc), 2u);
  int64_t size = 0;
  EXPECT_ACL_OK(aclGetTensorDescDimV2(desc, 1, &size));
  EXPECT_EQ(size, 3);
  EXPECT_EQ(aclGetTensorDescDimV2(desc, 2, &size), 100000);
  aclDestroyTensorDesc(desc);
  AclOpAttributes* attributes = aclopCreateAttr();
  EXPECT_ACL_OK(aclopSetAttrInt(attributes, "axis", 1));
  EXPECT_EQ(aclopSetAttrInt(attributes, nullptr, 1), 100000);
  aclopDestroyAttr(attributes);
}

class HcclTest : public AclTest {
 protected:
  void SetUp() override {
    AclTest::SetUp();
    HcclRoot root;
    ASSERT_EQ(HcclGetRootInfo(&root), 0);
    ASSERT_EQ(HcclCommInitRootInfo(1, &root, 0, &comm_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(HcclCommDestroy(comm_), 0);
    AclTest::TearDown();
  }
  void* comm_ = nullptr;
};

TEST_F(HcclTest, OneRankReceivesWhatItSends) {
  DeviceBuffer<float> in(4), out(4);
  const float values[] = {1, 2, 3, 4};
  float got[4] = {};
  ASSERT_ACL_OK(aclrtMemcpy(in.get(), 16, values, 16, 1));
  ASSERT_EQ(HcclAllReduce(in.get(), out.get(), 4, 4, 0, comm_, a_), 0);
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemcpy(got, 16, out.get(), 16, 2));
  EXPECT_EQ(std::memcmp(values, got, 16), 0);
  EXPECT_EQ(HcclAllReduce(in.get(), in.get(), 4, 4, 0, comm_, a_), 0) << "in place";
  const uint64_t offset = 2, count = 2;
  ASSERT_EQ(HcclAllGatherV(in.get(), count, out.get(), &count, &offset, 4, comm_, a_), 0);
  ASSERT_ACL_OK(aclrtSynchronizeStream(a_));
  ASSERT_ACL_OK(aclrtMemcpy(got, 16, out.get(), 16, 2));
  EXPECT_EQ(got[2], 1);
  EXPECT_EQ(got[3], 2);
}

TEST_F(HcclTest, CollectivesAreCaptured) {
  DeviceBuffer<int> in(1), out(1);
  void* graph = nullptr;
  ASSERT_ACL_OK(aclmdlRICaptureBegin(a_, 0));
  ASSERT_EQ(HcclAllGather(in.get(), out.get(), 1, 2, comm_, a_), 0);
  ASSERT_ACL_OK(aclmdlRICaptureEnd(a_, &graph));
  const int seven = 7;
  int got = 0;
  ASSERT_ACL_OK(aclrtMemcpy(in.get(), 4, &seven, 4, 1));
  ASSERT_ACL_OK(aclmdlRIExecuteAsync(graph, b_));
  ASSERT_ACL_OK(aclrtSynchronizeStream(b_));
  ASSERT_ACL_OK(aclrtMemcpy(&got, 4, out.get(), 4, 2));
  EXPECT_EQ(got, 7);
  EXPECT_ACL_OK(aclmdlRIDestroy(graph));
}

TEST_F(HcclTest, SaysWhatItDoesNotHave) {
  void* comm = nullptr;
  EXPECT_EQ(HcclCommInitRootInfo(2, nullptr, 1, &comm), 5);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("a communicator of 2 ranks (this one is 1)"));
  EXPECT_EQ(HcclSend(nullptr, 0, 4, 3, comm_, a_), 5);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("HcclSend with rank 3"));
  int value = 0;
  EXPECT_EQ(HcclAllReduce(&value, &value, 1, 99, 0, comm_, a_), 1);
  EXPECT_THAT(aclGetRecentErrMsg(), HasSubstr("no data type 99"));
  EXPECT_EQ(HcclBroadcast(&value, 1, 2, 1, comm_, a_), 1);
  char name[128] = "";
  EXPECT_EQ(HcclGetCommName(comm_, name), 0);
  EXPECT_THAT(name, HasSubstr("hostcann"));
}

}  // namespace
}  // namespace jumar::hostcann
