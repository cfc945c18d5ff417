#include "libs/tiling/grouped_matmul.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

bool Mentions(const absl::Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

HardwareSpec TinySpec() {
  HardwareSpec spec = SyntheticSpec();
  spec.name = "tiny";
  spec.aic_cores = 3;
  spec.l1_bytes = 8192;
  spec.l0a_bytes = spec.l0b_bytes = 2048;
  spec.l0c_bytes = 4096;
  spec.l2_bytes = 4096;
  return spec;
}

TEST(GroupedMatmulTest, NoLegalTilingOfSmallProblemsBeatsTheBoundAndTheSolverIsNearTheBest) {
  int64_t legal = 0;
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{1}, {0, 5, 16}, {17, 3, 40}, {64, 0, 0, 1}, {20, 20, 20, 20}}) {
    for (const int64_t n : {16, 40, 80}) {
      const GroupedMatmulProblem problem = {.rows = rows, .n = n, .k = 48};
      const absl::StatusOr<GroupedMatmulTiling> solved = SolveGroupedMatmul(problem, TinySpec());
      ASSERT_TRUE(solved.ok()) << solved.status();
      double best = 1;
      const int64_t most = *std::max_element(rows.begin(), rows.end());
      GroupedMatmulChoice c;
      for (c.task_m = 16; c.task_m < most + 16; c.task_m += 16) {
        for (c.task_n = 16; c.task_n < n + 16; c.task_n += 16) {
          for (c.tile_m = 16; c.tile_m <= c.task_m; c.tile_m += 16) {
            for (c.tile_n = 16; c.tile_n <= c.task_n; c.tile_n += 16) {
              for (c.step_k = 16; c.step_k <= 48; c.step_k += 16) {
                for (c.l0_k = 16; c.l0_k <= c.step_k; c.l0_k += 16) {
                  for (const Resident resident : {Resident::kNone, Resident::kA, Resident::kB}) {
                    c.resident = resident;
                    for (c.l0c_copies = 1; c.l0c_copies <= 2; ++c.l0c_copies) {
                      const absl::StatusOr<GroupedMatmulTiling> tiling = EvaluateGroupedMatmul(problem, c, TinySpec());
                      if (!tiling.ok()) continue;
                      ++legal;
                      best = std::min(best, tiling->prediction.seconds);
                      ASSERT_GE(tiling->prediction.seconds, tiling->bound.Seconds() * (1 - 1e-12));
                    }
                  }
                }
              }
            }
          }
        }
      }
      EXPECT_LE(solved->prediction.seconds, best * 1.05) << "rows[0] = " << rows[0] << ", n = " << n;
      EXPECT_GE(solved->prediction.seconds, best * (1 - 1e-12));
    }
  }
  EXPECT_GT(legal, 4000);
}

TEST(GroupedMatmulTest, TasksCoverEveryGroupsOutputOnceAndTheFirstCoreHasMost) {
  const GroupedMatmulProblem problem = {.rows = {0, 1, 17, 300, 64, 65, 0, 1000}, .n = 777, .k = 512};
  const absl::StatusOr<GroupedMatmulTiling> tiling = SolveGroupedMatmul(problem, SyntheticSpec());
  ASSERT_TRUE(tiling.ok()) << tiling.status();
  std::vector<std::vector<int>> written(problem.rows.size());
  for (size_t group = 0; group < written.size(); ++group) written[group].assign(static_cast<size_t>(problem.rows[group] * problem.n), 0);
  const std::vector<GroupTask> tasks = GroupTasks(problem, tiling->choice);
  EXPECT_EQ(static_cast<int64_t>(tasks.size()), tiling->tasks);
  for (const GroupTask& task : tasks) {
    for (int64_t m = task.begin_m; m < task.end_m; ++m) {
      for (int64_t n = task.begin_n; n < task.end_n; ++n)
        ++written[static_cast<size_t>(task.group)][static_cast<size_t>(m * problem.n + n)];
    }
  }
  for (const std::vector<int>& group : written) {
    for (const int times : group) ASSERT_EQ(times, 1);
  }
  EXPECT_TRUE(std::is_sorted(tasks.begin(), tasks.end(),
                             [](const GroupTask& a, const GroupTask& b) { return a.end_m - a.begin_m > b.end_m - b.begin_m; }));
}

TEST(GroupedMatmulTest, TheOrderOfGroupsDoesNotMatter) {
  GroupedMatmulProblem problem = {.rows = {0, 1, 17, 300, 64, 65, 0, 100}, .n = 4096, .k = 7168};
  const absl::StatusOr<GroupedMatmulTiling> before = SolveGroupedMatmul(problem, SyntheticSpec());
  std::reverse(problem.rows.begin(), problem.rows.end());
  const absl::StatusOr<GroupedMatmulTiling> after = SolveGroupedMatmul(problem, SyntheticSpec());
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(before->prediction.seconds, after->prediction.seconds);
  EXPECT_EQ(before->choice.task_n, after->choice.task_n);
}

TEST(GroupedMatmulTest, AFewTokensAreBoundByTheWeights) {
  const absl::StatusOr<GroupedMatmulTiling> tiling =
      SolveGroupedMatmul({.rows = std::vector<int64_t>(32, 2), .n = 4096, .k = 7168}, SyntheticSpec());
  ASSERT_TRUE(tiling.ok());
  EXPECT_EQ(tiling->prediction.limit, "HBM");
  EXPECT_DOUBLE_EQ(tiling->prediction.seconds, tiling->bound.hbm);
  EXPECT_EQ(tiling->cores, 24);
  EXPECT_LT(tiling->prediction.core_seconds, tiling->prediction.seconds * 0.6);
}

TEST(GroupedMatmulTest, WrongProblemsAreErrors) {
  const auto error = [](const GroupedMatmulProblem& problem) { return SolveGroupedMatmul(problem, SyntheticSpec()).status(); };
  EXPECT_TRUE(Mentions(error({.rows = {0, 0}}), "no group has a row"));
  EXPECT_TRUE(Mentions(error({.rows = {}}), "rows"));
  EXPECT_TRUE(Mentions(error({.rows = {-1}}), "rows = -1"));
  EXPECT_TRUE(Mentions(error({.rows = std::vector<int64_t>(5000, 1)}), "5000 groups"));
  EXPECT_TRUE(Mentions(error({.rows = {kMaxSize, kMaxSize}, .n = kMaxSize, .k = kMaxSize}), "beyond 2^60"));
  EXPECT_TRUE(Mentions(error({.rows = {1}, .output_bytes = 3}), "output_bytes = 3"));
  // 256 sequences of a million tokens, eight experts each.
  EXPECT_TRUE(SolveGroupedMatmul({.rows = std::vector<int64_t>(256, int64_t{8} << 20), .n = 4096, .k = 7168}, SyntheticSpec()).ok());
}

}  // namespace
}  // namespace jumar::tiling
