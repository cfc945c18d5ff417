// The only file of libs/tiling that sees Python.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "libs/tiling/hardware.h"

namespace py = pybind11;
namespace tiling = jumar::tiling;

namespace {

std::vector<std::string> Formats(const tiling::HardwareSpec& spec) {
  std::vector<std::string> names;
  for (uint32_t bit = 1; bit <= spec.formats; bit <<= 1) {
    if (spec.formats & bit) names.push_back(tiling::FormatNames(bit));
  }
  return names;
}

// An unknown figure is None in Python, so that arithmetic with it fails instead of giving zero.
template <int64_t tiling::HardwareSpec::*kFigure>
py::object Figure(const tiling::HardwareSpec& spec) {
  return spec.*kFigure == tiling::kUnknown ? py::object(py::none()) : py::object(py::int_(spec.*kFigure));
}

const tiling::HardwareSpec& Find(const std::string& name) {
  const auto spec = tiling::FindHardware(name);
  if (!spec.ok()) throw py::key_error(std::string(spec.status().message()));
  return **spec;
}

}  // namespace

PYBIND11_MODULE(jumar_tiling, m) {
  m.doc() = "Jumar's table of hardware: what the repository knows about each chip, with its sources in libs/tiling/hardware.h.";
  using Spec = tiling::HardwareSpec;
  py::class_<Spec>(m, "HardwareSpec", "One chip. Sizes in bytes, of one core where a core has its own; None = no public source gives the figure.")
      .def_property_readonly("name", [](const Spec& s) { return std::string(s.name); })
      .def_property_readonly("architecture", [](const Spec& s) { return std::string(tiling::ArchitectureName(s.architecture)); },
                             "'A2' (910B), 'A3' (910_93), 'A5' (950), '310P' or 'host'.")
      .def_property_readonly("soc_version", [](const Spec& s) { return s.soc_version < 0 ? py::object(py::none()) : py::object(py::int_(s.soc_version)); },
                             "torch_npu's number for the chip.")
      .def_property_readonly("aic_cores", &Figure<&Spec::aic_cores>, "Cube cores.")
      .def_property_readonly("aiv_cores", &Figure<&Spec::aiv_cores>, "Vector cores.")
      .def_property_readonly("ub_bytes", &Figure<&Spec::ub_bytes>)
      .def_property_readonly("l1_bytes", &Figure<&Spec::l1_bytes>)
      .def_property_readonly("l0a_bytes", &Figure<&Spec::l0a_bytes>)
      .def_property_readonly("l0b_bytes", &Figure<&Spec::l0b_bytes>)
      .def_property_readonly("l0c_bytes", &Figure<&Spec::l0c_bytes>)
      .def_property_readonly("l2_bytes", &Figure<&Spec::l2_bytes>)
      .def_property_readonly("memory_bytes", &Figure<&Spec::memory_bytes>, "Device memory.")
      .def_property_readonly("memory_bytes_per_second", &Figure<&Spec::memory_bytes_per_second>)
      .def_property_readonly("formats", &Formats, "Number formats that it computes with, such as 'bf16'.")
      .def("__repr__", [](const Spec& s) { return "HardwareSpec('" + std::string(s.name) + "')"; });
  m.def("find_hardware", &Find, py::arg("name"), py::return_value_policy::reference,
        "The chip of that name, capitals or not. Raises KeyError, which lists the names that are spelled nearly so.");
  m.def("all_hardware", [] {
    py::list list;
    for (const Spec& spec : tiling::AllHardware()) list.append(py::cast(&spec, py::return_value_policy::reference));
    return list;
  }, "Every chip of the table.");
}
