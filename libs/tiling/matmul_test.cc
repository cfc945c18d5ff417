#include "libs/tiling/matmul.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

bool Mentions(const absl::Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

// Small enough that every legal tiling of a small problem can be listed.
HardwareSpec TinySpec() {
  HardwareSpec spec = SyntheticSpec();
  spec.name = "tiny";
  spec.aic_cores = 4;
  spec.aiv_cores = 8;
  spec.ub_bytes = 4096;
  spec.l1_bytes = 8192;
  spec.l0a_bytes = spec.l0b_bytes = 2048;
  spec.l0c_bytes = 4096;
  spec.l2_bytes = 8192;
  return spec;
}

template <class Visit>
void ForEachLegalTiling(const MatmulProblem& problem, const HardwareSpec& spec, const Visit& visit) {
  const int64_t fractal_k = FractalK(problem.input);
  MatmulChoice c;
  for (c.cores_m = 1; c.cores_m <= spec.aic_cores; ++c.cores_m) {
    for (c.cores_n = 1; c.cores_m * c.cores_n <= spec.aic_cores; ++c.cores_n) {
      for (c.cores_k = 1; c.cores_m * c.cores_n * c.cores_k <= spec.aic_cores; ++c.cores_k) {
        for (c.tile_m = 16; c.tile_m <= problem.m + 15; c.tile_m += 16) {
          for (c.tile_n = 16; c.tile_n <= problem.n + 15; c.tile_n += 16) {
            for (c.step_k = fractal_k; c.step_k <= problem.k + fractal_k - 1; c.step_k += fractal_k) {
              for (c.l0_k = fractal_k; c.l0_k <= c.step_k; c.l0_k += fractal_k) {
                for (const Resident resident : {Resident::kNone, Resident::kA, Resident::kB}) {
                  c.resident = resident;
                  for (c.l0c_copies = 1; c.l0c_copies <= 2; ++c.l0c_copies) {
                    const absl::StatusOr<MatmulTiling> tiling = EvaluateMatmul(problem, c, spec);
                    if (tiling.ok()) visit(*tiling);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(MatmulTest, NoLegalTilingOfSmallProblemsBeatsTheBoundAndTheSolverIsNearTheBest) {
  int64_t legal = 0;
  for (const int64_t m : {1, 16, 33, 64}) {
    for (const int64_t n : {16, 40, 64}) {
      for (const int64_t k : {16, 64}) {
        for (const WeightLayout layout : {WeightLayout::kNz, WeightLayout::kNd}) {
          const MatmulProblem problem = {.m = m, .n = n, .k = k, .layout = static_cast<int64_t>(layout)};
          const absl::StatusOr<MatmulTiling> solved = SolveMatmul(problem, TinySpec());
          ASSERT_TRUE(solved.ok()) << solved.status();
          double best = 1;
          ForEachLegalTiling(problem, TinySpec(), [&](const MatmulTiling& tiling) {
            ++legal;
            best = std::min(best, tiling.prediction.seconds);
            ASSERT_GE(tiling.prediction.seconds, tiling.bound.Seconds() * (1 - 1e-12)) << m << " x " << n << " x " << k;
            ASSERT_DOUBLE_EQ(tiling.bound.Seconds(), solved->bound.Seconds());
          });
          EXPECT_LE(solved->prediction.seconds, best * 1.05) << m << " x " << n << " x " << k;
          EXPECT_GE(solved->prediction.seconds, best * (1 - 1e-12)) << m << " x " << n << " x " << k;
        }
      }
    }
  }
  EXPECT_GT(legal, 10000);
}

TEST(MatmulTest, TheSolutionIsWhatEvaluateSaysOfItsChoice) {
  for (const int64_t m : {1, 100, 4096}) {
    const MatmulProblem problem = {.m = m, .n = 1536, .k = 7168};
    const absl::StatusOr<MatmulTiling> solved = SolveMatmul(problem, SyntheticSpec());
    ASSERT_TRUE(solved.ok());
    const absl::StatusOr<MatmulTiling> again = EvaluateMatmul(problem, solved->choice, SyntheticSpec());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_DOUBLE_EQ(again->prediction.seconds, solved->prediction.seconds);
  }
}

TEST(MatmulTest, AFewTokensAgainstLargeWeightsAreBoundByHbm) {
  const absl::StatusOr<MatmulTiling> tiling = SolveMatmul({.m = 8, .n = 36864, .k = 7168}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok());
  EXPECT_EQ(tiling->prediction.limit, "HBM");
  EXPECT_DOUBLE_EQ(tiling->prediction.seconds, tiling->bound.hbm);
  EXPECT_EQ(tiling->choice.cores_n, 24);  // fewer would do under the model, with no room to spare
  EXPECT_LT(tiling->prediction.core_seconds, tiling->prediction.seconds / 2);
}

TEST(MatmulTest, ManyTokensAreBoundByTheCube) {
  const absl::StatusOr<MatmulTiling> tiling = SolveMatmul({.m = 8192, .n = 7168, .k = 7168}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok());
  EXPECT_EQ(tiling->prediction.limit, "cube");
  EXPECT_GT(tiling->prediction.Utilisation(kCube), 0.9);
}

TEST(MatmulTest, NarrowProductsDivideKAndReduce) {
  const MatmulProblem problem = {.m = 16, .n = 64, .k = 65536};
  const absl::StatusOr<MatmulTiling> tiling = SolveMatmul(problem, SyntheticSpec());
  ASSERT_TRUE(tiling.ok());
  EXPECT_GT(tiling->choice.cores_k, 1);
  EXPECT_TRUE(tiling->reduction.has_value());
  HardwareSpec no_vectors = SyntheticSpec();
  no_vectors.vector_bytes_per_cycle = kUnknown;
  const absl::StatusOr<MatmulTiling> whole = SolveMatmul(problem, no_vectors);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->choice.cores_k, 1);
  EXPECT_GT(whole->prediction.seconds, tiling->prediction.seconds);
}

TEST(MatmulTest, FractalsAreReadFasterThanNarrowRows) {
  MatmulProblem problem = {.m = 16, .n = 576, .k = 7168};
  const absl::StatusOr<MatmulTiling> nz = SolveMatmul(problem, SyntheticSpec());
  problem.layout = static_cast<int64_t>(WeightLayout::kNd);
  const absl::StatusOr<MatmulTiling> nd = SolveMatmul(problem, SyntheticSpec());
  ASSERT_TRUE(nz.ok() && nd.ok());
  EXPECT_LE(nz->prediction.seconds, nd->prediction.seconds);
}

TEST(MatmulTest, SizesBeyondInt64AreErrors) {
  for (const MatmulProblem& problem : {MatmulProblem{.m = kMaxSize, .n = kMaxSize, .k = kMaxSize},
                                       MatmulProblem{.m = INT64_MAX, .n = 1, .k = 1}, MatmulProblem{.m = 1, .n = 1, .k = INT64_MIN},
                                       MatmulProblem{.m = 0, .n = 1, .k = 1}, MatmulProblem{.m = kMaxSize, .n = kMaxSize, .k = 1}}) {
    EXPECT_EQ(SolveMatmul(problem, SyntheticSpec()).status().code(), absl::StatusCode::kInvalidArgument);
  }
  // 256 sequences of a million tokens.
  const absl::StatusOr<MatmulTiling> large = SolveMatmul({.m = int64_t{256} << 20, .n = 576, .k = 7168}, SyntheticSpec());
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_GE(large->prediction.seconds, large->bound.Seconds());
}

TEST(MatmulTest, AnIllegalChoiceSaysWhy) {
  const MatmulProblem problem = {.m = 256, .n = 256, .k = 256};
  const auto why = [&](const MatmulChoice& choice) { return EvaluateMatmul(problem, choice, SyntheticSpec()).status(); };
  EXPECT_TRUE(Mentions(why({.cores_m = 25}), "25 cores")) << why({.cores_m = 25});
  EXPECT_TRUE(Mentions(why({.cores_m = 5, .cores_n = 5}), "5 x 5 x 1")) << why({.cores_m = 5, .cores_n = 5});
  EXPECT_TRUE(Mentions(why({.tile_m = 8}), "tile_m = 8")) << why({.tile_m = 8});
  EXPECT_TRUE(Mentions(why({.tile_n = 512}), "tile_n = 512")) << why({.tile_n = 512});
  EXPECT_TRUE(Mentions(why({.step_k = INT64_MAX}), "step_k")) << why({.step_k = INT64_MAX});
  EXPECT_TRUE(Mentions(why({.step_k = 16, .l0_k = 32}), "l0_k = 32")) << why({.step_k = 16, .l0_k = 32});
  EXPECT_TRUE(Mentions(why({.l0c_copies = 3}), "l0c_copies = 3")) << why({.l0c_copies = 3});
  EXPECT_TRUE(Mentions(why({.tile_m = 256, .tile_n = 256}), "L0C")) << why({.tile_m = 256, .tile_n = 256});
  EXPECT_TRUE(Mentions(SolveMatmul({.input = DType::kHiF8}, SyntheticSpec()).status(), "hif8"));
  EXPECT_TRUE(Mentions(SolveMatmul({.output_bytes = 3}, SyntheticSpec()).status(), "output_bytes = 3"));
}

TEST(MatmulTest, AChipWithoutRoomForAFractalIsAnError) {
  HardwareSpec spec = SyntheticSpec();
  spec.l0c_bytes = 512;
  const absl::Status status = SolveMatmul({}, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Mentions(status, "L0C 512")) << status;
}

}  // namespace
}  // namespace jumar::tiling
