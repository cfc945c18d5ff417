#include "libs/tiling/simd.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/tiling/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/tiling/simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::tiling {
namespace HWY_NAMESPACE {
const char* ThisTarget() { return hwy::TargetName(HWY_TARGET); }
}  // namespace HWY_NAMESPACE
}  // namespace jumar::tiling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::tiling {
namespace {
HWY_EXPORT(ThisTarget);

std::vector<int64_t> Targets() {  // best first: Highway gives better targets lower bits
  hwy::SetSupportedTargetsForTest(0);
  std::vector<int64_t> targets;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) targets.push_back(left & -left);
  return targets;
}
int64_t forced = 0;

}  // namespace

std::vector<std::string> SimdTargets() {
  std::vector<std::string> names;
  for (int64_t target : Targets()) names.push_back(hwy::TargetName(target));
  hwy::SetSupportedTargetsForTest(forced);
  return names;
}

absl::Status UseSimdTarget(const std::string& name) {
  int64_t chosen = 0;
  for (int64_t target : Targets()) {
    if (name == hwy::TargetName(target)) chosen = target;
  }
  if (!name.empty() && chosen == 0) {
    hwy::SetSupportedTargetsForTest(forced);
    return absl::NotFoundError(absl::StrCat("SIMD target \"", name, "\" is not among ", absl::StrJoin(SimdTargets(), ", "),
                                            ": what this build has and this CPU can run"));
  }
  forced = chosen;
  hwy::SetSupportedTargetsForTest(forced);
  return absl::OkStatus();
}

absl::Status UseSimdTargetFromEnvironment() {
  const char* name = std::getenv("JUMAR_SIMD");
  return UseSimdTarget(name == nullptr ? "" : name);
}

std::string SimdTarget() { return HWY_DYNAMIC_DISPATCH(ThisTarget)(); }

}  // namespace jumar::tiling
#endif  // HWY_ONCE
