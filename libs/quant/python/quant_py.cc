// jumar_quant: libs/quant for numpy.

#include "libs/quant/python/quant_py.h"

#include <optional>
#include <utility>

#include "libs/quant/format/array.h"
#include "libs/quant/scale/quantize.h"

namespace jumar::quant {
namespace {

using Block = std::pair<int64_t, int64_t>;  // rows, columns that share a scale; 0: all

Granularity GranularityOf(const Block& block) { return {block.first, block.second}; }

Overflow OverflowOf(const std::string& name) {
  if (name == "saturate") return Overflow::kSaturate;
  if (name == "to_nan_or_inf") return Overflow::kToNanOrInf;
  throw py::value_error("overflow \"" + name + "\" is neither saturate nor to_nan_or_inf");
}

CodeArray EncodeNumbers(const std::string& format_name, const py::array& numbers, const std::string& overflow) {
  const Format format = FormatOf(format_name);
  const py::array in = Dense(numbers, "numbers");
  std::vector<py::ssize_t> shape(in.shape(), in.shape() + in.ndim());
  if (Bits(format) == 4) {
    if (shape.empty()) throw py::value_error("a 4-bit format shares bytes between two numbers; give an array");
    if (in.ndim() > 1 && shape.back() % 2 != 0) throw py::value_error("the last axis must be even for a 4-bit format");
    shape.back() = CodeBytes(format, shape.back());
  }
  CodeArray codes(shape);
  const DType type = TypeOf(in.dtype(), "numbers");
  const Overflow mode = OverflowOf(overflow);
  uint8_t* out = codes.mutable_data();
  const py::ssize_t count = in.size();
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = EncodeArray(format, mode, type, in.data(), count, out, tiling::InlineExecutor());
  }
  Unwrap(status);
  return codes;
}

py::array DecodeCodes(const std::string& format_name, const CodeArray& codes, const py::object& dtype_like) {
  const py::dtype dtype = py::dtype::from_args(dtype_like);
  const Format format = FormatOf(format_name);
  const DType type = TypeOf(dtype, "dtype");
  std::vector<py::ssize_t> shape(codes.shape(), codes.shape() + codes.ndim());
  if (Bits(format) == 4) {
    if (shape.empty()) throw py::value_error("a 4-bit format has two numbers in a byte; give an array");
    shape.back() *= 2;
  }
  py::array out(dtype, shape);
  const py::ssize_t count = out.size();
  const uint8_t* in = codes.data();
  void* data = out.mutable_data();
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = DecodeArray(format, in, count, type, data, tiling::InlineExecutor());
  }
  Unwrap(status);
  return out;
}

// The arguments that all quantisers share, with arrays for the results.
struct Job {
  QuantizeArgs args;
  py::array in;
  CodeArray codes;
  ScaleShape shape;

  Job(const py::array& matrix, const std::string& format, const Block& block) : in(Dense(matrix, "matrix")) {
    CheckAxes(in, 2, "matrix");
    args.format = FormatOf(format);
    args.granularity = GranularityOf(block);
    args.rows = in.shape(0), args.cols = args.ldi = in.shape(1);
    args.type = TypeOf(in.dtype(), "matrix");
    args.in = in.data();
    args.ldc = CodeBytes(args.format, args.cols);
    codes = CodeArray({args.rows, args.ldc});
    args.codes = codes.mutable_data();
    shape = ScalesOf(args.granularity, args.rows, args.cols);
    args.lds = shape.cols;
  }
  template <typename Array>
  Array Grid() const {
    return Array({shape.rows, shape.cols});
  }
};

py::tuple QuantizeMatrix(const py::array& matrix, const std::string& format, const std::string& rule, const Block& block, bool e8m0) {
  Job job(matrix, format, block);
  job.args.rule = RuleNamed(rule);
  py::array scales;
  if (e8m0) {
    auto codes = job.Grid<CodeArray>();
    job.args.e8m0_scales = codes.mutable_data();
    scales = codes;
  } else {
    auto values = job.Grid<ScaleArray>();
    job.args.scales = values.mutable_data();
    scales = values;
  }
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = Quantize(job.args, tiling::InlineExecutor());
  }
  Unwrap(status);
  return py::make_tuple(job.codes, scales);
}

// Scales as given: uint8 is E8M0, anything else becomes fp32.
struct Scales {
  py::array array;
  const float* floats = nullptr;
  const uint8_t* powers = nullptr;

  Scales(const py::array& scales, ScaleShape shape) {
    const bool e8m0 = py::str(scales.dtype().attr("name")).cast<std::string>() == "uint8";
    if (e8m0) {
      array = CodeArray::ensure(scales);
    } else {
      array = ScaleArray::ensure(scales);
    }
    if (!array) throw py::error_already_set();
    CheckAxes(array, 2, "scales");
    if (array.shape(0) != shape.rows || array.shape(1) != shape.cols) {
      throw py::value_error("scales are [" + std::to_string(array.shape(0)) + ", " + std::to_string(array.shape(1)) + "]; they must be [" +
                            std::to_string(shape.rows) + ", " + std::to_string(shape.cols) + "]");
    }
    if (e8m0) {
      powers = static_cast<const uint8_t*>(array.data());
    } else {
      floats = static_cast<const float*>(array.data());
    }
  }
};

CodeArray QuantizeStatic(const py::array& matrix, const std::string& format, const py::array& scales, const Block& block) {
  Job job(matrix, format, block);
  const Scales given(scales, job.shape);
  job.args.scales = const_cast<float*>(given.floats);  // read only, as quantize.h says
  job.args.e8m0_scales = const_cast<uint8_t*>(given.powers);
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = QuantizeWithScales(job.args, tiling::InlineExecutor());
  }
  Unwrap(status);
  return job.codes;
}

py::tuple QuantizeWithOffsets(const py::array& matrix, const std::string& format, const std::string& rule, const Block& block) {
  Job job(matrix, format, block);
  if (rule != "cann" && rule != "compressed_tensors") {
    throw py::value_error("asymmetric rule \"" + rule + "\" is neither cann nor compressed_tensors");
  }
  auto scales = job.Grid<ScaleArray>(), offsets = job.Grid<ScaleArray>();
  job.args.scales = scales.mutable_data();
  float* out = offsets.mutable_data();
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = QuantizeAsymmetric(rule == "cann" ? AsymmetricRule::kCann : AsymmetricRule::kCompressedTensors, job.args, out,
                                tiling::InlineExecutor());
  }
  Unwrap(status);
  return py::make_tuple(job.codes, scales, offsets);
}

py::array DequantizeMatrix(const CodeArray& codes, const py::array& scales, const std::string& format, const Block& block,
                           const py::object& dtype_like, const std::optional<py::array>& offsets, const std::optional<int64_t>& cols) {
  const py::dtype dtype = py::dtype::from_args(dtype_like);
  CheckAxes(codes, 2, "codes");
  DequantizeArgs args = {.format = FormatOf(format), .granularity = GranularityOf(block), .rows = codes.shape(0)};
  args.cols = cols.value_or(codes.shape(1) * 8 / Bits(args.format));
  if (args.cols < 0 || CodeBytes(args.format, args.cols) > codes.shape(1)) {
    throw py::value_error("cols is " + std::to_string(args.cols) + "; a row of codes has " + std::to_string(codes.shape(1)) + " bytes");
  }
  args.codes = codes.data(), args.ldc = codes.shape(1);
  const ScaleShape shape = ScalesOf(args.granularity, args.rows, args.cols);
  const Scales given(scales, shape);
  args.scales = given.floats, args.e8m0_scales = given.powers, args.lds = shape.cols;
  std::optional<Scales> shift;
  if (offsets) {
    shift.emplace(*offsets, shape);
    if (shift->floats == nullptr) throw py::type_error("offsets are uint8; give float32");
    args.offsets = shift->floats;
  }
  args.type = TypeOf(dtype, "dtype");
  py::array out(dtype, std::vector<py::ssize_t>{args.rows, args.cols});
  args.out = out.mutable_data(), args.ldo = args.cols;
  absl::Status status;
  {
    const py::gil_scoped_release release;
    status = Dequantize(args, tiling::InlineExecutor());
  }
  Unwrap(status);
  return out;
}

}  // namespace

PYBIND11_MODULE(jumar_quant, m) {
  m.doc() = "Number formats of 8 and 4 bits, scale rules by name, quantised rows and packed KV rows.";

  py::class_<FormatTraits>(m, "Format", "What a format can hold.")
      .def_readonly("name", &FormatTraits::name)
      .def_readonly("bits", &FormatTraits::bits)
      .def_readonly("emax", &FormatTraits::emax)
      .def_readonly("max", &FormatTraits::max)
      .def_readonly("min_positive", &FormatTraits::min_positive)
      .def_readonly("has_nan", &FormatTraits::has_nan)
      .def_readonly("has_inf", &FormatTraits::has_inf)
      .def("__repr__", [](const FormatTraits& t) { return std::string("Format(") + t.name + ")"; });
  py::dict formats;
  for (const Format format : kFormats) formats[Name(format)] = Traits(format);
  m.attr("FORMATS") = formats;

  py::class_<ScaleRule>(m, "ScaleRule", "How a scale follows from a group's absmax.")
      .def_readonly("name", &ScaleRule::name)
      .def_readonly("formula", &ScaleRule::formula)
      .def_readonly("clamps", &ScaleRule::clamps)
      .def_readonly("used_by", &ScaleRule::used_by)
      .def_property_readonly("is_power_of_two", [](const ScaleRule& rule) { return IsPowerOfTwo(rule); })
      .def("scale", [](const ScaleRule& rule, const std::string& format, float absmax) { return ScaleOf(rule, FormatOf(format), absmax); },
           py::arg("format"), py::arg("absmax"))
      .def("__repr__", [](const ScaleRule& rule) { return std::string("ScaleRule(") + rule.name + ")"; });
  py::dict rules;
  for (const ScaleRule& rule : kScaleRules) rules[rule.name] = rule;
  m.attr("RULES") = rules;

  m.def("encode", &EncodeNumbers, py::arg("format"), py::arg("numbers"), py::kw_only(), py::arg("overflow"));
  m.def("decode", &DecodeCodes, py::arg("format"), py::arg("codes"), py::arg("dtype") = "float32");
  m.def("quantize", &QuantizeMatrix, py::arg("matrix"), py::arg("format"), py::arg("rule"), py::arg("block"), py::kw_only(),
        py::arg("e8m0") = false);
  m.def("quantize_with_scales", &QuantizeStatic, py::arg("matrix"), py::arg("format"), py::arg("scales"), py::arg("block"));
  m.def("quantize_asymmetric", &QuantizeWithOffsets, py::arg("matrix"), py::arg("format"), py::arg("rule"), py::arg("block"));
  m.def("dequantize", &DequantizeMatrix, py::arg("codes"), py::arg("scales"), py::arg("format"), py::arg("block"),
        py::arg("dtype") = "float32", py::kw_only(), py::arg("offsets") = py::none(), py::arg("cols") = py::none());
  BindPackedRows(m);
}

}  // namespace jumar::quant
