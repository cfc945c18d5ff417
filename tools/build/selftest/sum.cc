#include "tools/build/selftest/sum.h"

#include <concepts>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/build/selftest/sum.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::selftest::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

int64_t SumLanes(const int32_t* values, size_t count) {
  const hn::ScalableTag<int64_t> wide;
  const hn::Rebind<int32_t, decltype(wide)> narrow;
  auto sums = hn::Zero(wide);
  size_t i = 0;
  for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) {
    sums = hn::Add(sums, hn::PromoteTo(wide, hn::LoadU(narrow, values + i)));
  }
  int64_t sum = hn::ReduceSum(wide, sums);
  for (; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace jumar::selftest::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::selftest {

HWY_EXPORT(SumLanes);

template <std::integral T>
static bool Fits(int64_t value) {
  return value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
}

absl::StatusOr<int32_t> Sum(absl::Span<const int32_t> values) {
  if (values.empty()) return absl::InvalidArgumentError("there are no values to add");
  const int64_t sum = HWY_DYNAMIC_DISPATCH(SumLanes)(values.data(), values.size());
  if (!Fits<int32_t>(sum)) {
    return absl::InvalidArgumentError(absl::StrCat("the sum ", sum, " exceeds int32"));
  }
  return static_cast<int32_t>(sum);
}

}  // namespace jumar::selftest
#endif  // HWY_ONCE
