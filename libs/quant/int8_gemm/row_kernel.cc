#include "libs/quant/int8_gemm/row_kernel.h"

#include <algorithm>
#include <cmath>

#include "libs/quant/int8_gemm/scratch.h"
#include "libs/quant/scale/row_kernel.h"
#include "libs/quant/scale/scale_rule.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/int8_gemm/row_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "libs/quant/int8_gemm/int8_epilogue-inl.h"

// A row becomes fp32 in a buffer, is worked on there, and leaves it as int8. Buffers have room for a whole vector behind the last column.

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {

using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

constexpr int64_t Padded(int64_t cols) { return (cols + 15) / 16 * 16; }

// fn(column, how many of its vector are real)
template <class Fn>
HWY_INLINE void ForEachVector(int64_t cols, const Fn& fn) {
  for (int64_t c = 0; c < cols; c += kLanes) fn(c, static_cast<size_t>(std::min(kLanes, cols - c)));
}

// Fp32 arrays of Padded(cols) numbers, from a scratch buffer of the thread.
class Arrays {
 public:
  Arrays(int64_t cols, int count) : stride_(Padded(cols)), next_(reinterpret_cast<float*>(Scratch<ScratchUse::kRows>(stride_ * count * sizeof(float)))) {}
  float* Next() {
    float* array = next_;
    next_ += stride_;
    return array;
  }
  // The numbers of columns; null if they are absent.
  float* Of(const Numbers& numbers, int64_t cols) {
    if (numbers.data == nullptr) return nullptr;
    float* array = Next();
    if (numbers.step == 1) {
      switch (numbers.type) {
        case DType::kF32: Widen(static_cast<const float*>(numbers.data), cols, array); break;
        case DType::kF16: Widen(static_cast<const hwy::float16_t*>(numbers.data), cols, array); break;
        case DType::kBF16: Widen(static_cast<const hwy::bfloat16_t*>(numbers.data), cols, array); break;
      }
    } else {
      for (int64_t c = 0; c < cols; ++c) array[c] = NumberAt(numbers, c, 0.0f);
    }
    return array;
  }
  template <typename T>
  static void Widen(const T* in, int64_t cols, float* out) {
    const DF df;
    ForEachVector(cols, [&](int64_t c, size_t count) HWY_ATTR { hn::Store(fv::LoadF32(df, in + c, count), df, out + c); });
  }

 private:
  const int64_t stride_;
  float* next_;
};

// A row of any type to int8 by its own scale.
void PutDynamic(DType type, const void* row, int64_t cols, const Int8Rows& to, int64_t index) {
  uint32_t greatest = 0;
  MaxMagnitudes(type, row, {cols, cols}, &greatest);
  to.scale[index] = ScaleOf(RuleOf(Rule::kCannDynamic), Format::kI8, MagnitudeToFloat(type, greatest));
  QuantizeRow(Format::kI8, type, row, {cols, cols}, to.scale + index, nullptr, reinterpret_cast<uint8_t*>(to.out + index * to.ldo));
}

// Int8Rows with its numbers widened.
struct Sink {
  Sink(const Int8Rows& to, const Numbers& factor, int64_t cols, Arrays& arrays)
      : to(to), cols(cols), factor(arrays.Of(factor, cols)), offset(to.kind == Int8Rows::Kind::kDynamic ? nullptr : arrays.Of(to.offset, cols)),
        factored(to.kind == Int8Rows::Kind::kDynamic && this->factor != nullptr ? arrays.Next() : nullptr) {}

  void Put(const float* HWY_RESTRICT row, int64_t index) const {
    const DF df;
    if (to.kind == Int8Rows::Kind::kDynamic) {
      if (factor != nullptr) {
        ForEachVector(cols, [&](int64_t c, size_t) HWY_ATTR { hn::Store(hn::Mul(hn::Load(df, row + c), hn::Load(df, factor + c)), df, factored + c); });
      }
      return PutDynamic(DType::kF32, factor == nullptr ? row : factored, cols, to, index);
    }
    int8_t* out = to.out + index * to.ldo;
    ForEachVector(cols, [&](int64_t c, size_t count) HWY_ATTR {
      VF value = hn::Load(df, row + c);
      if (factor != nullptr) {
        const VF by = hn::Load(df, factor + c);
        value = to.kind == Int8Rows::Kind::kDivide ? hn::Div(value, by) : hn::Mul(value, by);
      }
      if (offset != nullptr) value = hn::Add(value, hn::Load(df, offset + c));
      hn::StoreN(ToInt8(df, value, hn::Zero(df)), hn::Rebind<int8_t, DF>(), out + c, count);
    });
  }

 private:
  const Int8Rows& to;
  const int64_t cols;
  const float* factor;
  const float* offset;
  float* factored;
};

// Rows of any type as fp32.
struct Source {
  Source(const RowsIn& in, const Numbers& scale, int64_t cols, Arrays& arrays)
      : in(in), cols(cols), scale(in.type == RowsIn::Type::kI32 ? arrays.Of(scale, cols) : nullptr),
        bias(in.type == RowsIn::Type::kI32 ? arrays.Of(in.bias, cols) : nullptr) {}

  void Get(int64_t index, float* HWY_RESTRICT row) const {
    const int64_t at = index * in.ld;
    switch (in.type) {
      case RowsIn::Type::kF32: return Arrays::Widen(static_cast<const float*>(in.data) + at, cols, row);
      case RowsIn::Type::kF16: return Arrays::Widen(static_cast<const hwy::float16_t*>(in.data) + at, cols, row);
      case RowsIn::Type::kBF16: return Arrays::Widen(static_cast<const hwy::bfloat16_t*>(in.data) + at, cols, row);
      case RowsIn::Type::kI32: return Dequantize(static_cast<const int32_t*>(in.data) + at, NumberAt(in.token_scale, index, 1.0f), row);
    }
  }

 private:
  void Dequantize(const int32_t* x, float token_scale, float* HWY_RESTRICT row) const {
    const DF df;
    const DI di;
    const VF token = hn::Set(df, token_scale);
    ForEachVector(cols, [&](int64_t c, size_t count) HWY_ATTR {
      auto sum = hn::LoadN(di, x + c, count);
      if (in.int_bias != nullptr) sum = hn::Add(sum, hn::LoadN(di, in.int_bias + c, count));
      const VF value = hn::Mul(hn::Mul(hn::ConvertTo(df, sum), hn::Load(df, scale + c)), token);
      hn::Store(bias == nullptr ? value : hn::Add(value, hn::Load(df, bias + c)), df, row + c);
    });
  }

  const RowsIn& in;
  const int64_t cols;
  const float* scale;
  const float* bias;
};

void QuantizeRange(int64_t cols, const RowsIn& in, const Int8Rows& to, int64_t begin, int64_t end) {
  if (to.kind == Int8Rows::Kind::kDynamic && to.factor.data == nullptr && in.type != RowsIn::Type::kI32) {  // straight from memory
    const DType type = in.type == RowsIn::Type::kF32 ? DType::kF32 : in.type == RowsIn::Type::kF16 ? DType::kF16 : DType::kBF16;
    for (int64_t r = begin; r < end; ++r) PutDynamic(type, static_cast<const char*>(in.data) + r * in.ld * SizeOf(type), cols, to, r);
    return;
  }
  Arrays arrays(cols, 6);
  float* const row = arrays.Next();
  const Source source(in, in.scale, cols, arrays);
  const Sink sink(to, to.factor, cols, arrays);
  for (int64_t r = begin; r < end; ++r) {
    source.Get(r, row);
    sink.Put(row, r);
  }
}

// row += x, and its sum of squares. The sum is that of 16 lanes, whatever the vectors, then a tree.
template <typename T>
float AddAndSquare(const NormQuantArgs& args, int64_t r, float* HWY_RESTRICT row) {
  const DF df;
  HWY_ALIGN float lanes[16] = {};
  const T* residual = args.residual == nullptr ? nullptr : static_cast<const T*>(args.residual) + r * args.ldr;
  Arrays::Widen(static_cast<const T*>(args.x) + r * args.ldx, args.cols, row);
  ForEachVector(args.cols, [&](int64_t c, size_t count) HWY_ATTR {
    VF value = hn::Load(df, row + c);
    if (residual != nullptr) value = hn::Add(value, fv::LoadF32(df, residual + c, count));
    hn::Store(value, df, row + c);
    float* at = lanes + c % 16;
    hn::Store(hn::Add(hn::Load(df, at), hn::IfThenElseZero(hn::FirstN(df, count), hn::Mul(value, value))), df, at);
  });
  if (args.sum != nullptr) {
    T* sum = static_cast<T*>(args.sum) + r * args.lds;
    ForEachVector(args.cols, [&](int64_t c, size_t count) HWY_ATTR { fv::StoreF32(df, hn::Load(df, row + c), sum + c, count); });
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <typename T>
void NormRange(const NormQuantArgs& args, int64_t begin, int64_t end) {
  const DF df;
  const int64_t cols = args.cols;
  Arrays arrays(cols, 9);
  float* const row = arrays.Next();
  const float *gamma = arrays.Of(args.gamma, cols), *beta = arrays.Of(args.beta, cols);
  const Int8Rows none;
  const Sink first(args.to[0], args.to[0].factor, cols, arrays);
  const Int8Rows& other = args.to.size() > 1 ? args.to[1] : none;
  const Sink second(other, other.factor, cols, arrays);
  for (int64_t r = begin; r < end; ++r) {
    const float squares = AddAndSquare<T>(args, r, row);
    const VF rstd = hn::Set(df, 1.0f / std::sqrt(squares / static_cast<float>(cols) + args.epsilon));
    ForEachVector(cols, [&](int64_t c, size_t) HWY_ATTR {
      const VF normed = hn::Mul(hn::Mul(hn::Load(df, row + c), rstd), hn::Load(df, gamma + c));
      hn::Store(beta == nullptr ? normed : hn::Add(normed, hn::Load(df, beta + c)), df, row + c);
    });
    first.Put(row, r);
    if (args.to.size() > 1) second.Put(row, r);
  }
}

void NormRangeOfType(const NormQuantArgs& args, int64_t begin, int64_t end) {
  switch (args.type) {
    case DType::kF32: return NormRange<float>(args, begin, end);
    case DType::kF16: return NormRange<hwy::float16_t>(args, begin, end);
    case DType::kBF16: return NormRange<hwy::bfloat16_t>(args, begin, end);
  }
}

void SwigluRange(const SwigluQuantArgs& args, const Numbers& scale, const Numbers& factor, int64_t begin, int64_t end) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  const int64_t cols = args.cols;
  Arrays arrays(2 * cols + 16, 6);
  float* const row = arrays.Next();
  const Source source(args.in, scale, 2 * cols, arrays);
  const Sink sink(args.to, factor, cols, arrays);
  const float* const gate = row + (args.gate_right ? cols : 0);
  const float* const up = row + (args.gate_right ? 0 : cols);
  for (int64_t r = begin; r < end; ++r) {
    source.Get(r, row);
    float* const gated = row;  // a column is read before it is written
    ForEachVector(cols, [&](int64_t c, size_t count) HWY_ATTR {
      const VF g = hn::LoadU(df, gate + c), u = hn::LoadU(df, up + c);
      const VF e = hn::Exp(df, hn::Neg(hn::Abs(g)));
      const VF sigmoid = hn::Div(hn::IfThenElse(hn::Lt(g, hn::Zero(df)), e, one), hn::Add(one, e));
      hn::StoreN(hn::Mul(hn::Mul(g, sigmoid), u), df, gated + c, count);
    });
    sink.Put(gated, r);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(QuantizeRange);
HWY_EXPORT(NormRangeOfType);
HWY_EXPORT(SwigluRange);

void QuantizeRowRange(int64_t cols, const RowsIn& in, const Int8Rows& to, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(QuantizeRange)(cols, in, to, begin, end);
}
void NormQuantizeRange(const NormQuantArgs& args, int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(NormRangeOfType)(args, begin, end); }
void SwigluQuantizeRange(const SwigluQuantArgs& args, const Numbers& scale, const Numbers& factor, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SwigluRange)(args, scale, factor, begin, end);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
