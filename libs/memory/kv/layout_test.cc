#include "libs/memory/kv/layout.h"

#include <set>
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

constexpr KvShape kShape = {.heads = 8, .head_dim = 128, .block_size = 128};

// The page bytes that the formats' documents give.
static_assert(SeparateKv(kShape, Order::kTokenMajor).block_bytes() == 2 * 8 * 128 * 128 * 2);
static_assert(JointKv(kShape, Order::kHeadMajor).page_bytes[0] == 2 * 8 * 128 * 128 * 2 &&
              JointKv(kShape, Order::kHeadMajor).num_planes == 1);
static_assert(Mla(128).page_bytes[0] == 128 * 1024 && Mla(128).page_bytes[1] == 128 * 128);
static_assert(SharedKv(128).block_bytes() == 131072);
static_assert(Packed656(64).block_bytes() == 64 * 656 && Packed656(64).padding_bytes() == 0);
static_assert(Packed640(128).block_bytes() == 81920 && Packed640(128).padding_bytes() == 57 * 128);
static_assert(PageSplit584(64, 1).block_bytes() == 64 * 584 && PageSplit584(64).block_bytes() % 576 == 0);
static_assert(PageSplit584(64).block_bytes() - 64 * 584 < 576);
static_assert(IndexerKeys(128).block_bytes() == 16896);
static_assert(IndexerKeys(128, Element::kInt8, Element::kFloat16).block_bytes() == 16640);
static_assert(CompressorState(8).block_bytes() == 8 * 2 * 2 * 512 * 4 && CompressorState(32, 512, 1).block_bytes() == 131072);
static_assert(InPagesOf(CompressorState(8, 128), 16640).padding_bytes() == 256);

// What a maker refuses isn't ok() while compiling either.
static_assert(!SeparateKv({.heads = 8, .head_dim = 128, .block_size = 0}, Order::kTokenMajor).ok());
static_assert(!SeparateKv({.heads = 3, .head_dim = 5, .block_size = 16}, Order::kFractal).ok());
static_assert(!CompressorState(INT64_MAX).ok() && !Packed656(-1).ok() && !InPagesOf(CompressorState(8), 1).ok());

std::vector<PageLayout> AllLayouts(int64_t bs) {
  std::vector<PageLayout> all = {Mla(bs),
                                 Mla(bs, Order::kFractal),
                                 SharedKv(bs),
                                 Packed656(bs),
                                 Packed656(bs, RowOrder::kScalesThenRope),
                                 Packed640(bs),
                                 PageSplit584(bs),
                                 PageSplit584(bs, 1),
                                 IndexerKeys(bs),
                                 IndexerKeys(bs, Element::kInt8, Element::kFloat16),
                                 CompressorState(bs),
                                 CompressorState(bs, 128),
                                 CompressorState(bs, 512, 1),
                                 InPagesOf(CompressorState(bs), bs * 10000)};
  for (const Order order : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
    for (const Element e : {Element::kBFloat16, Element::kInt8, Element::kFloat32}) {
      for (const int64_t heads : {1, 2, 8}) {
        all.push_back(SeparateKv({heads, 64, bs, e}, order));
        all.push_back(JointKv({heads, 64, bs, e}, order));
      }
    }
  }
  return all;
}

TEST(LayoutTest, NoTwoBytesOfAPageAreOne) {
  for (const int64_t bs : {1, 2, 16, 33}) {
    for (const PageLayout& l : AllLayouts(bs)) {
      ASSERT_TRUE(Validate(l).ok()) << Validate(l);
      std::vector<std::vector<bool>> taken(kMaxPlanes);
      for (int64_t i = 0; i < l.num_planes; ++i) taken[i].resize(static_cast<size_t>(l.page_bytes[i]));
      int64_t used = 0;
      for (int64_t p = 0; p < l.num_parts; ++p) {
        const Part& part = l.parts[p];
        for (int64_t t = 0; t < bs; ++t) {
          for (int64_t c = 0; c < part.rows.row_bytes; ++c, ++used) {
            const auto at = static_cast<size_t>(part.offset + part.rows.ByteOffset(t, c));
            ASSERT_LT(at, taken[part.plane].size()) << Describe(l);
            ASSERT_FALSE(taken[part.plane][at]) << Describe(l) << part.name << " token " << t << " byte " << c;
            taken[part.plane][at] = true;
          }
        }
      }
      ASSERT_EQ(l.padding_bytes(), l.block_bytes() - used);
    }
  }
}

// The shapes that the operators' documents give, as strides of tensors.
TEST(LayoutTest, LocatesAsTheTensorsShapeSays) {
  constexpr int64_t kBlocks = 3, kHeads = 4, kDim = 32, kBs = 8;
  for (const Element e : {Element::kBFloat16, Element::kInt8}) {
    const int64_t size = ElementBytes(e), c0 = size == 1 ? 32 : 16;
    for (int64_t b = 0; b < kBlocks; ++b) {
      for (int64_t t = 0; t < kBs; ++t) {
        for (int64_t h = 0; h < kHeads; ++h) {
          const auto offset = [&](Order order, bool joint, int64_t part) {
            const KvShape s = {kHeads, kDim, kBs, e};
            const auto at = Locate(joint ? JointKv(s, order) : SeparateKv(s, order), kBlocks, {b, t, h, part});
            EXPECT_TRUE(at.ok() && at->plane == (joint ? 0 : part)) << at.status();
            EXPECT_EQ(at->contiguous, (order == Order::kFractal ? c0 : kDim) * size);
            return at->offset / size;
          };
          EXPECT_EQ(offset(Order::kTokenMajor, false, 1), ((b * kBs + t) * kHeads + h) * kDim);
          EXPECT_EQ(offset(Order::kHeadMajor, false, 0), ((b * kHeads + h) * kBs + t) * kDim);
          EXPECT_EQ(offset(Order::kFractal, false, 0), ((b * (kHeads * kDim / c0) + h * kDim / c0) * kBs + t) * c0);
          EXPECT_EQ(offset(Order::kTokenMajor, true, 1), (((b * 2 + 1) * kBs + t) * kHeads + h) * kDim);
        }
      }
    }
  }
}

TEST(LayoutTest, PageSplitRowsLieWhereTheirFormatsSay) {
  const PageLayout split = PageSplit584(64), key = IndexerKeys(128), row = Packed656(64), flash = Packed656(64, RowOrder::kScalesThenRope);
  EXPECT_EQ(Locate(split, 2, {0, 5, 0, 1})->offset, 5 * 576 + 448);
  EXPECT_EQ(Locate(split, 2, {1, 5, 0, 2})->offset, split.page_bytes[0] + 64 * 576 + 5 * 8);
  EXPECT_EQ(Locate(key, 1, {0, 7, 0, 1})->offset, 128 * 128 + 7 * 4);
  EXPECT_EQ(Locate(row, 1, {0, 1, 0, 2})->offset, 656 + 640);
  EXPECT_EQ(Locate(flash, 1, {0, 1, 0, 2})->offset, 656 + 512);
  EXPECT_EQ(Locate(flash, 1, {0, 1, 0, 1})->offset, 656 + 528);
}

TEST(LayoutTest, RefusesEachIndexOutsideItsTable) {
  constexpr PageLayout l = SeparateKv(kShape, Order::kHeadMajor);
  EXPECT_EQ(Refusal(Locate(l, 10, {.block = 10}).status()), "layout gqa: block = 10 is not in [0, num_blocks = 10)");
  EXPECT_EQ(Refusal(Locate(l, 10, {.block = -1}).status()), "layout gqa: block = -1 is not in [0, num_blocks = 10)");
  EXPECT_EQ(Refusal(Locate(l, 10, {.token = 128}).status()), "layout gqa: token = 128 is not in [0, block_size = 128)");
  EXPECT_EQ(Refusal(Locate(l, 10, {.head = 8}).status()), "layout gqa: head = 8 is not in [0, heads = 8)");
  EXPECT_EQ(Refusal(Locate(l, 10, {.part = 2}).status()), "layout gqa: part = 2 is not in [0, num_parts = 2)");
  EXPECT_NE(Refusal(Locate(l, 10, {}, 5).status()).find("block_stride = 5 is less than a page"), std::string::npos);
  EXPECT_NE(Refusal(Locate(l, INT64_MAX, {.block = INT64_MAX - 1}).status()).find("beyond int64"), std::string::npos);
  EXPECT_EQ(FindPart(l, "scales").status().message(), "layout gqa has no part scales; it has k, v");
}

TEST(LayoutTest, RefusedArgumentsAreNamed) {
  EXPECT_EQ(Refusal(Validate(SeparateKv({0, 128, 16}, Order::kTokenMajor))),
            "layout gqa: heads = 0; it must be from 1 to 2^30 (bytes of a row, or tokens)");
  EXPECT_NE(Refusal(Validate(SeparateKv({3, 5, 16}, Order::kFractal))).find("heads * dim = 15; a fractal layout needs a multiple of 16"),
            std::string::npos);
  for (const int64_t huge : {INT64_MAX, INT64_MIN, int64_t{1} << 62, int64_t{-1}, int64_t{0}}) {
    for (const Order order : {Order::kTokenMajor, Order::kHeadMajor, Order::kFractal}) {
      Refusal(Validate(SeparateKv({huge, 128, 16}, order)));
      Refusal(Validate(SeparateKv({8, huge, 16}, order)));
      Refusal(Validate(JointKv({8, 128, huge}, order)));
    }
    for (const PageLayout& l : AllLayouts(huge)) Refusal(Validate(l));
    Refusal(Validate(PageSplit584(64, huge)));
    Refusal(Validate(CompressorState(8, huge)));
    Refusal(Validate(CompressorState(8, 512, huge)));
  }
  // The largest that are taken.
  EXPECT_TRUE(Validate(JointKv({1, 1 << 28, kMaxBlockSize, Element::kFloat32}, Order::kHeadMajor)).ok());
  EXPECT_TRUE(Validate(PageSplit584(kMaxBlockSize, kMaxRowBytes)).ok());
}

TEST(LayoutTest, ValidateFindsFaultsOfALayoutMadeByHand) {
  PageLayout l = Packed640(16);
  l.page_bytes[0] = 100;
  EXPECT_NE(Refusal(Validate(l)).find("part rope: 9728 bytes from 0 on don't fit in a page of 100"), std::string::npos) << Validate(l);
  l = Packed640(16);
  l.parts[1].rows.token_stride = 447;
  EXPECT_NE(Refusal(Validate(l)).find("rows overlap"), std::string::npos);
  l = SeparateKv({4, 32, 8}, Order::kHeadMajor);
  l.parts[0].rows.chunk_stride -= 1;
  EXPECT_NE(Refusal(Validate(l)).find("rows overlap"), std::string::npos);
  l.parts[0].rows.chunk_stride = INT64_MAX;
  EXPECT_NE(Refusal(Validate(l)).find("exceed int64"), std::string::npos);
  l.parts[0].rows = {256, 100, 256, 256};
  EXPECT_NE(Refusal(Validate(l)).find("chunks fill a row"), std::string::npos);
  l = Packed640(16);
  l.parts[1].heads = 5;
  EXPECT_NE(Refusal(Validate(l)).find("5 heads don't divide a row of 448 bytes"), std::string::npos);
  l.parts[0].plane = 1;
  EXPECT_NE(Refusal(Validate(l)).find("plane = 1"), std::string::npos);
  Refusal(Validate(PageLayout{}));
}

TEST(LayoutTest, DescribesItself) {
  const std::string text = Describe(Packed640(128));
  EXPECT_NE(text.find("packed640: 128 tokens per block, 583 bytes per token, 81920 bytes per block, 7296 of them padding"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("scales     e8m0"), std::string::npos) << text;
}

}  // namespace
}  // namespace jumar::memory::kv
