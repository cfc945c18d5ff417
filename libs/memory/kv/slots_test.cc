#include "libs/memory/kv/slots.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::memory::kv {
namespace {

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// A batch with block tables that share no block; positions follow each other or not, and -1 is among them.
struct Batch {
  std::vector<int32_t> starts = {0}, table;
  std::vector<int64_t> positions;
  int64_t requests = 0, width = 0, num_blocks = 0, block_size = 0;
  ContextParallel cp;

  SlotMapping Mapping() const {
    return {.query_start_loc = starts,
            .positions = positions,
            .block_table = {table, requests, width, width},
            .num_blocks = num_blocks,
            .block_size = block_size,
            .context_parallel = cp,
            .pad = kPadSlot};
  }
  int64_t tokens() const { return starts.back(); }
};

Batch RandomBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  Batch b;
  const int64_t sizes[] = {1, 2, 3, 8, 12, 16, 128};
  b.block_size = sizes[between(0, 6)];
  b.cp.size = between(1, 4);
  do {
    b.cp.interleave = between(1, b.block_size);
  } while (b.block_size % b.cp.interleave != 0);
  b.cp.rank = between(0, b.cp.size - 1);
  b.requests = between(0, 6);
  b.width = between(1, 5);
  b.num_blocks = b.requests * b.width + between(0, 3);
  b.table.resize(static_cast<size_t>(b.num_blocks));
  std::iota(b.table.begin(), b.table.end(), 0);
  std::shuffle(b.table.begin(), b.table.end(), random);
  b.table.resize(static_cast<size_t>(b.requests * b.width));
  const int64_t longest = b.width * b.block_size * b.cp.size;
  for (int64_t r = 0; r < b.requests; ++r) {
    const int64_t first = between(0, longest - 1), count = between(0, longest - first);
    const bool jumps = between(0, 2) == 0;
    for (int64_t i = 0; i < count; ++i) b.positions.push_back(between(0, 30) == 0 ? -1 : jumps ? between(0, longest - 1) : first + i);
    b.starts.push_back(static_cast<int32_t>(b.positions.size()));
  }
  return b;
}

// The formula in slots.h, token by token.
std::vector<int64_t> Naive(const Batch& b) {
  std::vector<int64_t> slots;
  for (int64_t r = 0; r < b.requests; ++r) {
    for (int64_t t = b.starts[r]; t < b.starts[r + 1]; ++t) {
      const int64_t p = b.positions[t], v = b.block_size * b.cp.size;
      if (p < 0 || p % v / b.cp.interleave % b.cp.size != b.cp.rank) {
        slots.push_back(-1);
      } else {
        slots.push_back(int64_t{b.table[r * b.width + p / v]} * b.block_size + p % v / (b.cp.interleave * b.cp.size) * b.cp.interleave +
                        p % v % b.cp.interleave);
      }
    }
  }
  return slots;
}

TEST(SlotsTest, MatchesTheFormula) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Batch b = RandomBatch(seed);
    std::vector<int64_t> got(static_cast<size_t>(b.tokens()) + 3, 7), want = Naive(b);
    ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int64_t>(got)).ok()) << seed;
    want.resize(got.size(), -1);
    ASSERT_EQ(got, want) << seed;
    std::vector<int32_t> narrow(got.size(), 7);
    ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int32_t>(narrow)).ok());
    ASSERT_TRUE(std::equal(got.begin(), got.end(), narrow.begin())) << seed;
  }
}

// All ranks together keep each token once, and each rank's share is what one rank alone would map with the blocks dealt out.
TEST(SlotsTest, RanksTogetherKeepEachTokenOnce) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Batch b = RandomBatch(seed);
    const int64_t size = b.cp.size;
    std::vector<int64_t> keepers(static_cast<size_t>(b.tokens())), merged(keepers.size(), -1);
    for (b.cp.rank = 0; b.cp.rank < size; ++b.cp.rank) {
      std::vector<int64_t> slots(keepers.size());
      ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int64_t>(slots)).ok());
      for (size_t t = 0; t < slots.size(); ++t) {
        if (slots[t] < 0) continue;
        ++keepers[t];
        // Back to the offset in the virtual block: the inverse of the dealing.
        const int64_t in = slots[t] % b.block_size, group = in / b.cp.interleave * size + b.cp.rank;
        merged[t] = slots[t] / b.block_size * b.block_size * size + group * b.cp.interleave + in % b.cp.interleave;
      }
    }
    Batch whole = b;
    whole.cp = {};
    whole.block_size = b.block_size * size;
    std::vector<int64_t> want(keepers.size());
    ASSERT_TRUE(ComputeSlots(whole.Mapping(), std::span<int64_t>(want)).ok());
    ASSERT_EQ(merged, want) << seed;
    for (size_t t = 0; t < keepers.size(); ++t) ASSERT_EQ(keepers[t], b.positions[t] >= 0) << seed;
  }
}

TEST(SlotsTest, ChunkedIsWhole) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Batch b = RandomBatch(seed);
    std::mt19937_64 random(seed);
    std::vector<int64_t> whole(static_cast<size_t>(b.tokens())), chunks(whole.size());
    ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int64_t>(whole)).ok());
    for (int64_t r = 0; r < b.requests; ++r) {
      for (int64_t t = b.starts[r]; t < b.starts[r + 1];) {
        const int64_t n = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(b.starts[r + 1] - t));
        const int32_t starts[] = {0, static_cast<int32_t>(n)};
        SlotMapping m = b.Mapping();
        m.query_start_loc = starts;
        m.positions = std::span(b.positions).subspan(t, n);
        m.block_table = {std::span(b.table).subspan(r * b.width), 1, b.width, b.width};
        ASSERT_TRUE(ComputeSlots(m, std::span(chunks).subspan(t, n)).ok());
        t += n;
      }
    }
    ASSERT_EQ(chunks, whole) << seed;
  }
}

// Renumbering the blocks renumbers the slots, and nothing else.
TEST(SlotsTest, BlocksMayBeRenumbered) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Batch b = RandomBatch(seed);
    if (b.num_blocks == 0) continue;
    std::vector<int32_t> name(static_cast<size_t>(b.num_blocks));
    std::iota(name.begin(), name.end(), 0);
    std::shuffle(name.begin(), name.end(), std::mt19937_64(seed));
    std::vector<int64_t> before(static_cast<size_t>(b.tokens())), after(before.size());
    ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int64_t>(before)).ok());
    for (int32_t& block : b.table) block = name[block];
    ASSERT_TRUE(ComputeSlots(b.Mapping(), std::span<int64_t>(after)).ok());
    for (size_t t = 0; t < before.size(); ++t) {
      ASSERT_EQ(after[t], before[t] < 0 ? -1 : int64_t{name[before[t] / b.block_size]} * b.block_size + before[t] % b.block_size);
    }
  }
}

// 256 requests of 2^20 tokens: 2^28 tokens in 2^21 blocks, the last of each checked without a table of positions.
TEST(SlotsTest, AMillionTokensTimes256) {
  constexpr int64_t kRequests = 256, kTokens = 1 << 20, kBs = 128, kWidth = kTokens / kBs;
  std::vector<int32_t> table(kRequests * kWidth), starts(kRequests + 1);
  std::iota(table.begin(), table.end(), 0);
  std::iota(starts.begin(), starts.end(), 0);
  std::vector<int64_t> positions(kRequests, kTokens - 1), slots(kRequests);
  SlotMapping m = {.query_start_loc = starts,
                   .positions = positions,
                   .block_table = {table, kRequests, kWidth, kWidth},
                   .num_blocks = kRequests * kWidth,
                   .block_size = kBs,
                   .context_parallel = {},
                   .pad = kPadSlot};
  ASSERT_TRUE(ComputeSlots(m, std::span<int64_t>(slots)).ok());
  for (int64_t r = 0; r < kRequests; ++r) ASSERT_EQ(slots[r], (r + 1) * kTokens - 1);
  std::vector<int32_t> narrow(kRequests);
  ASSERT_TRUE(ComputeSlots(m, std::span<int32_t>(narrow)).ok());
  EXPECT_EQ(narrow.back(), (1 << 28) - 1);
}

TEST(SlotsTest, TheLargestNumbers) {
  const int32_t table[] = {INT32_MAX}, starts[] = {0, 1};
  int64_t positions[] = {(int64_t{1} << 30) - 1}, slots[1];
  SlotMapping m = {.query_start_loc = starts,
                   .positions = positions,
                   .block_table = {table, 1, 1, 1},
                   .num_blocks = int64_t{1} << 31,
                   .block_size = int64_t{1} << 30,
                   .context_parallel = {},
                   .pad = INT64_MIN};
  ASSERT_TRUE(ComputeSlots(m, std::span<int64_t>(slots)).ok());
  EXPECT_EQ(slots[0], (int64_t{1} << 61) - 1);
  int32_t narrow[1];
  EXPECT_NE(Refusal(ComputeSlots(m, std::span<int32_t>(narrow))).find("more slots than int32 can count; use int64"), std::string::npos);
  positions[0] = INT64_MAX;
  EXPECT_NE(
      Refusal(ComputeSlots(m, std::span<int64_t>(slots))).find("positions[0] = 9223372036854775807 of request 0 needs column 8589934591"),
      std::string::npos);
  m.num_blocks = INT64_MAX;
  EXPECT_NE(Refusal(ComputeSlots(m, std::span<int64_t>(slots))).find("more slots than int64"), std::string::npos);
  m.num_blocks = 1, m.context_parallel.size = INT64_MAX;
  EXPECT_NE(Refusal(ComputeSlots(m, std::span<int64_t>(slots))).find("exceeds int64"), std::string::npos);
  // Exactly what int32 counts.
  m.context_parallel.size = 1, m.block_size = 1, m.num_blocks = int64_t{1} << 31, positions[0] = 0, m.pad = -1;
  ASSERT_TRUE(ComputeSlots(m, std::span<int32_t>(narrow)).ok());
  EXPECT_EQ(narrow[0], INT32_MAX);
  m.pad = int64_t{INT32_MIN} - 1;
  EXPECT_NE(Refusal(ComputeSlots(m, std::span<int32_t>(narrow))).find("pad = -2147483649"), std::string::npos);
}

TEST(SlotsTest, RefusesEachIndexOutsideItsTable) {
  const std::vector<int32_t> table = {3, -1, 5, 9}, starts = {0, 2, 3};
  const std::vector<int64_t> positions = {0, 3, 4};
  std::vector<int64_t> slots(3);
  const SlotMapping good = {.query_start_loc = starts,
                            .positions = positions,
                            .block_table = {table, 2, 2, 2},
                            .num_blocks = 10,
                            .block_size = 4,
                            .context_parallel = {},
                            .pad = -1};
  const auto refusal = [&](auto change) {
    SlotMapping m = good;
    change(m);
    return Refusal(ComputeSlots(m, std::span<int64_t>(slots)));
  };
  ASSERT_TRUE(ComputeSlots(good, std::span<int64_t>(slots)).ok());
  EXPECT_EQ(slots, (std::vector<int64_t>{12, 15, 36}));
  const std::vector<int64_t> beyond = {0, 8, 4}, unwritten = {0, 4, 4}, negative = {0, -2, 4};
  EXPECT_EQ(refusal([&](auto& m) { m.positions = beyond; }),
            "slot mapping: positions[1] = 8 of request 0 needs column 2 of the block table, which has 2");
  EXPECT_EQ(refusal([&](auto& m) { m.positions = unwritten; }),
            "slot mapping: positions[1] = 4 of request 0 lies in block_table[0, 1], which names block -1; the cache has 10");
  EXPECT_EQ(refusal([&](auto& m) { m.num_blocks = 9; }),
            "slot mapping: positions[2] = 4 of request 1 lies in block_table[1, 1], which names block 9; the cache has 9");
  EXPECT_EQ(refusal([&](auto& m) { m.positions = negative; }),
            "slot mapping: positions[1] of request 0 is -2; only -1 marks a token that isn't kept");
  EXPECT_EQ(refusal([&](auto& m) { m.positions = m.positions.first(2); }),
            "slot mapping: the requests have 3 tokens, but there are 2 positions");
  EXPECT_EQ(refusal([&](auto& m) { m.block_table.rows = 1; }), "slot mapping: 2 requests, but the block table has 1 rows");
  EXPECT_NE(refusal([&](auto& m) { m.block_table.stride = 3; }).find("doesn't fit in its 4 entries"), std::string::npos);
  EXPECT_EQ(refusal([&](auto& m) { m.context_parallel = {2, 2, 1}; }), "slot mapping: context-parallel rank 2 is not in [0, size = 2)");
  EXPECT_EQ(refusal([&](auto& m) { m.context_parallel = {2, 0, 3}; }), "slot mapping: interleave = 3 doesn't divide block_size = 4");
  EXPECT_NE(refusal([&](auto& m) { m.block_size = 0; }).find("block_size = 0"), std::string::npos);
  EXPECT_NE(refusal([&](auto& m) { m.pad = 0; }).find("pad = 0 must be negative"), std::string::npos);
  const std::vector<int32_t> falls = {0, 2, 1}, late = {1, 2, 3};
  EXPECT_EQ(refusal([&](auto& m) { m.query_start_loc = falls; }), "slot mapping: query_start_loc[2] is 1, less than the one before, 2");
  EXPECT_EQ(refusal([&](auto& m) { m.query_start_loc = late; }), "slot mapping: query_start_loc[0] is 1; it must be 0");
  EXPECT_EQ(Refusal(ComputeSlots(good, std::span<int64_t>(slots).first(2))),
            "slot mapping: the requests have 3 tokens, but there is room for 2 slots");
}

TEST(SlotsTest, EmptyBatches) {
  std::vector<int64_t> slots = {5, 6};
  SlotMapping m = {
      .query_start_loc = {}, .positions = {}, .block_table = {}, .num_blocks = 0, .block_size = 1, .context_parallel = {}, .pad = -3};
  ASSERT_TRUE(ComputeSlots(m, std::span<int64_t>(slots)).ok());
  EXPECT_EQ(slots, (std::vector<int64_t>{-3, -3}));
  const int32_t starts[] = {0, 0, 0};
  m.query_start_loc = starts, m.block_table = {{}, 2, 0, 0};
  ASSERT_TRUE(ComputeSlots(m, std::span<int64_t>()).ok());
}

}  // namespace
}  // namespace jumar::memory::kv
