#include "libs/memory/kv/transpose.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/memory/kv/layouts.h"
#include "libs/memory/kv/test_util.h"

namespace jumar::memory::kv {
namespace {

std::vector<PageLayout> Forms(const KvShape& s) {
  std::vector<PageLayout> forms;
  for (const Order order : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
    for (const bool joint : {false, true}) {
      const PageLayout l = joint ? JointKv(s, order) : SeparateKv(s, order);
      if (l.ok()) forms.push_back(l);
    }
  }
  return forms;
}

// Every pair of layouts, there and back; each byte compared with the formula's place.
TEST(TransposeTest, RoundTripsBitForBitBetweenAllLayouts) {
  Random random(1);
  for (const KvShape& shape : {KvShape{1, 16, 1},
                               {2, 128, 16},
                               {8, 64, 33},
                               {3, 80, 7},
                               {3, 24, 20},
                               {4, 8, 5},
                               {2, 96, 130, Element::kInt8},
                               {5, 32, 17, Element::kFloat32}}) {
    const auto forms = Forms(shape);
    ASSERT_GE(forms.size(), 4u);
    for (const PageLayout& a : forms) {
      for (const PageLayout& b : forms) {
        TestCache from(a, 3, 5, random), to(b, 4, 2, random);
        const TestCache before = from;
        const auto untouched = to;
        const std::vector<BlockPair> pairs = {{1, 2}, {2, 3}, {0, 0}}, back = {{2, 1}, {3, 2}, {0, 0}};
        auto status = TransposeBlocks({&a, from.const_planes()}, {&b, to.planes()}, pairs);
        ASSERT_TRUE(status.ok()) << status;
        TestCache want = untouched;
        for (const auto& [src, dst] : pairs) {
          for (int64_t part = 0; part < 2; ++part) {
            for (int64_t t = 0; t < shape.block_size; ++t) {
              for (int64_t c = 0; c < a.parts[part].rows.row_bytes; ++c) want.at(part, dst, t, c) = from.at(part, src, t, c);
            }
          }
        }
        for (int64_t i = 0; i < b.num_planes; ++i) ASSERT_EQ(to.bytes[i], want.bytes[i]) << Describe(a) << Describe(b);
        for (int64_t part = 0; part < 2; ++part) {
          for (int64_t t = 0; t < shape.block_size; ++t) from.at(part, 1, t, 0) ^= std::byte{1};
        }
        ASSERT_TRUE(TransposeBlocks({&b, to.const_planes()}, {&a, from.planes()}, back).ok());
        for (int64_t i = 0; i < a.num_planes; ++i) ASSERT_EQ(from.bytes[i], before.bytes[i]) << Describe(a) << Describe(b);
      }
    }
  }
}

// Large copies stream past the caches: the same bytes as block by block, aligned or not.
TEST(TransposeTest, ManyBlocksAtOnceAreLikeOneByOne) {
  Random random(2);
  for (const KvShape& shape : {KvShape{8, 128, 128}, {4, 80, 64}, {8, 128, 20, Element::kInt8}}) {
    for (const int64_t gap : {0, 16, 5}) {
      for (const Order a : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
        for (const Order b : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
          const PageLayout source = JointKv(shape, a), destination = JointKv(shape, b);
          const int64_t blocks = (9 << 20) / source.block_bytes() + 1;
          TestCache from(source, blocks, gap, random), whole(destination, blocks, gap, random);
          TestCache single = whole;
          std::vector<BlockPair> pairs;
          for (int64_t i = 0; i < blocks; ++i) pairs.push_back({blocks - 1 - i, (i + 3) % blocks});
          ASSERT_TRUE(TransposeBlocks({&source, from.const_planes()}, {&destination, whole.planes()}, pairs).ok());
          for (const BlockPair& pair : pairs) {
            ASSERT_TRUE(
                TransposeBlocks({&source, from.const_planes()}, {&destination, single.planes()}, std::vector<BlockPair>{pair}).ok());
          }
          ASSERT_TRUE(whole.bytes[0] == single.bytes[0]) << Describe(source) << Describe(destination) << gap;
        }
      }
    }
  }
}

// Runs between caches whose blocks differ in size as well.
TEST(TransposeTest, RunsCrossBlocksOfDifferentSizes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    KvShape shape = {Between(random, 1, 4), 16 * Between(random, 1, 3), Between(random, 1, 30)};
    const PageLayout a = SeparateKv(shape, static_cast<Order>(Between(random, 0, 2)));
    shape.block_size = Between(random, 1, 200);
    const PageLayout b = SeparateKv(shape, static_cast<Order>(Between(random, 0, 2)));
    TestCache from(a, Between(random, 1, 20), 1, random), to(b, Between(random, 1, 20), 0, random);
    std::vector<CopyRun> runs;
    int64_t dst = Between(random, 0, 9);
    while (true) {
      const int64_t src = Between(random, 0, from.num_blocks * a.block_size),
                    length = Between(random, 0, from.num_blocks * a.block_size - src);
      if (dst + length > to.num_blocks * b.block_size) break;
      runs.push_back({src, dst, length});
      dst += length + 1;
    }
    TestCache want = to;
    for (const CopyRun& run : runs) {
      for (int64_t i = 0; i < run.length; ++i) {
        const int64_t s = run.src + i, d = run.dst + i;
        for (int64_t c = 0; c < a.parts[0].rows.row_bytes; ++c) {
          want.at(0, d / b.block_size, d % b.block_size, c) = from.at(0, s / a.block_size, s % a.block_size, c);
        }
      }
    }
    const auto source = RowsOf<const std::byte>(a, 0, from.bytes[0], from.num_blocks, from.stride[0]);
    const auto destination = RowsOf<std::byte>(b, 0, to.bytes[0], to.num_blocks, to.stride[0]);
    ASSERT_TRUE(source.ok() && destination.ok()) << source.status() << destination.status();
    const auto status = TransposeRuns(*source, *destination, runs);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(to.bytes[0], want.bytes[0]) << seed;
  }
}

TEST(TransposeTest, PackedRowsChangeTheirOrder) {
  Random random(3);
  const PageLayout a = Packed656(16), b = Packed656(16, RowOrder::kScalesThenRope);
  TestCache from(a, 2, 0, random), to(b, 2, 0, random);
  ASSERT_TRUE(TransposeBlocks({&a, from.const_planes()}, {&b, to.planes()}, std::vector<BlockPair>{{0, 1}}).ok());
  for (int64_t t = 0; t < 16; ++t) {
    for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(to.at(2, 1, t, c), from.at(2, 0, t, c));
  }
}

TEST(TransposeTest, RefusesWhatDoesNotFit) {
  Random random(4);
  const PageLayout a = SeparateKv({2, 64, 16}, Order::kTokenMajor), b = SeparateKv({2, 64, 16}, Order::kHeadMajor);
  TestCache from(a, 3, 0, random), to(b, 2, 0, random);
  const auto untouched = to.bytes[0];
  const auto refusal = [&](const PageLayout& x, const PageLayout& y, std::vector<BlockPair> pairs) {
    return Refusal(TransposeBlocks({&x, from.const_planes()}, {&y, to.planes()}, pairs));
  };
  EXPECT_EQ(refusal(a, b, {{3, 0}}), "pairs[0] copies from block 3; the source has 3 blocks");
  EXPECT_EQ(refusal(a, b, {{0, 1}, {0, 2}}), "pairs[1] copies to block 2; the destination has 2 blocks");
  EXPECT_NE(refusal(a, Packed640(16), {}).find("to has 2 planes; layout packed640 has 1"), std::string::npos);
  EXPECT_NE(refusal(a, Mla(16), {}).find("to: plane 0"), std::string::npos);
  const PageLayout other = SeparateKv({2, 128, 8}, Order::kHeadMajor);  // pages of the same bytes
  EXPECT_NE(refusal(a, other, {}).find("whole blocks need the same"), std::string::npos);
  PageLayout renamed = b;
  renamed.parts[1].name = "w";
  EXPECT_EQ(refusal(a, renamed, {}), "layout gqa has no part v; it has k, w");
  Refusal(TransposeBlocks({nullptr, from.const_planes()}, {&b, to.planes()}, {}));

  const auto source = *RowsOf<const std::byte>(a, 0, from.bytes[0], 3);
  const auto destination = *RowsOf<std::byte>(b, 0, to.bytes[0], 2);
  for (const CopyRun& run : {CopyRun{48, 0, 1},
                             {0, 32, 1},
                             {-1, 0, 1},
                             {0, -1, 1},
                             {0, 0, -1},
                             {0, 0, 33},
                             {0, 0, INT64_MAX},
                             {INT64_MAX, INT64_MAX, INT64_MAX}}) {
    EXPECT_NE(Refusal(TransposeRuns(source, destination, std::vector<CopyRun>{{0, 0, 1}, run})).find("runs[1] moves"), std::string::npos);
  }
  EXPECT_TRUE(TransposeRuns(source, destination, std::vector<CopyRun>{{48, 32, 0}}).ok());
  EXPECT_EQ(to.bytes[0], untouched);
}

TEST(TransposeTest, RefusesOneMemoryOnBothSides) {
  Random random(3);
  const PageLayout token = SeparateKv({2, 16, 16}, Order::kTokenMajor), head = SeparateKv({2, 16, 16}, Order::kHeadMajor);
  TestCache cache(token, 3, 0, random);
  const std::vector<BlockPair> pairs = {{0, 0}};
  EXPECT_EQ(Refusal(TransposeBlocks({&token, cache.const_planes()}, {&head, cache.planes()}, pairs)),
            "transpose within one memory: from and to overlap; give a copy of one");
}

}  // namespace
}  // namespace jumar::memory::kv
