#include "libs/memory/onchip/spec.h"

#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "libs/memory/onchip/message.h"

namespace jumar::memory::onchip {
namespace {

absl::Status Bad(const std::string& what, std::string_view text, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, " \"", std::string(text), "\": ", allowed));
}

bool SameLetters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) != std::tolower(static_cast<unsigned char>(b[i]))) return false;
  }
  return true;
}

// The enumerator from `first` on whose name that is.
template <typename Enum>
absl::StatusOr<Enum> Parse(const char* what, std::string_view text, int first, int end, const char* (*name)(Enum)) {
  std::string known;
  for (int i = first; i < end; ++i) {
    const char* candidate = name(static_cast<Enum>(i));
    if (SameLetters(text, candidate)) return static_cast<Enum>(i);
    absl::StrAppend(&known, known.empty() ? "" : ", ", candidate);
  }
  return Bad(what, text, "known are " + known);
}

absl::StatusOr<int32_t> ParseStep(std::string_view text) {
  int32_t step = 0;
  if (SameLetters(text, "end")) return Lifetime::kEnd;
  if (!absl::SimpleAtoi(std::string(text), &step) || step < 0) return Bad("step", text, "write a number from 0 on, or \"end\"");
  return step;
}

absl::StatusOr<Lifetime> ParseLifetime(std::string_view text) {
  const std::vector<std::string> ends = absl::StrSplit(std::string(text), '-');
  if (ends.size() > 2) return Bad("steps", text, "write 3, 0-3 or 0-end");
  const auto first = ParseStep(ends[0]), last = ParseStep(ends.back());
  if (!first.ok()) return first.status();
  if (!last.ok()) return last.status();
  return Lifetime{*first, *last};
}

absl::Status ParseKey(std::string_view key, std::string_view value, Buffer& buffer) {
  if (key == "alias") {
    buffer.alias_of = Name(std::string(value).c_str());
    return absl::OkStatus();
  }
  if (key != "align" && key != "at") return Bad("unknown setting", key, "known are align, at, alias");
  const auto bytes = ParseBytes(value);
  if (!bytes.ok()) return bytes.status();
  (key == "align" ? buffer.alignment : buffer.pinned_offset) = *bytes;
  return absl::OkStatus();
}

absl::Status ParseField(const std::string& field, Buffer& buffer) {
  if (const size_t equals = field.find('='); equals != std::string::npos) {
    return ParseKey(std::string_view(field).substr(0, equals), std::string_view(field).substr(equals + 1), buffer);
  }
  if (const size_t arrow = field.find('>'); arrow != std::string::npos) {
    const auto producer = ParsePipe(std::string_view(field).substr(0, arrow)),
               consumer = ParsePipe(std::string_view(field).substr(arrow + 1));
    if (!producer.ok()) return producer.status();
    if (!consumer.ok()) return consumer.status();
    buffer.handover = {*producer, *consumer};
    return absl::OkStatus();
  }
  if (const auto policy = ParsePolicy(field); policy.ok()) {
    buffer.policy = *policy;
    return absl::OkStatus();
  } else if (field.empty() || !std::isdigit(static_cast<unsigned char>(field[0]))) {
    return policy.status();
  }
  const auto lifetime = ParseLifetime(field);
  if (!lifetime.ok()) return lifetime.status();
  buffer.lifetime = *lifetime;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  const std::string_view unit = text.substr(digits);
  int64_t value = 0, factor = 0;
  if (unit.empty() || SameLetters(unit, "B")) factor = 1;
  if (SameLetters(unit, "KiB") || SameLetters(unit, "K")) factor = 1024;
  if (SameLetters(unit, "MiB") || SameLetters(unit, "M")) factor = 1024 * 1024;
  if (digits == 0 || factor == 0 || !absl::SimpleAtoi(std::string(text.substr(0, digits)), &value) || value > INT64_MAX / factor) {
    return Bad("size", text, "write bytes as 500, 500B, 32KiB or 2MiB, below 2^63");
  }
  return value * factor;
}

absl::StatusOr<Space> ParseSpace(std::string_view text) { return Parse<Space>("space", text, 0, kNumSpaces, &SpaceName); }
absl::StatusOr<Pipe> ParsePipe(std::string_view text) { return Parse<Pipe>("pipe", text, 1, kNumPipes, &PipeName); }
absl::StatusOr<Policy> ParsePolicy(std::string_view text) { return Parse<Policy>("policy", text, 0, kNumPolicies, &PolicyName); }

absl::StatusOr<Buffer> ParseBuffer(std::string_view text) {
  const std::vector<std::string> fields = absl::StrSplit(std::string(text), ':');
  if (fields.size() < 3) {
    return Bad("buffer", text, "write NAME:SPACE:BYTES, then policy, steps and pipes, as scores:UB:32KiB:double:0-3:MTE2>V");
  }
  Buffer buffer;
  buffer.name = Name(fields[0].c_str());
  const auto space = ParseSpace(fields[1]);
  if (!space.ok()) return space.status();
  buffer.space = *space;
  const auto bytes = ParseBytes(fields[2]);
  if (!bytes.ok()) return bytes.status();
  buffer.bytes = *bytes;
  for (size_t i = 3; i < fields.size(); ++i) {
    if (absl::Status status = ParseField(fields[i], buffer); !status.ok()) return status;
  }
  return buffer;
}

absl::Status ParseCapacities(std::string_view text, Capacities& capacities) {
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(text), ','))) {
    const std::vector<std::string> sides = absl::StrSplit(part, '=');
    if (sides.size() != 2) return Bad("capacity", part, "write SPACE=BYTES, as UB=192KiB");
    const auto space = ParseSpace(sides[0]);
    if (!space.ok()) return space.status();
    const auto bytes = ParseBytes(sides[1]);
    if (!bytes.ok()) return bytes.status();
    switch (*space) {
      case Space::kUb: capacities.ub = *bytes; break;
      case Space::kL1: capacities.l1 = *bytes; break;
      case Space::kL0a: capacities.l0a = *bytes; break;
      case Space::kL0b: capacities.l0b = *bytes; break;
      case Space::kL0c: capacities.l0c = *bytes; break;
      case Space::kFb: capacities.fb = *bytes; break;
      case Space::kBt: capacities.bt = *bytes; break;
    }
  }
  return absl::OkStatus();
}

}  // namespace jumar::memory::onchip
