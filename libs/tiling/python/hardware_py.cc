#include "libs/tiling/python/bindings.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "libs/tiling/hardware.h"
#include "libs/tiling/hardware_table.h"
#include "libs/tiling/host.h"
#include "libs/tiling/thread_pool.h"

namespace jumar::tiling::python {
namespace {

namespace py = pybind11;

std::vector<std::string> ListOfFormats(uint32_t formats) {
  std::vector<std::string> names;
  for (uint32_t bit = 1; bit <= formats; bit <<= 1) {
    if (formats & bit) names.push_back(FormatNames(bit));
  }
  return names;
}

// An unknown figure is None in Python, so that arithmetic with it fails instead of giving zero.
py::object Value(const HardwareSpec& spec, int64_t HardwareSpec::*figure) {
  return spec.*figure == kUnknown ? py::object(py::none()) : py::object(py::int_(spec.*figure));
}

py::object Note(Source source) {
  const SourceNote* note = NoteOf(source);
  return note == nullptr ? py::object(py::none()) : py::cast(*note);
}

py::object SourceOfName(const HardwareSpec& spec, const std::string& name) {
  if (name == "formats") return Note(spec.formats_source);
  if (name == "weight_formats") return Note(spec.weight_formats_source);
  return Note(SourceOf(spec, Unwrap(FindFigure(name))->value));
}

HardwareSpec Replaced(const HardwareSpec& spec, const py::kwargs& figures) {
  HardwareSpec copy = spec;
  for (const auto& [key, value] : figures) {
    const std::string name = py::cast<std::string>(key);
    Unwrap(OverrideFigure(copy, name, WholeNumber(name, value)));
  }
  return copy;
}

bool Equal(const HardwareSpec& a, const HardwareSpec& b) {
  return a.name == b.name && std::ranges::all_of(kSpecFigures, [&](const SpecFigure& figure) { return a.*figure.value == b.*figure.value; });
}

HardwareSpec Measure(std::optional<int> threads) {
  ThreadPool pool(threads.value_or(static_cast<int>(std::thread::hardware_concurrency())));
  return MeasureHost(pool);
}

}  // namespace

void BindHardware(py::module_& m) {
  py::class_<SourceNote>(m, "Source", "Where a figure comes from.")
      .def_property_readonly("title", [](const SourceNote& n) { return std::string(n.title); })
      .def_property_readonly("where", [](const SourceNote& n) { return std::string(n.where); }, "Repository and folder, or site.")
      .def_property_readonly("says", [](const SourceNote& n) { return std::string(n.says); }, "What it says that the table takes.")
      .def("__repr__", [](const SourceNote& n) { return "Source('" + std::string(n.title) + "')"; });
  py::class_<SpecFigure>(m, "Figure", "What a figure of a HardwareSpec is.")
      .def_property_readonly("name", [](const SpecFigure& f) { return std::string(f.name); })
      .def_property_readonly("unit", [](const SpecFigure& f) { return std::string(f.unit); }, "'bytes/s' and the like; '' for a number.")
      .def_property_readonly("meaning", [](const SpecFigure& f) { return std::string(f.meaning); })
      .def("__repr__", [](const SpecFigure& f) { return "Figure('" + std::string(f.name) + "')"; });

  py::class_<HardwareSpec> spec(m, "HardwareSpec",
                                "One chip. Sizes are of one core where a core has its own; None = no public source gives the figure.");
  spec.def_property_readonly("name", [](const HardwareSpec& s) { return std::string(s.name); })
      .def_property_readonly("architecture", [](const HardwareSpec& s) { return std::string(ArchitectureName(s.architecture)); },
                             "'A2' (910B), 'A3' (910_93), 'A5' (950), '310P' or 'host'.")
      .def_property_readonly("formats", [](const HardwareSpec& s) { return ListOfFormats(s.formats); },
                             "Number formats that it computes with, such as 'bf16'.")
      .def_property_readonly("weight_formats", [](const HardwareSpec& s) { return ListOfFormats(s.weight_formats); },
                             "Number formats of a weight that is multiplied with 16-bit rows.");
  for (const SpecFigure& figure : kSpecFigures) {
    const std::string name(figure.name), unit(figure.unit);
    const std::string doc = std::string(figure.meaning) + (unit.empty() ? "" : " (" + unit + ")");
    spec.def_property_readonly(name.c_str(), [value = figure.value](const HardwareSpec& s) { return Value(s, value); }, doc.c_str());
  }
  spec.def("source", &SourceOfName, py::arg("figure"),
           "Where the figure (or 'formats', 'weight_formats') comes from; None if it is unknown. Raises KeyError for a name that is none.")
      .def("replace", &Replaced,
           "A copy with other figures: spec.replace(memory_bytes_per_second=1_600_000_000_000). Raises KeyError for a name that is none, "
           "ValueError for a value that isn't positive.")
      .def("__eq__", &Equal, py::is_operator())
      .def("__hash__", [](const HardwareSpec& s) { return std::hash<std::string_view>()(s.name); })
      .def("__repr__", [](const HardwareSpec& s) { return "HardwareSpec('" + std::string(s.name) + "')"; });

  m.def("find_hardware", [](const std::string& name) { return *Unwrap(FindHardware(name)); }, py::arg("name"),
        "The chip of that name, capitals or not. Raises KeyError, which lists the names that are spelled nearly so.");
  m.def("all_hardware", [] { return std::vector<HardwareSpec>(kHardware.begin(), kHardware.end()); }, "Every chip of the table.");
  m.def("figures", [] { return std::vector<SpecFigure>(kSpecFigures.begin(), kSpecFigures.end()); }, "Every figure that a HardwareSpec has.");
  m.def("sources", [] { return std::vector<SourceNote>(kSources.begin(), kSources.end()); }, "Every source that a figure may have.");
  m.def("measure_host", &Measure, py::arg("threads") = py::none(), py::call_guard<py::gil_scoped_release>(),
        "The row 'host' of this machine, measured on so many threads (all CPUs) in about a quarter of a second.");
}

}  // namespace jumar::tiling::python
