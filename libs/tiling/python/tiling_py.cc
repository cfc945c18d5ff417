#include "libs/tiling/python/bindings.h"

PYBIND11_MODULE(jumar_tiling, m) {
  m.doc() = "Tile sizes and their cost for Huawei Ascend NPUs, and the table of hardware that they rest on.";
  jumar::tiling::python::BindHardware(m);
  jumar::tiling::python::BindSolvers(m);
}
