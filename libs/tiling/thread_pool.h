#ifndef LIBS_TILING_THREAD_POOL_H_
#define LIBS_TILING_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "libs/tiling/executor.h"

namespace jumar::tiling {

// Low-latency parallel loops for kernels of a few microseconds. The caller takes part; the other num_workers - 1 threads spin
// for some tens of microseconds after a loop, then sleep.
//
// Thread safety: any thread may call ParallelFor at any time. One loop at a time uses the workers; a second concurrent caller,
// and a nested call, run inline, so the cores are never oversubscribed and no call can deadlock.
// Threads start at the first loop that can use them, and anew in a child process after fork.
// Destroy the pool only when no ParallelFor is running.
class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int num_workers);  // clamped to [1, 1024]
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_workers() const override { return num_workers_; }
  void ParallelFor(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override;

 private:
  bool Acquire();                     // the right to use the workers, starting them if this process has none
  void StartThreads();                // forgets the threads of a parent process
  void Work(uint32_t seen_epoch);     // a worker's life
  void RunRanges();                   // takes ranges of the open loop until none is left

  const int num_workers_;
  // 2 * generation of the process whose threads exist, + 1 while a caller's loop uses them. A child process finds a stale
  // generation here, whatever its parent was doing at the fork, and starts its own threads.
  std::atomic<int64_t> owner_{-2};
  std::unique_ptr<std::vector<std::thread>> threads_;

  // The current loop. Written only while no worker is active and epoch_ is even ("closed").
  const std::function<void(int64_t, int64_t)>* fn_ = nullptr;
  int64_t n_ = 0;
  int64_t num_ranges_ = 0;

  alignas(64) std::atomic<uint32_t> epoch_{0};  // odd: a loop is open; each loop adds 2
  alignas(64) std::atomic<int64_t> next_range_{0};
  alignas(64) std::atomic<int32_t> active_{0};  // workers inside the open loop
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

}  // namespace jumar::tiling

#endif  // LIBS_TILING_THREAD_POOL_H_
