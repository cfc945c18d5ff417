#ifndef LIBS_TILING_FIELDS_H_
#define LIBS_TILING_FIELDS_H_

// The fields of a solver's problem, written down once, as member pointers with a name, a doc and a range. From them come the checks of
// the typed API, the arguments of explain and of the Python bindings, the documentation and the survey's grids.
//
//   constexpr TypedField<MatmulProblem> kFields[] = {{"m", "rows of A and C", &MatmulProblem::m, 1, kMaxSize}, ...};
//
// The default is what the problem's own initializer says.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

inline constexpr int64_t kMaxSize = int64_t{1} << 31;     // of one dimension
inline constexpr int64_t kMaxListLength = int64_t{1} << 20;

struct Field {
  std::string_view name;
  std::string_view doc;
  int64_t min = 0, max = 0;                     // of each number
  bool list = false;                            // one number, or as many as one likes (at least one)
  std::span<const std::string_view> choices = {};  // if not empty: the names of 0, 1, ...
  std::vector<int64_t> default_value = {};
};

// A problem as numbers: those of each field, in the order of the fields. A scalar is a list of one.
using Values = std::vector<std::vector<int64_t>>;

template <class Problem>
struct TypedField {
  std::string_view name;
  std::string_view doc;
  std::variant<int64_t Problem::*, std::vector<int64_t> Problem::*, DType Problem::*> member;
  int64_t min = 0, max = 0;
  std::span<const std::string_view> choices = {};  // of an int64_t; a DType has its own
};

// InvalidArgument names the field, the value and what is allowed.
absl::Status CheckField(const Field& field, std::span<const int64_t> values);

// Not inlined: GCC 12 would warn that the member may be uninitialized.
template <class Problem>
[[gnu::noinline]] std::vector<int64_t> GetField(const TypedField<Problem>& field, const Problem& problem) {
  std::vector<int64_t> values;
  if (const auto* scalar = std::get_if<int64_t Problem::*>(&field.member)) {
    values.push_back(problem.**scalar);
  } else if (const auto* list = std::get_if<std::vector<int64_t> Problem::*>(&field.member)) {
    values = problem.**list;
  } else {
    values.push_back(static_cast<int64_t>(problem.*std::get<DType Problem::*>(field.member)));
  }
  return values;
}

template <class Problem>
void SetField(const TypedField<Problem>& field, const std::vector<int64_t>& values, Problem& problem) {
  if (const auto* scalar = std::get_if<int64_t Problem::*>(&field.member)) {
    problem.**scalar = values[0];
  } else if (const auto* list = std::get_if<std::vector<int64_t> Problem::*>(&field.member)) {
    problem.**list = values;
  } else {
    problem.*std::get<DType Problem::*>(field.member) = static_cast<DType>(values[0]);
  }
}

template <class Problem>
Field Untyped(const TypedField<Problem>& field) {
  Field untyped = {.name = field.name,
                   .doc = field.doc,
                   .min = field.min,
                   .max = field.max,
                   .list = std::holds_alternative<std::vector<int64_t> Problem::*>(field.member),
                   .choices = field.choices,
                   .default_value = GetField(field, Problem{})};
  if (std::holds_alternative<DType Problem::*>(field.member)) untyped.choices = kDTypeNames;
  if (!untyped.choices.empty()) {
    untyped.min = 0;
    untyped.max = static_cast<int64_t>(untyped.choices.size()) - 1;
  }
  return untyped;
}

// What a typed solver calls first: every field within its range.
template <class Problem>
absl::Status CheckProblem(std::span<const TypedField<Problem>> fields, const Problem& problem) {
  for (const TypedField<Problem>& field : fields) {
    bool good = true;  // without a copy of anything if all is well
    if (const auto* scalar = std::get_if<int64_t Problem::*>(&field.member); scalar && field.choices.empty()) {
      good = problem.**scalar >= field.min && problem.**scalar <= field.max;
    } else if (const auto* list = std::get_if<std::vector<int64_t> Problem::*>(&field.member)) {
      const std::vector<int64_t>& values = problem.**list;
      good = !values.empty() && static_cast<int64_t>(values.size()) <= kMaxListLength;
      for (const int64_t value : values) good = good && value >= field.min && value <= field.max;
    } else {
      good = false;  // let CheckField look
    }
    if (good) continue;
    if (absl::Status status = CheckField(Untyped(field), GetField(field, problem)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <class Problem>
Values ToValues(std::span<const TypedField<Problem>> fields, const Problem& problem) {
  Values values;
  for (const TypedField<Problem>& field : fields) values.push_back(GetField(field, problem));
  return values;
}

// Values must have one entry per field, and a scalar's must have one number: as those of ToValues and ParseArguments.
template <class Problem>
Problem FromValues(std::span<const TypedField<Problem>> fields, const Values& values) {
  Problem problem;
  for (size_t i = 0; i < fields.size(); ++i) SetField(fields[i], values[i], problem);
  return problem;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_FIELDS_H_
