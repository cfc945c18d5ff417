#include "libs/hostcann/aclnn/limits.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/aclnn/limits_table.h"

// The runtime's part, so that the test needs no device.
namespace jumar::hostcann {
void SetRecentError(const std::string&) {}
void* DeviceAlias(const void* pointer) { return const_cast<void*>(pointer); }
}  // namespace jumar::hostcann

namespace jumar::hostcann::aclnn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kA2[] = "Ascend910B2";
constexpr const aclTensor* kAbsent = nullptr;

aclTensor Tensor(DType dtype, std::vector<int64_t> sizes, int32_t format = kFormatND) {
  aclTensor t{};
  t.dtype = dtype;
  t.format = format;
  t.sizes.n = static_cast<int>(sizes.size());
  std::memcpy(t.sizes.v, sizes.data(), sizes.size() * sizeof(int64_t));
  return t;
}

aclScalar Double(double value) {
  aclScalar s{.dtype = DType::kF64, .value = {}};
  std::memcpy(s.value, &value, sizeof(value));
  return s;
}

TEST(LimitsTest, ChipsAreToldByTheirNames) {
  EXPECT_EQ(ChipOf("Ascend910B4"), kChipA2);
  EXPECT_EQ(ChipOf("Ascend910_9391"), kChipA3);
  EXPECT_EQ(ChipOf("Ascend950PR_9599"), kChip950);
  EXPECT_EQ(ChipOf("Ascend310P3"), kChip310P);
  EXPECT_EQ(ChipOf("Ascend910A"), 0);
}

TEST(LimitsTest, TypesOutsideOfTheListAreNamed) {
  const aclTensor good = Tensor(DType::kF32, {2}), bad = Tensor(DType::kU32, {2});
  EXPECT_EQ(CheckLimits("aclnnAbs", {&good, &good}, kA2), "");
  EXPECT_THAT(CheckLimits("aclnnAbs", {&bad, &good}, kA2),
              AllOf(HasSubstr("argument `self` is uint32; it must be one of float32, float16"), HasSubstr(kA2), HasSubstr("page \"aclnnAbs\"")));
}

TEST(LimitsTest, ChipsDiffer) {
  const aclTensor bf16 = Tensor(DType::kBF16, {2, 64}), gamma = Tensor(DType::kBF16, {64}), rstd = Tensor(DType::kF32, {2, 1});
  const auto check = [&](const char* soc) { return CheckLimits("aclnnRmsNorm", {&bf16, &gamma, 1e-6, &bf16, &rstd}, soc); };
  EXPECT_EQ(check(kA2), "");
  EXPECT_EQ(check("Ascend910_9391"), "");
  EXPECT_THAT(check("Ascend310P3"), HasSubstr("argument `x` is bfloat16; it must be one of float32, float16"));
}

TEST(LimitsTest, DimensionsAreCounted) {
  const aclTensor x = Tensor(DType::kF32, std::vector<int64_t>(9, 1));
  EXPECT_THAT(CheckLimits("aclnnAbs", {&x, &x}, kA2), HasSubstr("has 9 dimensions, [1, 1, 1, 1, 1, 1, 1, 1, 1]; their number must be one of 0, 1"));
}

TEST(LimitsTest, FormatsAreChecked) {
  const aclTensor x = Tensor(DType::kF16, {32, 32}), nz = Tensor(DType::kF16, {32, 32}, kFormatFractalNz), nchw = Tensor(DType::kF16, {32, 32}, 0);
  EXPECT_EQ(CheckLimits("aclnnAbs", {&nchw, &nchw}, kA2), "");  // ND means any base format
  EXPECT_THAT(CheckLimits("aclnnAbs", {&nz, &x}, kA2), HasSubstr("argument `self` has format FRACTAL_NZ (29); it must be one of ND (2)"));
}

TEST(LimitsTest, NumbersAreChecked) {
  const aclTensor x = Tensor(DType::kF32, {2, 3});
  EXPECT_EQ(CheckLimits("aclnnGeluV2", {&x, 1, &x}, kA2), "");
  EXPECT_THAT(CheckLimits("aclnnGeluV2", {&x, 2, &x}, kA2), HasSubstr("argument `approximate` is 2; it must be 0 or 1"));
  EXPECT_THAT(CheckLimits("aclnnMatmul", {&x, &x, &x, int8_t{7}}, kA2), HasSubstr("`cubeMathType` is 7; it must be 0..4"));
  EXPECT_THAT(CheckLimits("aclnnInplaceBernoulli", {&x, static_cast<const aclScalar*>(nullptr), int64_t{0}, int64_t{6}}, kA2),
              HasSubstr("`offset` is 6; it must be a multiple of 4"));
  const aclScalar zero = Double(0), one = Double(1);
  EXPECT_EQ(CheckLimits("aclnnCelu", {&x, &one, &x}, kA2), "");
  EXPECT_THAT(CheckLimits("aclnnCelu", {&x, &zero, &x}, kA2), HasSubstr("`alpha` is 0; it must be !=0"));
}

TEST(LimitsTest, TextsAreChecked) {
  const aclTensor q = Tensor(DType::kF16, {1, 1, 1, 128});
  EXPECT_EQ(CheckLimits("aclnnApplyRotaryPosEmbV2", {&q, &q, &q, &q, int64_t{1}, "half"}, kA2), "");
  EXPECT_THAT(CheckLimits("aclnnApplyRotaryPosEmbV2", {&q, &q, &q, &q, int64_t{1}, "hal"}, kA2),
              HasSubstr("`rotaryMode` is \"hal\"; it must be half or interleave or quarter"));
}

TEST(LimitsTest, AnAxisMustBeOneOfTheTensor) {
  const aclTensor x = Tensor(DType::kF32, {2, 3}), scalar = Tensor(DType::kF32, {}), index = Tensor(DType::kI64, {2, 3});
  const auto check = [&](const aclTensor& self, int64_t axis) { return CheckLimits("aclnnGather", {&self, axis, &index, &x}, kA2); };
  EXPECT_EQ(check(x, -2), "");
  EXPECT_EQ(check(x, 1), "");
  EXPECT_THAT(check(x, 2), HasSubstr("`dim` is 2; it must be from -2 to 1"));
  EXPECT_EQ(check(scalar, -1), "");  // a scalar counts as a vector
  EXPECT_THAT(check(scalar, 1), HasSubstr("must be from -1 to 0"));
  aclTensorList list{{&x, &x}};
  EXPECT_EQ(CheckLimits("aclnnStack", {&list, int64_t{2}, &x}, kA2), "");  // behind the last
  EXPECT_THAT(CheckLimits("aclnnStack", {&list, int64_t{3}, &x}, kA2), HasSubstr("must be from -3 to 2"));
}

TEST(LimitsTest, ListsAreCheckedByElement) {
  const aclTensor x = Tensor(DType::kF32, {2, 3}), bad = Tensor(DType::kF32, {2, 3}, 4);
  aclTensorList list{{&x, &bad}};
  EXPECT_THAT(CheckLimits("aclnnStack", {&list, int64_t{0}, &x}, kA2), HasSubstr("`tensors` has format FRACTAL_Z (4)"));
  aclIntArray axes{{0, 5}};
  EXPECT_THAT(CheckLimits("aclnnFlip", {&x, &axes, &x}, kA2), HasSubstr("`dims` is 5; it must be from -2 to 1"));
}

TEST(LimitsTest, WhatIsNotDocumentedIsNotRefused) {
  const aclTensor x = Tensor(DType::kU32, {2});
  EXPECT_EQ(CheckLimits("aclnnNoSuchOperator", {&x}, kA2), "");
  EXPECT_EQ(CheckLimits("aclnnAbs", {&x}, kA2), "");  // another number of arguments than the page's
  EXPECT_EQ(CheckLimits("aclnnAbs", {kAbsent, kAbsent}, kA2), "");
  const aclTensor placeholder = Tensor(DType::kU32, {0});
  EXPECT_EQ(CheckLimits("aclnnAbs", {&placeholder, &placeholder}, kA2), "");
}

TEST(LimitsTest, TheTableIsInOrderAndWithinItsPages) {
  const auto table = LimitTable();
  EXPECT_GT(table.size(), 2000u);
  for (size_t i = 0; i < table.size(); ++i) {
    const Limit& limit = table[i];
    if (i > 0) {
      EXPECT_LE(std::strcmp(table[i - 1].op, limit.op), 0);
    }
    const Page* page = PageOf(limit.op);
    ASSERT_NE(page, nullptr) << limit.op;
    EXPECT_LT(limit.position, page->arguments) << limit.op << " " << limit.argument;
    EXPECT_TRUE(limit.dtypes != 0 || limit.formats != 0 || limit.dims != 0 || *limit.values != 0) << limit.op << " " << limit.argument;
  }
}

}  // namespace
}  // namespace jumar::hostcann::aclnn
