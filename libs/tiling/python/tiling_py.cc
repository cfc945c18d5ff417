#include "libs/tiling/python/bindings.h"

PYBIND11_MODULE(jumar_tiling, m) {
  m.doc() = "Jumar's table of hardware, each figure with its source.";
  jumar::tiling::python::BindHardware(m);
}
