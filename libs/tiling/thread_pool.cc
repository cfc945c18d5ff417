#include "libs/tiling/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <system_error>
#include <utility>

namespace jumar::tiling {
namespace {

constexpr int64_t kRangesPerWorker = 4;  // enough that a worker that was late or interrupted costs a quarter of its share
constexpr auto kSpinTime = std::chrono::microseconds(50);  // longer than the pause between two kernels of a decode step
constexpr auto kBusySpinTime = std::chrono::microseconds(5);

std::atomic<int64_t> fork_generation{0};

int64_t ForkGeneration() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1); }); });
  return fork_generation.load(std::memory_order_relaxed);
}

thread_local bool inside_loop = false;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until value != old: a few microseconds of pure spinning, then spinning that gives way to other threads, then sleep.
template <typename T>
T WaitForChange(const std::atomic<T>& value, T old) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      const T now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      Pause();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kSpinTime) break;
    if (waited > kBusySpinTime) std::this_thread::yield();
  }
  for (;;) {
    value.wait(old, std::memory_order_acquire);
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_workers) : num_workers_(std::clamp(num_workers, 1, 1024)) { ForkGeneration(); }

ThreadPool::~ThreadPool() {
  if (!threads_) return;
  if (owner_.load() / 2 != ForkGeneration()) {  // the threads belong to a parent process: nothing to join here
    static_cast<void>(threads_.release());
    return;
  }
  stop_.store(true);
  epoch_.fetch_add(2);
  epoch_.notify_all();
  for (std::thread& thread : *threads_) thread.join();
}

bool ThreadPool::Acquire() {
  const int64_t generation = ForkGeneration();
  int64_t owner = owner_.load(std::memory_order_relaxed);
  if (owner == 2 * generation + 1) return false;  // another caller's loop is running
  if (!owner_.compare_exchange_strong(owner, 2 * generation + 1, std::memory_order_acquire)) return false;
  if (owner != 2 * generation) StartThreads();
  return true;
}

void ThreadPool::StartThreads() {
  static_cast<void>(threads_.release());  // in a child process: std::thread objects of threads that do not exist here
  threads_ = std::make_unique<std::vector<std::thread>>();
  epoch_.store(0);
  active_.store(0);
  failure_ = nullptr;
  threads_->reserve(num_workers_ - 1);
  try {
    for (int i = 1; i < num_workers_; ++i) threads_->emplace_back([this] { Work(0); });
  } catch (const std::system_error&) {
    // The process may not start more threads. Loops then run on those that there are.
  }
}

void ThreadPool::ParallelFor(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) {
  if (n <= 0) return;
  const int64_t num_ranges = std::min(n / std::max<int64_t>(grain, 1), num_workers_ * kRangesPerWorker);
  if (num_ranges <= 1 || num_workers_ == 1 || inside_loop || !Acquire()) return fn(0, n);

  fn_ = &fn;
  n_ = n;
  num_ranges_ = num_ranges;
  failed_.store(false, std::memory_order_relaxed);
  next_range_.store(0, std::memory_order_relaxed);
  epoch_.fetch_add(1);  // open; publishes the fields above
  epoch_.notify_all();

  inside_loop = true;
  RunRanges();
  inside_loop = false;

  epoch_.fetch_add(1);  // closed: a worker that comes now sees it and leaves, see Work
  while (const int32_t active = active_.load()) WaitForChange(active_, active);
  std::exception_ptr failure = std::exchange(failure_, nullptr);
  owner_.store(owner_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::RunRanges() {
  const int64_t quotient = n_ / num_ranges_, remainder = n_ % num_ranges_;
  for (;;) {
    const int64_t range = next_range_.fetch_add(1, std::memory_order_relaxed);
    if (range >= num_ranges_) return;
    if (failed_.load(std::memory_order_relaxed)) continue;
    const int64_t begin = range * quotient + std::min(range, remainder);
    try {
      (*fn_)(begin, begin + quotient + (range < remainder ? 1 : 0));
    } catch (...) {
      if (!failed_.exchange(true)) failure_ = std::current_exception();
    }
  }
}

void ThreadPool::Work(uint32_t seen) {
  inside_loop = true;
  for (;;) {
    const uint32_t epoch = WaitForChange(epoch_, seen);
    if (stop_.load()) return;
    if (epoch % 2 == 1) {
      // Either this thread's load below comes after the caller closed the loop and sees that, or the caller's check of active_
      // comes after this increment and waits (both are sequentially consistent).
      active_.fetch_add(1);
      if (epoch_.load() == epoch) RunRanges();
      if (active_.fetch_sub(1) == 1) active_.notify_all();
    }
    seen = epoch;
  }
}

}  // namespace jumar::tiling
