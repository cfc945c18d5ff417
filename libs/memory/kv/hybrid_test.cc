#include "libs/memory/kv/hybrid.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/memory/kv/layouts.h"

namespace jumar::memory::kv {
namespace {

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

HybridGroup GroupOf(const PageLayout& l, int64_t max_multiple = 1) {
  return {.name = l.name, .page_bytes = l.block_bytes(), .block_size = l.block_size, .max_multiple = max_multiple, .layers = 1};
}

// DeepSeek V4 with block 128: the pages of vllm-ascend, [16640, 131072] on A2 and A3, [16896, 81920] on A5, each derived: the indexer's
// keys share pages with the state of their compressor, the latents with the window and the two states.
TEST(HybridTest, DeepSeekV4PagesFollowFromTheLayouts) {
  const auto page = [](std::vector<HybridGroup> groups) { return PlanHybrid(groups)->page_bytes; };
  EXPECT_EQ(page({GroupOf(IndexerKeys(128, Element::kInt8, Element::kFloat16)), GroupOf(CompressorState(8, 128, 2))}), 16640);
  EXPECT_EQ(
      page({GroupOf(SharedKv(128)), GroupOf(SharedKv(128)), GroupOf(CompressorState(8, 512, 2)), GroupOf(CompressorState(32, 512, 1))}),
      131072);
  EXPECT_EQ(page({GroupOf(IndexerKeys(128)), GroupOf(CompressorState(8, 128, 2))}), 16896);
  EXPECT_EQ(
      page({GroupOf(Packed640(128)), GroupOf(Packed640(128)), GroupOf(CompressorState(8, 512, 2)), GroupOf(CompressorState(16, 512, 1))}),
      81920);
}

TEST(HybridTest, AttentionGrowsUntilAStateFits) {
  // A state of 100 KB beside attention with 4 KiB per 16 tokens.
  const std::vector<HybridGroup> groups = {{"attention", 4096, 16, 1 << 20, 3}, {"state", 100000, 1, 1, 1}};
  const auto plan = PlanHybrid(groups);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->page_bytes, 25 * 4096);  // the first multiple that holds it
  EXPECT_EQ(plan->groups[0].block_size, 25 * 16);
  EXPECT_EQ(plan->groups[0].padding_bytes, 0);
  EXPECT_EQ(plan->groups[1].padding_bytes, 2400);
  EXPECT_EQ(plan->common_block_size, 400);
  // With more states than attention, padding attention's blocks wastes less.
  EXPECT_EQ(PlanHybrid(std::vector<HybridGroup>{{"attention", 4096, 16, 1 << 20, 1}, {"state", 100000, 1, 1, 3}})->page_bytes, 100000);
}

TEST(HybridTest, AWindowTakesSeveralBlocksOfAPage) {
  const std::vector<HybridGroup> groups = {{"full", 65536, 16, 1, 1}, {"window", 16384, 16, 8, 5}};
  const auto plan = PlanHybrid(groups, 512);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->page_bytes, 65536);
  EXPECT_EQ(plan->groups[1].block_size, 64);
  EXPECT_EQ(plan->common_block_size, 64);
  EXPECT_EQ(plan->wasted, 0);
}

TEST(HybridTest, EveryPlanFitsAndNoTriedPageWastesLess) {
  std::mt19937_64 random(1);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<HybridGroup> groups;
    for (int64_t n = between(1, 5); n > 0; --n)
      groups.push_back({"g", between(1, 2000), between(1, 64), between(1, 3) == 1 ? 1 : between(1, 4000), between(1, 40)});
    const int64_t alignment = between(1, 3) == 1 ? 512 : 1;
    const auto plan = PlanHybrid(groups, alignment);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->page_bytes % alignment, 0);
    int64_t largest = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& got = plan->groups[i];
      const int64_t multiple = got.block_size / groups[i].block_size;
      largest = std::max(largest, groups[i].page_bytes);
      ASSERT_EQ(got.block_size, multiple * groups[i].block_size);
      ASSERT_TRUE(multiple >= 1 && multiple <= groups[i].max_multiple);
      ASSERT_EQ(got.used_bytes, multiple * groups[i].page_bytes);
      ASSERT_TRUE(got.padding_bytes >= 0 && got.used_bytes + got.padding_bytes == plan->page_bytes);
      ASSERT_TRUE(multiple == groups[i].max_multiple || got.padding_bytes < groups[i].page_bytes);  // no further block would fit
      ASSERT_EQ(plan->common_block_size % got.block_size, 0);
    }
    // Against the page that everyone would take first, and in whatever order the groups come.
    const int64_t simple = (largest + alignment - 1) / alignment * alignment;
    double padding = 0, total = 0;
    for (const HybridGroup& g : groups) {
      padding += static_cast<double>((simple - g.page_bytes * std::min(simple / g.page_bytes, g.max_multiple)) * g.layers);
      total += static_cast<double>(simple * g.layers);
    }
    ASSERT_LE(plan->wasted, padding / total + 1e-12);
    std::vector<HybridGroup> turned(groups.rbegin(), groups.rend());
    ASSERT_EQ(PlanHybrid(turned, alignment)->page_bytes, plan->page_bytes);
  }
}

TEST(HybridTest, RefusalsNameTheGroup) {
  const auto refusal = [](HybridGroup g, int64_t alignment = 1) {
    return Refusal(PlanHybrid(std::vector<HybridGroup>{{"a", 1, 1, 1, 1}, g}, alignment).status());
  };
  EXPECT_NE(refusal({"b", 0, 1, 1, 1}).find("group b has page_bytes = 0"), std::string::npos);
  EXPECT_NE(refusal({"b", 1, -1, 1, 1}).find("block_size = -1"), std::string::npos);
  EXPECT_NE(refusal({"b", 1, 1, 0, 1}).find("max_multiple = 0"), std::string::npos);
  EXPECT_NE(refusal({"b", 1, 1, 1, INT64_MAX}).find("layers = "), std::string::npos);
  EXPECT_NE(refusal({"b", 1, INT64_MAX, 2, 1}).find("exceeds int64"), std::string::npos);
  EXPECT_NE(refusal({"b", INT64_MAX, 1, 1, 1}, 4096).find("aligned to 4096 exceeds int64"), std::string::npos);
  EXPECT_NE(refusal({"b", 1, 1, 1, 1}, 0).find("alignment = 0"), std::string::npos);
  EXPECT_EQ(Refusal(PlanHybrid({}).status()), "hybrid: there is no group");
  EXPECT_NE(Refusal(PlanHybrid(std::vector<HybridGroup>{{"a", 1, INT64_MAX, 1, 1}, {"b", 1, INT64_MAX - 1, 1, 1}}).status())
                .find("the common block exceeds int64"),
            std::string::npos);
  EXPECT_TRUE(PlanHybrid(std::vector<HybridGroup>{{"a", INT64_MAX, 1, INT64_MAX, 1}, {"b", 1, 1, INT64_MAX, 1}}).ok());
}

}  // namespace
}  // namespace jumar::memory::kv
