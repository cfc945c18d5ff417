#include "libs/tiling/host.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/machine_limits.h"
#include "libs/tiling/simd.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::tiling {
namespace {

TEST(HostTest, IsMeasured) {
  ThreadPool pool(2);
  const HardwareSpec host = MeasureHost(pool);
  EXPECT_EQ(host.name, "host");
  EXPECT_EQ(host.architecture, Architecture::kHost);
  EXPECT_EQ(host.aic_cores, 2);
  EXPECT_GT(host.memory_bytes, int64_t{64} << 20);
  // Of some machine: a claim about its speed would be one about what else runs on it.
  EXPECT_GT(host.memory_bytes_per_second, 1'000'000);
  EXPECT_GT(host.clock_hz, 1'000'000);
  EXPECT_LT(host.clock_hz, 20'000'000'000);
  for (const SpecFigure& figure : kSpecFigures) {
    EXPECT_GE(host.*figure.value, 0) << figure.name;
    EXPECT_EQ(SourceOf(host, figure.value), host.*figure.value == kUnknown ? Source::kNone : Source::kMeasured) << figure.name;
  }
  EXPECT_EQ(host.soc_version, kUnknown) << "no torch_npu knows it";
}

TEST(HostTest, CachesGrowWithTheirLevel) {
  const int64_t l1 = CacheBytes(1), l2 = CacheBytes(2), l3 = CacheBytes(3);
  for (const int64_t bytes : {l1, l2, l3}) EXPECT_GE(bytes, 0);
  EXPECT_TRUE(l1 == kUnknown || l2 == kUnknown || l1 <= l2) << l1 << " " << l2;
  EXPECT_TRUE(l2 == kUnknown || l3 == kUnknown || l2 <= l3) << l2 << " " << l3;
}

TEST(MachineLimitsTest, AreThoseOfSomeMachine) {
  ThreadPool pool(2);
  EXPECT_GT(ReadBytesPerSecond(int64_t{1} << 20, pool), 1e6);
  EXPECT_GT(CopyBytesPerSecond(pool), 1e6);
  EXPECT_GT(FlopsPerSecond(pool), 1e6);
  EXPECT_GT(CyclesPerSecond(), 1e6);
}

TEST(MachineLimitsTest, SumsEveryWordOnce) {
  ThreadPool pool(3);
  for (const size_t words : {300'000, 4'000'033}) {  // one stream, and several with a rest
    const std::vector<int64_t> ones(words, 1);
    for (Executor* executor : {static_cast<Executor*>(&pool), &InlineExecutor()}) {
      EXPECT_EQ(SumBytes(ones.data(), static_cast<int64_t>(words * 8), *executor), static_cast<int64_t>(words) / 32 * 32);
    }
  }
}

TEST(MachineLimitsTest, CountTheOperationsOfEveryInstructionSet) {
  ThreadPool pool(2);
  for (const std::string& target : SimdTargets()) {
    ASSERT_TRUE(UseSimdTarget(target).ok());
    const double f32 = MultiplyAdds(pool), bf16 = BF16DotOps(pool), int8 = Int8DotOps(pool);
    EXPECT_TRUE(bf16 == 0 || bf16 == 2 * f32) << target << ": " << bf16 << " and " << f32;
    EXPECT_TRUE(int8 == 2 * f32 || int8 == 4 * f32) << target << ": " << int8 << " and " << f32;
  }
  ASSERT_TRUE(UseSimdTarget("").ok());
}

}  // namespace
}  // namespace jumar::tiling
