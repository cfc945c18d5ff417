#include "libs/memory/kv/rows.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "libs/memory/kv/layouts.h"
#include "libs/memory/kv/test_util.h"

namespace jumar::memory::kv {
namespace {

const ParallelFor kThreads = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  std::thread other([&] { body(0, n / 2); });
  body(n / 2, n);
  other.join();
};

PageLayout RandomLayout(Random& random, int64_t bs) {
  const Order order = static_cast<Order>(Between(random, 0, 2));
  const KvShape shape = {.heads = Between(random, 1, 4), .head_dim = 16 * Between(random, 1, 9), .block_size = bs};
  switch (Between(random, 0, 5)) {
    case 0: return JointKv(shape, order);
    case 1: return Packed656(bs);
    case 2: return Packed640(bs);
    case 3: return PageSplit584(bs);
    case 4: return IndexerKeys(bs);
    default: return SeparateKv(shape, order);
  }
}

template <class Slot>
void StoreAndLoad(uint64_t seed) {
  Random random(seed);
  const int64_t bs = Between(random, 1, 40), blocks = Between(random, 1, 5), slots_there = bs * blocks;
  TestCache cache(RandomLayout(random, bs), blocks, Between(random, 0, 5), random);
  // Distinct slots, some in a row, some padding.
  std::vector<int64_t> all(static_cast<size_t>(slots_there));
  std::iota(all.begin(), all.end(), 0);
  if (seed % 2 == 0) std::shuffle(all.begin(), all.end(), random);
  const int64_t first = Between(random, 0, slots_there - 1);
  std::vector<Slot> slots(all.begin() + first, all.end());
  for (Slot& slot : slots) slot = Between(random, 0, 9) == 0 ? -1 : slot;
  const auto count = static_cast<int64_t>(slots.size());
  for (int64_t p = 0; p < cache.layout.num_parts; ++p) {
    const int64_t row_bytes = cache.layout.parts[p].rows.row_bytes, stride = row_bytes + Between(random, 0, 1) * 7;
    auto rows = RandomBytes(random, count * stride);
    const int64_t plane = cache.layout.parts[p].plane;
    const auto part = RowsOf<std::byte>(cache.layout, p, cache.bytes[plane], blocks, cache.stride[plane]);
    ASSERT_TRUE(part.ok()) << part.status();
    TestCache want = cache;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < row_bytes && slots[i] >= 0; ++c) want.at(p, slots[i] / bs, slots[i] % bs, c) = rows[i * stride + c];
    }
    const DenseRows<const std::byte> source = {rows, count, row_bytes, stride};
    ASSERT_TRUE(StoreRows(source, std::span<const Slot>(slots), *part, seed % 3 == 0 ? kThreads : ParallelFor()).ok());
    for (int64_t i = 0; i < cache.layout.num_planes; ++i) ASSERT_EQ(cache.bytes[i], want.bytes[i]) << Describe(cache.layout) << seed;

    auto back = RandomBytes(random, count * stride), want_back = back;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < row_bytes && slots[i] >= 0; ++c) want_back[i * stride + c] = rows[i * stride + c];
    }
    ASSERT_TRUE(
        LoadRows(*part, std::span<const Slot>(slots), {back, count, row_bytes, stride}, seed % 3 == 0 ? kThreads : ParallelFor()).ok());
    ASSERT_EQ(back, want_back) << Describe(cache.layout) << seed;
  }
}

TEST(RowsTest, WhatIsStoredIsLoadedAndNothingElseChanges) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    StoreAndLoad<int64_t>(seed);
    StoreAndLoad<int32_t>(seed);
  }
}

// Large stores stream past the caches: the same bytes as token by token.
TEST(RowsTest, ManyTokensAtOnceAreLikeOneByOne) {
  Random random(6);
  for (const Order order : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
    const PageLayout layout = JointKv({8, 128, 128}, order);
    constexpr int64_t kBlocks = 20, kTokens = 2400, kRow = 8 * 128 * 2;
    TestCache whole(layout, kBlocks, 0, random);
    TestCache single = whole;
    const auto rows = RandomBytes(random, kTokens * kRow);
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < kTokens; ++t) slots.push_back(t / 100 % 5 == 0 ? -1 : (t + 77) % (kBlocks * 128));
    const auto part = *RowsOf<std::byte>(layout, 1, whole.bytes[0], kBlocks),
               other = *RowsOf<std::byte>(layout, 1, single.bytes[0], kBlocks);
    ASSERT_TRUE(StoreRows({rows, kTokens, kRow, kRow}, std::span<const int64_t>(slots), part, kThreads).ok());
    for (int64_t t = 0; t < kTokens; ++t) {
      ASSERT_TRUE(StoreRows({std::span(rows).subspan(t * kRow), 1, kRow, kRow}, std::span<const int64_t>(slots).subspan(t, 1), other).ok());
    }
    ASSERT_TRUE(whole.bytes[0] == single.bytes[0]) << Describe(layout);
  }
}

TEST(RowsTest, StretchesFollowTheBlockTable) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const int64_t bs = Between(random, 1, 20), width = Between(random, 1, 4), requests = Between(random, 0, 5),
                  blocks = requests * width + 1;
    TestCache cache(RandomLayout(random, bs), blocks, 3, random);
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random);
    std::vector<int64_t> first, lengths;
    int64_t total = 0;
    for (int64_t r = 0; r < requests; ++r) {
      first.push_back(seed % 3 == 0 ? 0 : Between(random, 0, width * bs));
      lengths.push_back(Between(random, 0, width * bs - first.back()));
      total += lengths.back();
    }
    const int64_t row_bytes = cache.layout.parts[0].rows.row_bytes, room = total + Between(random, 0, 2);
    auto rows = RandomBytes(random, room * row_bytes), want = rows;
    int64_t row = 0;
    for (int64_t r = 0; r < requests; ++r) {
      for (int64_t t = first[r]; t < first[r] + lengths[r]; ++t, ++row) {
        for (int64_t c = 0; c < row_bytes; ++c) want[row * row_bytes + c] = cache.at(0, table[r * width + t / bs], t % bs, c);
      }
    }
    const auto part = RowsOf<const std::byte>(cache.layout, 0, cache.bytes[0], blocks, cache.stride[0]);
    const Stretches stretches = {{table, requests, width, width}, seed % 3 == 0 ? std::span<const int64_t>() : first, lengths};
    ASSERT_TRUE(LoadStretches(*part, stretches, {rows, room, row_bytes, row_bytes}, seed % 2 ? kThreads : ParallelFor()).ok());
    ASSERT_EQ(rows, want) << seed;
  }
}

TEST(RowsTest, RefusesWhatIsOutside) {
  Random random(1);
  TestCache cache(Packed640(4), 3, 0, random);
  const auto part = *RowsOf<std::byte>(cache.layout, 1, cache.bytes[0], 3);
  auto rows = RandomBytes(random, 448 * 6);
  const DenseRows<std::byte> dense = {rows, 6, 448, 448};
  const auto store = [&](std::vector<int64_t> slots) { return Refusal(StoreRows(dense, std::span<const int64_t>(slots), part)); };
  EXPECT_EQ(store({0, 12}), "slot_mapping[1] is 12; the cache has 12 slots");
  EXPECT_EQ(store({-7}), "slot_mapping[0] is -7; the cache has 12 slots");
  EXPECT_EQ(store(std::vector<int64_t>(7)), "7 slots for 6 rows");
  const std::vector<int32_t> bad = {INT32_MAX};
  EXPECT_EQ(Refusal(LoadRows(part, std::span<const int32_t>(bad), dense)), "slot_mapping[0] is 2147483647; the cache has 12 slots");
  // The first error, also when two threads find one each.
  std::vector<int64_t> two = {0, 99, -1, -1, 98, 1};
  EXPECT_EQ(Refusal(StoreRows(dense, std::span<const int64_t>(two), part, kThreads)), "slot_mapping[1] is 99; the cache has 12 slots");
  EXPECT_NE(Refusal(StoreRows({rows, 7, 448, 448}, std::span<const int64_t>(), part))
                .find("7 rows of 448 bytes, 448 bytes apart, don't fit in its 2688"),
            std::string::npos);
  const std::span<const std::byte> own = part.bytes;
  EXPECT_EQ(Refusal(StoreRows({own.first(6 * 448), 6, 448, 448}, std::span<const int64_t>(), part)), "the rows overlap the cache; give a copy of them");
  EXPECT_EQ(Refusal(StoreRows({rows, 6, 440, 448}, std::span<const int64_t>(), part)), "rows of 440 bytes can't become rows of 448");
  PartRows<std::byte> wrong = part;
  wrong.num_blocks = 4;
  EXPECT_NE(Refusal(StoreRows(dense, std::span<const int64_t>(), wrong)).find("cache: 4 blocks"), std::string::npos);
  wrong.num_blocks = INT64_MAX;
  Refusal(StoreRows(dense, std::span<const int64_t>(), wrong));
  wrong = part, wrong.block_stride = 100;
  Refusal(StoreRows(dense, std::span<const int64_t>(), wrong));
  wrong = part, wrong.block_size = 0;
  Refusal(StoreRows(dense, std::span<const int64_t>(), wrong));

  const std::vector<int32_t> table = {2, 0, -1, 3};
  const auto load = [&](std::vector<int64_t> first, std::vector<int64_t> count, int64_t requests) {
    return Refusal(LoadStretches(part, {{table, requests, 2, 2}, first, count}, dense));
  };
  EXPECT_EQ(load({}, {4, 1}, 2), "token 0: block_table[1, 0] names block -1; the cache has 3");
  EXPECT_EQ(load({0, 4}, {4, 1}, 2), "token 4: block_table[1, 1] names block 3; the cache has 3");
  EXPECT_EQ(load({5}, {4}, 2), "token 8: request 0 needs column 2 of the block table, which has 2");
  EXPECT_EQ(load({}, {7}, 2), "seq_lens[0] is 7; there is room for 6 tokens, 0 are taken");
  EXPECT_EQ(load({}, {-1}, 2), "seq_lens[0] is -1; there is room for 6 tokens, 0 are taken");
  EXPECT_EQ(load({-1}, {1}, 2), "first[0] is -1; it must not be negative");
  EXPECT_EQ(load({INT64_MAX}, {1}, 2),
            "token 9223372036854775807: request 0 needs column 2305843009213693951 of the block table, which has 2");
  EXPECT_EQ(load({}, {1, 1, 1}, 2), "3 requests, but the block table has 2 rows");
  EXPECT_EQ(load({1}, {1, 1}, 2), "1 first tokens for 2 requests");
  EXPECT_NE(load({}, {1}, 3).find("doesn't fit in its 4 entries"), std::string::npos);
  Refusal(RowsOf<std::byte>(cache.layout, 3, cache.bytes[0], 3).status());
  Refusal(RowsOf<std::byte>(cache.layout, 0, cache.bytes[0], 4).status());
  ASSERT_TRUE(RowsOf<std::byte>(cache.layout, 1, std::span<std::byte>(), 0).ok());
}

}  // namespace
}  // namespace jumar::memory::kv
