#ifndef LIBS_TILING_PYTHON_BINDINGS_H_
#define LIBS_TILING_PYTHON_BINDINGS_H_

// What the files of the module jumar_tiling share. Only this folder sees Python.

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "libs/memory/python/status.h"

namespace jumar::tiling::python {

void BindHardware(pybind11::module_& m);
void BindSolvers(pybind11::module_& m);

using jumar::python::Unwrap;

// ValueError and TypeError that name what the number is, in place of pybind11's words.
inline int64_t WholeNumber(const std::string& name, const pybind11::handle& value) {
  if (PyIndex_Check(value.ptr()) == 0) {
    throw pybind11::type_error(name + " = " + std::string(pybind11::repr(value)) + " is no whole number");
  }
  const auto number = pybind11::reinterpret_steal<pybind11::object>(PyNumber_Index(value.ptr()));
  if (!number) throw pybind11::error_already_set();
  const int64_t result = PyLong_AsLongLong(number.ptr());
  if (result == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw pybind11::value_error(name + " is beyond 64 bits");
  }
  return result;
}

}  // namespace jumar::tiling::python

#endif  // LIBS_TILING_PYTHON_BINDINGS_H_
