// An all-reduce between two ranks of this machine, as tensor parallelism calls it: submitted and waited for, or captured in a graph.
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "benchmark/benchmark.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/hccl/hccl_api.h"

namespace {

constexpr int32_t kBf16 = 11;

struct Side {
  void* comm = nullptr;
  void* stream = nullptr;
  void* buffer = nullptr;
};

// Two communicators of one process, which talk over TCP as two processes do.
Side* Sides() {
  static Side* const sides = [] {
    setenv("JUMAR_HBM_BYTES", "512MiB", 1);
    auto* made = new Side[2];
    void* comms[2];
    bool ok = aclrtSetDevice(0) == 0 && HcclCommInitAll(2, nullptr, comms) == 0;
    for (int i = 0; i < 2 && ok; ++i) {
      made[i].comm = comms[i];
      ok = aclrtCreateStream(&made[i].stream) == 0 && aclrtMalloc(&made[i].buffer, 64 << 20, 0) == 0;
    }
    if (!ok) std::abort();
    return made;
  }();
  return sides;
}

void Submit(int64_t bytes, int times) {
  for (int time = 0; time < times; ++time) {
    for (int i = 0; i < 2; ++i) {
      const Side& side = Sides()[i];
      if (HcclAllReduce(side.buffer, side.buffer, static_cast<uint64_t>(bytes) / 2, kBf16, 0, side.comm, side.stream) != 0) std::abort();
    }
  }
}

void Synchronize() {
  for (int i = 0; i < 2; ++i) {
    if (aclrtSynchronizeStream(Sides()[i].stream) != 0) std::abort();
  }
}

// One at a time, with the way to the streams and back.
void BM_AllReduce(benchmark::State& state) {
  for (auto _ : state) {
    Submit(state.range(0), 1);
    Synchronize();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_AllReduce)->Arg(16 << 10)->RangeMultiplier(16)->Range(256, 64 << 20)->UseRealTime();

// One after the other on the streams, as the layers of a model call it.
void BM_AllReduceQueued(benchmark::State& state) {
  constexpr int kTimes = 16;
  for (auto _ : state) {
    Submit(state.range(0), kTimes);
    Synchronize();
  }
  state.SetBytesProcessed(state.iterations() * kTimes * state.range(0));
  state.SetItemsProcessed(state.iterations() * kTimes);
}
BENCHMARK(BM_AllReduceQueued)->Arg(16 << 10)->RangeMultiplier(16)->Range(256, 1 << 20)->UseRealTime();

}  // namespace
