#include "libs/quant/scale/scale_rule.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace jumar::quant {

absl::StatusOr<Rule> FindRule(std::string_view name) {
  std::string names;
  for (const ScaleRule& rule : kScaleRules) {
    if (name == rule.name) return rule.rule;
    absl::StrAppend(&names, names.empty() ? "" : ", ", rule.name);
  }
  return absl::NotFoundError(absl::StrCat("scale rule \"", name, "\" is none of ", names));
}

}  // namespace jumar::quant
