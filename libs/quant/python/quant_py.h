#ifndef LIBS_QUANT_PYTHON_QUANT_PY_H_
#define LIBS_QUANT_PYTHON_QUANT_PY_H_

// numpy arrays for libs/quant: types by name, since numpy has no bfloat16 of its own (ml_dtypes' is one by its name).

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "libs/memory/python/status.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scale/scale_rule.h"

namespace jumar::quant {

namespace py = pybind11;

using jumar::python::Unwrap;

using CodeArray = py::array_t<uint8_t, py::array::c_style>;
using ScaleArray = py::array_t<float, py::array::c_style | py::array::forcecast>;

inline DType TypeOf(const py::dtype& dtype, const char* what) {
  const auto name = py::str(dtype.attr("name")).cast<std::string>();
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == Name(type)) return type;
  }
  throw py::type_error(std::string(what) + " is " + name + "; it must be float32, float16 or bfloat16 (ml_dtypes.bfloat16)");
}

inline Format FormatOf(const std::string& name) {
  std::string names;
  for (const Format format : kFormats) {
    if (name == Name(format)) return format;
    names += (names.empty() ? "" : ", ") + std::string(Name(format));
  }
  throw py::value_error("format \"" + name + "\" is none of " + names);
}

inline Rule RuleNamed(const std::string& name) { return Unwrap(FindRule(name)); }

// An array of floats in C order, copied if it has gaps.
inline py::array Dense(const py::array& array, const char* what) {
  TypeOf(array.dtype(), what);
  const py::array dense = py::array::ensure(array, py::array::c_style);
  if (!dense) throw py::error_already_set();
  return dense;
}

inline void CheckAxes(const py::array& array, py::ssize_t axes, const char* what) {
  if (array.ndim() != axes) {
    throw py::value_error(std::string(what) + " has " + std::to_string(array.ndim()) + " axes; it must have " + std::to_string(axes));
  }
}

void BindPackedRows(py::module_& m);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_PYTHON_QUANT_PY_H_
