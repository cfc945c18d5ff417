#include "libs/memory/kv/runs.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::memory::kv {
namespace {

using Slots = std::vector<int64_t>;

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(RunsTest, SlotsThatFollowEachOtherAreOneRun) {
  EXPECT_EQ(*MergeSlots(Slots{5, 6, 7, -1, 2}, {.num_slots = 8}), (std::vector<CopyRun>{{0, 5, 3}, {4, 2, 1}}));
  EXPECT_EQ(*MergeSlots(Slots{5, 6, 7, 8, 9}, {.num_slots = 10, .block_size = 4}), (std::vector<CopyRun>{{0, 5, 3}, {3, 8, 2}}));
  EXPECT_EQ(*MergeSlots(Slots{0, 1, 2, 3, 4}, {.num_slots = 10, .max_length = 2}), (std::vector<CopyRun>{{0, 0, 2}, {2, 2, 2}, {4, 4, 1}}));
  EXPECT_TRUE(MergeSlots(Slots{}, {}).value().empty());
  EXPECT_TRUE(MergeSlots(Slots{-1, -1}, {}).value().empty());
}

TEST(RunsTest, EverySlotIsCoveredOnceInOrder) {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 3000; ++round) {
    const RunLimits limits = {.num_slots = 1 + below(60), .block_size = below(9), .max_length = below(6)};
    std::vector<int32_t> slots;
    for (int64_t n = below(40); n > 0; --n) {
      const int64_t last = slots.empty() ? -1 : slots.back();
      slots.push_back(static_cast<int32_t>(below(4) > 0 && last >= 0 && last + 1 < limits.num_slots ? last + 1
                                           : below(6) == 0                                          ? -1
                                                                                                    : below(limits.num_slots)));
    }
    std::vector<int32_t> seen(slots.size(), -1);
    const auto runs = MergeSlots(slots, limits);
    ASSERT_TRUE(runs.ok());
    int64_t end = 0;
    for (size_t r = 0; r < runs->size(); ++r) {
      const CopyRun& run = (*runs)[r];
      ASSERT_GE(run.src, end);
      ASSERT_GT(run.length, 0);
      for (int64_t i = 0; i < run.length; ++i) seen[run.src + i] = static_cast<int32_t>(run.dst + i);
      if (limits.block_size > 0) {
        ASSERT_EQ(run.dst / limits.block_size, (run.dst + run.length - 1) / limits.block_size);
      }
      if (limits.max_length > 0) {
        ASSERT_LE(run.length, limits.max_length);
      }
      // As long as can be: the next run could not have been part of this one.
      if (r > 0 && runs->at(r - 1).src + runs->at(r - 1).length == run.src && runs->at(r - 1).dst + runs->at(r - 1).length == run.dst) {
        ASSERT_TRUE((limits.block_size > 0 && run.dst % limits.block_size == 0) || runs->at(r - 1).length == limits.max_length);
      }
      end = run.src + run.length;
    }
    ASSERT_EQ(seen, slots);
  }
}

TEST(RunsTest, RefusesASlotOutside) {
  EXPECT_EQ(Refusal(MergeSlots(Slots{0, 8}, {.num_slots = 8}).status()), "slot_mapping[1] is 8; the cache has 8 slots");
  EXPECT_EQ(Refusal(MergeSlots(Slots{6, 7, 8}, {.num_slots = 8}).status()), "slot_mapping[2] is 8; the cache has 8 slots");
  EXPECT_EQ(Refusal(MergeSlots(Slots{-2}, {.num_slots = 8}).status()), "slot_mapping[0] is -2; the cache has 8 slots");
  EXPECT_EQ(Refusal(MergeSlots(Slots{INT64_MAX - 1, INT64_MAX}, {.num_slots = INT64_MAX}).status()),
            "slot_mapping[1] is 9223372036854775807; the cache has 9223372036854775807 slots");
  Refusal(MergeSlots(Slots{INT64_MIN}, {.num_slots = INT64_MAX}).status());
  Refusal(MergeSlots(Slots{}, {.num_slots = -1}).status());
  Refusal(MergeSlots(Slots{}, {.num_slots = 1, .block_size = -1}).status());
}

TEST(RunsTest, PairsOfBlocksThatFollowEachOtherAreOneRun) {
  const std::vector<BlockPair> pairs = {{3, 7}, {4, 8}, {5, 9}, {9, 0}, {8, 1}};
  EXPECT_EQ(*MergeBlocks(pairs, {10, 10}), (std::vector<CopyRun>{{3, 7, 3}, {9, 0, 1}, {8, 1, 1}}));
  EXPECT_TRUE(MergeBlocks({}, {}).value().empty());
  EXPECT_EQ(Refusal(MergeBlocks(pairs, {9, 10}).status()), "pairs[3] copies from block 9; the source has 9 blocks");
  EXPECT_EQ(Refusal(MergeBlocks(pairs, {10, 9}).status()), "pairs[2] copies to block 9; the destination has 9 blocks");
  EXPECT_EQ(Refusal(MergeBlocks(std::vector<BlockPair>{{-1, 0}}, {9, 9}).status()),
            "pairs[0] copies from block -1; the source has 9 blocks");
  EXPECT_EQ(Refusal(MergeBlocks(std::vector<BlockPair>{{0, 4}, {1, 2}, {3, 4}}, {9, 9}).status()),
            "block 4 is the destination of two pairs");
  EXPECT_EQ(Refusal(MergeBlocks(std::vector<BlockPair>{{0, 4}, {1, 4}}, {9, 9}).status()), "block 4 is the destination of two pairs");
}

}  // namespace
}  // namespace jumar::memory::kv
