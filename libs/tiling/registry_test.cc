#include "libs/tiling/registry.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling {
namespace {

bool Mentions(const absl::Status& status, std::string_view words) { return status.message().find(words) != std::string::npos; }

class EverySolver : public testing::TestWithParam<std::string> {
 protected:
  const Solver& solver() { return **FindSolver(GetParam()); }
  Values defaults() { return *ParseArguments(solver(), {}); }
};

TEST_P(EverySolver, HasDocsAndSolvesItsDefaults) {
  EXPECT_FALSE(solver().summary.empty());
  std::set<std::string_view> names;
  for (const Field& field : solver().fields) {
    EXPECT_FALSE(field.doc.empty()) << field.name;
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_TRUE(CheckField(field, field.default_value).ok()) << field.name;
    const auto parsed = ParseArguments(solver(), std::vector<Argument>{{std::string(field.name), FormatValue(field, field.default_value)}});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, defaults());
  }
  const absl::StatusOr<Solution> solution = solver().solve(defaults(), SyntheticSpec());
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_EQ(solution->solver, solver().name);
  EXPECT_FALSE(solution->tiling.empty());
  EXPECT_FALSE(solution->buffers.empty());
  EXPECT_FALSE(solution->shares.empty());
  for (const Share& share : solution->shares) EXPECT_EQ(share.range.size(), solution->axes.size());
  EXPECT_TRUE(CheckBuffers(solution->buffers, SyntheticSpec()).ok());
  EXPECT_GE(solution->prediction.seconds, solution->bound.Seconds());
  EXPECT_GT(solution->bound.Seconds(), 0);
}

TEST_P(EverySolver, NamesAFieldThatItLacksOrThatIsOutOfRange) {
  const absl::Status status = ParseArguments(solver(), std::vector<Argument>{{"no_such_field", "1"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Mentions(status, "no_such_field") && Mentions(status, "known are")) << status;
  for (size_t i = 0; i < solver().fields.size(); ++i) {
    const Field& field = solver().fields[i];
    for (const int64_t wrong : {field.min - 1, field.max + 1, INT64_MIN, INT64_MAX}) {
      Values values = defaults();
      values[i] = {wrong};
      const absl::Status out = solver().solve(values, SyntheticSpec()).status();
      EXPECT_EQ(out.code(), absl::StatusCode::kInvalidArgument) << field.name << " = " << wrong;
      EXPECT_TRUE(Mentions(out, field.name)) << out;
    }
    const absl::Status text = ParseArguments(solver(), std::vector<Argument>{{std::string(field.name), "many"}}).status();
    EXPECT_TRUE(Mentions(text, field.name) && Mentions(text, "many")) << text;
  }
}

TEST_P(EverySolver, NamesTheFiguresThatNobodyPublished) {
  HardwareSpec spec = SyntheticSpec();
  spec.gm_read_bytes_per_cycle = kUnknown;
  const absl::Status status = solver().solve(defaults(), spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(Mentions(status, "gm_read_bytes_per_cycle") && Mentions(status, "synthetic")) << status;
}

TEST_P(EverySolver, IsDeterministic) {
  const absl::StatusOr<Solution> a = solver().solve(defaults(), SyntheticSpec()), b = solver().solve(defaults(), SyntheticSpec());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->prediction.seconds, b->prediction.seconds);
  for (size_t i = 0; i < a->tiling.size(); ++i) EXPECT_EQ(a->tiling[i].value, b->tiling[i].value) << a->tiling[i].name;
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Solver& solver : Solvers()) names.emplace_back(solver.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Solvers, EverySolver, testing::ValuesIn(Names()), [](const auto& info) { return info.param; });

TEST(RegistryTest, NearNamesOfASolver) {
  const absl::Status near = FindSolver("row_quamt").status();
  EXPECT_EQ(near.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Mentions(near, "did you mean row_quant?")) << near;
  EXPECT_TRUE(Mentions(FindSolver("zebra").status(), "known are")) << FindSolver("zebra").status();
}

TEST(RegistryTest, NearNamesOfAField) {
  const absl::Status near = ParseArguments(**FindSolver("row_quant"), std::vector<Argument>{{"column", "1"}}).status();
  EXPECT_TRUE(Mentions(near, "did you mean columns?")) << near;
}

TEST(RegistryTest, ChoicesAreNames) {
  const Solver& solver = **FindSolver("row_quant");
  const absl::StatusOr<Values> values = ParseArguments(solver, std::vector<Argument>{{"input", "fp16"}, {"smooth", "yes"}});
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[2][0], static_cast<int64_t>(DType::kFp16));
  const absl::Status wrong = ParseArguments(solver, std::vector<Argument>{{"input", "bf17"}}).status();
  EXPECT_TRUE(Mentions(wrong, "fp32, fp16, bf16")) << wrong;
}

TEST(RegistryTest, ListsCanRepeat) {
  const Solver solver = {.name = "lists",
                         .summary = "",
                         .fields = {{.name = "lengths", .doc = "", .min = 0, .max = 9000, .list = true, .default_value = {1}}}};
  const auto parse = [&](const char* text) { return ParseArguments(solver, std::vector<Argument>{{"lengths", text}}); };
  const absl::StatusOr<Values> values = parse("4096,8192x3,7");
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0], (std::vector<int64_t>{4096, 8192, 8192, 8192, 7}));
  EXPECT_EQ(FormatValue(solver.fields[0], (*values)[0]), "4096,8192x3,7");
  for (const char* wrong : {"", ",", "1,", "x3", "1x0", "1x-1", "1x99999999999999", "1x2000000", "9001", "-1", "99999999999999999999"}) {
    EXPECT_TRUE(Mentions(parse(wrong).status(), "lengths")) << wrong;
  }
}

}  // namespace
}  // namespace jumar::tiling
