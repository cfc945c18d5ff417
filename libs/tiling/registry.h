#ifndef LIBS_TILING_REGISTRY_H_
#define LIBS_TILING_REGISTRY_H_

// One row per solver: explain, survey, bindings, documentation and common tests are generated from it.
//
//   auto solver = FindSolver("matmul");                                       // or an error with the names that are spelled nearly so
//   auto values = ParseArguments(**solver, {{{"m", "8"}, {"n", "7168"}}});    // the other fields keep their defaults
//   auto solution = (*solver)->solve(*values, **FindHardware("Ascend910B2"));
//
// A solver is a file with a typed problem, its fields, and a function that returns its row; solvers.inc lists those functions.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

struct Solver {
  std::string_view name;
  std::string_view summary;  // one line
  std::vector<Field> fields = {};
  std::function<absl::StatusOr<Solution>(const Values&, const HardwareSpec&)> solve = {};  // checks the values
};

std::span<const Solver> Solvers();

// NotFound lists the names that are spelled nearly so, or all.
absl::StatusOr<const Solver*> FindSolver(std::string_view name);

struct Argument {
  std::string name;
  std::string value;
};

// Numbers, for a list "4096,8192x3" (three times 8192), or a choice's name ("bf16"). A field that isn't given has its default.
// InvalidArgument names the argument, and what it may be.
absl::StatusOr<Values> ParseArguments(const Solver& solver, std::span<const Argument> arguments);

// The values of the fields as one would type them: "8", "bf16", "4096,8192x3".
std::string FormatValue(const Field& field, std::span<const int64_t> values);

// The row of a typed solver. `fields` must outlive it.
template <class Problem>
Solver MakeSolver(std::string_view name, std::string_view summary, std::span<const TypedField<Problem>> fields,
                  absl::StatusOr<Solution> (*solve)(const Problem&, const HardwareSpec&)) {
  Solver solver = {.name = name, .summary = summary};
  for (const TypedField<Problem>& field : fields) solver.fields.push_back(Untyped(field));
  solver.solve = [fields, solve, untyped = solver.fields](const Values& values, const HardwareSpec& spec) -> absl::StatusOr<Solution> {
    if (values.size() != fields.size()) return absl::InvalidArgumentError("not as many values as the solver has fields");
    for (size_t i = 0; i < fields.size(); ++i) {
      if (absl::Status status = CheckField(untyped[i], values[i]); !status.ok()) return status;
    }
    return solve(FromValues(fields, values), spec);
  };
  return solver;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_REGISTRY_H_
