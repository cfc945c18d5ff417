#include "libs/memory/device/sleep_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/memory/device/address_mirror.h"
#include "libs/memory/device/device_memory.h"

namespace jumar::memory {
namespace {

using Tags = std::vector<std::string>;
constexpr uint64_t kPage = kHugePageBytes;

// The virtual half of a DeviceMemory. Calls number `fail_at` to `fail_at + fail_for - 1` from now on fail.
class FaultyMemory final : public VirtualMemory {
 public:
  explicit FaultyMemory(uint64_t limit_bytes, AddressMirror* mirror = nullptr)
      : memory_(DeviceMemory::Create({.name = "device", .limit_bytes = limit_bytes, .mirror = mirror}).value()),
        distance_(mirror == nullptr ? 0 : mirror->distance()) {}

  void FailAt(uint64_t call, uint64_t count = 1) {
    calls_ = 0;
    fail_at_ = call;
    fail_for_ = count;
  }
  uint64_t calls() const { return calls_; }
  DeviceMemory& device() { return *memory_; }
  size_t num_host() const { return host_.size(); }
  char* Access(void* device) const { return static_cast<char*>(device) + distance_; }

  uint64_t granularity() const override { return kPage; }
  absl::StatusOr<void*> Reserve(uint64_t bytes) override {
    if (Fails()) return Failure();
    return memory_->Reserve(bytes, 0);
  }
  absl::Status Release(void* base, uint64_t bytes) override { return Fails() ? Failure() : memory_->Release(base); }
  absl::StatusOr<Handle> CreatePhysical(uint64_t bytes, const std::string& tag) override {
    if (Fails()) return Failure();
    return memory_->CreatePhysical(bytes, tag);
  }
  absl::Status DestroyPhysical(Handle handle) override { return Fails() ? Failure() : memory_->DestroyPhysical(handle); }
  absl::Status Map(void* base, uint64_t bytes, Handle handle) override {
    return Fails() ? Failure() : memory_->Map(base, bytes, 0, handle);
  }
  absl::Status Unmap(void* base, uint64_t bytes) override { return Fails() ? Failure() : memory_->Unmap(base); }
  absl::StatusOr<void*> AllocateHost(uint64_t bytes) override {
    if (Fails()) return Failure();
    return *host_.insert(std::malloc(bytes)).first;
  }
  void FreeHost(void* host) override {
    EXPECT_EQ(host_.erase(host), 1u);
    std::free(host);
  }
  absl::Status CopyToHost(void* host, const void* device, uint64_t bytes) override {
    if (Fails()) return Failure();
    std::memcpy(host, Access(const_cast<void*>(device)), bytes);
    return absl::OkStatus();
  }
  absl::Status CopyToDevice(void* device, const void* host, uint64_t bytes) override {
    if (Fails()) return Failure();
    std::memcpy(Access(device), host, bytes);
    return absl::OkStatus();
  }
  absl::Status Synchronize() override { return Fails() ? Failure() : absl::OkStatus(); }

 private:
  bool Fails() {
    const uint64_t call = calls_++;
    return call >= fail_at_ && call - fail_at_ < fail_for_;
  }
  static absl::Status Failure() { return absl::ResourceExhaustedError("injected"); }

  std::unique_ptr<DeviceMemory> memory_;
  const uint64_t distance_;
  std::set<void*> host_;
  uint64_t calls_ = 0, fail_at_ = UINT64_MAX, fail_for_ = 0;
};

SleepTagStats StatsOf(const SleepPool& pool, const std::string& tag) {
  for (const SleepTagStats& stats : pool.Stats()) {
    if (stats.tag == tag) return stats;
  }
  return {};
}

class SleepPoolTest : public testing::Test {
 protected:
  void Fill(void* base, unsigned char value, uint64_t bytes = kPage) { std::memset(memory_.Access(base), value, bytes); }
  bool Holds(void* base, unsigned char value, uint64_t bytes = kPage) {
    const char* begin = memory_.Access(base);
    return begin[0] == static_cast<char>(value) && std::memcmp(begin, begin + 1, bytes - 1) == 0;
  }

  FaultyMemory memory_{64 * kPage};
  SleepPool pool_{&memory_};
};

TEST_F(SleepPoolTest, LevelOneKeepsAddressesAndOffloadedBytes) {
  void* weights = pool_.Allocate(3 * kPage, "weights").value();
  void* cache = pool_.Allocate(10 * kPage, "kv_cache").value();
  std::vector<unsigned char> bytes(3 * kPage);
  std::mt19937_64 random(1);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  std::memcpy(memory_.Access(weights), bytes.data(), bytes.size());
  Fill(cache, 7);
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(pool_.Sleep(Tags{"weights"}).ok());
    EXPECT_EQ(memory_.device().Stats().used_bytes, 0u);
    EXPECT_EQ(StatsOf(pool_, "weights").host_bytes, 3 * kPage);
    EXPECT_EQ(StatsOf(pool_, "kv_cache").host_bytes, 0u);
    ASSERT_TRUE(pool_.Wake({}).ok());
    EXPECT_EQ(memory_.num_host(), 0u);
    EXPECT_EQ(std::memcmp(memory_.Access(weights), bytes.data(), bytes.size()), 0);
    EXPECT_EQ(memory_.Access(cache)[0], 0) << "a dropped allocation has fresh memory";
  }
}

TEST_F(SleepPoolTest, TagsWakeOneAfterTheOther) {
  void* weights = pool_.Allocate(kPage, "weights").value();
  pool_.Allocate(kPage, "kv_cache").value();
  ASSERT_TRUE(pool_.Sleep({}).ok());
  ASSERT_TRUE(pool_.Wake(Tags{"weights"}).ok());
  Fill(weights, 3);
  EXPECT_EQ(StatsOf(pool_, "weights").num_asleep, 0u);
  EXPECT_EQ(StatsOf(pool_, "kv_cache").num_asleep, 1u);
  EXPECT_EQ(pool_.Wake(Tags{"weights"}).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(pool_.Wake(Tags{"kv_cache"}).ok());
  EXPECT_TRUE(Holds(weights, 3));
}

TEST_F(SleepPoolTest, DiscardDropsOnlyItsTags) {
  void* weights = pool_.Allocate(kPage, "weights").value();
  pool_.Allocate(kPage, "kv_cache").value();
  Fill(weights, 5);
  ASSERT_TRUE(pool_.Discard(Tags{"kv_cache"}).ok());
  EXPECT_EQ(memory_.device().Stats().used_bytes, kPage);
  ASSERT_TRUE(pool_.Sleep(Tags{"weights"}).ok());
  ASSERT_TRUE(pool_.Wake({}).ok());
  EXPECT_TRUE(Holds(weights, 5));
}

TEST_F(SleepPoolTest, SleepingTwiceChangesNothing) {
  void* weights = pool_.Allocate(kPage, "weights").value();
  Fill(weights, 9);
  ASSERT_TRUE(pool_.Sleep(Tags{"weights"}).ok());
  ASSERT_TRUE(pool_.Sleep({}).ok());  // would drop what is awake; nothing is
  ASSERT_TRUE(pool_.Wake({}).ok());
  EXPECT_TRUE(Holds(weights, 9));
}

TEST_F(SleepPoolTest, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(pool_.Wake({}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(pool_.Allocate(0, "weights").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_.Allocate(UINT64_MAX, "weights").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool_.Allocate(65 * kPage, "weights").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory_.device().Stats().reserved_bytes, 0u);
  void* base = pool_.Allocate(kPage, "weights").value();
  EXPECT_EQ(pool_.Free(memory_.Access(base) + 1).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(pool_.Free(base).ok());
  EXPECT_EQ(pool_.Free(base).code(), absl::StatusCode::kNotFound);
}

TEST_F(SleepPoolTest, FreesWhatSleeps) {
  void* weights = pool_.Allocate(kPage, "weights").value();
  ASSERT_TRUE(pool_.Sleep(Tags{"weights"}).ok());
  ASSERT_TRUE(pool_.Free(weights).ok());
  EXPECT_EQ(memory_.num_host(), 0u);
  EXPECT_EQ(memory_.device().Stats().reserved_bytes, 0u);
}

TEST_F(SleepPoolTest, WakingWithoutRoomLosesNothingAndCanBeRepeated) {
  std::vector<void*> weights;
  for (int i = 0; i < 8; ++i) {
    weights.push_back(pool_.Allocate(kPage, "weights").value());
    Fill(weights.back(), static_cast<unsigned char>(i + 1));
  }
  ASSERT_TRUE(pool_.Sleep(Tags{"weights"}).ok());
  void* other = memory_.device().Allocate(60 * kPage, PageSize::kHuge).value();
  const absl::Status status = pool_.Wake({});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("Held by: untagged 120.00 MiB in 1, weights 8.00 MiB in 4"), std::string::npos) << status;
  EXPECT_NE(status.message().find("nothing is lost"), std::string::npos) << status;
  EXPECT_EQ(StatsOf(pool_, "weights").num_asleep, 4u);
  ASSERT_TRUE(memory_.device().Free(other).ok());
  ASSERT_TRUE(pool_.Wake({}).ok());
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(Holds(weights[i], static_cast<unsigned char>(i + 1)));
}

TEST_F(SleepPoolTest, SleepThatFailsLeavesAllAwake) {
  void* cache = pool_.Allocate(kPage, "kv_cache").value();
  void* first = pool_.Allocate(kPage, "weights").value();
  void* second = pool_.Allocate(kPage, "weights").value();
  for (void* base : {cache, first, second}) Fill(base, 4);
  memory_.FailAt(5);  // synchronize; host, copy, unmap, destroy of the first; host of the second
  EXPECT_EQ(pool_.Sleep(Tags{"weights"}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory_.device().Stats().used_bytes, 3 * kPage);
  EXPECT_EQ(memory_.num_host(), 0u);
  for (void* base : {cache, first, second}) EXPECT_TRUE(Holds(base, 4));
}

TEST(SleepPoolIsolatedTest, BytesAreKeptAndDroppedOnesArePoison) {
  const auto mirror = AddressMirror::Create(uint64_t{1} << 30).value();
  FaultyMemory memory(16 * kPage, mirror.get());
  SleepPool pool(&memory);
  void* weights = pool.Allocate(kPage, "weights").value();
  void* cache = pool.Allocate(kPage, "kv_cache").value();
  std::memset(memory.Access(weights), 42, kPage);
  ASSERT_TRUE(pool.Sleep(Tags{"weights"}).ok());
  ASSERT_TRUE(pool.Wake({}).ok());
  EXPECT_EQ(memory.Access(weights)[kPage - 1], 42);
  EXPECT_EQ(static_cast<unsigned char>(memory.Access(cache)[0]), kPoisonByte);
}

// Random calls with failures anywhere. The model: each allocation's value, or nothing when it was dropped. After every call, whether it
// failed or not: what is awake holds its value, the pool's figures are the device's, and repeating without failures ends well.
TEST(SleepPoolPropertyTest, NothingIsLostWhateverFails) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FaultyMemory memory(24 * kPage);
    SleepPool pool(&memory);
    struct Model {
      std::string tag;
      std::optional<unsigned char> value;
      uint64_t bytes;
    };
    std::map<void*, Model> live;
    const Tags tags = {"weights", "kv_cache", "other"};
    const auto check = [&] {
      for (auto& [base, model] : live) {
        if (!pool.IsAwake(base) || !model.value.has_value()) continue;
        const char* begin = memory.Access(base);
        ASSERT_EQ(begin[0], static_cast<char>(*model.value)) << model.tag;
        ASSERT_EQ(begin[model.bytes - 1], static_cast<char>(*model.value)) << model.tag;
      }
    };
    for (int step = 0; step < 40; ++step) {
      memory.FailAt(random() % 2 == 0 ? UINT64_MAX : random() % 12, 1 + random() % 4);
      bool ok = true;
      switch (random() % 5) {
        case 0: {
          const uint64_t bytes = (1 + random() % 3) * kPage;
          const std::string& tag = tags[random() % tags.size()];
          const auto base = pool.Allocate(bytes, tag);
          ok = base.ok();
          if (!ok) break;
          const auto value = static_cast<unsigned char>(1 + random() % 255);
          std::memset(memory.Access(*base), value, bytes);
          live[*base] = {tag, value, bytes};
          break;
        }
        case 1: {
          if (live.empty()) break;
          const auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
          ok = pool.Free(it->first).ok();
          if (!ok) {  // half freed: it may only be freed again
            memory.FailAt(UINT64_MAX);
            ASSERT_TRUE(pool.Free(it->first).ok());
          }
          live.erase(it);
          break;
        }
        case 2: {
          const Tags offload = {tags[random() % tags.size()], tags[random() % tags.size()]};
          // Whatever the outcome, the others may be forgotten; those to offload may not.
          for (auto& [base, model] : live) {
            if (pool.IsAwake(base) && model.tag != offload[0] && model.tag != offload[1]) model.value.reset();
          }
          ok = pool.Sleep(offload).ok();
          break;
        }
        case 3: {
          const Tags dropped = {tags[random() % tags.size()]};
          for (auto& [base, model] : live) {
            if (pool.IsAwake(base) && model.tag == dropped[0]) model.value.reset();
          }
          ok = pool.Discard(dropped).ok();
          break;
        }
        default:
          ok = pool.Wake(random() % 2 == 0 ? Tags{} : Tags{tags[random() % tags.size()]}).ok();
      }
      check();
      if (HasFatalFailure()) return;
    }
    memory.FailAt(UINT64_MAX);
    const absl::Status woken = pool.Wake({});
    if (woken.code() == absl::StatusCode::kResourceExhausted) continue;  // more was allocated while others slept than there is
    check();
    if (HasFatalFailure()) return;
    EXPECT_EQ(memory.num_host(), 0u);
    uint64_t bytes = 0;
    for (const SleepTagStats& stats : pool.Stats()) {
      EXPECT_EQ(stats.num_asleep, 0u);
      EXPECT_EQ(stats.device_bytes, stats.size_bytes);
      bytes += stats.device_bytes;
    }
    EXPECT_EQ(memory.device().Stats().used_bytes, bytes);
    for (const auto& [base, model] : live) ASSERT_TRUE(pool.Free(base).ok());
    EXPECT_EQ(memory.device().Stats().used_bytes, 0u);
    EXPECT_EQ(memory.device().Stats().reserved_bytes, 0u);
  }
}

// Every call of every step fails once, alone: the step is repeated and the data are there.
TEST(SleepPoolPropertyTest, EverySingleFailureCanBeRepeated) {
  for (uint64_t failing = 0;; ++failing) {
    SCOPED_TRACE(failing);
    FaultyMemory memory(24 * kPage);
    SleepPool pool(&memory);
    std::map<void*, unsigned char> live;
    memory.FailAt(failing);
    const auto retry = [&](auto step) {
      const absl::Status status = step();
      if (!status.ok()) {
        EXPECT_NE(status.message().find("injected"), std::string::npos) << status;
        EXPECT_TRUE(step().ok());
      }
    };
    for (int i = 0; i < 3; ++i) {
      auto base = pool.Allocate(kPage, "weights");
      if (!base.ok()) base = pool.Allocate(kPage, "weights");
      std::memset(memory.Access(base.value()), i + 1, kPage);
      live[*base] = static_cast<unsigned char>(i + 1);
    }
    retry([&] { return pool.Sleep(Tags{"weights"}); });
    EXPECT_EQ(memory.device().Stats().used_bytes, 0u);
    retry([&] { return pool.Wake({}); });
    for (const auto& [base, value] : live) {
      EXPECT_EQ(memory.Access(base)[kPage - 1], static_cast<char>(value));
      retry([&, base = base] { return pool.Free(base); });
    }
    EXPECT_EQ(memory.device().Stats().used_bytes, 0u);
    EXPECT_EQ(memory.device().Stats().reserved_bytes, 0u);
    if (memory.calls() <= failing) break;  // nothing failed: all calls were tried
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace jumar::memory
