#include "libs/hostcann/aclnn/weight_operands.h"

#include <algorithm>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {
namespace {

using quant::CodeLayout;
using quant::Format;
using quant::Scales;
using quant::ScaleType;

int64_t Blocks(int64_t size, int64_t block) { return (size + block - 1) / block; }

std::optional<ScaleType> ScaleTypeOf(DType dtype) {
  if (dtype == kF8E8M0) return ScaleType::kE8M0;
  switch (dtype) {
    case DType::kF32: return ScaleType::kF32;
    case DType::kF16: return ScaleType::kF16;
    case DType::kBF16: return ScaleType::kBF16;
    case DType::kI32: return ScaleType::kI32;
    case DType::kI64:
    case DType::kU64: return ScaleType::kF32;  // aclnnTransQuantParam's words: fp32 in the lower half
    default: return std::nullopt;
  }
}
int64_t WordsOf(DType dtype) { return dtype == DType::kI64 || dtype == DType::kU64 ? 2 : 1; }  // of the scale's type in an element

// A FRACTAL_NZ weight of one-byte codes, of which [n, k] was cast.
bool IsNz(const aclTensor& w, int64_t k, int64_t n) {
  const auto shape = quant::FractalNzShape(n, k, 1);
  return w.format == kFormatFractalNz && w.strides[0] == 1 && (w.strides[1] == k || n == 1) && w.offset == 0 && shape.ok() && w.storage_sizes.n >= 4 &&
         std::equal(shape->begin(), shape->end(), w.storage_sizes.end() - 4);
}

}  // namespace

std::optional<Format> CodeFormat(DType dtype) {
  if (dtype == kHiF8) return Format::kHiF8;
  if (dtype == kF4E2M1) return Format::kE2M1;
  switch (dtype) {
    case DType::kI8: return Format::kI8;
    case DType::kI32: return Format::kI4;
    case DType::kF8E4M3: return Format::kE4M3;
    case DType::kF8E5M2: return Format::kE5M2;
    default: return std::nullopt;
  }
}

aclTensor Inner(const aclTensor& t, int first) {
  aclTensor inner = t;
  for (Dims* dims : {&inner.sizes, &inner.strides}) {
    std::copy(dims->v + first, dims->v + dims->n, dims->v);
    dims->n -= first;
  }
  return inner;
}

std::optional<WeightCodes> AsWeight(const aclTensor& t) {
  const auto format = CodeFormat(t.dtype);
  if (!format || t.sizes.n < 2 || t.sizes.n > 3) return std::nullopt;
  const aclTensor w = Inner(t, t.sizes.n - 2);
  const int64_t per_word = t.dtype == DType::kI32 ? 8 : 1, bits = quant::Bits(*format) * per_word;  // of an element
  const int64_t rows = w.sizes[0], columns = w.sizes[1], row = w.strides[0], column = w.strides[1];
  WeightCodes codes{.format = *format, .layout = CodeLayout::kNK, .data = CodesOf(w), .k = rows, .n = columns, .ld = 0};
  if (t.sizes.n == 3) {
    codes.experts = t.sizes[0];
    if (t.strides[0] * bits % 8 != 0) return std::nullopt;
    codes.step = t.strides[0] * bits / 8;
  }
  if (!IsBaseFormat(w.format)) {
    if (t.sizes.n == 3 || quant::Bits(*format) != 8 || !IsNz(w, rows, columns)) return std::nullopt;
    codes.layout = CodeLayout::kFractalNz;
    return codes;
  }
  if ((row == 1 || rows == 1) && (column >= rows || columns == 1) && !(column == 1 && columns > 1)) {
    codes.k = rows * per_word;
    codes.ld = columns == 1 ? Blocks(rows * bits, 8) : column * bits / 8;
    if (columns > 1 && column * bits % 8 != 0) return std::nullopt;
    return codes;
  }
  if (column != 1 || row < columns || row * bits % 8 != 0) return std::nullopt;
  codes.layout = CodeLayout::kKN;
  codes.n = columns * per_word;
  codes.ld = row * bits / 8;
  return codes;
}

std::optional<ActivationRows> AsActivations(const aclTensor& x) {
  const auto rows = AsRows(x, 1);
  if (!rows || !IsBaseFormat(x.format) || x.sizes.n < 1) return std::nullopt;
  if (const auto type = KernelType(x.dtype)) {
    return ActivationRows{*type, x.data(), rows->rows, rows->cols, std::max(rows->stride, rows->cols) * ItemSize(x.dtype)};
  }
  const auto format = CodeFormat(x.dtype);
  if (!format || x.dtype == DType::kI32) return std::nullopt;
  const int64_t bits = quant::Bits(*format), stride = std::max(rows->stride, rows->cols);
  if (rows->rows > 1 && stride * bits % 8 != 0) return std::nullopt;
  return ActivationRows{*format, CodesOf(x), rows->rows, rows->cols, Blocks(stride * bits, 8)};
}

std::optional<Scales> WeightScales(const aclTensor& t, int64_t k, int64_t n, int64_t group, int64_t group_n) {
  const auto type = ScaleTypeOf(t.dtype);
  if (!type || !IsBaseFormat(t.format)) return std::nullopt;
  const int64_t words = WordsOf(t.dtype);
  Scales s{.data = t.data(), .type = *type};
  if (t.numel() == 1) {
    s.rows = 0;
    return s;
  }
  if (t.sizes.n == 1) {
    if (t.sizes[0] != n) return std::nullopt;
    s.row_stride = t.strides[0] * words;
    return s;
  }
  if (t.sizes.n == 3) {  // pairs of groups
    if (t.dtype != kF8E8M0 || t.sizes[0] != Blocks(k, 64) || t.sizes[1] != n || t.sizes[2] != 2 || t.strides[2] != 1) return std::nullopt;
    s.depth = 32;
    s.row_stride = t.strides[1];
    s.depth_stride = t.strides[0];
    s.run = 2;
    return s;
  }
  if (t.sizes.n != 2) return std::nullopt;
  const int64_t groups = t.sizes[0], columns = t.sizes[1];
  if (groups == n && columns == 1 && groups != 1 && group == 0) {  // of a transposed weight
    s.row_stride = t.strides[0] * words;
    return s;
  }
  s.depth = groups == 1 ? 0 : group != 0 ? group : Blocks(k, groups);
  s.rows = columns == 1 ? 0 : columns == n ? 1 : group_n != 0 ? group_n : Blocks(n, columns);
  if (s.depth % 16 != 0 || (s.depth != 0 && Blocks(k, s.depth) != groups) || (s.rows != 0 && Blocks(n, s.rows) != columns)) return std::nullopt;
  s.row_stride = t.strides[1] * words;
  s.depth_stride = t.strides[0] * words;
  return s;
}

std::optional<Scales> ActivationScales(const aclTensor& t, int64_t m, int64_t k, int64_t group) {
  const auto type = ScaleTypeOf(t.dtype);
  if (!type || !IsBaseFormat(t.format)) return std::nullopt;
  Scales s{.data = t.data(), .type = *type};
  if (t.numel() == 1) {
    s.rows = 0;
    return s;
  }
  const bool pairs = t.dtype == kF8E8M0 && t.sizes.n >= 3 && t.sizes[t.sizes.n - 1] == 2;
  const int inner = pairs ? 2 : t.sizes.n == 1 || t.numel() == m ? 0 : 1;  // dimensions along k
  const auto rows = Merge(t, 0, t.sizes.n - (t.numel() == m ? 0 : inner));
  if (!rows || rows->size != m) return std::nullopt;
  s.row_stride = rows->stride;
  if (inner == 0) return s;
  const int last = t.sizes.n - 1;
  if (pairs) {
    if (t.sizes[last - 1] != Blocks(k, 64) || t.strides[last] != 1) return std::nullopt;
    s.depth = 32;
    s.depth_stride = t.strides[last - 1];
    s.run = 2;
    return s;
  }
  s.depth = group != 0 ? group : Blocks(k, t.sizes[last]);
  s.depth_stride = t.strides[last];
  if (s.depth % 16 != 0 || Blocks(k, s.depth) != t.sizes[last]) return std::nullopt;
  return s;
}

}  // namespace jumar::hostcann::aclnn
