#include "libs/tiling/model.h"

#include <string>

#include "gtest/gtest.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

constexpr uint32_t kAll = kCubeFigures | kVectorFigures | kMacs16 | kMacs8 | kMacs32;

TEST(ModelTest, UnknownFiguresAreNamedWithTheChipAndTheMend) {
  HardwareSpec spec = SyntheticSpec();
  spec.l2_bytes = kUnknown;
  spec.cube_macs_per_cycle_8bit = kUnknown;
  const absl::Status status = MakeMachine(spec, kAll).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* word : {"l2_bytes,", "cube_macs_per_cycle_8bit", "synthetic", "--set NAME=VALUE", "SpecOverrides"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
  }
  EXPECT_EQ(status.message().find("clock_hz"), std::string::npos) << status;
}

TEST(ModelTest, OnlyWhatIsNeededMustBeKnown) {
  HardwareSpec spec = SyntheticSpec();
  spec.vector_bytes_per_cycle = kUnknown;
  spec.cube_macs_per_cycle_8bit = kUnknown;
  EXPECT_TRUE(MakeMachine(spec, kCubeFigures | MacFigure(DType::kBf16)).ok());
  EXPECT_FALSE(MakeMachine(spec, kCubeFigures | MacFigure(DType::kInt8)).ok());
  EXPECT_FALSE(MakeMachine(spec, kVectorFigures).ok());
}

TEST(ModelTest, RatesAreOfTheClock) {
  const Machine machine = *MakeMachine(SyntheticSpec(), kAll);
  EXPECT_DOUBLE_EQ(machine.macs16, 4096 * 1.8e9);
  EXPECT_DOUBLE_EQ(machine.step_seconds, kStepCycles / 1.8e9);
  EXPECT_EQ(machine.vectors_per_cube, 2);
  EXPECT_EQ(MakeMachine(SyntheticUnifiedSpec(), kAll)->vectors_per_cube, 1);
}

TEST(ModelTest, AFormatThatTheCubeLacksIsNamed) {
  const absl::Status status = RequireFormat(SyntheticUnifiedSpec(), DType::kBf16);
  EXPECT_NE(status.message().find("bf16"), std::string::npos) << status;
  EXPECT_TRUE(RequireFormat(SyntheticSpec(), DType::kBf16).ok());
}

TEST(ModelTest, PipesOverlapButForTheFirstAndTheLastStep) {
  CoreWork work = {.steps = 10};
  work.busy[kMte2] = 10, work.step[kMte2] = 1;
  work.busy[kCube] = 30, work.step[kCube] = 3;
  work.busy[kFix] = 5, work.step[kFix] = 0.5;
  EXPECT_DOUBLE_EQ(CoreSeconds(work), 30 + 1 + 0.5);
  work.TakeTurns(kCube, kFix);  // one L0C
  EXPECT_DOUBLE_EQ(CoreSeconds(work), 35 + 1);
  work.TakeTurns(kMte2, kCube);  // nothing overlaps
  EXPECT_DOUBLE_EQ(CoreSeconds(work), 45);
}

TEST(ModelTest, ThePredictionIsTheLargestOfCoreL2AndHbm) {
  const Machine machine = *MakeMachine(SyntheticSpec(), kAll);
  CoreWork work = {.steps = 1};
  work.busy[kCube] = work.step[kCube] = 1e-6;
  EXPECT_EQ(Predict(machine, work, 0, 0).limit, "cube");
  EXPECT_DOUBLE_EQ(Predict(machine, work, 0, 0).Utilisation(kCube), 1);
  EXPECT_EQ(Predict(machine, work, 0, 10'000'000).limit, "L2");
  EXPECT_DOUBLE_EQ(Predict(machine, work, 0, 10'000'000).seconds, 2e-6);
  EXPECT_EQ(Predict(machine, work, 16'000'000, 16'000'000).limit, "HBM");
  EXPECT_DOUBLE_EQ(Predict(machine, work, 16'000'000, 16'000'000).seconds, 1e-5);
  const Prediction both = Then(Predict(machine, work, 0, 0), Predict(machine, work, 16'000'000, 0));
  EXPECT_DOUBLE_EQ(both.seconds, 1.1e-5);
  EXPECT_EQ(both.limit, "HBM");
}

TEST(ModelTest, TheBoundNamesItsLargestTerm) {
  Bound bound = {.hbm = 3, .cube = 2.5, .latency = 1};
  EXPECT_DOUBLE_EQ(bound.Seconds(), 3.5);
  EXPECT_EQ(bound.Limit(), "cube");
  bound.latency = 0;
  EXPECT_EQ(bound.Limit(), "HBM");
}

TEST(ModelTest, BuffersThatLiveTogetherAddUp) {
  const HardwareSpec spec = SyntheticSpec();
  std::vector<Buffer> buffers = {{.name = "A", .memory = Memory::kL1, .bytes = 200 * 1024, .copies = 2, .first = 0, .last = 1},
                                 {.name = "B", .memory = Memory::kL1, .bytes = 200 * 1024, .copies = 2, .first = 2, .last = 2}};
  EXPECT_TRUE(CheckBuffers(buffers, spec).ok());
  EXPECT_EQ(PeakBytes(buffers, Memory::kL1), 400 * 1024);
  EXPECT_EQ(PeakBytes(buffers, Memory::kUb), 0);
  buffers[1].first = 1;
  const absl::Status status = CheckBuffers(buffers, spec);
  for (const char* word : {"L1", "synthetic", "524288", "819200", "A 2 x 204800"})
    EXPECT_NE(status.message().find(word), std::string::npos) << status;
}

}  // namespace
}  // namespace jumar::tiling
