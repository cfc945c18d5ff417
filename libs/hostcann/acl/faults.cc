#include "libs/hostcann/acl/faults.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace jumar::hostcann {
namespace {

using Action = FaultRule::Action;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// A key whose value is a whole number in a range; `all` says whether the word is allowed too.
struct Key {
  const char* name;
  int64_t FaultRule::* field;
  int64_t min;
  int64_t max;
  bool all;
};
constexpr Key kKeys[] = {
    {"nth", &FaultRule::nth, 1, kMax, false},      {"times", &FaultRule::times, 1, kMax, true},
    {"every", &FaultRule::every, 1, kMax, false},  {"above", &FaultRule::above, 0, kMax, false},
    {"device", &FaultRule::device, 0, 15, false},  {"stream", &FaultRule::stream, 0, kMax, true},
    {"rank", &FaultRule::rank, 0, 65535, false},   {"after", &FaultRule::after, 0, kMax, false},
    {"us", &FaultRule::us, 1, 10'000'000, false},  {"ms", &FaultRule::ms, 1, 3'600'000, false},
    {"code", &FaultRule::code, 0, 255, false},
};

struct ActionSpec {
  const char* name;
  Action action;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> required;
};

const std::vector<ActionSpec>& Actions() {
  static const auto* const actions = new std::vector<ActionSpec>{
      {"fail-alloc", Action::kFailAlloc, {"nth", "times", "every", "above", "device"}, {}},
      {"slow-stream", Action::kSlowStream, {"stream", "us", "device"}, {"stream", "us"}},
      {"lose-device", Action::kLoseDevice, {"device", "after"}, {"device"}},
      {"fail-op", Action::kFailOp, {"op", "nth", "times", "every", "device"}, {"op"}},
      {"drop-collective", Action::kDropCollective, {"op", "nth", "times", "every", "rank"}, {}},
      {"corrupt-collective", Action::kCorruptCollective, {"op", "nth", "times", "every", "rank"}, {}},
      {"delay-collective", Action::kDelayCollective, {"op", "nth", "times", "every", "rank", "ms"}, {"ms"}},
      {"exit-collective", Action::kExitCollective, {"op", "nth", "times", "every", "rank", "code"}, {}},
  };
  return *actions;
}

template <typename... Parts>
absl::Status Wrong(const FaultRule& rule, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(rule.text, ": ", parts...));
}

absl::Status SetKey(FaultRule& rule, const std::string& name, const std::string& value) {
  if (name == "op") {
    rule.op = value;
    const size_t star = value.find('*');
    if (!value.empty() && (star == std::string::npos || star + 1 == value.size())) return absl::OkStatus();
    return Wrong(rule, "op=", value, " is not an operator's name, which may end in *, as in op=aclnnMat*");
  }
  const Key& key = *std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name; });
  int64_t& field = rule.*key.field;
  if (key.all && value == "all") {
    field = FaultRule::kAny;
    return absl::OkStatus();
  }
  if (absl::SimpleAtoi(value, &field) && field >= key.min && field <= key.max) return absl::OkStatus();
  return Wrong(rule, name, "=", value, " is not a whole number from ", key.min,
               key.max == kMax ? std::string(" on") : absl::StrCat(" to ", key.max), key.all ? ", or all" : "");
}

absl::StatusOr<FaultRule> ParseRule(std::string_view text, int number) {
  FaultRule rule;
  rule.text = absl::StrCat("JUMAR_FAULTS rule ", number, ", '", text, "'");
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  const auto& actions = Actions();
  const auto spec = std::find_if(actions.begin(), actions.end(), [&](const ActionSpec& a) { return words[0] == a.name; });
  if (spec == actions.end()) {
    return Wrong(rule, words[0], " is not an action; there are ",
                 absl::StrJoin(actions, ", ", [](std::string* out, const ActionSpec& a) { out->append(a.name); }));
  }
  rule.action = spec->action;
  std::vector<std::string> seen;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<std::string, std::string> word = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const bool known = std::find(spec->keys.begin(), spec->keys.end(), word.first) != spec->keys.end();
    if (!known || words[i].find('=') == std::string::npos) {
      return Wrong(rule, words[i], " is not one of ", absl::StrJoin(spec->keys, "=, "), "= with a value");
    }
    if (std::find(seen.begin(), seen.end(), word.first) != seen.end()) return Wrong(rule, word.first, "= stands twice");
    seen.push_back(word.first);
    if (absl::Status s = SetKey(rule, word.first, word.second); !s.ok()) return s;
  }
  const auto has = [&](std::string_view name) { return std::find(seen.begin(), seen.end(), name) != seen.end(); };
  for (const std::string_view name : spec->required) {
    if (!has(name)) return Wrong(rule, spec->name, " needs ", name, "=");
  }
  if (has("every") && (has("nth") || has("times"))) return Wrong(rule, "every= excludes nth= and times=");
  return rule;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("JUMAR_FAULTS=@", path, ": the file cannot be read, or is empty"));
  }
  return text.str();
}

}  // namespace

bool FaultRule::MatchesOp(std::string_view name) const {
  if (op.empty()) return true;
  if (op.back() != '*') return name == op;
  return name.substr(0, op.size() - 1) == std::string_view(op).substr(0, op.size() - 1);
}

bool FaultRule::Picks(int64_t count) const {
  if (every > 0) return count % every == 0;
  return count >= nth && (times == kAny || count - nth < times);
}

absl::StatusOr<std::vector<FaultRule>> ParseFaults(const std::string& text) {
  std::string rules_text = text;
  if (!text.empty() && text[0] == '@') {
    absl::StatusOr<std::string> read = ReadFile(text.substr(1));
    if (!read.ok()) return read.status();
    rules_text = *std::move(read);
  }
  std::vector<FaultRule> rules;
  for (std::string_view line : absl::StrSplit(rules_text, '\n')) {
    line = line.substr(0, line.find('#'));
    for (const std::string_view part : absl::StrSplit(line, ';')) {
      const std::string_view stripped = absl::StripAsciiWhitespace(part);
      if (stripped.empty()) continue;
      absl::StatusOr<FaultRule> rule = ParseRule(stripped, static_cast<int>(rules.size()) + 1);
      if (!rule.ok()) return rule.status();
      rules.push_back(*std::move(rule));
    }
  }
  return rules;
}

FaultPlan::FaultPlan(std::vector<FaultRule> rules) {
  for (FaultRule& rule : rules) {
    rules_.push_back(std::make_unique<Counted>());
    rules_.back()->rule = std::move(rule);
  }
}

// Every rule that matches counts, also behind the one that picks: a rule's choice does not depend on the others.
template <typename Match>
const FaultRule* FaultPlan::Pick(const Match& matches) {
  const FaultRule* picked = nullptr;
  for (const auto& counted : rules_) {
    if (!matches(counted->rule)) continue;
    const int64_t count = counted->count.fetch_add(1, std::memory_order_relaxed) + 1;
    if (picked == nullptr && counted->rule.Picks(count)) picked = &counted->rule;
  }
  return picked;
}

const FaultRule* FaultPlan::OnAllocation(int device, int64_t bytes) {
  return Pick([&](const FaultRule& r) { return r.action == Action::kFailAlloc && OnDevice(r, device) && bytes > r.above; });
}

const FaultRule* FaultPlan::OnOperator(int device, std::string_view name) {
  return Pick([&](const FaultRule& r) { return r.action == Action::kFailOp && OnDevice(r, device) && r.MatchesOp(name); });
}

int64_t FaultPlan::DelayUs(int device, int stream) const {
  int64_t us = 0;
  for (const auto& counted : rules_) {
    const FaultRule& r = counted->rule;
    if (r.action != Action::kSlowStream || !OnDevice(r, device) || (r.stream != FaultRule::kAny && r.stream != stream)) continue;
    us += r.us;
  }
  return us;
}

const FaultRule* FaultPlan::OnDeviceTask(int device) {
  for (const auto& counted : rules_) {
    const FaultRule& r = counted->rule;
    if (r.action == Action::kLoseDevice && OnDevice(r, device) && counted->count.fetch_add(1, std::memory_order_relaxed) >= r.after) {
      return &r;
    }
  }
  return nullptr;
}

const FaultRule* FaultPlan::OnCollective(std::string_view op, int rank) {
  return Pick([&](const FaultRule& r) {
    return r.action >= Action::kDropCollective && (r.rank == FaultRule::kAny || r.rank == rank) && r.MatchesOp(op);
  });
}

}  // namespace jumar::hostcann
