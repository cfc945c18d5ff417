#ifndef LIBS_TILING_EXECUTOR_H_
#define LIBS_TILING_EXECUTOR_H_

// How a kernel gets its threads: it takes an Executor& and splits its work with ParallelFor. Kernels never start threads.
//
//   executor.ParallelFor(num_rows, /*grain=*/16, [&](int64_t begin, int64_t end) {
//     for (int64_t row = begin; row < end; ++row) Norm(row);
//   });
//
// How [0, n) is cut depends on the executor and on timing, so a kernel must not let a result depend on the cut.

#include <cstdint>
#include <functional>

namespace jumar::tiling {

class Executor {
 public:
  virtual ~Executor() = default;

  // Threads that may run ranges of one loop, the caller included; at least 1.
  virtual int num_workers() const = 0;

  // Calls fn(begin, end) over disjoint ranges that cover [0, n), each of at least `grain` items (one range if n < grain), and
  // returns when all are done. No call when n <= 0. Safe to call from several threads; a call from inside `fn` runs inline.
  // An exception that leaves `fn` is rethrown to the caller; ranges that had not started are then skipped.
  virtual void ParallelFor(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) = 0;
};

// The same over items that cost alike and are read from memory in their order, where each new range costs a pause: a worker's first range is
// most of its share, and what a worker that came late leaves of the rest is small.
void ParallelForStreams(Executor& executor, int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& fn);

// One worker, the caller: fn(0, n).
Executor& InlineExecutor();

}  // namespace jumar::tiling

#endif  // LIBS_TILING_EXECUTOR_H_
