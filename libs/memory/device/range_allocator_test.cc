#include "libs/memory/device/range_allocator.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::memory {
namespace {

TEST(RangeAllocatorTest, TakesAlignedDisjointRangesAndRefusesWhatDoesNotFit) {
  RangeAllocator ranges(0x1000, 0x4000, 0x1000);
  EXPECT_EQ(ranges.Take(1, 0), 0x1000u);
  EXPECT_EQ(ranges.Take(0x1000, 0x2000), 0x2000u);
  EXPECT_EQ(ranges.Take(0x2001, 0), std::nullopt);
  EXPECT_EQ(ranges.Take(0x2000, 0), 0x3000u);
  EXPECT_EQ(ranges.Take(1, 0), std::nullopt);
  EXPECT_EQ(ranges.taken_bytes(), 0x4000u);
}

TEST(RangeAllocatorTest, CoalescesNeighboursOnBothSides) {
  RangeAllocator ranges(0, 0x3000, 0x1000);
  for (uint64_t start : {0u, 0x1000u, 0x2000u}) EXPECT_EQ(ranges.Take(0x1000, 0), start);
  EXPECT_EQ(ranges.Give(0), 0x1000u);
  EXPECT_EQ(ranges.Give(0x2000), 0x1000u);
  EXPECT_EQ(ranges.largest_free_bytes(), 0x1000u);
  EXPECT_EQ(ranges.Give(0x1000), 0x1000u);
  EXPECT_EQ(ranges.largest_free_bytes(), 0x3000u);
}

TEST(RangeAllocatorTest, KnowsOnlyStartsOfTakenRanges) {
  RangeAllocator ranges(0, 0x4000, 0x1000);
  ASSERT_EQ(ranges.Take(0x2000, 0), 0u);
  EXPECT_EQ(ranges.Give(0x1000), 0u);
  EXPECT_EQ(ranges.Find(0x1fff), (std::pair<uint64_t, uint64_t>{0, 0x2000}));
  EXPECT_EQ(ranges.Find(0x2000), std::nullopt);
  EXPECT_EQ(ranges.Give(0), 0x2000u);
  EXPECT_EQ(ranges.Give(0), 0u);
}

TEST(RangeAllocatorTest, RefusesALengthThatOverflows) {
  RangeAllocator ranges(0, 0x4000, 0x1000);
  EXPECT_EQ(ranges.Take(UINT64_MAX, 0), std::nullopt);
}

// Against a model that is a map of pages: random requests of random alignment never overlap, are refused only when the model has no
// aligned gap, and giving everything back leaves one free range.
TEST(RangeAllocatorTest, BehavesLikeAMapOfPages) {
  constexpr uint64_t kPage = 16, kPages = 64, kBase = 1024;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    RangeAllocator ranges(kBase, kPage * kPages, kPage);
    std::vector<bool> used(kPages, false);
    std::map<uint64_t, uint64_t> live;  // start -> pages
    for (int step = 0; step < 400; ++step) {
      if (random() % 2 == 0) {
        const uint64_t bytes = 1 + random() % (kPage * 12);
        const uint64_t alignment = kPage << (random() % 3);
        const uint64_t pages = (bytes + kPage - 1) / kPage;
        bool fits = false;
        for (uint64_t at = 0; at + pages <= kPages && !fits; ++at) {
          if ((kBase + at * kPage) % alignment != 0) continue;
          fits = true;
          for (uint64_t i = 0; i < pages; ++i) fits = fits && !used[at + i];
        }
        const std::optional<uint64_t> start = ranges.Take(bytes, alignment);
        ASSERT_EQ(start.has_value(), fits) << "bytes " << bytes << " alignment " << alignment;
        if (!start.has_value()) continue;
        ASSERT_EQ(*start % alignment, 0u);
        for (uint64_t i = 0; i < pages; ++i) {
          const uint64_t page = (*start - kBase) / kPage + i;
          ASSERT_LT(page, kPages);
          ASSERT_FALSE(used[page]) << "page " << page << " was handed out twice";
          used[page] = true;
        }
        live[*start] = pages;
      } else if (!live.empty()) {
        auto it = live.begin();
        std::advance(it, random() % live.size());
        ASSERT_EQ(ranges.Give(it->first), it->second * kPage);
        for (uint64_t i = 0; i < it->second; ++i) used[(it->first - kBase) / kPage + i] = false;
        live.erase(it);
      }
    }
    for (const auto& [start, pages] : live) ranges.Give(start);
    EXPECT_EQ(ranges.taken_bytes(), 0u);
    EXPECT_EQ(ranges.largest_free_bytes(), kPage * kPages);
  }
}

}  // namespace
}  // namespace jumar::memory
