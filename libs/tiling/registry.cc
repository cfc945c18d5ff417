#include "libs/tiling/registry.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "libs/tiling/spelling.h"

namespace jumar::tiling {

#define JUMAR_TILING_SOLVER(function) Solver function();
#include "libs/tiling/solvers.inc"
#undef JUMAR_TILING_SOLVER

namespace {

// "did you mean ..." or all of them.
std::string Known(std::string_view wanted, const std::vector<std::string_view>& names) {
  const std::vector<std::string> near = NearNames(wanted, names);
  if (!near.empty()) return absl::StrCat("did you mean ", absl::StrJoin(near, ", "), "?");
  return absl::StrCat("known are ", absl::StrJoin(names, ", "));
}

std::string Allowed(const Field& field) {
  if (!field.choices.empty()) return absl::StrCat("one of ", absl::StrJoin(field.choices, ", "));
  return absl::StrCat(field.list ? "a list such as 4096,8192x3 of numbers within " : "a number within ", field.min, " to ", field.max);
}

absl::Status Malformed(const Field& field, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(field.name), " = \"", text, "\" is not ", Allowed(field)));
}

absl::StatusOr<std::vector<int64_t>> ParseValue(const Field& field, const std::string& text) {
  if (!field.choices.empty()) {
    const auto choice = std::find(field.choices.begin(), field.choices.end(), text);
    if (choice == field.choices.end()) return Malformed(field, text);
    return std::vector<int64_t>{choice - field.choices.begin()};
  }
  std::vector<int64_t> values;
  for (const std::string_view part : absl::StrSplit(text, ',')) {
    const size_t times = part.find('x');
    int64_t value = 0, count = 1;
    if (!absl::SimpleAtoi(part.substr(0, times), &value)) return Malformed(field, text);
    if (times != std::string_view::npos && (!absl::SimpleAtoi(part.substr(times + 1), &count) || count < 1)) return Malformed(field, text);
    if (count > kMaxListLength - static_cast<int64_t>(values.size())) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(field.name), " has more than ", kMaxListLength, " numbers"));
    }
    values.insert(values.end(), static_cast<size_t>(count), value);
  }
  if (absl::Status status = CheckField(field, values); !status.ok()) return status;
  return values;
}

}  // namespace

std::span<const Solver> Solvers() {
  static const std::vector<Solver>& solvers = *new std::vector<Solver>{
#define JUMAR_TILING_SOLVER(function) function(),
#include "libs/tiling/solvers.inc"
#undef JUMAR_TILING_SOLVER
  };
  return solvers;
}

absl::StatusOr<const Solver*> FindSolver(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Solver& solver : Solvers()) {
    if (solver.name == name) return &solver;
    names.push_back(solver.name);
  }
  return absl::NotFoundError(absl::StrCat("there is no solver \"", std::string(name), "\"; ", Known(name, names)));
}

absl::StatusOr<Values> ParseArguments(const Solver& solver, std::span<const Argument> arguments) {
  Values values;
  std::vector<std::string_view> names;
  for (const Field& field : solver.fields) {
    values.push_back(field.default_value);
    names.push_back(field.name);
  }
  for (const Argument& argument : arguments) {
    const auto at = std::find(names.begin(), names.end(), argument.name);
    if (at == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", argument.name, "\" is no field of ", std::string(solver.name), "; ", Known(argument.name, names)));
    }
    const size_t index = static_cast<size_t>(at - names.begin());
    absl::StatusOr<std::vector<int64_t>> parsed = ParseValue(solver.fields[index], argument.value);
    if (!parsed.ok()) return parsed.status();
    values[index] = *std::move(parsed);
  }
  return values;
}

std::string FormatValue(const Field& field, std::span<const int64_t> values) {
  if (!field.choices.empty() && values.size() == 1 && values[0] >= 0 && values[0] < static_cast<int64_t>(field.choices.size())) {
    return std::string(field.choices[static_cast<size_t>(values[0])]);
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < values.size();) {
    size_t end = i;
    while (end < values.size() && values[end] == values[i]) ++end;
    parts.push_back(end - i > 1 ? absl::StrCat(values[i], "x", end - i) : absl::StrCat(values[i]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

}  // namespace jumar::tiling
