// The page of text beside a trace: where the time went, and what was reached of what the machine can do.
#ifndef LIBS_HOSTCANN_ACL_TRACE_SUMMARY_H_
#define LIBS_HOSTCANN_ACL_TRACE_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace jumar::hostcann {

struct MachineLimits {
  int threads = 1;
  double bytes_per_s = 0;  // read and written by copying between arrays that no cache holds
  double flops_per_s = 0;  // multiply-adds in float32, counted as two
};

struct TaskTotals {
  uint64_t count = 0;
  int64_t ns = 0;  // without the tasks inside
  int64_t longest_ns = 0;
  uint64_t bytes = 0;
  double flops = 0;
  bool waits = false;

  void Add(const TaskTotals& other);
};

struct StreamTotals {
  int64_t busy_ns = 0;
  int64_t waiting_ns = 0;
};

struct TraceTotals {
  int process = 0;
  int64_t ns = 0;  // from the first task to the last
  MachineLimits limits;
  std::map<std::string, TaskTotals> tasks;
  std::map<std::pair<int, int>, StreamTotals> streams;  // by device and number
  std::vector<int64_t> ns_with_busy;                    // [k]: time with k streams at work
  uint64_t replays = 0;
  uint64_t nodes = 0;
  int64_t between_nodes_ns = 0;  // of replays, outside of their nodes
};

std::string SummaryText(const TraceTotals& totals);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_ACL_TRACE_SUMMARY_H_
