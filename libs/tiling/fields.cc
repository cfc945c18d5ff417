#include "libs/tiling/fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace jumar::tiling {

absl::Status CheckField(const Field& field, std::span<const int64_t> values) {
  const std::string name(field.name);
  if (field.list ? values.empty() : values.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", field.list ? "a list of at least one number" : "one number", ", not ", values.size()));
  }
  if (values.size() > static_cast<size_t>(kMaxListLength)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", values.size(), " numbers; at most ", kMaxListLength, " are allowed"));
  }
  for (const int64_t value : values) {
    if (value >= field.min && value <= field.max) continue;
    if (!field.choices.empty())
      return absl::InvalidArgumentError(absl::StrCat(name, " = ", value, " is none of ", absl::StrJoin(field.choices, ", ")));
    return absl::InvalidArgumentError(absl::StrCat(name, " = ", value, " is not within ", field.min, " to ", field.max));
  }
  return absl::OkStatus();
}

}  // namespace jumar::tiling
