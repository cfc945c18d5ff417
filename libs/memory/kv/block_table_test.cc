#include "libs/memory/kv/block_table.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::memory::kv {
namespace {

using Blocks32 = std::vector<int32_t>;

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

Blocks32 RowOf(const BlockTable& table, int64_t row) {
  const auto slice = table.Slice(row, 0, *table.Count(row));
  return {slice->begin(), slice->end()};
}

TEST(BlockTableTest, RandomOperationsMatchAMapOfVectors) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  constexpr int64_t kRows = 5, kWidth = 7, kBlocks = 20;
  BlockTable table = *BlockTable::Create({kRows, kWidth, kBlocks});
  std::map<int64_t, Blocks32> model;
  for (int step = 0; step < 20000; ++step) {
    const int64_t row = below(kRows + 2) - 1, other = below(kRows + 2) - 1;
    const bool rows_in = row >= 0 && row < kRows, others_in = other >= 0 && other < kRows;
    Blocks32 blocks(static_cast<size_t>(below(5)));
    bool blocks_in = true;
    for (int32_t& b : blocks)
      b = static_cast<int32_t>(below(40) == 0 ? below(2) * 21 - 1 : below(kBlocks)), blocks_in &= b >= 0 && b < kBlocks;
    switch (below(5)) {
      case 0: {
        const bool fits = rows_in && blocks_in && model[row].size() + blocks.size() <= kWidth;
        ASSERT_EQ(table.Append(row, blocks).ok(), fits);
        if (fits) model[row].insert(model[row].end(), blocks.begin(), blocks.end());
        break;
      }
      case 1:
        ASSERT_EQ(table.Assign(row, blocks).ok(), rows_in && blocks_in);
        if (rows_in && blocks_in) model[row] = blocks;
        break;
      case 2: {
        const int64_t count = below(kWidth + 2) - 1;
        const bool fits = rows_in && count >= 0 && count <= static_cast<int64_t>(model[row].size());
        ASSERT_EQ(table.Truncate(row, count).ok(), fits);
        if (fits) model[row].resize(static_cast<size_t>(count));
        break;
      }
      case 3:
        ASSERT_EQ(table.Move(row, other).ok(), rows_in && others_in);
        if (rows_in && others_in && row != other) model[other] = model[row], model[row].clear();
        break;
      case 4:
        ASSERT_EQ(table.Swap(row, other).ok(), rows_in && others_in);
        if (rows_in && others_in) std::swap(model[row], model[other]);
        break;
    }
    for (int64_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(RowOf(table, r), model[r]);
      for (int64_t c = 0; c < kWidth; ++c) {
        const auto at = table.View().At(r, c, kBlocks);
        ASSERT_EQ(at.ok(), c < static_cast<int64_t>(model[r].size()));
        if (at.ok()) {
          ASSERT_EQ(*at, model[r][static_cast<size_t>(c)]);
        }
      }
    }
  }
}

TEST(BlockTableTest, GathersRowsInTheBatchsOrderAndPads) {
  BlockTable table = *BlockTable::Create({4, 8, 100});
  ASSERT_TRUE(table.Append(0, Blocks32{7, 8}).ok());
  ASSERT_TRUE(table.Append(2, Blocks32{1, 2, 3}).ok());
  Blocks32 out(13, 99);
  ASSERT_TRUE(table.Gather(std::vector<int64_t>{2, -1, 0}, out, 4).ok());
  EXPECT_EQ(out, (Blocks32{1, 2, 3, -1, -1, -1, -1, -1, 7, 8, -1, -1, 99}));
  ASSERT_TRUE(table.Commit(3, out, 3).ok());
  EXPECT_EQ(out, (Blocks32{7, 8, -1, -1, -1, -1, 1, 2, 3, 8, -1, -1, 99}));  // 9 entries are written
  ASSERT_TRUE(table.Commit(0, {}, 3).ok());
  EXPECT_EQ(Refusal(table.Commit(3, out, 2)), "block table: row 2 has 3 blocks; the output has room for 2");
  EXPECT_EQ(Refusal(table.Gather(std::vector<int64_t>{4}, out, 3)), "block table: rows[0] is 4, not in [0, max_requests = 4) and not -1");
  EXPECT_EQ(Refusal(table.Gather(std::vector<int64_t>{0, -2}, out, 3)),
            "block table: rows[1] is -2, not in [0, max_requests = 4) and not -1");
  EXPECT_EQ(Refusal(table.Gather(std::vector<int64_t>{0, 1}, out, 7)), "block table: 2 rows of 7 don't fit in an output of 13");
  EXPECT_NE(Refusal(table.Gather(std::vector<int64_t>{0, 1}, out, INT64_MAX)).find("don't fit"), std::string::npos);
  EXPECT_EQ(Refusal(table.Commit(5, out, 1)), "block table: 5 rows are asked for; it has max_requests = 4");
}

TEST(BlockTableTest, ErrorsNameTheRowTheIndexAndTheLimit) {
  BlockTable table = *BlockTable::Create({2, 3, 10});
  EXPECT_EQ(Refusal(table.Append(2, {})), "block table: row = 2 is not in [0, max_requests = 2)");
  EXPECT_EQ(Refusal(table.Append(1, Blocks32{4, 10})), "block table: blocks[1] for row 1 is 10, not in [0, num_blocks = 10)");
  EXPECT_EQ(Refusal(table.Append(1, Blocks32{1, 2, 3, 4})), "block table: row 1 has 0 blocks; 4 more exceed max_blocks = 3");
  EXPECT_EQ(Refusal(table.Truncate(0, 1)), "block table: row 0 has 0 blocks; it can't keep 1");
  EXPECT_EQ(Refusal(table.Slice(0, 0, 1).status()), "block table: row 0 has 0 blocks; 1 from 0 on are outside");
  Refusal(table.Slice(0, 1, INT64_MAX).status());
  EXPECT_EQ(Refusal(table.View().At(2, 0, 10).status()), "request 2 is past the block table's 2 rows");
  EXPECT_EQ(Refusal(table.View().At(1, 3, 10).status()), "request 1 needs column 3 of the block table, which has 3");
  EXPECT_EQ(Refusal(table.View().At(1, 0, 10).status()), "block_table[1, 0] names block -1; the cache has 10");
}

TEST(BlockTableTest, SizesThatCannotBeAreRefused) {
  for (const BlockTable::Options& o : {BlockTable::Options{-1, 1, 1},
                                       {1, -1, 1},
                                       {1, 1, -1},
                                       {INT64_MAX, INT64_MAX, 1},
                                       {INT64_MAX / 4, 2, 1},
                                       {1, 1, (int64_t{1} << 31) + 1}}) {
    Refusal(BlockTable::Create(o).status());
  }
  ASSERT_TRUE(BlockTable::Create({0, 0, 0}).ok());
  const Blocks32 entries(6);
  EXPECT_TRUE((BlockTableView{entries, 2, 3, 3}).Check().ok());
  EXPECT_TRUE((BlockTableView{entries, 0, 3, 3}).Check().ok());
  for (const BlockTableView& v :
       {BlockTableView{entries, 2, 3, 4}, {entries, 2, 4, 3}, {entries, -1, 3, 3}, {entries, 2, -3, 3}, {entries, INT64_MAX, 2, INT64_MAX}})
    Refusal(v.Check());
}

TEST(BlockTableTest, AssignTakesASliceOfItsOwnRow) {
  BlockTable table = *BlockTable::Create({1, 4, 10});
  ASSERT_TRUE(table.Append(0, Blocks32{1, 2, 3, 4}).ok());
  ASSERT_TRUE(table.Assign(0, *table.Slice(0, 1, 3)).ok());
  EXPECT_EQ(RowOf(table, 0), (Blocks32{2, 3, 4}));
}

}  // namespace
}  // namespace jumar::memory::kv
