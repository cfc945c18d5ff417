// What the public operator pages say an operator takes: types, formats, numbers of dimensions and values of its arguments. The data
// are in limits/*.csv (limits/README.md); strict mode (JUMAR_STRICT=1) refuses what they exclude, as hardware does.
//
//   std::string wrong = CheckLimits("aclnnAbs", {self, out}, "Ascend910B2");   // "" if the call is within the limits
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "libs/hostcann/aclnn/acl_types.h"

namespace jumar::hostcann::aclnn {

// Families of chips whose limits differ.
inline constexpr uint8_t kChipA2 = 1, kChipA3 = 2, kChip950 = 4, kChip310P = 8;
uint8_t ChipOf(std::string_view soc);  // 0 for a chip that no page speaks of

// One row of the data: a limit of one argument on some chips.
struct Limit {
  const char* op;
  const char* argument;  // its name on the page
  uint8_t position;      // in the C call
  uint8_t chips;
  uint64_t dtypes;   // bit d: aclDataType d is taken. 0: no limit, here and below
  uint64_t formats;  // bit f: aclFormat f
  uint32_t dims;     // bit n: n dimensions
  // "0|1|2" (one of these), "0..4" ("0..", "..4"), ">0", "!=0", "%4" (a multiple of it), "axis 0" (an axis of argument 0), "axis+1 0"
  // (an axis of it, or one behind the last); "" for no limit. Of a list, each element.
  const char* values;
};
struct Page {
  const char* op;
  const char* title;
  int arguments;  // in the C call, without workspaceSize and executor; -1 if the page doesn't tell
};
std::span<const Limit> LimitsOf(std::string_view op);
const Page* PageOf(std::string_view op);  // null if there is none

// An argument of an operator's C call. Null pointers are not checked: they are absent options, or refused elsewhere.
class ArgView {
 public:
  ArgView(const aclTensor* t) : kind_(Kind::kTensor), object_(t) {}
  ArgView(const aclTensorList* t) : kind_(Kind::kTensors), object_(t) {}
  ArgView(const aclScalar* s) : kind_(Kind::kScalar), object_(s) {}
  ArgView(const aclIntArray* a) : kind_(Kind::kInts), object_(a) {}
  ArgView(const char* s) : kind_(Kind::kText), object_(s) {}
  ArgView(const void* other) : kind_(Kind::kOther), object_(other) {}
  ArgView(int64_t v) : kind_(Kind::kInt), int_(v), object_(&kPresent) {}
  ArgView(int v) : ArgView(int64_t{v}) {}
  ArgView(int8_t v) : ArgView(int64_t{v}) {}
  ArgView(bool v) : ArgView(int64_t{v}) {}
  ArgView(double v) : kind_(Kind::kReal), real_(v), object_(&kPresent) {}
  ArgView(float v) : ArgView(double{v}) {}

 private:
  friend class LimitCheck;
  enum class Kind : uint8_t { kTensor, kTensors, kScalar, kInts, kText, kInt, kReal, kOther };
  static constexpr char kPresent = 0;

  Kind kind_;
  int64_t int_ = 0;
  double real_ = 0;
  const void* object_;
};

// What is wrong with a call: argument, value, limit and page; "" if nothing is.
std::string CheckLimits(std::string_view op, std::span<const ArgView> arguments, std::string_view soc);
inline std::string CheckLimits(std::string_view op, std::initializer_list<ArgView> arguments, std::string_view soc) {
  return CheckLimits(op, std::span<const ArgView>(arguments.begin(), arguments.size()), soc);
}

}  // namespace jumar::hostcann::aclnn
