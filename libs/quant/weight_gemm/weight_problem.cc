#include "libs/quant/weight_gemm/weight_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "libs/quant/scalar.h"

namespace jumar::quant {
namespace {

constexpr int64_t kMargin = 20;  // bytes before a matrix: it has its element's alignment only
constexpr char kPoison = -1;     // NaN in every floating-point format but HiF8, which has 0x80

void PutNibble(char& byte, int64_t odd, uint8_t code) { byte = static_cast<char>(odd ? (byte & 15) | code << 4 : (byte & 0xF0) | (code & 15)); }

}  // namespace

double WeightProblem::Uniform() {
  state_ = state_ * 1664525u + 1013904223u;
  return (state_ >> 8) * 0x1p-24;
}

WeightProblem::WeightProblem(const WeightProblemSpec& s)
    : spec(s), width_(s.epilogue == Epilogue::kSwiGlu ? s.n / 2 : s.n), state_(s.seed * 2654435761u + 12345) {
  const int bits = Bits(s.format), a_bits = s.activations.is_format ? Bits(s.activations.format) : static_cast<int>(8 * SizeOf(s.activations.type));
  args = {.m = s.m, .n = s.n, .k = s.k, .activations = s.activations, .format = s.format, .layout = s.layout};
  args.lda = (s.k * a_bits + 7) / 8 + 8;
  a_.assign(static_cast<size_t>(s.m * args.lda + 2 * kMargin), s.activations.is_format && s.activations.format == Format::kHiF8 ? '\x80' : kPoison);
  args.a = a_.data() + kMargin;
  int64_t w_bytes = 0;
  if (s.layout == CodeLayout::kNK) {
    args.ldw = (s.k * bits + 7) / 8 + 3;
    w_bytes = s.n * args.ldw;
  } else if (s.layout == CodeLayout::kKN) {
    args.ldw = (s.n * bits + 7) / 8 + 3;
    w_bytes = s.k * args.ldw;
  } else {
    w_bytes = (s.k + 31) / 32 * ((s.n + 15) / 16) * 512;
  }
  w_.assign(static_cast<size_t>(w_bytes + 2 * kMargin), s.format == Format::kHiF8 ? '\x80' : kPoison);
  args.w = w_.data() + kMargin;
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t k = 0; k < s.k; ++k) SetActivation(i, k, s.activations.is_format ? Uniform() * 8 - 4 : std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283 * Uniform()));
  }
  for (int64_t j = 0; j < s.n; ++j) {
    for (int64_t k = 0; k < s.k; ++k) {
      uint8_t code = 0;
      do {
        code = static_cast<uint8_t>(Uniform() * (1 << bits));
      } while (!std::isfinite(Decode(s.format, code)));
      SetCode(j, k, code);
    }
  }
  args.w_scale = MakeScales(s.scale, s.n, false, scale_);
  args.w_offset = MakeScales(s.offset, s.n, true, offset_);
  args.a_scale = MakeScales(s.a_scale, s.m, false, a_scale_);
  if (s.bias) {
    args.bias_type = s.activations.is_format ? DType::kF32 : s.activations.type;
    bias_.assign(static_cast<size_t>(s.n * SizeOf(args.bias_type)), 0);
    for (int64_t j = 0; j < s.n; ++j) StoreScalar(args.bias_type, Uniform() * 20 - 10, bias_.data(), j);
    args.bias = bias_.data();
  }
  args.epilogue = s.epilogue;
  args.out_type = s.out;
  args.ldo = width_ * SizeOf(s.out) + 8;
  out_.assign(static_cast<size_t>(s.m * args.ldo + 2 * kMargin), kPoison);
  args.out = out_.data() + kMargin;
}

Scales WeightProblem::MakeScales(const ScaleSpec& s, int64_t rows, bool offset, std::vector<char>& storage) {
  if (!s.present) return {};
  const int64_t entries = s.rows == 0 ? 1 : (rows + s.rows - 1) / s.rows, groups = s.depth == 0 ? 1 : (spec.k + s.depth - 1) / s.depth;
  Scales out = {.type = s.type, .rows = s.rows, .depth = s.depth, .run = s.run};
  out.row_stride = s.run > 1 ? s.run : s.rows_first ? 1 : groups;
  out.depth_stride = s.run > 1 ? s.run * entries : s.rows_first ? entries : 1;
  const int64_t count = entries * (groups + s.run);
  storage.assign(static_cast<size_t>(count * 4), 0);
  for (int64_t i = 0; i < count; ++i) {
    const double value = offset ? std::floor(Uniform() * 9) - 4 : 0.25 + Uniform() * 2;
    const int32_t whole = static_cast<int32_t>(value);
    switch (s.type) {
      case ScaleType::kF32: StoreScalar(DType::kF32, value, storage.data(), i); break;
      case ScaleType::kF16: StoreScalar(DType::kF16, value, storage.data(), i); break;
      case ScaleType::kBF16: StoreScalar(DType::kBF16, value, storage.data(), i); break;
      case ScaleType::kE8M0: storage[static_cast<size_t>(i)] = static_cast<char>(122 + static_cast<int>(Uniform() * 8)); break;
      case ScaleType::kI32: std::memcpy(storage.data() + 4 * i, &whole, 4); break;
    }
  }
  out.data = storage.data();
  return out;
}

void WeightProblem::SetCode(int64_t j, int64_t k, uint8_t code) {
  char* w = w_.data() + kMargin;
  const bool half = Bits(spec.format) == 4;
  switch (spec.layout) {
    case CodeLayout::kNK:
      if (half) return PutNibble(w[j * args.ldw + k / 2], k % 2, code);
      w[j * args.ldw + k] = static_cast<char>(code);
      break;
    case CodeLayout::kKN:
      if (half) return PutNibble(w[k * args.ldw + j / 2], j % 2, code);
      w[k * args.ldw + j] = static_cast<char>(code);
      break;
    case CodeLayout::kFractalNz: w[((k / 32 * ((spec.n + 15) / 16) + j / 16) * 16 + j % 16) * 32 + k % 32] = static_cast<char>(code); break;
  }
}

void WeightProblem::SetActivation(int64_t i, int64_t k, double value) {
  char* row = a_.data() + kMargin + i * args.lda;
  if (!spec.activations.is_format) return StoreScalar(spec.activations.type, value, row, k);
  const uint8_t code = Encode(spec.activations.format, static_cast<float>(value), Overflow::kSaturate);
  if (Bits(spec.activations.format) == 4) return PutNibble(row[k / 2], k % 2, code);
  row[k] = static_cast<char>(code);
}

double WeightProblem::Out(int64_t i, int64_t j) const { return LoadScalar(spec.out, out_.data() + kMargin + i * args.ldo, j); }
std::string WeightProblem::OutBytes(int64_t i) const {
  return std::string(out_.data() + kMargin + i * args.ldo, static_cast<size_t>(width_ * SizeOf(spec.out)));
}

bool WeightProblem::MarginsAreUntouched() const {
  for (int64_t b = 0; b < static_cast<int64_t>(out_.size()); ++b) {
    const int64_t at = b - kMargin;
    const bool inside = at >= 0 && at < spec.m * args.ldo && at % args.ldo < width_ * SizeOf(spec.out);
    if (!inside && out_[static_cast<size_t>(b)] != kPoison) return false;
  }
  return true;
}

std::string WeightProblem::Name() const {
  const auto table = [](const char* name, const ScaleSpec& s) {
    return s.present ? absl::StrCat(" ", name, " ", quant::Name(s.type), " of ", s.rows, "x", s.depth, s.rows_first ? " rows first" : "", " run ", s.run) : "";
  };
  return absl::StrCat("m=", spec.m, " n=", spec.n, " k=", spec.k, " ", quant::Name(spec.format), " times ",
                      spec.activations.is_format ? quant::Name(spec.activations.format) : quant::Name(spec.activations.type), " layout ",
                      static_cast<int>(spec.layout), table("scale", spec.scale), table("offset", spec.offset), table("a_scale", spec.a_scale),
                      spec.bias ? " bias" : "", " out ", quant::Name(spec.out), spec.epilogue == Epilogue::kSwiGlu ? " SwiGLU" : "", " seed ", spec.seed);
}

}  // namespace jumar::quant
