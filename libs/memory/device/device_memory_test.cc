#include "libs/memory/device/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace jumar::memory {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<DeviceMemory> Make(uint64_t limit_bytes) {
  auto memory = DeviceMemory::Create({.name = "device 3", .limit_bytes = limit_bytes, .mend = "Buy more."});
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(DeviceMemoryTest, HandsOutZeroedWritableMemoryChargedInPages) {
  auto memory = Make(64 * kMiB);
  const auto small = memory->Allocate(100, PageSize::kNormal);
  const auto large = memory->Allocate(3 * kMiB, PageSize::kHuge);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(memory->Stats().used_bytes, kNormalPageBytes + 4 * kMiB);
  EXPECT_EQ(reinterpret_cast<uint64_t>(*large) % kHugePageBytes, 0u);
  char* bytes = static_cast<char*>(*large);
  EXPECT_TRUE(std::all_of(bytes, bytes + 4 * kMiB, [](char c) { return c == 0; }));
  std::memset(bytes, 1, 4 * kMiB);
  EXPECT_TRUE(memory->Free(*large).ok());
  EXPECT_TRUE(memory->Free(*small).ok());
  EXPECT_EQ(memory->Stats().used_bytes, 0u);
  EXPECT_EQ(memory->Stats().peak_bytes, kNormalPageBytes + 4 * kMiB);
}

TEST(DeviceMemoryTest, MemoryIsZeroedAgainAfterReuse) {
  auto memory = DeviceMemory::Create({.name = "d", .limit_bytes = 4 * kMiB, .window_bytes = 4 * kMiB});
  ASSERT_TRUE(memory.ok());
  for (int round = 0; round < 3; ++round) {
    const auto p = (*memory)->Allocate(4 * kMiB, PageSize::kHuge);
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_EQ(*static_cast<char*>(*p), 0);
    std::memset(*p, 0x5a, 4 * kMiB);
    ASSERT_TRUE((*memory)->Free(*p).ok());
  }
}

TEST(DeviceMemoryTest, OutOfMemoryTellsUsedLimitRequestedAndMend) {
  auto memory = Make(8 * kMiB);
  ASSERT_TRUE(memory->Allocate(6 * kMiB, PageSize::kHuge).ok());
  const auto refused = memory->Allocate(3 * kMiB, PageSize::kHuge);
  ASSERT_TRUE(absl::IsResourceExhausted(refused.status()));
  EXPECT_THAT(Message(refused.status()), testing::AllOf(HasSubstr("device 3"), HasSubstr("3.00 MiB requested"),
                                                        HasSubstr("6.00 MiB used of a limit of 8.00 MiB"), HasSubstr("Buy more.")));
  EXPECT_EQ(memory->Stats().num_refused, 1u);
  EXPECT_TRUE(memory->Allocate(2 * kMiB, PageSize::kHuge).ok()) << "a refusal must not be charged";
}

TEST(DeviceMemoryTest, HoldersAddUpToWhatIsUsedAndOutOfMemoryNamesThem) {
  for (const bool isolated : {false, true}) {
    const auto mirror = AddressMirror::Create(uint64_t{1} << 30);
    auto memory = DeviceMemory::Create(
        {.name = "d", .limit_bytes = 64 * kMiB, .mirror = isolated ? mirror->get() : nullptr});
    ASSERT_TRUE(memory.ok());
    const auto first = (*memory)->Allocate(4 * kMiB, PageSize::kHuge, "weights");
    const auto chunk = (*memory)->CreatePhysical(20 * kMiB, "kv_cache");
    const auto second = (*memory)->CreatePhysical(6 * kMiB, "weights");
    const auto other = (*memory)->Allocate(100, PageSize::kNormal);
    ASSERT_TRUE(first.ok() && chunk.ok() && second.ok() && other.ok());
    uint64_t held = 0;
    for (const MemoryHolder& holder : (*memory)->Holders()) held += holder.bytes;
    EXPECT_EQ(held, (*memory)->Stats().used_bytes);
    EXPECT_THAT(Message((*memory)->Allocate(60 * kMiB, PageSize::kHuge, "weights").status()),
                HasSubstr("Held by: kv_cache 20.00 MiB in 1, weights 10.00 MiB in 2 (largest 6.00 MiB), untagged 4.00 KiB in 1"));
    // A tag ends with its allocation, whoever gets the addresses next.
    ASSERT_TRUE((*memory)->Free(*first).ok());
    const auto again = (*memory)->Allocate(4 * kMiB, PageSize::kHuge);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ((*memory)->Holders()[1].tag, "weights");
    EXPECT_EQ((*memory)->Holders()[1].bytes, 6 * kMiB);
  }
}

TEST(DeviceMemoryTest, FragmentationIsTheFreeShareOutsideTheLargestRun) {
  auto memory = DeviceMemory::Create({.name = "d", .limit_bytes = 16 * kMiB, .window_bytes = 16 * kMiB}).value();
  EXPECT_EQ(memory->Stats().addresses.free_bytes, 16 * kMiB);
  EXPECT_EQ(memory->Stats().addresses.fragmentation(), 0);
  EXPECT_EQ(memory->Stats().physical.free_bytes, 64 * kMiB);
  std::vector<void*> blocks;
  std::vector<PhysicalHandle> chunks;
  for (int i = 0; i < 4; ++i) blocks.push_back(memory->Allocate(2 * kMiB, PageSize::kHuge).value());
  for (int i = 0; i < 4; ++i) chunks.push_back(memory->CreatePhysical(2 * kMiB).value());
  EXPECT_EQ(memory->Stats().addresses.largest_bytes, 8 * kMiB);
  // Of 10 MiB of addresses, 2 lie apart; of 58 MiB of the file, likewise.
  ASSERT_TRUE(memory->Free(blocks[1]).ok());
  ASSERT_TRUE(memory->DestroyPhysical(chunks[1]).ok());
  EXPECT_DOUBLE_EQ(memory->Stats().addresses.fragmentation(), 0.2);
  EXPECT_DOUBLE_EQ(memory->Stats().physical.fragmentation(), 1 - 56.0 / 58);
  // Next to it, it is one run of 4 MiB, and so of 12 in all.
  ASSERT_TRUE(memory->Free(blocks[2]).ok());
  EXPECT_EQ(memory->Stats().addresses.free_bytes, 12 * kMiB);
  EXPECT_EQ(memory->Stats().addresses.largest_bytes, 8 * kMiB);
  ASSERT_TRUE(memory->Free(blocks[3]).ok());
  EXPECT_EQ(memory->Stats().addresses.fragmentation(), 0);
}

TEST(DeviceMemoryTest, HugeRequestsDoNotOverflow) {
  auto memory = Make(8 * kMiB);
  EXPECT_TRUE(absl::IsResourceExhausted(memory->Allocate(UINT64_MAX, PageSize::kHuge).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(memory->CreatePhysical(UINT64_MAX).status()));
  EXPECT_EQ(memory->Stats().used_bytes, 0u);
}

TEST(DeviceMemoryTest, FreeTellsApartInsideTwiceAndForeign) {
  auto memory = Make(8 * kMiB);
  char* p = static_cast<char*>(*memory->Allocate(100, PageSize::kNormal));
  EXPECT_THAT(Message(memory->Free(p + 8)), HasSubstr("points 8 bytes into an allocation"));
  EXPECT_TRUE(memory->Free(p).ok());
  EXPECT_THAT(Message(memory->Free(p)), HasSubstr("freed before"));
  int foreign = 0;
  EXPECT_TRUE(absl::IsNotFound(memory->Free(&foreign)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Allocate(0, PageSize::kNormal).status()));
}

TEST(DeviceMemoryTest, FindNamesTheAllocationThatHoldsAPointer) {
  auto memory = Make(8 * kMiB);
  char* p = static_cast<char*>(*memory->Allocate(kNormalPageBytes, PageSize::kNormal));
  const auto region = memory->Find(p + 17);
  ASSERT_TRUE(region.has_value());
  EXPECT_EQ(region->base, p);
  EXPECT_EQ(region->size_bytes, kNormalPageBytes);
  EXPECT_FALSE(memory->Find(&region).has_value());
  ASSERT_TRUE(memory->Free(p).ok());
  EXPECT_FALSE(memory->Find(p).has_value());
}

TEST(DeviceMemoryDeathTest, UseAfterFreeFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto memory = Make(8 * kMiB);
        volatile char* p = static_cast<char*>(*memory->Allocate(4096, PageSize::kNormal));
        (void)memory->Free(const_cast<char*>(p));
        p[0] = 1;
      },
      "");
}

TEST(VirtualMemoryTest, MapsChunksIntoAReservationAndKeepsTheirBytes) {
  auto memory = Make(64 * kMiB);
  char* va = static_cast<char*>(*memory->Reserve(1024 * kMiB, 0));
  EXPECT_EQ(memory->Stats().used_bytes, 0u) << "addresses cost nothing";
  EXPECT_EQ(memory->Stats().reserved_bytes, 1024 * kMiB);
  const PhysicalHandle a = *memory->CreatePhysical(2 * kMiB);
  const PhysicalHandle b = *memory->CreatePhysical(2 * kMiB);
  EXPECT_EQ(memory->Stats().used_bytes, 4 * kMiB);
  ASSERT_TRUE(memory->Map(va, 2 * kMiB, 0, a).ok());
  ASSERT_TRUE(memory->Map(va + 2 * kMiB, 2 * kMiB, 0, b).ok());
  std::memset(va, 1, 2 * kMiB);
  std::memset(va + 2 * kMiB, 2, 2 * kMiB);

  // The bytes belong to the chunk: they come back at another address.
  ASSERT_TRUE(memory->Unmap(va).ok());
  ASSERT_TRUE(memory->Map(va + 100 * kMiB, 2 * kMiB, 0, a).ok());
  EXPECT_EQ(va[100 * kMiB + 12345], 1);
  EXPECT_EQ(va[2 * kMiB], 2);

  EXPECT_THAT(Message(memory->Release(va)), HasSubstr("2 mappings are left"));
  EXPECT_THAT(Message(memory->DestroyPhysical(a)), HasSubstr("still mapped"));
  ASSERT_TRUE(memory->Unmap(va + 100 * kMiB).ok());
  ASSERT_TRUE(memory->Unmap(va + 2 * kMiB).ok());
  EXPECT_TRUE(memory->DestroyPhysical(a).ok());
  EXPECT_TRUE(memory->DestroyPhysical(b).ok());
  EXPECT_TRUE(memory->Release(va).ok());
  EXPECT_EQ(memory->Stats().used_bytes, 0u);
  EXPECT_EQ(memory->Stats().reserved_bytes, 0u);
}

TEST(VirtualMemoryTest, ADestroyedChunkIsZeroForItsNextOwner) {
  auto memory = Make(4 * kMiB);
  char* va = static_cast<char*>(*memory->Reserve(4 * kMiB, 0));
  for (int round = 0; round < 20; ++round) {  // enough to come round the file
    const PhysicalHandle chunk = *memory->CreatePhysical(4 * kMiB);
    ASSERT_TRUE(memory->Map(va, 4 * kMiB, 0, chunk).ok());
    ASSERT_EQ(va[0], 0);
    ASSERT_EQ(va[4 * kMiB - 1], 0);
    std::memset(va, 0x77, 4 * kMiB);
    ASSERT_TRUE(memory->Unmap(va).ok());
    ASSERT_TRUE(memory->DestroyPhysical(chunk).ok());
  }
}

TEST(VirtualMemoryTest, RefusesWhatDoesNotFit) {
  auto memory = Make(8 * kMiB);
  char* va = static_cast<char*>(*memory->Reserve(4 * kMiB, 0));
  const PhysicalHandle chunk = *memory->CreatePhysical(2 * kMiB);
  EXPECT_THAT(Message(memory->Map(va, 4 * kMiB, 0, chunk)), HasSubstr("exceeds the chunk"));
  EXPECT_THAT(Message(memory->Map(va + 3 * kMiB, 2 * kMiB, 0, chunk)), HasSubstr("not inside one reservation"));
  EXPECT_THAT(Message(memory->Map(va, 100, 0, chunk)), HasSubstr("multiples of 4096"));
  EXPECT_TRUE(absl::IsNotFound(memory->Map(va, 2 * kMiB, 0, chunk + 1)));
  ASSERT_TRUE(memory->Map(va, 2 * kMiB, 0, chunk).ok());
  EXPECT_THAT(Message(memory->Map(va + kMiB, kMiB, 0, chunk)), HasSubstr("mapped already"));
  EXPECT_TRUE(absl::IsNotFound(memory->Unmap(va + kMiB)));
  EXPECT_TRUE(absl::IsInvalidArgument(memory->Reserve(4 * kMiB, 3).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(memory->CreatePhysical(7 * kMiB).status()));
  EXPECT_TRUE(absl::IsNotFound(memory->Release(va + 4096)));
  ASSERT_TRUE(memory->Unmap(va).ok());
}

TEST(VirtualMemoryTest, AlignsReservations) {
  auto memory = Make(8 * kMiB);
  for (uint64_t alignment : {uint64_t{0}, 4096 * uint64_t{1}, 16 * kMiB}) {
    const auto va = memory->Reserve(512, alignment);
    ASSERT_TRUE(va.ok());
    EXPECT_EQ(reinterpret_cast<uint64_t>(*va) % std::max(alignment, kNormalPageBytes), 0u);
    EXPECT_TRUE(memory->Release(*va).ok());
  }
}

// Random allocations and frees against a model: the sum of what lives is what is charged, requests fail exactly when they exceed the
// budget, and no allocation writes into another.
TEST(DeviceMemoryTest, BehavesLikeABudgetOverDisjointBuffers) {
  constexpr uint64_t kLimit = 32 * kMiB;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    auto memory = Make(kLimit);
    struct Live {
      uint64_t charged;
      unsigned char pattern;
      uint64_t bytes;
    };
    std::map<unsigned char*, Live> live;
    uint64_t used = 0, peak = 0;
    for (int step = 0; step < 300; ++step) {
      if (random() % 5 < 3) {
        const PageSize page = random() % 2 == 0 ? PageSize::kNormal : PageSize::kHuge;
        const uint64_t unit = page == PageSize::kNormal ? kNormalPageBytes : kHugePageBytes;
        const uint64_t bytes = 1 + random() % (6 * kMiB);
        const uint64_t charged = (bytes + unit - 1) / unit * unit;
        const auto p = memory->Allocate(bytes, page);
        ASSERT_EQ(p.ok(), used + charged <= kLimit) << p.status();
        if (!p.ok()) continue;
        auto* start = static_cast<unsigned char*>(*p);
        const auto pattern = static_cast<unsigned char>(random());
        for (uint64_t i = 0; i < bytes; i += 997) start[i] = pattern;  // sparse: touching all would only be slow
        start[bytes - 1] = pattern;
        live[start] = {charged, pattern, bytes};
        used += charged;
        peak = std::max(peak, used);
      } else if (!live.empty()) {
        auto it = live.begin();
        std::advance(it, random() % live.size());
        for (uint64_t i = 0; i < it->second.bytes; i += 997) ASSERT_EQ(it->first[i], it->second.pattern);
        ASSERT_EQ(it->first[it->second.bytes - 1], it->second.pattern);
        ASSERT_TRUE(memory->Free(it->first).ok());
        used -= it->second.charged;
        live.erase(it);
      }
      ASSERT_EQ(memory->Stats().used_bytes, used);
      ASSERT_EQ(memory->Stats().num_allocations, live.size());
    }
    EXPECT_EQ(memory->Stats().peak_bytes, peak);
  }
}

TEST(DeviceMemoryTest, ThreadsShareTheBudgetWithoutExceedingIt) {
  auto memory = Make(16 * kMiB);
  std::atomic<uint64_t> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 8; ++i) {
        if (memory->Allocate(kMiB, PageSize::kNormal).ok()) granted.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(granted.load(), 16u);
  EXPECT_EQ(memory->Stats().num_refused, 16u);
}

// Bytes of [pointer, pointer + bytes) that the host backs with memory.
uint64_t Resident(const char* pointer, uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(mincore(const_cast<char*>(pointer), bytes, pages.data()), 0);
  return 4096 * static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(DeviceMemoryTest, ZeroingALongRangeGivesItsPagesBack) {
  auto memory = Make(128 * kMiB);
  char* allocation = static_cast<char*>(*memory->Allocate(32 * kMiB, PageSize::kHuge));
  char* reservation = static_cast<char*>(*memory->Reserve(32 * kMiB, 0));
  const PhysicalHandle chunk = *memory->CreatePhysical(32 * kMiB);
  ASSERT_TRUE(memory->Map(reservation, 32 * kMiB, 0, chunk).ok());
  for (char* start : {allocation, reservation}) {
    for (const uint64_t bytes : {uint64_t{1000}, 32 * kMiB - 2000}) {  // written, given back; neither aligned
      std::memset(start, 7, 32 * kMiB);
      memory->Zero(start + 500, bytes);
      EXPECT_EQ(start[499], 7);
      EXPECT_EQ(start[500 + bytes], 7);
      if (bytes > kMiB) {
        EXPECT_LT(Resident(start, 32 * kMiB), 8 * kMiB);
      }
      EXPECT_TRUE(std::all_of(start + 500, start + 500 + bytes, [](char c) { return c == 0; }));
    }
  }
  ASSERT_TRUE(memory->Unmap(reservation).ok());
}

TEST(VirtualMemoryTest, CountsTheBytesThatAreMappedWithoutAGap) {
  auto memory = Make(64 * kMiB);
  char* va = static_cast<char*>(*memory->Reserve(64 * kMiB, 0));
  const PhysicalHandle chunk = *memory->CreatePhysical(4 * kMiB);
  for (const uint64_t at : {uint64_t{8}, uint64_t{10}, uint64_t{14}}) ASSERT_TRUE(memory->Map(va + at * kMiB, 2 * kMiB, 0, chunk).ok());
  EXPECT_EQ(memory->UsableBytes(va, 1), 0u);
  EXPECT_EQ(memory->UsableBytes(va + 9 * kMiB, 64 * kMiB), 3 * kMiB);
  EXPECT_EQ(memory->UsableBytes(va + 9 * kMiB, 5), 5u);
  EXPECT_EQ(memory->UsableBytes(va + 12 * kMiB, 1), 0u);
  EXPECT_EQ(memory->UsableBytes(va + 15 * kMiB, 2 * kMiB), kMiB);
  char* allocation = static_cast<char*>(*memory->Allocate(100, PageSize::kNormal));
  EXPECT_EQ(memory->UsableBytes(allocation + 96, 8000), 4000u);
  for (const uint64_t at : {uint64_t{8}, uint64_t{10}, uint64_t{14}}) ASSERT_TRUE(memory->Unmap(va + at * kMiB).ok());
}

class IsolatedMemoryTest : public testing::Test {
 protected:
  // May this process read the byte? The kernel says so without a fault.
  static bool Readable(const void* address) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    const bool readable = write(pipe[1], address, 1) == 1;
    close(pipe[0]);
    close(pipe[1]);
    return readable;
  }
  unsigned char* Alias(void* address) { return static_cast<unsigned char*>(address) + mirror_->distance(); }

  std::unique_ptr<AddressMirror> mirror_ = *AddressMirror::Create(16384 * kMiB);
  std::unique_ptr<DeviceMemory> memory_ =
      *DeviceMemory::Create({.name = "device 3", .limit_bytes = 256 * kMiB, .mirror = mirror_.get()});
};

TEST_F(IsolatedMemoryTest, OnlyTheMirrorIsAccessibleAndOnlyWhileAllocated) {
  void* p = *memory_->Allocate(3 * kMiB, PageSize::kHuge);
  EXPECT_FALSE(Readable(p));
  EXPECT_TRUE(Readable(Alias(p)));
  EXPECT_TRUE(Readable(Alias(p) + 4 * kMiB - 1)) << "whole pages";
  EXPECT_FALSE(Readable(Alias(p) + 4 * kMiB)) << "the page behind it";
  ASSERT_TRUE(memory_->Free(p).ok());
  EXPECT_FALSE(Readable(Alias(p)));
}

TEST_F(IsolatedMemoryTest, FreshMemoryIsPoisonedUpToALimit) {
  void* p = *memory_->Allocate(kPoisonBytes + 2 * kMiB, PageSize::kHuge);
  EXPECT_EQ(Alias(p)[0], kPoisonByte);
  EXPECT_EQ(Alias(p)[kPoisonBytes - 1], kPoisonByte);
  EXPECT_EQ(Alias(p)[kPoisonBytes], 0);
  memory_->Zero(p, kPoisonBytes);
  EXPECT_TRUE(std::all_of(Alias(p), Alias(p) + kPoisonBytes, [](unsigned char c) { return c == 0; }));
  ASSERT_TRUE(memory_->Free(p).ok());

  char* va = static_cast<char*>(*memory_->Reserve(4 * kMiB, 0));
  const PhysicalHandle chunk = *memory_->CreatePhysical(2 * kMiB);
  ASSERT_TRUE(memory_->Map(va, 2 * kMiB, 0, chunk).ok());
  EXPECT_FALSE(Readable(va));
  EXPECT_EQ(Alias(va)[2 * kMiB - 1], kPoisonByte);
  Alias(va)[5] = 77;
  ASSERT_TRUE(memory_->Unmap(va).ok());
  EXPECT_FALSE(Readable(Alias(va)));
  ASSERT_TRUE(memory_->Map(va + 2 * kMiB, 2 * kMiB, 0, chunk).ok());
  EXPECT_EQ(Alias(va)[2 * kMiB + 5], 77) << "the bytes belong to the chunk";
  ASSERT_TRUE(memory_->Unmap(va + 2 * kMiB).ok());
  ASSERT_TRUE(memory_->Release(va).ok());
}

TEST_F(IsolatedMemoryTest, FreedAddressesRestAndComeBackWhenTheyRunShort) {
  void* first = *memory_->Allocate(200 * kMiB, PageSize::kHuge);
  ASSERT_TRUE(memory_->Free(first).ok());
  bool came_back = false;
  for (int i = 0; i < 40; ++i) {
    const auto p = memory_->Allocate(200 * kMiB, PageSize::kHuge);
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_TRUE(i > 5 || *p != first) << "too early: " << i;
    came_back |= *p == first;
    ASSERT_TRUE(memory_->Free(*p).ok());
  }
  EXPECT_TRUE(came_back);
}

TEST_F(IsolatedMemoryTest, RemembersAtMostSoManyFrees) {
  std::vector<void*> freed;
  for (size_t i = 0; i < kMaxFreed + 10; ++i) {
    freed.push_back(*memory_->Allocate(100, PageSize::kNormal));
    ASSERT_TRUE(memory_->Free(freed.back()).ok());
  }
  EXPECT_EQ(memory_->Describe(freed[9]).find("freed by"), std::string::npos);
  EXPECT_NE(memory_->Describe(freed[10]).find("freed by"), std::string::npos);
}

TEST_F(IsolatedMemoryTest, KnowsWhoAllocatedAndWhoFreed) {
  char* p = static_cast<char*>(*memory_->Allocate(100, PageSize::kNormal));
  EXPECT_THAT(memory_->Describe(p + 7), testing::AllOf(HasSubstr("7 bytes into an allocation of 100 bytes at "), HasSubstr("allocated by:\n    "),
                                                       testing::Not(HasSubstr("freed"))));
  ASSERT_EQ(memory_->Live().size(), 1u);
  EXPECT_EQ(memory_->Live()[0].requested_bytes, 100u);
  ASSERT_TRUE(memory_->Free(p).ok());
  EXPECT_TRUE(memory_->Live().empty());
  EXPECT_THAT(Message(memory_->Free(p)), testing::AllOf(HasSubstr("freed before. It is 0 bytes into"), HasSubstr("freed by:\n    ")));
  EXPECT_EQ(memory_->Describe(&p), "");
}

TEST(DeviceMemoryTest, RefusesABudgetBelowOnePage) {
  EXPECT_TRUE(absl::IsInvalidArgument(DeviceMemory::Create({.name = "d", .limit_bytes = 4096}).status()));
}

TEST(FormatBytesTest, UsesPowersOf1024) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(20 * kMiB), "20.00 MiB");
  EXPECT_EQ(FormatBytes(1536 * kMiB), "1.50 GiB");
}

}  // namespace
}  // namespace jumar::memory
