// exp(x) for x <= 0, vectorised. Included once per SIMD target.

#if defined(LIBS_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_EXP_INL_H_
#undef LIBS_ATTENTION_EXP_INL_H_
#else
#define LIBS_ATTENTION_EXP_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = n ln 2 + r with |r| <= ln 2 / 2 (n ln 2 in two parts, the first exact); exp(r) by its Taylor series to r^7, whose remainder is
// below 2^-27. Relative error < 2^-22; exp(0) = 1 exactly; 0 below -87.3, where the result would be subnormal; NaN stays NaN.
template <class DF, class V = hn::Vec<DF>>
HWY_INLINE V ExpNonpositive(DF df, V x) {
  const hn::RebindToSigned<DF> di;
  const V n = hn::Round(hn::Mul(x, hn::Set(df, 1.44269504f)));
  V r = hn::NegMulAdd(n, hn::Set(df, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(df, 0x1.7f7d1cp-20f), r);
  V p = hn::Set(df, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(df, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(df, 1.0f));
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(df, -87.3f)), hn::Mul(p, hn::BitCast(df, power)));
}

}  // namespace jumar::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
