#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <vector>

#include "tools/build/selftest/sum.h"

PYBIND11_MODULE(_sum, module) {
  module.def("sum", [](const std::vector<int32_t>& values) {
    const auto sum = jumar::selftest::Sum(values);
    if (!sum.ok()) throw std::invalid_argument(std::string(sum.status().message()));
    return *sum;
  });
}
