// Packed KV rows for numpy.

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "libs/memory/kv/layouts.h"
#include "libs/quant/packed/row_codec.h"
#include "libs/quant/python/quant_py.h"

namespace jumar::quant {
namespace {

namespace kv = memory::kv;

using Slots = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

const std::map<std::string, std::function<kv::PageLayout(int64_t)>>& Layouts() {
  static const std::map<std::string, std::function<kv::PageLayout(int64_t)>> layouts = {
      {"packed656", [](int64_t size) { return kv::Packed656(size); }},
      {"packed656_flash_mla", [](int64_t size) { return kv::Packed656(size, kv::RowOrder::kScalesThenRope); }},
      {"packed640", [](int64_t size) { return kv::Packed640(size); }},
      {"split584", [](int64_t size) { return kv::PageSplit584(size); }},
      {"indexer132", [](int64_t size) { return kv::IndexerKeys(size); }},
      {"indexer130", [](int64_t size) { return kv::IndexerKeys(size, kv::Element::kInt8, kv::Element::kFloat16); }}};
  return layouts;
}

RowCodec CodecNamed(const std::string& layout, int64_t block_size, const std::string& rule) {
  const auto found = Layouts().find(layout);
  if (found != Layouts().end()) return Unwrap(MakeRowCodec(found->second(block_size), RuleNamed(rule)));
  std::string names;
  for (const auto& [name, maker] : Layouts()) names += (names.empty() ? "" : ", ") + name;
  throw py::value_error("layout \"" + layout + "\" is none of " + names);
}

std::span<const int64_t> SpanOf(const Slots& slots) {
  CheckAxes(slots, 1, "slots");
  return {slots.data(), static_cast<size_t>(slots.size())};
}

// A cache is [blocks, page_bytes] uint8, its rows perhaps with gaps.
kv::ConstBlocks Pages(const py::array_t<uint8_t>& cache) {
  CheckAxes(cache, 2, "cache");
  const py::ssize_t blocks = cache.shape(0), bytes = cache.shape(1);
  const py::ssize_t stride = blocks > 1 ? cache.strides(0) : bytes;
  if (bytes > 1 && cache.strides(1) != 1) throw py::value_error("cache must be contiguous behind its first axis");
  if (stride < bytes) throw py::value_error("cache's blocks overlap");
  const auto size = static_cast<size_t>(blocks == 0 ? 0 : (blocks - 1) * stride + bytes);
  return {{reinterpret_cast<const std::byte*>(cache.data()), size}, blocks, bytes, stride};
}

void Write(const RowCodec& codec, const py::array& values, const std::optional<py::array>& rope, const Slots& slots,
           py::array_t<uint8_t> cache) {
  const py::array dense = Dense(values, "values");
  CheckAxes(dense, 2, "values");
  const auto span = SpanOf(slots);
  const auto rows = static_cast<py::ssize_t>(span.size());
  TokenRows in = {TypeOf(dense.dtype(), "values"), dense.data(), dense.shape(1)};
  py::array rope_dense;
  if (rope) {
    rope_dense = Dense(*rope, "rope");
    CheckAxes(rope_dense, 2, "rope");
    if (TypeOf(rope_dense.dtype(), "rope") != DType::kBF16) throw py::type_error("rope must be bfloat16");
    if (rope_dense.shape(0) != rows) throw py::value_error("rope needs a row for each slot");
    in.rope = static_cast<const uint16_t*>(rope_dense.data()), in.rope_stride = rope_dense.shape(1);
  }
  if (dense.shape(0) != rows) throw py::value_error("values need a row for each slot");
  if (!cache.writeable()) throw py::value_error("cache is read-only");
  const kv::ConstBlocks pages = Pages(cache);
  const kv::MutableBlocks writable = {{reinterpret_cast<std::byte*>(cache.mutable_data()), pages.bytes.size()}, pages.num_blocks,
                                      pages.page_bytes, pages.block_stride};
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = WriteRows(codec, in, span, writable, tiling::InlineExecutor());
  }
  Unwrap(status);
}

py::tuple Read(const RowCodec& codec, const py::array_t<uint8_t>& cache, const Slots& slots, const py::object& dtype_like) {
  const py::dtype dtype = py::dtype::from_args(dtype_like);
  const auto span = SpanOf(slots);
  const auto rows = static_cast<py::ssize_t>(span.size());
  const DType type = TypeOf(dtype, "dtype");
  py::array values(dtype, std::vector<py::ssize_t>{rows, codec.dims});
  py::array_t<uint16_t> rope(std::vector<py::ssize_t>{rows, codec.rope_dims});
  std::memset(values.mutable_data(), 0, static_cast<size_t>(values.nbytes()));
  std::memset(rope.mutable_data(), 0, static_cast<size_t>(rope.nbytes()));
  const MutableTokenRows out = {type, values.mutable_data(), codec.dims, codec.rope_dims ? rope.mutable_data() : nullptr, codec.rope_dims};
  const kv::ConstBlocks pages = Pages(cache);
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = ReadRows(codec, pages, span, out, tiling::InlineExecutor());
  }
  Unwrap(status);
  return py::make_tuple(values, rope);
}

}  // namespace

void BindPackedRows(py::module_& m) {
  py::class_<RowCodec>(m, "RowCodec", "Writer and reader of quantised KV rows in pages.")
      .def(py::init(&CodecNamed), py::arg("layout"), py::arg("block_size"), py::arg("rule"))
      .def_property_readonly("page_bytes", [](const RowCodec& c) { return c.layout.page_bytes[0]; })
      .def_property_readonly("dims", [](const RowCodec& c) { return c.dims; })
      .def_property_readonly("groups", [](const RowCodec& c) { return c.groups; })
      .def_property_readonly("rope_dims", [](const RowCodec& c) { return c.rope_dims; })
      .def("write", &Write, py::arg("values"), py::arg("rope"), py::arg("slots"), py::arg("cache").noconvert())
      .def("read", &Read, py::arg("cache").noconvert(), py::arg("slots"), py::arg("dtype") = "float32");
}

}  // namespace jumar::quant
