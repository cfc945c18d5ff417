// What the survey needs beyond the module jumar_tiling: the grids and the fixed rules, which only tests link.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/hardware.h"
#include "libs/tiling/python/bindings.h"
#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

namespace jumar::tiling::python {
namespace {

namespace py = pybind11;

// A solver with its grid; made once, as some grids are long.
struct Grid {
  const Solver* solver;
  const Baseline* baseline;
  std::vector<Values> problems;
};

// Of one problem. NaN where there is none.
struct Result {
  double seconds = std::numeric_limits<double>::quiet_NaN();
  double bound = seconds, fixed = seconds, solve_seconds = seconds;
  std::string error;  // why the solver has no tiling
};

Grid MakeGrid(const std::string& name) {
  const Solver* solver = Unwrap(FindSolver(name));
  for (const Baseline& baseline : Baselines()) {
    if (baseline.solver == name) return {solver, &baseline, baseline.grid()};
  }
  throw py::key_error("there is no grid of problems for " + name);
}

Result Run(const Grid& grid, size_t index, const HardwareSpec& spec) {
  if (index >= grid.problems.size()) throw py::index_error("the grid has " + std::to_string(grid.problems.size()) + " problems");
  const Values& problem = grid.problems[index];
  Result result;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<Solution> solution = grid.solver->solve(problem, spec);
  result.solve_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!solution.ok()) {
    result.error = std::string(solution.status().message());
    return result;
  }
  result.seconds = solution->prediction.seconds;
  result.bound = solution->bound.Seconds();
  if (const absl::StatusOr<Prediction> fixed = grid.baseline->predict(problem, spec); fixed.ok()) result.fixed = fixed->seconds;
  return result;
}

// As arguments of explain.
std::string Describe(const Grid& grid, size_t index) {
  std::string text(grid.solver->name);
  for (size_t i = 0; i < grid.problems.at(index).size(); ++i) {
    const Field& field = grid.solver->fields[i];
    text += " --" + std::string(field.name) + " " + FormatValue(field, grid.problems[index][i]);
  }
  return text;
}

}  // namespace

PYBIND11_MODULE(jumar_tiling_survey, m) {
  py::module_::import("jumar_tiling");  // the types of specs
  m.doc() = "The grids of problems of the solvers, and the fixed rules that others use in their place.";
  py::class_<Result>(m, "Result")
      .def_readonly("seconds", &Result::seconds)
      .def_readonly("bound", &Result::bound)
      .def_readonly("fixed", &Result::fixed, "The fixed rule's; NaN where it has no legal tiling.")
      .def_readonly("solve_seconds", &Result::solve_seconds)
      .def_readonly("error", &Result::error);
  py::class_<Grid>(m, "Grid")
      .def(py::init(&MakeGrid), py::arg("solver"))
      .def("__len__", [](const Grid& grid) { return grid.problems.size(); })
      .def("run", &Run, py::arg("index"), py::arg("spec"))
      .def("describe", &Describe, py::arg("index"));
  m.def("synthetic_spec", &SyntheticSpec, "A chip that doesn't exist, with every figure given.");
}

}  // namespace jumar::tiling::python
