// The rules: what is accepted, what is refused and how, and what each picks.
#include "libs/hostcann/acl/faults.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace jumar::hostcann {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

FaultPlan Plan(const std::string& text) {
  auto rules = ParseFaults(text);
  EXPECT_TRUE(rules.ok()) << rules.status();
  return FaultPlan(*std::move(rules));
}

std::string Refusal(const std::string& text) { return std::string(ParseFaults(text).status().message()); }

TEST(ParseFaultsTest, TakesRulesInALineOrAFile) {
  const std::string path = testing::TempDir() + "/faults.txt";
  std::ofstream(path) << "# the second half of a test\n\nfail-alloc nth=3 times=all device=1  # a comment\nslow-stream stream=all us=200\n";
  for (const std::string& text : {"@" + path, std::string("fail-alloc nth=3 times=all device=1;slow-stream stream=all us=200 ;")}) {
    const auto rules = ParseFaults(text);
    ASSERT_TRUE(rules.ok()) << rules.status();
    ASSERT_EQ(rules->size(), 2u);
    EXPECT_EQ((*rules)[0].nth, 3);
    EXPECT_EQ((*rules)[0].times, FaultRule::kAny);
    EXPECT_EQ((*rules)[0].device, 1);
    EXPECT_EQ((*rules)[1].us, 200);
    EXPECT_EQ((*rules)[1].text, "JUMAR_FAULTS rule 2, 'slow-stream stream=all us=200'");
  }
  EXPECT_TRUE(ParseFaults("")->empty());
}

TEST(ParseFaultsTest, AnErrorNamesTheRuleTheValueAndWhatIsAllowed) {
  EXPECT_THAT(Refusal("fail-alloc; explode"), AllOf(HasSubstr("rule 2, 'explode'"), HasSubstr("there are fail-alloc, slow-stream")));
  EXPECT_THAT(Refusal("fail-alloc nth=0"), HasSubstr("nth=0 is not a whole number from 1 on"));
  EXPECT_THAT(Refusal("fail-alloc nth=x"), HasSubstr("nth=x"));
  EXPECT_THAT(Refusal("fail-alloc nth"), HasSubstr("nth is not one of nth=, times=, every=, above=, device= with a value"));
  EXPECT_THAT(Refusal("fail-alloc us=3"), HasSubstr("us=3 is not one of"));
  EXPECT_THAT(Refusal("fail-alloc nth=2 nth=3"), HasSubstr("nth= stands twice"));
  EXPECT_THAT(Refusal("fail-alloc every=2 nth=3"), HasSubstr("every= excludes nth="));
  EXPECT_THAT(Refusal("slow-stream us=5"), HasSubstr("slow-stream needs stream="));
  EXPECT_THAT(Refusal("slow-stream stream=all us=99999999"), HasSubstr("from 1 to 10000000"));
  EXPECT_THAT(Refusal("lose-device device=16"), HasSubstr("device=16 is not a whole number from 0 to 15"));
  EXPECT_THAT(Refusal("fail-op op=a*b"), HasSubstr("op=a*b is not an operator's name"));
  EXPECT_THAT(Refusal("fail-op op="), HasSubstr("op= is not an operator's name"));
  EXPECT_THAT(Refusal("times=3"), HasSubstr("times=3 is not an action"));
  EXPECT_THAT(Refusal("@/no/such/file"), HasSubstr("JUMAR_FAULTS=@/no/such/file: the file cannot be read"));
}

// Which of the first eight matches a rule picks.
std::vector<int> Picked(const std::string& rule) {
  FaultPlan plan = Plan(rule);
  std::vector<int> picked;
  for (int i = 1; i <= 8; ++i) {
    if (plan.OnAllocation(0, 100) != nullptr) picked.push_back(i);
  }
  return picked;
}

TEST(FaultPlanTest, PicksTheNthSomeInARowOrEveryKth) {
  EXPECT_THAT(Picked("fail-alloc"), ElementsAre(1));
  EXPECT_THAT(Picked("fail-alloc nth=3"), ElementsAre(3));
  EXPECT_THAT(Picked("fail-alloc nth=3 times=2"), ElementsAre(3, 4));
  EXPECT_THAT(Picked("fail-alloc nth=6 times=all"), ElementsAre(6, 7, 8));
  EXPECT_THAT(Picked("fail-alloc every=3"), ElementsAre(3, 6));
  EXPECT_THAT(Picked("fail-alloc nth=2; fail-alloc nth=3"), ElementsAre(2, 3)) << "each rule counts for itself";
  EXPECT_THAT(Picked("fail-alloc above=100 times=all"), ElementsAre());
  EXPECT_THAT(Picked("fail-alloc above=99 times=all device=1"), ElementsAre());
}

TEST(FaultPlanTest, CountsOnlyWhatMatches) {
  FaultPlan plan = Plan("fail-op op=aclnnMat* nth=2; fail-op op=aclnnAdd device=1");
  EXPECT_EQ(plan.OnOperator(0, "aclnnMatmul"), nullptr);
  EXPECT_EQ(plan.OnOperator(0, "aclnnMul"), nullptr);
  EXPECT_EQ(plan.OnOperator(0, "aclnnAdd"), nullptr);
  EXPECT_NE(plan.OnOperator(0, "aclnnMatmulWeightNz"), nullptr);
  EXPECT_EQ(plan.OnOperator(0, "aclnnMatmul"), nullptr);
  EXPECT_EQ(plan.OnOperator(1, "aclnnAdds"), nullptr) << "no star, so the whole name";
  EXPECT_NE(plan.OnOperator(1, "aclnnAdd"), nullptr);
  EXPECT_EQ(plan.OnAllocation(1, 5), nullptr);
}

TEST(FaultPlanTest, SlowsStreamsAndLosesDevices) {
  FaultPlan plan = Plan("slow-stream stream=7 us=30; slow-stream stream=all us=5; lose-device device=1 after=2");
  EXPECT_EQ(plan.DelayUs(0, 7), 35);
  EXPECT_EQ(plan.DelayUs(0, 8), 5);
  EXPECT_EQ(plan.OnDeviceTask(0), nullptr);
  EXPECT_EQ(plan.OnDeviceTask(1), nullptr);
  EXPECT_EQ(plan.OnDeviceTask(1), nullptr);
  EXPECT_NE(plan.OnDeviceTask(1), nullptr);
}

TEST(FaultPlanTest, PicksCollectivesByNameAndRank) {
  FaultPlan plan = Plan("drop-collective op=HcclAllReduce rank=1 nth=2; delay-collective op=HcclSend ms=20 times=all");
  EXPECT_EQ(plan.OnCollective("HcclAllReduce", 0), nullptr);
  EXPECT_EQ(plan.OnCollective("HcclAllReduce", 1), nullptr);
  ASSERT_NE(plan.OnCollective("HcclAllReduce", 1), nullptr);
  EXPECT_EQ(plan.OnCollective("HcclAllReduce", 1), nullptr);
  EXPECT_EQ(plan.OnCollective("HcclSend", 3)->ms, 20);
}

}  // namespace
}  // namespace jumar::hostcann
