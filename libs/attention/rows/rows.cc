#include "libs/attention/rows/rows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/attention/rows/rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/attention/exp-inl.h"
#include "libs/quant/float_vectors-inl.h"

#ifndef LIBS_ATTENTION_ROWS_ROWS_ONCE_
#define LIBS_ATTENTION_ROWS_ROWS_ONCE_
namespace jumar::attention {
inline constexpr int64_t kMaxRotaryDim = 1024;
}
#endif

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int64_t kLanes = hn::MaxLanes(DF());

// Calls body(offset, count) for whole vectors and once for the rest; the rest goes through the same arithmetic.
template <typename Body>
HWY_INLINE void ForEachVector(int64_t size, const Body& body) {
  for (int64_t i = 0; i < size; i += kLanes) body(i, std::min(kLanes, size - i));
}

template <typename T>
HWY_INLINE VF LoadPart(const T* p, int64_t count) {
  return count == kLanes ? fv::LoadF32(DF(), p) : fv::LoadF32(DF(), p, count);
}

template <typename T>
HWY_INLINE void StorePart(VF value, T* p, int64_t count) {
  if (count == kLanes) {
    fv::StoreF32(DF(), value, p);
  } else {
    fv::StoreF32(DF(), value, p, count);
  }
}

template <typename T, typename W>
void RmsNormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const DF df;
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
    VF squares = hn::Zero(df);
    if (args.residual != nullptr) {
      const T* residual = static_cast<const T*>(args.residual) + row * args.residual_stride;
      T* sum = static_cast<T*>(args.sum_out) + row * args.sum_out_stride;
      ForEachVector(args.cols, [&](int64_t i, int64_t count) HWY_ATTR {
        StorePart(hn::Add(LoadPart(x + i, count), LoadPart(residual + i, count)), sum + i, count);
        const VF rounded = LoadPart(sum + i, count);
        squares = hn::MulAdd(rounded, rounded, squares);
      });
      x = sum;
    } else {
      ForEachVector(args.cols, [&](int64_t i, int64_t count) HWY_ATTR {
        const VF value = LoadPart(x + i, count);
        squares = hn::MulAdd(value, value, squares);
      });
    }
    const float rstd = 1.0f / std::sqrt(hn::ReduceSum(df, squares) / static_cast<float>(args.cols) + args.epsilon);
    const VF factor = hn::Set(df, rstd);
    const W* weight = static_cast<const W*>(args.weight);
    T* out = static_cast<T*>(args.out) + row * args.out_stride;
    ForEachVector(args.cols, [&](int64_t i, int64_t count) HWY_ATTR {
      VF value = hn::Mul(LoadPart(x + i, count), factor);
      if (weight != nullptr) value = hn::Mul(value, LoadPart(weight + i, count));
      StorePart(value, out + i, count);
    });
    if (args.rstd != nullptr) args.rstd[row] = rstd;
  }
}

// One token's cos and sin in fp32, an entry for each rotated element; for the interleaved form sin of even elements is negated.
template <typename W>
void LoadTables(const RopeArgs& args, int64_t token, float* cos, float* sin) {
  const int64_t row = args.positions != nullptr ? args.positions[token] : args.table_stride == 0 ? 0 : token;
  const W* cos_row = static_cast<const W*>(args.cos) + row * args.table_stride;
  const W* sin_row = static_cast<const W*>(args.sin) + row * args.table_stride;
  const int64_t half = args.rotary_dim / 2, entries = args.compact_table ? half : args.rotary_dim;
  ForEachVector(entries, [&](int64_t i, int64_t count) HWY_ATTR {
    hn::StoreN(LoadPart(cos_row + i, count), DF(), cos + i, count);
    hn::StoreN(LoadPart(sin_row + i, count), DF(), sin + i, count);
  });
  if (args.compact_table) {
    for (int64_t i = half - 1; i >= 0; --i) {  // from the right: in place
      const float c = cos[i], s = sin[i];
      if (args.interleaved) {
        cos[2 * i] = cos[2 * i + 1] = c;
        sin[2 * i] = sin[2 * i + 1] = s;
      } else {
        cos[i + half] = c;
        sin[i + half] = s;
      }
    }
  }
  if (args.inverse) {
    for (int64_t i = 0; i < args.rotary_dim; ++i) sin[i] = -sin[i];
  }
  if (args.interleaved) {
    for (int64_t i = 0; i < args.rotary_dim; i += 2) sin[i] = -sin[i];
  }
}

template <typename T, typename W>
void RopeTokens(const RopeArgs& args, int64_t begin, int64_t end) {
  alignas(64) float cos[kMaxRotaryDim], sin[kMaxRotaryDim];
  const int64_t half = args.rotary_dim / 2;
  for (int64_t token = begin; token < end; ++token) {
    LoadTables<W>(args, token, cos, sin);
    for (int64_t head = 0; head < args.heads; ++head) {
      const T* x = static_cast<const T*>(args.x) + token * args.x_token_stride + head * args.x_head_stride;
      T* out = static_cast<T*>(args.out) + token * args.out_token_stride + head * args.out_head_stride;
      if (args.interleaved) {
        ForEachVector(args.rotary_dim, [&](int64_t i, int64_t count) HWY_ATTR {
          const VF value = LoadPart(x + i, count), partner = hn::Reverse2(DF(), value);
          const VF rotated = hn::MulAdd(partner, LoadPart(sin + i, count), hn::Mul(value, LoadPart(cos + i, count)));
          StorePart(rotated, out + i, count);
        });
      } else {
        ForEachVector(half, [&](int64_t i, int64_t count) HWY_ATTR {
          const VF low = LoadPart(x + i, count), high = LoadPart(x + half + i, count);
          const VF new_low = hn::NegMulAdd(high, LoadPart(sin + i, count), hn::Mul(low, LoadPart(cos + i, count)));
          const VF new_high = hn::MulAdd(low, LoadPart(sin + half + i, count), hn::Mul(high, LoadPart(cos + half + i, count)));
          StorePart(new_low, out + i, count);
          StorePart(new_high, out + half + i, count);
        });
      }
      if (out != x) std::copy(x + args.rotary_dim, x + args.head_dim, out + args.rotary_dim);
    }
  }
}

template <typename T>
void SwiGluRows(const SwiGluArgs& args, int64_t begin, int64_t end) {
  const DF df;
  const VF one = hn::Set(df, 1.0f);
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(args.gate) + row * args.gate_stride;
    const T* up = static_cast<const T*>(args.up) + row * args.up_stride;
    T* out = static_cast<T*>(args.out) + row * args.out_stride;
    ForEachVector(args.cols, [&](int64_t i, int64_t count) HWY_ATTR {
      const VF g = LoadPart(gate + i, count);
      const VF e = ExpNonpositive(df, hn::Neg(hn::Abs(g)));
      const VF sigmoid = hn::Div(hn::IfThenElse(hn::Lt(g, hn::Zero(df)), e, one), hn::Add(one, e));
      StorePart(hn::Mul(hn::Mul(g, sigmoid), LoadPart(up + i, count)), out + i, count);
    });
  }
}

void RmsNormRange(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const bool wide = args.weight_type == DType::kF32;
  switch (args.type) {
    case DType::kF32: return RmsNormRows<float, float>(args, begin, end);
    case DType::kF16:
      return wide ? RmsNormRows<hwy::float16_t, float>(args, begin, end) : RmsNormRows<hwy::float16_t, hwy::float16_t>(args, begin, end);
    case DType::kBF16:
      return wide ? RmsNormRows<hwy::bfloat16_t, float>(args, begin, end) : RmsNormRows<hwy::bfloat16_t, hwy::bfloat16_t>(args, begin, end);
  }
}

void RopeRange(const RopeArgs& args, int64_t begin, int64_t end) {
  const bool wide = args.table_type == DType::kF32;
  switch (args.type) {
    case DType::kF32: return RopeTokens<float, float>(args, begin, end);
    case DType::kF16:
      return wide ? RopeTokens<hwy::float16_t, float>(args, begin, end) : RopeTokens<hwy::float16_t, hwy::float16_t>(args, begin, end);
    case DType::kBF16:
      return wide ? RopeTokens<hwy::bfloat16_t, float>(args, begin, end) : RopeTokens<hwy::bfloat16_t, hwy::bfloat16_t>(args, begin, end);
  }
}

void SwiGluRange(const SwiGluArgs& args, int64_t begin, int64_t end) {
  switch (args.type) {
    case DType::kF32: return SwiGluRows<float>(args, begin, end);
    case DType::kF16: return SwiGluRows<hwy::float16_t>(args, begin, end);
    case DType::kBF16: return SwiGluRows<hwy::bfloat16_t>(args, begin, end);
  }
}

}  // namespace jumar::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::attention {
namespace {

HWY_EXPORT(RmsNormRange);
HWY_EXPORT(RopeRange);
HWY_EXPORT(SwiGluRange);

constexpr int64_t kElementsPerRange = 16384;  // that are worth another thread

int64_t Grain(int64_t row_elements) { return std::max<int64_t>(1, kElementsPerRange / std::max<int64_t>(1, row_elements)); }

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args, tiling::Executor& executor) {
  if (args.rows < 0 || args.cols < 0) return Invalid("rms_norm: shape [", args.rows, ", ", args.cols, "] is negative");
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  if (args.x == nullptr || args.out == nullptr) return Invalid("rms_norm: x or out is null");
  if ((args.residual == nullptr) != (args.sum_out == nullptr)) return Invalid("rms_norm: residual and sum_out belong together");
  if (args.residual != nullptr && args.sum_out == args.out) return Invalid("rms_norm: out and sum_out are the same memory");
  if (args.weight != nullptr && args.weight_type != args.type && args.weight_type != DType::kF32) {
    return Invalid("rms_norm: a weight of ", quant::Name(args.weight_type), " with x of ", quant::Name(args.type), "; it must be of x's type or float32");
  }
  executor.ParallelFor(args.rows, Grain(args.cols),
                       [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(RmsNormRange)(args, begin, end); });
  return absl::OkStatus();
}

absl::Status Rope(const RopeArgs& args, tiling::Executor& executor) {
  if (args.tokens < 0 || args.heads < 0) return Invalid("rope: ", args.tokens, " tokens of ", args.heads, " heads");
  if (args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim || args.rotary_dim > kMaxRotaryDim) {
    return Invalid("rope: rotary_dim = ", args.rotary_dim, " is not even, or exceeds head_dim = ", args.head_dim, " or ", kMaxRotaryDim);
  }
  if (args.tokens == 0 || args.heads == 0 || args.head_dim == 0) return absl::OkStatus();
  if (args.x == nullptr || args.out == nullptr || args.cos == nullptr || args.sin == nullptr) return Invalid("rope: x, out, cos or sin is null");
  if (args.table_type != args.type && args.table_type != DType::kF32) {
    return Invalid("rope: tables of ", quant::Name(args.table_type), " with x of ", quant::Name(args.type), "; they must be of x's type or float32");
  }
  if (args.positions != nullptr) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      if (args.positions[t] < 0 || args.positions[t] >= args.table_rows) {
        return Invalid("rope: positions[", t, "] = ", args.positions[t], " is not in [0, table_rows = ", args.table_rows, ")");
      }
    }
  }
  executor.ParallelFor(args.tokens, Grain(args.heads * args.head_dim),
                       [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(RopeRange)(args, begin, end); });
  return absl::OkStatus();
}

absl::Status SwiGlu(const SwiGluArgs& args, tiling::Executor& executor) {
  if (args.rows < 0 || args.cols < 0) return Invalid("swiglu: shape [", args.rows, ", ", args.cols, "] is negative");
  if (args.rows == 0 || args.cols == 0) return absl::OkStatus();
  if (args.gate == nullptr || args.up == nullptr || args.out == nullptr) return Invalid("swiglu: gate, up or out is null");
  executor.ParallelFor(args.rows, Grain(2 * args.cols),
                       [&](int64_t begin, int64_t end) { HWY_DYNAMIC_DISPATCH(SwiGluRange)(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace jumar::attention
#endif  // HWY_ONCE
