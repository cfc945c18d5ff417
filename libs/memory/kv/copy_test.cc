#include "libs/memory/kv/copy.h"

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "libs/memory/kv/test_util.h"

namespace jumar::memory::kv {
namespace {

// Several planes of several page sizes, with and without gaps.
struct Cache {
  Cache(int64_t num_blocks, Random& random, bool gaps) {
    for (const int64_t page : {int64_t{64}, int64_t{100}, int64_t{1}, int64_t{3} << 20}) {
      if (page > 1000 && num_blocks > 4) continue;
      const int64_t stride = page + (gaps ? Between(random, 0, 3) : 0);
      memory.push_back(RandomBytes(random, stride * num_blocks));
      planes.push_back({memory.back(), num_blocks, page, stride});
    }
  }
  std::vector<std::vector<std::byte>> memory;
  std::vector<MutableBlocks> planes;
};

const ParallelFor kThreads = [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t cut = std::min(n, std::max(grain, n / 2));
  std::thread other([&] { body(0, cut); });
  if (cut < n) body(cut, n);
  other.join();
};

TEST(CopyTest, CopiesWithinTheCacheAndTouchesNothingElse) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const int64_t blocks = Between(random, 1, 12);
    Cache cache(blocks, random, round % 2 == 0);
    // Sources from the first part, destinations from the rest, each once; some pairs in a row.
    const int64_t middle = Between(random, 0, blocks);
    std::vector<BlockPair> pairs;
    for (int64_t dst = middle; dst < blocks && middle > 0; ++dst) {
      if (Between(random, 0, 3) > 0)
        pairs.push_back({pairs.empty() || Between(random, 0, 1) ? Between(random, 0, middle - 1) : (pairs.back().src + 1) % middle, dst});
    }
    if (middle > 0) pairs.push_back({0, 0});
    auto want = cache.memory;
    for (size_t i = 0; i < want.size(); ++i) {
      const auto& plane = cache.planes[i];
      for (const auto& [src, dst] : pairs) {
        for (int64_t b = 0; b < plane.page_bytes; ++b) want[i][dst * plane.block_stride + b] = want[i][src * plane.block_stride + b];
      }
    }
    ASSERT_TRUE(CopyBlocks(cache.planes, pairs, round % 3 == 0 ? kThreads : ParallelFor()).ok());
    ASSERT_EQ(cache.memory, want);
  }
}

TEST(CopyTest, SwapsOutAndBackBitForBit) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    const int64_t blocks = Between(random, 1, 12), host_blocks = Between(random, 1, 12);
    Cache device(blocks, random, round % 2 == 0), host(host_blocks, random, round % 3 == 0);
    const size_t planes = std::min(device.planes.size(), host.planes.size());
    device.planes.resize(planes), host.planes.resize(planes);
    const std::vector<ConstBlocks> from(device.planes.begin(), device.planes.end()), back_from(host.planes.begin(), host.planes.end());
    std::vector<BlockPair> out, back;
    const int64_t first = Between(random, 0, blocks - 1);
    for (int64_t i = 0; i < std::min(blocks, host_blocks); ++i) {
      out.push_back({(first + i) % blocks, host_blocks - 1 - i});
      if (round % 5 == 0) out.back().dst = i;
      back.push_back({out.back().dst, out.back().src});
    }
    const auto before = device.memory;
    int64_t moved = 0;
    CopyFunction copy;
    if (round % 4 == 0) {
      copy = [&](std::byte* to, const std::byte* source, int64_t bytes) {
        std::memcpy(to, source, static_cast<size_t>(bytes));
        moved += bytes;
        return absl::OkStatus();
      };
    }
    ASSERT_TRUE(SwapBlocks(from, host.planes, out, kThreads, copy).ok());
    if (copy) {
      int64_t want = 0;
      for (const auto& plane : device.planes) want += plane.page_bytes * static_cast<int64_t>(out.size());
      ASSERT_EQ(moved, want);
    }
    for (const BlockPair& p : out) ASSERT_TRUE(FillBlocks(device.planes, p.src, 1, kPoison).ok());
    ASSERT_NE(device.memory, before);
    ASSERT_TRUE(SwapBlocks(back_from, device.planes, back, {}, copy).ok());
    ASSERT_EQ(device.memory, before);
  }
}

TEST(CopyTest, AFailedPieceEndsTheSwap) {
  Random random(3);
  Cache device(8, random, false), host(8, random, false);
  const std::vector<ConstBlocks> from(device.planes.begin(), device.planes.end());
  const std::vector<BlockPair> pairs = {{0, 4}, {1, 5}, {7, 0}};
  int calls = 0;
  const auto status = SwapBlocks(from, host.planes, pairs, {}, [&](std::byte*, const std::byte*, int64_t bytes) {
    return ++calls == 2 ? absl::InternalError("the stream is lost") : absl::OkStatus();
  });
  EXPECT_EQ(status.message(), "the stream is lost");
  EXPECT_EQ(calls, 2);  // {0, 4} and {1, 5} are one
}

TEST(CopyTest, FillsARange) {
  Random random(4);
  Cache cache(6, random, true);
  auto want = cache.memory;
  for (size_t i = 0; i < want.size(); ++i) {
    for (int64_t b = 2; b < 5; ++b) {
      std::memset(&want[i][b * cache.planes[i].block_stride], 0xff, static_cast<size_t>(cache.planes[i].page_bytes));
    }
  }
  ASSERT_TRUE(PoisonBlocks(cache.planes, 2, 3, kThreads).ok());
  ASSERT_TRUE(ZeroBlocks(cache.planes, 6, 0).ok());
  ASSERT_EQ(cache.memory, want);
}

TEST(CopyTest, PoisonIsNotANumber) {
  float f32;
  std::memset(&f32, static_cast<int>(kPoison), sizeof f32);
  EXPECT_NE(f32, f32);
  uint16_t half;
  std::memset(&half, static_cast<int>(kPoison), sizeof half);
  EXPECT_TRUE((half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0);  // fp16
  EXPECT_TRUE((half & 0x7f80) == 0x7f80 && (half & 0x7f) != 0);   // bf16
}

TEST(CopyTest, RefusesBlocksOutsideAndOrdersThatMatter) {
  Random random(5);
  Cache cache(5, random, false), other(5, random, false);
  const auto untouched = cache.memory;
  const auto refusal = [&](std::vector<BlockPair> pairs) { return Refusal(CopyBlocks(cache.planes, pairs)); };
  EXPECT_EQ(refusal({{0, 1}, {5, 2}}), "pairs[1] copies from block 5; the source has 5 blocks");
  EXPECT_EQ(refusal({{0, -1}}), "pairs[0] copies to block -1; the destination has 5 blocks");
  EXPECT_EQ(refusal({{0, 1}, {1, 2}}), "pairs[1] copies from block 1, which another pair writes; copy in two calls");
  EXPECT_EQ(refusal({{0, 1}, {2, 1}}), "block 1 is the destination of two pairs");
  EXPECT_EQ(Refusal(FillBlocks(cache.planes, 3, 3, kPoison)), "fill of 3 blocks from 3 on; the cache has 5");
  EXPECT_EQ(Refusal(FillBlocks(cache.planes, -1, 1, kPoison)), "fill of 1 blocks from -1 on; the cache has 5");
  Refusal(FillBlocks(cache.planes, 1, INT64_MAX, kPoison));
  std::vector<MutableBlocks> planes = cache.planes;
  planes[1].num_blocks = 6;
  EXPECT_NE(Refusal(CopyBlocks(planes, {})).find("planes[1]: 6 pages of 100 bytes, 100 bytes apart, don't fit in its 500 bytes"),
            std::string::npos);
  planes[1].num_blocks = 4;
  EXPECT_NE(Refusal(CopyBlocks(planes, {})).find("planes[1] has 4 blocks and planes[0] 5"), std::string::npos);
  planes[1] = {planes[1].bytes, 5, INT64_MAX, INT64_MAX};
  Refusal(CopyBlocks(planes, {}));
  const std::vector<ConstBlocks> from(cache.planes.begin(), cache.planes.end());
  EXPECT_NE(Refusal(SwapBlocks(from, cache.planes, {})).find("overlap; CopyBlocks copies within a cache"), std::string::npos);
  EXPECT_EQ(Refusal(SwapBlocks(std::span(from).first(1), other.planes, {})), "swap from 1 planes to 3");
  std::swap(other.planes[0], other.planes[1]);
  EXPECT_EQ(Refusal(SwapBlocks(from, other.planes, {})), "swap from pages of 64 bytes to pages of 100 in plane 0");
  EXPECT_TRUE(CopyBlocks({}, {}).ok());
  EXPECT_EQ(Refusal(CopyBlocks({}, std::vector<BlockPair>{{0, 0}})), "pairs[0] copies from block 0; the source has 0 blocks");
  EXPECT_EQ(cache.memory, untouched);
}

}  // namespace
}  // namespace jumar::memory::kv
