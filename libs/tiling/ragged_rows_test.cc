#include "libs/tiling/ragged_rows.h"

#include <algorithm>
#include <random>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace jumar::tiling {
namespace {

// By the definition in the header, key by key.
struct Naive {
  int64_t first = 0, blocks = 0;
};
Naive OfQueryBlock(int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view, int64_t row) {
  int64_t first = INT64_MAX, last = 0;
  for (int64_t i = row * query_block; i < std::min((row + 1) * query_block, query_len); ++i) {
    int64_t end = view.causal ? kv_len - query_len + i + 1 : kv_len;
    end /= view.ratio;
    if (view.max_selected > 0) end = std::min(end, view.max_selected);
    first = std::min(first, view.window > 0 ? std::max<int64_t>(0, end - view.window) : 0);
    last = std::max(last, end);
  }
  return {first, (last - first + view.leading_entries + kv_block - 1) / kv_block};
}

void ExpectAsDefined(int64_t query_len, int64_t kv_len, int64_t query_block, int64_t kv_block, const KvView& view) {
  SCOPED_TRACE(testing::Message() << "queries " << query_len << ", keys " << kv_len << ", blocks " << query_block << " x " << kv_block << ", causal "
                                  << view.causal << ", window " << view.window << ", ratio " << view.ratio << ", selected " << view.max_selected);
  ASSERT_TRUE(CheckView(query_block, kv_block, view).ok());
  ASSERT_TRUE(CheckSequence(0, query_len, kv_len, query_block, kv_block, view).ok());
  const RaggedRows rows(query_len, kv_len, query_block, kv_block, view);
  ASSERT_EQ(rows.num_query_blocks(), (query_len + query_block - 1) / query_block);
  int64_t sum = 0;
  for (int64_t row = 0; row < rows.num_query_blocks(); ++row) {
    const Naive want = OfQueryBlock(query_len, kv_len, query_block, kv_block, view, row);
    ASSERT_EQ(rows.KvBlocksBefore(row), sum) << "row " << row;
    ASSERT_EQ(rows.FirstEntry(row), want.first) << "row " << row;
    ASSERT_EQ(rows.NumKvBlocks(row), want.blocks) << "row " << row;
    ASSERT_LE(want.blocks, rows.MostKvBlocks()) << "row " << row;
    sum += want.blocks;
  }
  ASSERT_EQ(rows.KvBlocksBefore(rows.num_query_blocks()), sum);
}

TEST(RaggedRowsTest, CountsAsDefinedOnASmallGrid) {
  for (int64_t query_block : {1, 2, 3, 5})
    for (int64_t kv_block : {1, 2, 4, 7})
      for (int64_t kv_len = 0; kv_len <= 13; ++kv_len)
        for (int64_t query_len = 0; query_len <= kv_len; ++query_len) {
          for (int64_t window : {0, 1, 2, 3, 6, 20}) ExpectAsDefined(query_len, kv_len, query_block, kv_block, {.window = window});
          for (int64_t ratio : {2, 3, 4}) {
            for (int64_t selected : {0, 1, 2, 5}) {
              ExpectAsDefined(query_len, kv_len, query_block, kv_block, {.ratio = ratio, .max_selected = selected, .leading_entries = selected});
            }
          }
          ExpectAsDefined(query_len, kv_len, query_block, kv_block, {.causal = false, .ratio = 2});
          ExpectAsDefined(kv_len, query_len, query_block, kv_block, {.causal = false});
        }
}

TEST(RaggedRowsTest, CountsAsDefinedOnRandomProblems) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 2000; ++i) {
    const int64_t query_len = below(400), kv_len = query_len + below(1000), query_block = 1 + below(70), kv_block = 1 + below(70);
    KvView view;
    if (below(2) == 0) {
      view.window = below(300);
    } else {
      view = {.causal = below(4) != 0, .ratio = 1 + below(9), .max_selected = below(300), .leading_entries = below(200)};
    }
    ExpectAsDefined(query_len, kv_len, query_block, kv_block, view);
  }
}

TEST(RaggedRowsTest, CountsAMillionTokensWithoutWalkingThem) {
  // sum of ceil(128 * (i + 1) / 128) for i < 8192.
  EXPECT_EQ(RaggedRows(1 << 20, 1 << 20, 128, 128, {}).KvBlocksBefore(8192), int64_t{8192} * 8193 / 2);
  EXPECT_EQ(RaggedRows(1 << 20, 1 << 20, 1, 1, {}).KvBlocksBefore(1 << 20), (int64_t{1} << 20) * ((1 << 20) + 1) / 2);
  EXPECT_EQ(RaggedRows(1, kMaxRaggedTokens, 1, 1, {}).NumKvBlocks(0), kMaxRaggedTokens);
  EXPECT_EQ(RaggedRows(1, 8, 1, 1, {.max_selected = INT64_MAX}).NumKvBlocks(0), 8);
}

TEST(RaggedRowsTest, RefusesWhatItCannotCount) {
  EXPECT_EQ(CheckView(0, 16, {}).message(), "ragged batch: query_block = 0 is not in [1, 1099511627776]");
  EXPECT_FALSE(CheckView(1, -16, {}).ok());
  EXPECT_FALSE(CheckView(1, INT64_MAX, {}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.ratio = 0}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.ratio = INT64_MAX}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.window = -1}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.max_selected = -1}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.leading_entries = -1}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.leading_entries = INT64_MAX}).ok());
  EXPECT_TRUE(CheckView(1, 128, {.max_selected = INT64_MAX}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.window = 128, .ratio = 4}).ok());
  EXPECT_FALSE(CheckView(1, 128, {.causal = false, .window = 128}).ok());
  EXPECT_FALSE(CheckSequence(0, -1, 5, 1, 1, {}).ok());
  EXPECT_FALSE(CheckSequence(0, 1, INT64_MAX, 1, 1, {}).ok());
  EXPECT_EQ(CheckSequence(3, 6, 5, 1, 1, {}).message(),
            "ragged batch: query_lens[3] = 6 is more than kv_lens[3] = 5: a causal sequence's own tokens count as keys");
  EXPECT_EQ(CheckSequence(0, kMaxRaggedTokens, kMaxRaggedTokens, 1, 1, {}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace jumar::tiling
