// What the runtime itself costs: submitting, synchronising, events, copies, and a node of a replay.
#include <atomic>
#include <cstdlib>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann {
namespace {

void* Stream() {
  static void* const stream = [] {
    setenv("JUMAR_HBM_BYTES", "256MiB", 1);
    void* created = nullptr;
    if (aclrtSetDevice(0) != 0 || aclrtCreateStream(&created) != 0) std::abort();
    return created;
  }();
  return stream;
}

// The caller's cost of a submit while the worker keeps up: a burst, and then a wait outside of the measured time.
void BM_Submit(benchmark::State& state) {
  void* stream = Stream();
  int64_t count = 0;
  for (auto _ : state) {
    for (int i = 0; i < 256; ++i) Submit(stream, "nothing", [&count] { ++count; });
    state.PauseTiming();
    aclrtSynchronizeStream(stream);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * 256);
}
BENCHMARK(BM_Submit);

// Submit and run, both sides together.
void BM_SubmitAndRun(benchmark::State& state) {
  void* stream = Stream();
  int64_t count = 0;
  for (auto _ : state) {
    for (int i = 0; i < 1024; ++i) Submit(stream, "nothing", [&count] { ++count; });
    aclrtSynchronizeStream(stream);
  }
  state.SetItemsProcessed(state.iterations() * 1024);
}
BENCHMARK(BM_SubmitAndRun)->UseRealTime();

// One task and its synchronisation: the shortest way to the worker and back.
void BM_RoundTrip(benchmark::State& state) {
  void* stream = Stream();
  for (auto _ : state) {
    Submit(stream, "nothing", [] {});
    aclrtSynchronizeStream(stream);
  }
}
BENCHMARK(BM_RoundTrip)->UseRealTime();

void BM_SynchronizeIdle(benchmark::State& state) {
  void* stream = Stream();
  for (auto _ : state) aclrtSynchronizeStream(stream);
}
BENCHMARK(BM_SynchronizeIdle);

void BM_RecordEvent(benchmark::State& state) {
  void *stream = Stream(), *event = nullptr;
  aclrtCreateEventExWithFlag(&event, 1);
  for (auto _ : state) {
    for (int i = 0; i < 256; ++i) aclrtRecordEvent(event, stream);
    state.PauseTiming();
    aclrtSynchronizeStream(stream);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * 256);
  aclrtDestroyEvent(event);
}
BENCHMARK(BM_RecordEvent);

void BM_CopyDeviceToDevice(benchmark::State& state) {
  void *stream = Stream(), *from = nullptr, *to = nullptr;
  const size_t bytes = static_cast<size_t>(state.range(0));
  aclrtMalloc(&from, bytes, 0);
  aclrtMalloc(&to, bytes, 0);
  for (auto _ : state) {
    aclrtMemcpyAsync(to, bytes, from, bytes, 3, stream);
    aclrtSynchronizeStream(stream);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
  aclrtFree(from);
  aclrtFree(to);
}
BENCHMARK(BM_CopyDeviceToDevice)->Arg(4096)->Arg(16 << 20)->UseRealTime();

// A replay of n empty nodes; the items are nodes, so the time per item is the dispatch of one.
void BM_Replay(benchmark::State& state) {
  void *stream = Stream(), *graph = nullptr;
  int64_t count = 0;
  aclmdlRICaptureBegin(stream, 0);
  for (int64_t i = 0; i < state.range(0); ++i) Submit(stream, "nothing", [&count] { ++count; });
  aclmdlRICaptureEnd(stream, &graph);
  for (auto _ : state) {
    aclmdlRIExecuteAsync(graph, stream);
    aclrtSynchronizeStream(stream);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  if (count != state.iterations() * state.range(0)) state.SkipWithError("a node did not run");
  aclmdlRIDestroy(graph);
}
BENCHMARK(BM_Replay)->Arg(1)->Arg(100)->Arg(10000)->UseRealTime();

}  // namespace
}  // namespace jumar::hostcann
