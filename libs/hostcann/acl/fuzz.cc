#include "libs/hostcann/acl/fuzz.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace jumar::hostcann {
namespace {

constexpr uint64_t kShortestUs = 30;
constexpr int kDoublings = 7;             // so at most 30 us * 2^7, about 4 ms
constexpr int64_t kCreditUs = 100'000;    // what may be spent at once at the start
constexpr uint64_t kOneTaskIn = 16;       // is held up
constexpr uint64_t kOneTaskInYields = 4;

// True, and spends it, if the process may still be delayed by so much.
bool Spend(int64_t us) {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point start = Clock::now();
  static std::atomic<int64_t> spent{0};
  const int64_t elapsed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  if (spent.fetch_add(us, std::memory_order_relaxed) + us <= elapsed / 2 + kCreditUs) return true;
  spent.fetch_sub(us, std::memory_order_relaxed);
  return false;
}

}  // namespace

uint64_t FuzzRandom::Next() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void FuzzDelay(FuzzRandom& random, bool was_idle) {
  if (random.Below(was_idle ? 2 : kOneTaskIn) == 0) {
    const uint64_t us = (kShortestUs << random.Below(kDoublings)) + random.Below(kShortestUs);
    if (Spend(static_cast<int64_t>(us))) std::this_thread::sleep_for(std::chrono::microseconds(us));
  } else if (random.Below(kOneTaskInYields) == 0) {
    std::this_thread::yield();
  }
}

}  // namespace jumar::hostcann
