#include "libs/hostcann/acl/trace_summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace jumar::hostcann {
namespace {

double Share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string Rate(double amount, int64_t ns, double limit) {
  if (amount <= 0 || ns <= 0) return absl::StrFormat("%9s %6s", "-", "");
  const double per_s = amount / (static_cast<double>(ns) * 1e-9);
  return absl::StrFormat("%9.2f %5.0f%%", per_s * 1e-9, Share(per_s, limit));
}

}  // namespace

void TaskTotals::Add(const TaskTotals& other) {
  count += other.count;
  ns += other.ns;
  longest_ns = std::max(longest_ns, other.longest_ns);
  bytes += other.bytes;
  flops += other.flops;
  waits = waits || other.waits;
}

std::string SummaryText(const TraceTotals& totals) {
  uint64_t count = 0;
  int64_t busy_ns = 0;
  for (const auto& [name, task] : totals.tasks) {
    count += task.count;
    if (!task.waits) busy_ns += task.ns;
  }
  std::string text = absl::StrFormat("hostcann, process %d: %.3f ms, %d tasks on %d streams\n", totals.process,
                                     static_cast<double>(totals.ns) * 1e-6, count, totals.streams.size());
  absl::StrAppendFormat(&text,
                        "Machine, measured at the start with %d threads: %.1f GB/s read and written, %.1f GFLOP/s in float32\n\n",
                        totals.limits.threads, totals.limits.bytes_per_s * 1e-9, totals.limits.flops_per_s * 1e-9);

  absl::StrAppendFormat(&text, "%-40s %9s %12s %10s %10s %6s %9s %6s %9s %6s\n", "task", "count", "total ms", "mean us", "longest us",
                        "share", "GB/s", "limit", "GFLOP/s", "limit");
  std::vector<std::pair<std::string, TaskTotals>> tasks(totals.tasks.begin(), totals.tasks.end());
  std::stable_sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) {
    return a.second.waits != b.second.waits ? b.second.waits : a.second.ns > b.second.ns;
  });
  for (const auto& [name, task] : tasks) {
    const auto ns = static_cast<double>(task.ns);
    absl::StrAppendFormat(&text, "%-40s %9d %12.3f %10.2f %10.2f %6s %s %s\n", name, task.count, ns * 1e-6,
                          ns * 1e-3 / static_cast<double>(std::max<uint64_t>(task.count, 1)),
                          static_cast<double>(task.longest_ns) * 1e-3,
                          task.waits ? "waits" : absl::StrFormat("%.1f%%", Share(ns, static_cast<double>(busy_ns))),
                          Rate(static_cast<double>(task.bytes), task.ns, totals.limits.bytes_per_s),
                          Rate(task.flops, task.ns, totals.limits.flops_per_s));
  }

  absl::StrAppend(&text, "\n");
  for (const auto& [key, stream] : totals.streams) {
    absl::StrAppendFormat(&text, "device %d stream %-5d busy %12.3f ms (%.1f%%), waits for others %12.3f ms\n", key.first, key.second,
                          static_cast<double>(stream.busy_ns) * 1e-6,
                          Share(static_cast<double>(stream.busy_ns), static_cast<double>(totals.ns)),
                          static_cast<double>(stream.waiting_ns) * 1e-6);
  }
  int64_t some = 0, several = 0;
  for (size_t k = 1; k < totals.ns_with_busy.size(); ++k) {
    some += totals.ns_with_busy[k];
    if (k > 1) several += totals.ns_with_busy[k];
  }
  absl::StrAppendFormat(&text, "Some stream was at work for %.3f ms; of that, several at once for %.3f ms (%.1f%%)\n",
                        static_cast<double>(some) * 1e-6, static_cast<double>(several) * 1e-6,
                        Share(static_cast<double>(several), static_cast<double>(some)));
  if (totals.replays > 0) {
    absl::StrAppendFormat(&text, "Graphs: %d replays of %d nodes together; %.3f us from node to node, tracing included\n", totals.replays,
                          totals.nodes,
                          static_cast<double>(totals.between_nodes_ns) * 1e-3 / static_cast<double>(std::max<uint64_t>(totals.nodes, 1)));
  }
  return text;
}

}  // namespace jumar::hostcann
