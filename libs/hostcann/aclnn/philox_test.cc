#include "libs/hostcann/aclnn/philox.h"

#include <gtest/gtest.h>

namespace jumar::hostcann::aclnn {
namespace {

// The known answers that the authors publish with Random123 (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesTheAuthorsKnownAnswers) {
  EXPECT_EQ(Philox(0, 0)(0), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~uint64_t{0}, ~uint64_t{0})(~uint64_t{0}), (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822, 0x0370734413198a2e)(0x85a308d3243f6a88),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformStaysBelowOne) {
  EXPECT_EQ(Uniform(uint32_t{0}), 0.0f);
  EXPECT_LT(Uniform(~uint32_t{0}), 1.0f);
  EXPECT_LT(Uniform(~uint64_t{0}), 1.0);
  EXPECT_EQ(Uniform(uint32_t{1} << 31), 0.5f);
}

}  // namespace
}  // namespace jumar::hostcann::aclnn
