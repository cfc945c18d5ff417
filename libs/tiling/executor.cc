#include "libs/tiling/executor.h"

#include <algorithm>

namespace jumar::tiling {
namespace {

class Inline final : public Executor {
 public:
  int num_workers() const override { return 1; }
  void ParallelFor(int64_t n, int64_t, const std::function<void(int64_t, int64_t)>& fn) override {
    if (n > 0) fn(0, n);
  }
};

}  // namespace

void ParallelForStreams(Executor& executor, int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) {
  if (n <= 0) return;
  constexpr int64_t kPartsOfShare = 4;  // the first range has all but one of them
  const int64_t workers = executor.num_workers(), most = n / std::max<int64_t>(grain, 1);
  const int64_t parts = std::min(kPartsOfShare, most / workers);
  if (workers == 1 || parts < 2) return executor.ParallelFor(n, grain, fn);
  // Ranges [0, workers) have parts - 1 units of n / units items, and as many behind them have one.
  const int64_t units = parts * workers;
  const auto begin_of = [&](int64_t range) {
    const int64_t unit = range <= workers ? range * (parts - 1) : workers * (parts - 2) + range;
    return unit * (n / units) + std::min(unit, n % units);
  };
  executor.ParallelFor(2 * workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t range = begin; range < end; ++range) fn(begin_of(range), begin_of(range + 1));
  });
}

Executor& InlineExecutor() {
  static Inline executor;
  return executor;
}

}  // namespace jumar::tiling
