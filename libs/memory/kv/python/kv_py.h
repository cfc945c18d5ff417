#ifndef LIBS_MEMORY_KV_PYTHON_KV_PY_H_
#define LIBS_MEMORY_KV_PYTHON_KV_PY_H_

// Between numpy arrays and the views of libs/memory/kv; statuses as Python's exceptions.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/kv/runs.h"
#include "libs/memory/kv/views.h"
#include "libs/memory/python/status.h"

namespace jumar::memory::kv {

namespace py = pybind11;

using jumar::python::Unwrap;

// Numbers of an array or a sequence; TypeError for anything but integers, ValueError for one that T can't hold.
template <class T>
std::vector<T> Integers(const py::handle& object, const char* name) {
  const py::array array = py::array::ensure(object);
  if (!array) throw py::type_error(std::string(name) + " is no array");
  const char kind = array.dtype().kind();
  if (array.size() > 0 && kind != 'i' && !(kind == 'u' && array.itemsize() < 8)) {
    throw py::type_error(std::string(name) + " is " + std::string(py::str(array.dtype())) + "; it must be signed integers");
  }
  const auto wide = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(array);
  std::vector<T> out(static_cast<size_t>(wide.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t value = wide.data()[i];
    if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      throw py::value_error(std::string(name) + "[" + std::to_string(i) + "] is " + std::to_string(value) + ", which int" +
                            std::to_string(8 * sizeof(T)) + " can't hold");
    }
    out[i] = static_cast<T>(value);
  }
  return out;
}

// An [n, 2] table of (source, destination).
inline std::vector<BlockPair> Pairs(const py::handle& object) {
  const py::array array = py::array::ensure(object);
  if (!array || (array.size() > 0 && (array.ndim() != 2 || array.shape(1) != 2))) {
    throw py::value_error("pairs must be [n, 2]: (source block, destination block)");
  }
  const auto flat = Integers<int64_t>(array, "pairs");
  std::vector<BlockPair> pairs;
  for (size_t i = 0; i + 1 < flat.size(); i += 2) pairs.push_back({flat[i], flat[i + 1]});
  return pairs;
}

// The items along the first axis of an array: blocks, or rows. What is behind the first axis must be contiguous.
struct Items {
  std::byte* data = nullptr;
  int64_t count = 0, item_bytes = 0, stride = 0, bytes = 0;  // bytes: up to the end of the last item
};
inline Items ItemsOf(const py::handle& object, const char* name, bool writeable) {
  if (!py::isinstance<py::array>(object)) throw py::type_error(std::string(name) + " must be a numpy array");
  const auto array = py::reinterpret_borrow<py::array>(object);
  if (array.dtype().kind() == 'O') throw py::type_error(std::string(name) + " holds Python objects");
  if (array.ndim() < 1) throw py::value_error(std::string(name) + " has no axis");
  if (writeable && !array.writeable()) throw py::value_error(std::string(name) + " is read-only");
  Items items{.count = array.shape(0), .item_bytes = array.itemsize()};
  for (py::ssize_t axis = array.ndim() - 1; axis >= 1; --axis) {
    if (array.shape(axis) != 1 && array.size() > 0 && array.strides(axis) != items.item_bytes) {
      throw py::value_error(std::string(name) + " must be contiguous behind its first axis");
    }
    items.item_bytes *= array.shape(axis);
  }
  items.stride = items.count > 1 ? array.strides(0) : items.item_bytes;
  items.data = const_cast<std::byte*>(static_cast<const std::byte*>(array.data()));
  if (items.count > 0) items.bytes = (items.count - 1) * items.stride + items.item_bytes;
  if (items.stride < 0) throw py::value_error(std::string(name) + " runs backwards");
  return items;
}

inline MutableBlocks BlocksOf(const py::handle& object, const char* name, bool writeable) {
  const Items i = ItemsOf(object, name, writeable);
  return {{i.data, static_cast<size_t>(i.bytes)}, i.count, i.item_bytes, i.stride};
}
// A list or tuple keeps its arrays alive; other sequences may make them on access. An array's first axis could be planes or blocks.
inline std::vector<MutableBlocks> PlanesOf(const py::sequence& planes, const char* name, bool writeable) {
  if (!py::isinstance<py::list>(planes) && !py::isinstance<py::tuple>(planes)) {
    throw py::type_error(std::string(name) + " must be a list or tuple of arrays, one for each plane");
  }
  std::vector<MutableBlocks> views;
  for (const auto& plane : planes) views.push_back(BlocksOf(plane, name, writeable));
  return views;
}
inline DenseRows<std::byte> RowsOfArray(const py::handle& object, const char* name, bool writeable) {
  const Items i = ItemsOf(object, name, writeable);
  return {{i.data, static_cast<size_t>(i.bytes)}, i.count, i.item_bytes, i.stride};
}

template <class T>
py::array_t<T> Array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_PYTHON_KV_PY_H_
