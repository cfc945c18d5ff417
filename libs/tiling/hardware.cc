#include "libs/tiling/hardware.h"

#include <cctype>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "libs/tiling/hardware_table.h"
#include "libs/tiling/spelling.h"

namespace jumar::tiling {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

absl::Status Unknown(std::string_view what, std::string_view name, const std::vector<std::string>& near, const std::vector<std::string>& all) {
  return absl::NotFoundError(absl::StrCat("unknown ", std::string(what), " \"", std::string(name), "\"; ", near.empty() ? "known are " : "did you mean ",
                                          absl::StrJoin(near.empty() ? all : near, ", "), near.empty() ? "" : "?"));
}

}  // namespace

std::span<const HardwareSpec> AllHardware() { return kHardware; }

absl::StatusOr<const HardwareSpec*> FindHardware(std::string_view name) {
  const std::string wanted = Lower(name);
  for (const HardwareSpec& spec : kHardware) {
    const std::string known = Lower(spec.name);
    if (wanted == known || (wanted.size() > known.size() && wanted.compare(0, known.size() + 1, known + "_") == 0)) return &spec;
  }
  std::vector<std::string> near, all;
  for (const HardwareSpec& spec : kHardware) {
    all.emplace_back(spec.name);
    // Two slips, or the name without its "Ascend".
    const std::string known = Lower(spec.name);
    if (EditDistance(wanted, known) <= 2 || "ascend" + wanted == known) near.emplace_back(spec.name);
  }
  return Unknown("hardware", name, near, all);
}

absl::StatusOr<const SpecFigure*> FindFigure(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SpecFigure& figure : kSpecFigures) {
    if (figure.name == name) return &figure;
    names.push_back(figure.name);
  }
  return Unknown("figure", name, NearNames(name, names), {names.begin(), names.end()});
}

absl::Status OverrideFigure(HardwareSpec& spec, std::string_view figure, int64_t value) {
  const auto found = FindFigure(figure);
  if (!found.ok()) return found.status();
  if (value <= 0) return absl::InvalidArgumentError(absl::StrCat(std::string(figure), "=", value, " is not positive"));
  SetFigure(spec, (*found)->value, value, Source::kGiven);
  return absl::OkStatus();
}

std::string_view ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kA2: return "A2";
    case Architecture::kA3: return "A3";
    case Architecture::kA5: return "A5";
    case Architecture::k310P: return "310P";
    case Architecture::kHost: return "host";
  }
  return "";
}

std::string FormatNames(uint32_t formats) {
  constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "int8", "int4", "fp8", "hif8", "mxfp8", "mxfp4"};
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (formats >> i & 1) names.emplace_back(kNames[i]);
  }
  return absl::StrJoin(names, " ");
}

}  // namespace jumar::tiling
