// The legacy operator path.
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/acl_api.h"
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

}  // namespace
}  // namespace jumar::hostcann
