#include "libs/hostcann/aclnn/limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sstream>

#include "libs/hostcann/aclnn/limits_table.h"
#include "libs/tiling/hardware.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr int kFormats = 64;

std::string TypeName(int dtype) { return DTypeName(static_cast<DType>(dtype)); }

// "float32, float16"
template <class Name>
std::string Listed(uint64_t bits, Name name) {
  std::string s;
  for (int i = 0; i < 64; ++i) {
    if (bits >> i & 1) s += (s.empty() ? "" : ", ") + std::string(name(i));
  }
  return s;
}

std::string DimsText(uint32_t bits) {
  return Listed(bits, [](int n) { return std::to_string(n); });
}

double Number(std::string_view text) {
  double value = NAN;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::string Text(double value) {
  std::ostringstream s;
  s.precision(17);
  s << value;
  return s.str();
}

bool IsOneOf(std::string_view value, std::string_view choices) {
  while (true) {
    const size_t bar = choices.find('|');
    if (choices.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) return false;
    choices.remove_prefix(bar + 1);
  }
}

// A number against the limits that name no other argument.
bool Fits(double value, std::string_view limit) {
  if (std::isnan(value)) return true;
  if (const size_t dots = limit.find(".."); dots != std::string_view::npos) {
    const std::string_view low = limit.substr(0, dots), high = limit.substr(dots + 2);
    return (low.empty() || value >= Number(low)) && (high.empty() || value <= Number(high));
  }
  if (limit.starts_with(">")) return value > Number(limit.substr(1));
  if (limit.starts_with("!=")) return value != Number(limit.substr(2));
  if (limit.starts_with("%")) return std::fmod(value, Number(limit.substr(1))) == 0;
  return IsOneOf(Text(value), limit);
}

std::string Told(std::string_view limit) {
  if (limit.starts_with("%")) return "a multiple of " + std::string(limit.substr(1));
  if (limit.starts_with(">") || limit.starts_with("!=") || limit.find("..") != std::string_view::npos) return std::string(limit);
  std::string s(limit);
  for (size_t at; (at = s.find('|')) != std::string::npos;) s.replace(at, 1, " or ");
  return s;
}

template <class T>
T As(const unsigned char* bytes) {
  T v;
  std::memcpy(&v, bytes, sizeof(v));
  return v;
}

// NAN for types whose value nothing limits.
double ScalarValue(const aclScalar& s) {
  switch (s.dtype) {
    case DType::kF32: return As<float>(s.value);
    case DType::kF64: return As<double>(s.value);
    case DType::kI8: return As<int8_t>(s.value);
    case DType::kI32: return As<int32_t>(s.value);
    case DType::kI64: return static_cast<double>(As<int64_t>(s.value));
    case DType::kBool: return As<bool>(s.value);
    default: return NAN;
  }
}

template <class Table>
auto Rows(const Table& table, std::string_view op) {
  struct ByName {
    bool operator()(const typename Table::value_type& row, std::string_view name) const { return row.op < name; }
    bool operator()(std::string_view name, const typename Table::value_type& row) const { return name < row.op; }
  };
  const auto [first, last] = std::equal_range(table.begin(), table.end(), op, ByName());
  return std::span(first, last);
}

}  // namespace

uint8_t ChipOf(std::string_view soc) {
  const auto spec = tiling::FindHardware(soc);
  if (!spec.ok()) return 0;
  switch ((*spec)->architecture) {
    case tiling::Architecture::kA2:
      return kChipA2;
    case tiling::Architecture::kA3:
      return kChipA3;
    case tiling::Architecture::kA5:
      return kChip950;
    case tiling::Architecture::k310P:
      return kChip310P;
    case tiling::Architecture::kHost:
      return 0;
  }
  return 0;
}

std::span<const Limit> LimitsOf(std::string_view op) { return Rows(LimitTable(), op); }

const Page* PageOf(std::string_view op) {
  const auto rows = Rows(PageTable(), op);
  return rows.empty() ? nullptr : rows.data();
}

// The checks of one call; what is wrong first is told.
class LimitCheck {
 public:
  LimitCheck(std::string_view op, std::span<const ArgView> arguments, std::string_view soc)
      : op_(op), arguments_(arguments), soc_(soc), chip_(ChipOf(soc)) {}

  std::string Run() {
    // A call of another form than the page's has other arguments at these positions.
    const Page* page = PageOf(op_);
    if (page == nullptr || page->arguments != static_cast<int>(arguments_.size())) return "";
    for (const Limit& limit : LimitsOf(op_)) {
      const bool applies = chip_ == 0 ? limit.chips == (kChipA2 | kChipA3 | kChip950 | kChip310P) : (limit.chips & chip_) != 0;
      if (!applies || arguments_[limit.position].object_ == nullptr) continue;
      const std::string wrong = Check(limit, arguments_[limit.position]);
      if (wrong.empty()) continue;
      return "argument `" + std::string(limit.argument) + "` " + wrong + " on " + std::string(soc_) + " (CANN's page \"" + page->title +
             "\"; JUMAR_STRICT=1 checks it)";
    }
    return "";
  }

 private:
  using Kind = ArgView::Kind;

  std::string Check(const Limit& limit, const ArgView& argument) const {
    switch (argument.kind_) {
      case Kind::kTensor: return CheckTensor(limit, *static_cast<const aclTensor*>(argument.object_));
      case Kind::kTensors:
        for (const aclTensor* t : static_cast<const aclTensorList*>(argument.object_)->v) {
          if (t == nullptr) continue;
          if (std::string wrong = CheckTensor(limit, *t); !wrong.empty()) return wrong;
        }
        return "";
      case Kind::kScalar: {
        const auto& scalar = *static_cast<const aclScalar*>(argument.object_);
        if (std::string wrong = CheckType(limit, scalar.dtype); !wrong.empty()) return wrong;
        return CheckNumber(limit, ScalarValue(scalar));
      }
      case Kind::kInts:
        for (const int64_t v : static_cast<const aclIntArray*>(argument.object_)->v) {
          if (std::string wrong = CheckNumber(limit, static_cast<double>(v)); !wrong.empty()) return wrong;
        }
        return "";
      case Kind::kText: {
        const char* text = static_cast<const char*>(argument.object_);
        if (*limit.values == 0 || IsOneOf(text, limit.values)) return "";
        return "is \"" + std::string(text) + "\"; it must be " + Told(limit.values);
      }
      case Kind::kInt: return CheckNumber(limit, static_cast<double>(argument.int_));
      case Kind::kReal: return CheckNumber(limit, argument.real_);
      case Kind::kOther: return "";
    }
    return "";
  }

  static std::string CheckType(const Limit& limit, DType dtype) {
    if (limit.dtypes == 0 || limit.dtypes >> static_cast<int>(dtype) & 1) return "";
    return "is " + TypeName(static_cast<int>(dtype)) + "; it must be one of " + Listed(limit.dtypes, TypeName);
  }

  static std::string CheckTensor(const Limit& limit, const aclTensor& t) {
    if (t.sizes.n == 1 && t.sizes[0] == 0) return "";  // so torch_npu passes what isn't there
    if (std::string wrong = CheckType(limit, t.dtype); !wrong.empty()) return wrong;
    // Pages say ND for whatever base format a tensor of as many dimensions has.
    if (limit.formats != 0 && t.format >= 0 && t.format < kFormats && !(limit.formats >> t.format & 1) &&
        !(IsBaseFormat(t.format) && limit.formats >> kFormatND & 1)) {
      return "has format " + FormatName(t.format) + "; it must be one of " + Listed(limit.formats, [](int f) { return FormatName(f); });
    }
    if (limit.dims != 0 && !(limit.dims >> t.sizes.n & 1)) {
      return "has " + std::to_string(t.sizes.n) + " dimensions, " + ToString(t.sizes) + "; their number must be one of " + DimsText(limit.dims);
    }
    return "";
  }

  std::string CheckNumber(const Limit& limit, double value) const {
    const std::string_view values = limit.values;
    if (values.empty()) return "";
    if (!values.starts_with("axis")) return Fits(value, values) ? "" : "is " + Text(value) + "; it must be " + Told(values);
    const int64_t dims = Dimensions(static_cast<size_t>(Number(values.substr(values.find(' ') + 1))));
    if (dims < 0) return "";
    const int64_t axes = std::max<int64_t>(dims, 1) - (values.starts_with("axis+1") && dims == 0) + values.starts_with("axis+1");
    if (value >= -static_cast<double>(axes) && value < static_cast<double>(axes)) return "";
    return "is " + Text(value) + "; it must be from " + std::to_string(-axes) + " to " + std::to_string(axes - 1);
  }

  // Of the tensor, or the first tensor of the list, at a position; -1 if there is none.
  int64_t Dimensions(size_t position) const {
    if (position >= arguments_.size() || arguments_[position].object_ == nullptr) return -1;
    const ArgView& argument = arguments_[position];
    if (argument.kind_ == Kind::kTensor) return static_cast<const aclTensor*>(argument.object_)->sizes.n;
    if (argument.kind_ != Kind::kTensors) return -1;
    const auto& list = static_cast<const aclTensorList*>(argument.object_)->v;
    return list.empty() || list[0] == nullptr ? -1 : list[0]->sizes.n;
  }

  std::string_view op_;
  std::span<const ArgView> arguments_;
  std::string_view soc_;
  uint8_t chip_;
};

std::string CheckLimits(std::string_view op, std::span<const ArgView> arguments, std::string_view soc) {
  return LimitCheck(op, arguments, soc).Run();
}

}  // namespace jumar::hostcann::aclnn
