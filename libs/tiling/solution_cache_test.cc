#include "libs/tiling/solution_cache.h"

#include <vector>

#include "gtest/gtest.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

Values Rows(const Solver& solver, int64_t rows) {
  Values values = *ParseArguments(solver, {});
  values[0] = {rows};
  return values;
}

TEST(SolutionCacheTest, ASecondRequestIsTheSameSolution) {
  const Solver& solver = **FindSolver("row_quant");
  SolutionCache cache(SyntheticSpec(), 4);
  const auto first = cache.Solve(solver, Rows(solver, 8)), second = cache.Solve(solver, Rows(solver, 8));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(cache.hits(), 1);
  EXPECT_EQ(cache.misses(), 1);
  EXPECT_EQ((*first)->prediction.seconds, solver.solve(Rows(solver, 8), SyntheticSpec())->prediction.seconds);
}

TEST(SolutionCacheTest, TheLeastRecentlyUsedIsForgotten) {
  const Solver& solver = **FindSolver("row_quant");
  SolutionCache cache(SyntheticSpec(), 2);
  for (const int64_t rows : {1, 2, 1, 3}) ASSERT_TRUE(cache.Solve(solver, Rows(solver, rows)).ok());  // forgets 2
  EXPECT_EQ(cache.size(), 2u);
  ASSERT_TRUE(cache.Solve(solver, Rows(solver, 1)).ok());
  EXPECT_EQ(cache.hits(), 2);
  ASSERT_TRUE(cache.Solve(solver, Rows(solver, 2)).ok());
  EXPECT_EQ(cache.misses(), 4);
}

TEST(SolutionCacheTest, SolversAndFieldsAreKeptApart) {
  const Solver &quant = **FindSolver("row_quant"), &matmul = **FindSolver("matmul");
  SolutionCache cache(SyntheticSpec(), 8);
  ASSERT_TRUE(cache.Solve(quant, *ParseArguments(quant, {})).ok());
  const auto product = cache.Solve(matmul, *ParseArguments(matmul, {}));
  ASSERT_TRUE(product.ok());
  EXPECT_EQ((*product)->solver, "matmul");
  EXPECT_EQ(cache.misses(), 2);
}

TEST(SolutionCacheTest, ErrorsAreNotKeptAndNoCapacityKeepsNothing) {
  const Solver& solver = **FindSolver("row_quant");
  SolutionCache cache(SyntheticSpec(), 2), none(SyntheticSpec(), 0);
  EXPECT_FALSE(cache.Solve(solver, Rows(solver, -1)).ok());
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_TRUE(none.Solve(solver, Rows(solver, 1)).ok());
  EXPECT_EQ(none.size(), 0u);
}

}  // namespace
}  // namespace jumar::tiling
