#include "libs/memory/device/caching_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/memory/device/caching_pool_fakes.h"

namespace jumar::memory {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSegment = 2 * kMiB;

class CachingPoolTest : public testing::Test {
 protected:
  FakeSource source_;
  FakeStream a_{1}, b_{2};
};

TEST_F(CachingPoolTest, ReusesAtOnceOnTheSameStream) {
  CachingPool pool({}, &source_);
  void* first = pool.Allocate(1000, a_).value();
  a_.Submit();
  ASSERT_TRUE(pool.Free(first, a_).ok());
  EXPECT_EQ(pool.Stats().pending_bytes, 1024u);
  EXPECT_EQ(pool.Allocate(1000, a_).value(), first);
  EXPECT_EQ(pool.Stats().reserved_bytes, kSegment);
  EXPECT_EQ(pool.Stats().num_waits, 0u);
}

TEST_F(CachingPoolTest, AnotherStreamWaitsOrGetsOtherMemory) {
  CachingPool pool({.reuse_with_wait = false}, &source_);
  void* first = pool.Allocate(kSegment, a_).value();
  a_.Submit();
  ASSERT_TRUE(pool.Free(first, a_).ok());
  void* second = pool.Allocate(kSegment, b_).value();
  EXPECT_NE(second, first) << "the first stream may still use it";
  ASSERT_TRUE(pool.Free(second, b_).ok());  // b did nothing, so that it is reached
  pool.SetReuse(true, true);
  void* third = pool.Allocate(kSegment, b_).value();
  EXPECT_EQ(third, second);
  EXPECT_EQ(pool.Allocate(kSegment, b_).value(), first) << "behind a wait";
  EXPECT_EQ(b_.behind[1], 1u);
  EXPECT_EQ(pool.Stats().num_waits, 1u);
  EXPECT_EQ(pool.Stats().num_segments, 2u);
}

TEST_F(CachingPoolTest, TakesWhatHasBeenReachedWithoutAWait) {
  CachingPool pool({}, &source_);
  void* first = pool.Allocate(kSegment, a_).value();
  a_.Submit();
  ASSERT_TRUE(pool.Free(first, a_).ok());
  a_.done = 1;
  EXPECT_EQ(pool.Allocate(kSegment, b_).value(), first);
  EXPECT_EQ(pool.Stats().num_waits, 0u);
}

TEST_F(CachingPoolTest, SplitsAndJoins) {
  CachingPool pool({}, &source_);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Allocate(kSegment / 4, a_).value());
  EXPECT_EQ(pool.Stats().num_segments, 1u);
  EXPECT_EQ(pool.Stats().largest_free_bytes, 0u);
  EXPECT_EQ(pool.Stats().fragmentation(), 0);
  for (int i : {0, 2}) ASSERT_TRUE(pool.Free(blocks[i], a_).ok());
  EXPECT_EQ(pool.Stats().largest_free_bytes, kSegment / 4);
  EXPECT_DOUBLE_EQ(pool.Stats().fragmentation(), 0.5);
  for (int i : {3, 1}) ASSERT_TRUE(pool.Free(blocks[i], a_).ok());
  EXPECT_EQ(pool.Stats().largest_free_bytes, kSegment);
  EXPECT_EQ(pool.Allocate(kSegment, a_).value(), blocks[0]);
}

TEST_F(CachingPoolTest, TrimKeepsWhatIsAskedFor) {
  CachingPool pool({}, &source_);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool.Allocate(kSegment, a_).value());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.Free(blocks[i], a_).ok());
  ASSERT_TRUE(pool.Trim(2 * kSegment).ok());
  EXPECT_EQ(source_.used, 2 * kSegment);
  source_.refuses = true;
  EXPECT_EQ(pool.Trim(0).code(), absl::StatusCode::kInternal);
  source_.refuses = false;
  ASSERT_TRUE(pool.Trim(0).ok());
  EXPECT_EQ(source_.used, kSegment) << "one is in use";
  EXPECT_EQ(pool.Stats().peak_reserved_bytes, 4 * kSegment);
  pool.ResetPeaks();
  EXPECT_EQ(pool.Stats().peak_reserved_bytes, kSegment);
}

TEST_F(CachingPoolTest, ReleaseThresholdGivesBackOnFree) {
  CachingPool pool({.release_threshold_bytes = kSegment}, &source_);
  void* first = pool.Allocate(kSegment, a_).value();
  void* second = pool.Allocate(kSegment, a_).value();
  ASSERT_TRUE(pool.Free(first, a_).ok());
  EXPECT_EQ(source_.used, kSegment);
  ASSERT_TRUE(pool.Free(second, a_).ok());
  EXPECT_EQ(source_.used, kSegment) << "the threshold is kept";
}

TEST_F(CachingPoolTest, ErrorsSayWhatIsWrong) {
  CachingPool pool({.name = "pool 7", .max_reserved_bytes = 2 * kSegment}, &source_);
  EXPECT_EQ(pool.Allocate(0, a_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.Allocate(UINT64_MAX, a_).status().code(), absl::StatusCode::kInvalidArgument);
  void* live = pool.Allocate(kSegment, a_).value();
  void* pending = pool.Allocate(kSegment, a_).value();
  a_.Submit();
  ASSERT_TRUE(pool.Free(pending, a_).ok());
  pool.SetReuse(true, false);
  const absl::Status full = pool.Allocate(kSegment, b_).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"pool 7", "2097152 in 1 allocations", "2097152 freed on streams", "limit is 4194304"}) {
    EXPECT_NE(full.message().find(part), std::string::npos) << full;
  }
  EXPECT_EQ(pool.Free(static_cast<char*>(live) + 512, a_).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(pool.Free(pending, a_).code(), absl::StatusCode::kNotFound);
  a_.fails = true;
  EXPECT_EQ(pool.Free(live, a_).code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(pool.Owns(live)) << "a failed free changes nothing";
  source_.limit = source_.used;
  EXPECT_EQ(pool.Allocate(3 * kSegment, b_).status().code(), absl::StatusCode::kResourceExhausted);
}

// Random streams that run at random speeds. Whoever gets memory must be ordered behind every earlier use of its bytes: by being the same
// stream, by the use being over, or by a wait. Live blocks never overlap, and the figures add up.
TEST(CachingPoolPropertyTest, NoStreamGetsBytesThatAnotherMayStillUse) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FakeSource source;
    source.limit = (4 + random() % 60) * kSegment;
    CachingPool pool({.reuse_reached = random() % 4 != 0, .reuse_with_wait = random() % 2 == 0}, &source);
    std::vector<std::unique_ptr<FakeStream>> streams;
    for (uint64_t i = 0; i < 1 + random() % 4; ++i) streams.push_back(std::make_unique<FakeStream>(i + 1));
    struct Live {
      uint64_t bytes;
      size_t stream;
    };
    std::map<uint64_t, Live> live;
    struct Use {
      uint64_t end;
      size_t stream;
      uint64_t position;
    };
    std::multimap<uint64_t, Use> uses;  // by first byte
    uint64_t allocated = 0;
    for (int step = 0; step < 600; ++step) {
      const size_t s = random() % streams.size();
      FakeStream& stream = *streams[s];
      for (uint64_t i = random() % 12; i > 8; --i) Advance(streams, s);
      if (random() % 2 == 0 || live.empty()) {
        const uint64_t bytes = 1 + (random() % 3 == 0 ? random() % (5 * kMiB) : random() % 100000);
        const auto base = pool.Allocate(bytes, stream);
        if (!base.ok()) {
          ASSERT_EQ(base.status().code(), absl::StatusCode::kResourceExhausted);
          continue;
        }
        const auto begin = reinterpret_cast<uint64_t>(*base), end = begin + bytes;
        ASSERT_EQ(begin % 512, 0u);
        const auto next = live.lower_bound(begin);
        ASSERT_TRUE(next == live.end() || next->first >= end);
        ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second.bytes <= begin);
        for (const auto& [first, use] : uses) {
          ASSERT_TRUE(first >= end || use.end <= begin || Ordered(stream, *streams[use.stream], use.position));
        }
        stream.Submit();  // it uses the memory
        uses.emplace(begin, Use{end, s, stream.operations.size()});
        live[begin] = {bytes, s};
        allocated += (bytes + 511) / 512 * 512;
      } else {
        const auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
        FakeStream& owner = *streams[it->second.stream];  // the user frees, as the contract asks for
        ASSERT_TRUE(pool.Free(reinterpret_cast<void*>(it->first), owner).ok());
        allocated -= (it->second.bytes + 511) / 512 * 512;
        live.erase(it);
      }
      const CachingPoolStats stats = pool.Stats();
      ASSERT_EQ(stats.allocated_bytes, allocated);
      ASSERT_EQ(stats.num_allocations, live.size());
      ASSERT_EQ(stats.reserved_bytes, source.used);
      ASSERT_LE(stats.allocated_bytes + stats.pending_bytes, stats.reserved_bytes);
      ASSERT_LE(stats.largest_free_bytes, stats.reserved_bytes - stats.allocated_bytes);
      ASSERT_GE(stats.fragmentation(), 0);
      ASSERT_LT(stats.fragmentation(), 1);
      if (random() % 50 == 0) {
        ASSERT_TRUE(pool.Trim(random() % (8 * kSegment)).ok());
      }
    }
    for (const auto& [base, block] : live) ASSERT_TRUE(pool.Free(reinterpret_cast<void*>(base), *streams[block.stream]).ok());
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < streams.size(); ++s) moved = Advance(streams, s) || moved;
    }
    ASSERT_TRUE(pool.Trim(0).ok());
    EXPECT_EQ(source.used, 0u) << "all was joined again";
    EXPECT_EQ(pool.Stats().reserved_bytes, 0u);
  }
}

}  // namespace
}  // namespace jumar::memory
