#include "libs/tiling/python/bindings.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "libs/memory/onchip/text.h"
#include "libs/tiling/buffer_map.h"
#include "libs/tiling/registry.h"

namespace jumar::tiling::python {
namespace {

namespace py = pybind11;

// What Python holds: the solution, the chip that it is for, and the problem's values.
struct Solved {
  Solution solution;
  HardwareSpec spec;
  const Solver* solver;
  Values values;
};

std::string Text(std::string_view text) { return std::string(text); }

HardwareSpec SpecOf(const py::object& spec) {
  if (!py::isinstance<py::str>(spec) && !py::isinstance<HardwareSpec>(spec)) {
    throw py::type_error("spec = " + std::string(py::repr(spec)) + " is neither a chip's name nor a HardwareSpec");
  }
  return py::isinstance<py::str>(spec) ? *Unwrap(FindHardware(py::cast<std::string>(spec))) : py::cast<HardwareSpec>(spec);
}

// A field's value as one would type it: 8, "bf16", [4096, 8192], "4096,8192x3".
std::string ArgumentText(const std::string& name, const py::handle& value) {
  if (py::isinstance<py::str>(value)) return py::cast<std::string>(value);
  if (py::isinstance<py::bool_>(value)) return py::cast<bool>(value) ? "1" : "0";
  if (py::isinstance<py::int_>(value)) return py::cast<std::string>(py::str(value));
  // Of numpy's numbers too; an array of one number is a list.
  if (PyIndex_Check(value.ptr()) != 0 && !py::isinstance<py::sequence>(value)) return std::to_string(WholeNumber(name, value));
  if (!py::isinstance<py::sequence>(value) || PyBytes_Check(value.ptr()) || PyByteArray_Check(value.ptr())) throw py::type_error(name + " is neither a number, nor a list of them, nor a text");
  std::vector<std::string> parts;
  for (const py::handle& part : value) parts.push_back(py::cast<std::string>(py::str(part)));
  return absl::StrJoin(parts, ",");
}

Solved Solve(const Solver& solver, const py::object& spec, const py::kwargs& fields) {
  std::vector<Argument> arguments;
  for (const auto& [name, value] : fields) {
    const std::string key = py::cast<std::string>(name);
    arguments.push_back({key, ArgumentText(key, value)});
  }
  Solved solved = {.solution = {}, .spec = SpecOf(spec), .solver = &solver, .values = Unwrap(ParseArguments(solver, arguments))};
  absl::StatusOr<Solution> solution;
  {
    py::gil_scoped_release release;
    solution = solver.solve(solved.values, solved.spec);
  }
  solved.solution = Unwrap(std::move(solution));
  return solved;
}

py::object FieldValue(const Field& field, const std::vector<int64_t>& values) {
  if (field.list) return py::cast(values);
  if (!field.choices.empty() && values[0] >= 0 && values[0] < static_cast<int64_t>(field.choices.size())) {
    return py::str(Text(field.choices[static_cast<size_t>(values[0])]));
  }
  return py::int_(values[0]);
}

py::dict Problem(const Solved& solved) {
  py::dict problem;
  for (size_t i = 0; i < solved.values.size(); ++i) {
    const Field& field = solved.solver->fields[i];
    problem[py::str(Text(field.name))] = FieldValue(field, solved.values[i]);
  }
  return problem;
}

py::dict PipeDict(const PipeSeconds& seconds) {
  py::dict pipes;
  for (int pipe = 0; pipe < kNumPipes; ++pipe) pipes[py::str(Text(kPipeNames[pipe]))] = seconds[pipe];
  return pipes;
}

py::list PlacedBuffers(const Solved& solved) {
  const auto map = PlanBuffers(solved.solution.buffers, solved.spec);
  py::list buffers;
  for (size_t i = 0; i < solved.solution.buffers.size(); ++i) {
    const Buffer& b = solved.solution.buffers[i];
    py::dict buffer;
    buffer["name"] = Text(b.name);
    buffer["memory"] = Text(MemoryName(b.memory));
    buffer["bytes"] = b.bytes;
    buffer["copies"] = b.copies;
    buffer["first_phase"] = b.first;
    buffer["last_phase"] = b.last;
    buffer["offset"] = map.ok() ? py::object(py::int_(map.placements[i].offset)) : py::object(py::none());
    buffers.append(buffer);
  }
  return buffers;
}

std::string BufferMapText(const Solved& solved) {
  const auto map = PlanBuffers(solved.solution.buffers, solved.spec);
  return map.ok() ? memory::onchip::Table(map.view()) : memory::onchip::ErrorText(map.view());
}

void BindSolution(py::module_& m) {
  py::class_<Bound>(m, "Bound", "Seconds that no tiling of the problem beats, by what limits it.")
      .def_property_readonly("seconds", &Bound::Seconds, "The bound: the largest of them, and what comes after.")
      .def_property_readonly("limit", [](const Bound& b) { return Text(b.Limit()); }, "Which is the largest: 'HBM', 'L2', 'cube', ...")
      .def_readonly("hbm", &Bound::hbm, "Bytes that cross HBM at least once.")
      .def_readonly("l2", &Bound::l2, "Bytes between L2 and the cores.")
      .def_readonly("read_port", &Bound::read_port, "Bytes through the cores' MTE2.")
      .def_readonly("write_port", &Bound::write_port, "Bytes through MTE3 or FIX.")
      .def_readonly("cube", &Bound::cube, "Multiply-adds.")
      .def_readonly("l0_port", &Bound::l0_port, "Bytes through MTE1.")
      .def_readonly("vector", &Bound::vector, "Operands of the vector unit.")
      .def_readonly("latency", &Bound::latency, "The first step of the other pipes, on top of what a core does itself.")
      .def_readonly("after", &Bound::after, "A later phase that every tiling has.");
  py::class_<Prediction>(m, "Prediction", "Seconds that the model predicts.")
      .def_readonly("seconds", &Prediction::seconds)
      .def_readonly("core_seconds", &Prediction::core_seconds, "Of the slowest core.")
      .def_readonly("hbm_seconds", &Prediction::hbm_seconds)
      .def_readonly("l2_seconds", &Prediction::l2_seconds)
      .def_property_readonly("busy", [](const Prediction& p) { return PipeDict(p.busy); }, "Seconds that each pipe of the slowest core is busy.")
      .def_property_readonly("limit", [](const Prediction& p) { return Text(p.limit); }, "What binds: 'HBM', 'L2' or a pipe.");
  py::class_<Traffic>(m, "Traffic", "Of all cores, in bytes; cube_macs in multiply-adds, with the padding of fractals.")
      .def_readonly("hbm_read", &Traffic::hbm_read)
      .def_readonly("hbm_write", &Traffic::hbm_write)
      .def_readonly("l2_read", &Traffic::l2_read, "Global memory to L1 or UB, wherever it came from.")
      .def_readonly("l2_write", &Traffic::l2_write, "To global memory.")
      .def_readonly("l1_to_l0", &Traffic::l1_to_l0)
      .def_readonly("l0c_out", &Traffic::l0c_out)
      .def_readonly("vector_bytes", &Traffic::vector_bytes, "Operands, each pass over them.")
      .def_readonly("cube_macs", &Traffic::cube_macs);
  py::class_<CoreWork>(m, "CoreWork", "What one core does.")
      .def_readonly("steps", &CoreWork::steps)
      .def_property_readonly("busy", [](const CoreWork& w) { return PipeDict(w.busy); }, "Seconds of each pipe, all steps.")
      .def_property_readonly("step", [](const CoreWork& w) { return PipeDict(w.step); }, "Seconds of each pipe, one step.")
      .def_property_readonly("turn", [](const CoreWork& w) {
            py::dict turns;
            for (int pipe = 0; pipe < kNumPipes; ++pipe) turns[py::str(Text(kPipeNames[pipe]))] = static_cast<int>(w.turn[pipe]);
            return turns;
          }, "Pipes with the same number share a buffer that exists once, so they take turns.");
  py::class_<Axis>(m, "Axis", "A dimension of the work.")
      .def_property_readonly("name", [](const Axis& a) { return Text(a.name); })
      .def_readonly("extent", &Axis::extent)
      .def_readonly("tile", &Axis::tile, "A core's step along it.");
  py::class_<Share>(m, "Share", "A core's part of the work.")
      .def_readonly("core", &Share::core)
      .def_readonly("range", &Share::range, "[begin, end) on each of the axes.");

  using S = Solved;
  py::class_<Solved>(m, "Solution", "How a problem is tiled for a chip, and what the model says of it.")
      .def_property_readonly("solver", [](const S& s) { return Text(s.solution.solver); })
      .def_readonly("spec", &Solved::spec, "The chip.")
      .def_property_readonly("problem", &Problem, "The value of each field.")
      .def_property_readonly("core_kind", [](const S& s) { return Text(s.solution.core_kind); }, "'AIC', 'AIV' or 'AIC + AIV'.")
      .def_property_readonly("tiling", [](const S& s) {
            py::dict tiling;
            for (const NamedValue& value : s.solution.tiling) tiling[py::str(Text(value.name))] = value.value;
            return tiling;
          }, "Name to value.")
      .def_property_readonly("tiling_docs", [](const S& s) {
            py::dict docs;
            for (const NamedValue& value : s.solution.tiling) docs[py::str(Text(value.name))] = Text(value.doc);
            return docs;
          }, "Name to what it means.")
      .def_property_readonly("buffers", &PlacedBuffers, "Of one core: a dict each, with name, memory, bytes (of a copy), copies, phases and offset.")
      .def("buffer_map", &BufferMapText, "The same as a text, with what is in use of each memory.")
      .def_property_readonly("axes", [](const S& s) { return s.solution.axes; })
      .def_property_readonly("shares", [](const S& s) { return s.solution.shares; }, "They cover every point of the axes exactly once.")
      .def_property_readonly("core_seconds", [](const S& s) { return s.solution.core_seconds; }, "Of each core; 0 = idle.")
      .def_property_readonly("slowest", [](const S& s) { return s.solution.slowest; }, "What the slowest core does.")
      .def_property_readonly("traffic", [](const S& s) { return s.solution.traffic; })
      .def_property_readonly("prediction", [](const S& s) { return s.solution.prediction; })
      .def_property_readonly("bound", [](const S& s) { return s.solution.bound; })
      .def("__repr__", [](const S& s) { return "Solution('" + Text(s.solution.solver) + "' for " + Text(s.spec.name) + ")"; });
}

}  // namespace

void BindSolvers(py::module_& m) {
  py::class_<Field>(m, "Field", "A field of a solver's problem.")
      .def_property_readonly("name", [](const Field& f) { return Text(f.name); })
      .def_property_readonly("doc", [](const Field& f) { return Text(f.doc); })
      .def_readonly("min", &Field::min)
      .def_readonly("max", &Field::max)
      .def_readonly("is_list", &Field::list, "Takes one number or more.")
      .def_property_readonly("choices", [](const Field& f) { return std::vector<std::string>(f.choices.begin(), f.choices.end()); },
                             "If not empty: the names that it takes.")
      .def_property_readonly("default", [](const Field& f) { return FieldValue(f, f.default_value); })
      .def("format", [](const Field& f) { return FormatValue(f, f.default_value); }, "The default as one would type it.")
      .def("__repr__", [](const Field& f) { return "Field('" + Text(f.name) + "')"; });

  BindSolution(m);

  py::class_<Solver>(m, "Solver", "Finds the tiling of one operator's problems.")
      .def_property_readonly("name", [](const Solver& s) { return Text(s.name); })
      .def_property_readonly("summary", [](const Solver& s) { return Text(s.summary); })
      .def_readonly("fields", &Solver::fields)
      .def("solve", &Solve, py::arg("spec") = "Ascend910B2",
           "The fastest tiling under the model, for a chip by name or HardwareSpec. Fields by name: numbers, lists of them, or as one would type "
           "them ('bf16', '4096,8192x3'); the others have their defaults. Raises ValueError for a field or value that is none, KeyError for a chip "
           "that is none, MemoryError where nothing fits, RuntimeError where the chip lacks a figure.")
      .def("__repr__", [](const Solver& s) { return "Solver('" + Text(s.name) + "')"; });

  m.def("solvers", [] {
    py::list list;
    for (const Solver& solver : Solvers()) list.append(py::cast(&solver, py::return_value_policy::reference));
    return list;
  }, "Every solver.");
  m.def("find_solver", [](const std::string& name) { return Unwrap(FindSolver(name)); }, py::arg("name"), py::return_value_policy::reference,
        "The solver of that name. Raises KeyError, which lists the names that are spelled nearly so.");
  m.def("solve", [](const std::string& solver, const py::object& spec, const py::kwargs& fields) { return Solve(*Unwrap(FindSolver(solver)), spec, fields); },
        py::arg("solver"), py::arg("spec") = "Ascend910B2", "find_solver(solver).solve(spec, **fields).");
}

}  // namespace jumar::tiling::python
