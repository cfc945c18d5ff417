// Faults on demand: what JUMAR_FAULTS says, and which event each rule picks. Pure data; hooks.h is where the runtime asks.
//
//   JUMAR_FAULTS='fail-alloc nth=3 times=2; slow-stream stream=all us=500; lose-device device=1 after=2000'
//   JUMAR_FAULTS=@faults.txt        # the same, one rule a line; # starts a comment
//
// A rule is an action and what it applies to. Of the events that match, it picks the nth (1) and, with times, as many in a row (1, a
// number, or all); or every k-th. docs/faults.md lists the actions.
#ifndef LIBS_HOSTCANN_ACL_FAULTS_H_
#define LIBS_HOSTCANN_ACL_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace jumar::hostcann {

struct FaultRule {
  enum class Action : int {
    kFailAlloc,
    kSlowStream,
    kLoseDevice,
    kFailOp,
    kDropCollective,
    kCorruptCollective,
    kDelayCollective,
    kExitCollective,
  };
  static constexpr int64_t kAny = -1;

  Action action = Action::kFailAlloc;
  std::string text;  // "JUMAR_FAULTS rule 1, 'fail-alloc nth=3'"
  std::string op;    // empty: any; "aclnnMat*" is a prefix
  int64_t nth = 1;
  int64_t times = 1;  // kAny: all from the nth on
  int64_t every = 0;  // 0: nth and times decide
  int64_t above = 0;
  int64_t device = kAny;
  int64_t stream = kAny;
  int64_t rank = kAny;
  int64_t after = 0;
  int64_t us = 0;
  int64_t ms = 0;
  int64_t code = 1;

  bool MatchesOp(std::string_view name) const;
  bool Picks(int64_t count) const;  // the count-th match, from 1
};

// Rules from the text of the variable, or of the file that it names after '@'. An error names the rule, the value and what is allowed.
absl::StatusOr<std::vector<FaultRule>> ParseFaults(const std::string& text);

// The rules with the counts of their matches. Thread-safe; which event a rule picks depends only on the order of the events.
class FaultPlan {
 public:
  explicit FaultPlan(std::vector<FaultRule> rules);

  // The rule that fails this allocation, or null.
  const FaultRule* OnAllocation(int device, int64_t bytes);
  // The rule that fails this run of a task, or null.
  const FaultRule* OnOperator(int device, std::string_view name);
  // How long a task of this stream is held up.
  int64_t DelayUs(int device, int stream) const;
  // Counts one more task of the device: the rule by which the device is lost at this point, or null.
  const FaultRule* OnDeviceTask(int device);
  // The rule for this collective of this rank, or null.
  const FaultRule* OnCollective(std::string_view op, int rank);

  static bool OnDevice(const FaultRule& rule, int device) { return rule.device == FaultRule::kAny || rule.device == device; }

 private:
  struct Counted {
    FaultRule rule;
    std::atomic<int64_t> count{0};
  };
  template <typename Match>
  const FaultRule* Pick(const Match& matches);

  std::vector<std::unique_ptr<Counted>> rules_;
};

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_FAULTS_H_
