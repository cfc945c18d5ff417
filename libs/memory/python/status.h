#ifndef LIBS_MEMORY_PYTHON_STATUS_H_
#define LIBS_MEMORY_PYTHON_STATUS_H_

// Statuses as Python's exceptions, for every binding: it stands in the lowest room that has one.

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::python {

// Raises ValueError for InvalidArgument, KeyError for NotFound, MemoryError for ResourceExhausted, else RuntimeError.
inline void Unwrap(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument: throw pybind11::value_error(message);
    case absl::StatusCode::kNotFound: throw pybind11::key_error(message);
    case absl::StatusCode::kResourceExhausted:
      PyErr_SetString(PyExc_MemoryError, message.c_str());
      throw pybind11::error_already_set();
    default: throw std::runtime_error(message);
  }
}

template <typename T>
T Unwrap(absl::StatusOr<T> value) {
  Unwrap(value.status());
  return *std::move(value);
}

}  // namespace jumar::python

#endif  // LIBS_MEMORY_PYTHON_STATUS_H_
