// The only file of libs/memory/onchip that sees Python.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/onchip/message.h"
#include "libs/memory/onchip/plan.h"
#include "libs/memory/onchip/spec.h"
#include "libs/memory/onchip/svg.h"
#include "libs/memory/onchip/text.h"
#include "libs/memory/onchip/verify.h"

namespace py = pybind11;
namespace onchip = jumar::memory::onchip;

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  if (absl::IsResourceExhausted(status)) {
    PyErr_SetString(PyExc_MemoryError, message.c_str());
    throw py::error_already_set();
  }
  throw py::value_error(message);
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

// Long names are cut, which would cut a character of several bytes in two.
void CheckAscii(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 128; })) {
    throw py::value_error("buffer \"" + text + "\": a name must be ASCII");
  }
}

onchip::Name ToName(const std::string& name) {
  CheckAscii(name);
  if (name.find('\0') != std::string::npos) throw py::value_error("a name must not contain the character 0");
  return onchip::Name(name.c_str());
}

onchip::Buffer MakeBuffer(const std::string& name, const std::string& space, int64_t bytes, const std::string& policy,
                          const std::pair<int32_t, std::optional<int32_t>>& steps,
                          const std::optional<std::pair<std::string, std::string>>& handover, int64_t alignment,
                          const std::optional<int64_t>& at, const std::optional<std::string>& alias_of) {
  onchip::Buffer b;
  b.name = ToName(name);
  b.space = Value(onchip::ParseSpace(space));
  b.bytes = bytes;
  b.policy = Value(onchip::ParsePolicy(policy));
  b.lifetime = {steps.first, steps.second.value_or(onchip::Lifetime::kEnd)};
  if (handover) b.handover = {Value(onchip::ParsePipe(handover->first)), Value(onchip::ParsePipe(handover->second))};
  b.alignment = alignment;
  // A negative offset is misaligned, not "anywhere".
  if (at) b.pinned_offset = *at == onchip::kAnywhere ? -2 : *at;
  if (alias_of) b.alias_of = ToName(*alias_of);
  return b;
}

onchip::Map PlanAll(const std::vector<onchip::Buffer>& buffers, const py::dict& capacities, int32_t events_per_pair, bool check) {
  onchip::Capacities c;
  c.events_per_pair = events_per_pair;
  for (const auto& [space, bytes] : capacities) {
    if (!py::isinstance<py::str>(space)) throw py::type_error("capacities: " + std::string(py::repr(space)) + " is no name of a space");
    const std::string name = py::cast<std::string>(space);
    if (PyIndex_Check(bytes.ptr()) == 0) throw py::type_error("capacity of " + name + " must be a whole number of bytes");
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(bytes.ptr()));
    if (!number) throw py::error_already_set();
    const int64_t value = PyLong_AsLongLong(number.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw py::value_error("capacity of " + name + " is beyond 2^63 bytes");
    }
    switch (Value(onchip::ParseSpace(name))) {
      case onchip::Space::kUb: c.ub = value; break;
      case onchip::Space::kL1: c.l1 = value; break;
      case onchip::Space::kL0a: c.l0a = value; break;
      case onchip::Space::kL0b: c.l0b = value; break;
      case onchip::Space::kL0c: c.l0c = value; break;
      case onchip::Space::kFb: c.fb = value; break;
      case onchip::Space::kBt: c.bt = value; break;
    }
  }
  onchip::Map map = onchip::Plan(c, buffers.data(), static_cast<int64_t>(buffers.size()));
  if (check) Check(onchip::PlanStatus(map.view()));
  return map;
}

std::vector<std::optional<int>> Ids(const onchip::Placement& p, const int8_t* ids) {
  std::vector<std::optional<int>> list;
  for (int copy = 0; copy < p.copies; ++copy) list.push_back(ids[copy] < 0 ? std::nullopt : std::optional<int>(ids[copy]));
  return list;
}

std::optional<std::string> ErrorOf(const onchip::Map& map, const onchip::Error& error) {
  if (error.ok()) return std::nullopt;
  return onchip::ErrorLine(onchip::WithError(map.view(), error)).text;
}

py::dict BySpace(const int64_t* bytes) {
  py::dict spaces;
  for (int s = 0; s < onchip::kNumSpaces; ++s) {
    if (bytes[s] > 0) spaces[onchip::SpaceName(static_cast<onchip::Space>(s))] = bytes[s];
  }
  return spaces;
}

py::dict Events(const onchip::Map& map) {
  py::dict events;
  for (int from = 0; from < onchip::kNumPipes; ++from) {
    for (int to = 0; to < onchip::kNumPipes; ++to) {
      if (map.events[from][to] == 0) continue;
      events[py::make_tuple(onchip::PipeName(static_cast<onchip::Pipe>(from)), onchip::PipeName(static_cast<onchip::Pipe>(to)))] =
          map.events[from][to];
    }
  }
  return events;
}

}  // namespace

PYBIND11_MODULE(jumar_onchip, m) {
  m.doc() = "Plans the buffers of one Ascend core: where each lies in UB, L1, L0A, L0B, L0C, FB, BT, and which event ids hand it over.";

  py::class_<onchip::Buffer>(m, "Buffer", "One buffer of a core; sizes in bytes.")
      .def(py::init(&MakeBuffer), py::arg("name"), py::arg("space"), py::arg("bytes"), py::arg("policy") = "single",
           py::arg("steps") = std::pair<int32_t, std::optional<int32_t>>(0, std::nullopt), py::arg("handover") = py::none(),
           py::arg("alignment") = 0, py::arg("at") = py::none(), py::arg("alias_of") = py::none(),
           "bytes: of one copy. policy: 'single', 'double', 'triple', 'quad', '2x2'.\n"
           "steps: first and last during which it is alive, both included; last None = to the end.\n"
           "handover: producer and consumer pipe, such as ('MTE2', 'V'). alignment: 0 = the space's. at: a fixed offset.\n"
           "alias_of: a buffer at whose offset this one starts, when that one is dead.\n"
           "Raises ValueError for an unknown space, policy or pipe; what else is wrong, plan() says.")
      .def_static(
          "parse", [](const std::string& text) { return CheckAscii(text), Value(onchip::ParseBuffer(text)); }, py::arg("text"),
          "From 'scores:UB:32KiB:double:0-3:MTE2>V', as on explain's command line. Raises ValueError.")
      .def_property_readonly("name", [](const onchip::Buffer& b) { return std::string(b.name.text); })
      .def_property_readonly("space", [](const onchip::Buffer& b) { return onchip::SpaceName(b.space); })
      .def_readonly("bytes", &onchip::Buffer::bytes)
      .def_property_readonly("policy", [](const onchip::Buffer& b) { return onchip::PolicyName(b.policy); })
      .def("__repr__", [](const onchip::Buffer& b) { return std::string("Buffer('") + b.name.text + "')"; });

  py::class_<onchip::Placement>(m, "Placement", "Where a buffer is. Copy i starts at offset + i * stride.")
      .def_property_readonly(
          "offset", [](const onchip::Placement& p) { return p.offset < 0 ? std::nullopt : std::optional<int64_t>(p.offset); },
          "Of copy 0, in bytes. None: the plan failed before anything was placed.")
      .def_readonly("stride", &onchip::Placement::stride)
      .def_readonly("copies", &onchip::Placement::copies)
      .def_property_readonly(
          "offsets",
          [](const onchip::Placement& p) {
            std::vector<int64_t> offsets;
            for (int copy = 0; copy < p.copies; ++copy) offsets.push_back(p.Offset(copy));
            return offsets;
          },
          "Of each copy.")
      .def_property_readonly(
          "forward", [](const onchip::Placement& p) { return Ids(p, p.forward); },
          "Event id of each copy that the producer sets and the consumer awaits; None without a handover.")
      .def_property_readonly("backward", [](const onchip::Placement& p) { return Ids(p, p.backward); }, "Those of the way back.");

  py::class_<onchip::Map>(m, "Map", "A planned core.")
      .def_property_readonly("ok", &onchip::Map::ok)
      .def_property_readonly(
          "error", [](const onchip::Map& map) { return ErrorOf(map, map.error); }, "What is wrong; None when nothing is.")
      .def(
          "__getitem__",
          [](const onchip::Map& map, const std::string& name) {
            const int i = map.Find(ToName(name));
            if (i < 0) throw py::key_error("no buffer \"" + name + "\"");
            return map.placements[i];
          },
          py::arg("name"), "The buffer's placement. Raises KeyError.")
      .def("__len__", [](const onchip::Map& map) { return map.count; })
      .def_property_readonly(
          "used_bytes", [](const onchip::Map& map) { return BySpace(map.used_bytes); }, "High-water mark of each space in use.")
      .def_property_readonly(
          "live_bytes", [](const onchip::Map& map) { return BySpace(map.live_bytes); },
          "The most that is alive in one step, of each space in use: no plan uses less.")
      .def_property_readonly("events", &Events, "(from, to) -> how many event ids are in use.")
      .def(
          "verify", [](const onchip::Map& map) { return ErrorOf(map, onchip::Verify(map.view())); },
          "Checks the map copy by copy, without the planner's help: the first fault, or None.")
      .def(
          "table", [](const onchip::Map& map) { return onchip::Table(map.view()); }, "The map as text.")
      .def(
          "svg", [](const onchip::Map& map) { return onchip::Svg(map.view()); },
          "The map as a picture: addresses over steps for each space.");

  m.def("plan", &PlanAll, py::arg("buffers"), py::arg("capacities"), py::kw_only(), py::arg("events_per_pair") = 8, py::arg("check") = true,
        "Gives each buffer an offset and event ids. Buffers that aren't alive together share both. At most 32 buffers.\n"
        "capacities: {'UB': 196608, ...}; a space that is missing has none.\n"
        "Raises ValueError when buffers contradict themselves or each other, MemoryError when a capacity or event ids don't\n"
        "suffice: both name the buffer and show the table. With check=False it returns the failed map instead, to be drawn.");
}
