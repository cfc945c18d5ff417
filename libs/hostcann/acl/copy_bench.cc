// Bandwidth of copies through the C interface, with memcpy beside them as the measure. Host memory is pinned.
#include <cstdlib>
#include <cstring>

#include "benchmark/benchmark.h"
#include "libs/hostcann/acl/acl_api.h"

namespace jumar::hostcann {
namespace {

enum class Place { kHost, kDevice };

class Buffer {
 public:
  Buffer(Place place, size_t bytes) : place_(place) {
    const int code = place == Place::kHost ? aclrtMallocHost(&pointer_, bytes) : aclrtMalloc(&pointer_, bytes, 0);
    if (code != 0) std::abort();
    // Pages that exist, so that no fault is measured.
    if (place == Place::kHost) {
      std::memset(pointer_, 1, bytes);
    } else if (aclrtMemset(pointer_, bytes, 1, bytes) != 0) {
      std::abort();
    }
  }
  ~Buffer() { (void)(place_ == Place::kHost ? aclrtFreeHost(pointer_) : aclrtFree(pointer_)); }
  Buffer(const Buffer&) = delete;
  void* get() const { return pointer_; }

 private:
  const Place place_;
  void* pointer_ = nullptr;
};

void* Stream() {
  static void* const stream = [] {
    setenv("JUMAR_HBM_BYTES", "1GiB", 1);
    void* created = nullptr;
    if (aclrtSetDevice(0) != 0 || aclrtCreateStream(&created) != 0) std::abort();
    return created;
  }();
  return stream;
}

void Finish(benchmark::State& state) { state.SetBytesProcessed(state.iterations() * state.range(0)); }

void BM_Memcpy(benchmark::State& state) {
  (void)Stream();
  const auto bytes = static_cast<size_t>(state.range(0));
  const Buffer from(Place::kHost, bytes), to(Place::kHost, bytes);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  Finish(state);
}

// A copy and its synchronisation: the whole way.
void Copy(benchmark::State& state, Place source, Place target, int32_t kind) {
  void* const stream = Stream();
  const auto bytes = static_cast<size_t>(state.range(0));
  const Buffer from(source, bytes), to(target, bytes);
  for (auto _ : state) {
    if (aclrtMemcpyAsync(to.get(), bytes, from.get(), bytes, kind, stream) != 0 || aclrtSynchronizeStream(stream) != 0) std::abort();
  }
  Finish(state);
}
void BM_HostToDevice(benchmark::State& state) { Copy(state, Place::kHost, Place::kDevice, 1); }
void BM_DeviceToHost(benchmark::State& state) { Copy(state, Place::kDevice, Place::kHost, 2); }
void BM_DeviceToDevice(benchmark::State& state) { Copy(state, Place::kDevice, Place::kDevice, 3); }

BENCHMARK(BM_Memcpy)->RangeMultiplier(16)->Range(4 << 10, 256 << 20)->UseRealTime();
BENCHMARK(BM_HostToDevice)->RangeMultiplier(16)->Range(4 << 10, 256 << 20)->UseRealTime();
BENCHMARK(BM_DeviceToHost)->RangeMultiplier(16)->Range(4 << 10, 256 << 20)->UseRealTime();
BENCHMARK(BM_DeviceToDevice)->RangeMultiplier(16)->Range(4 << 10, 256 << 20)->UseRealTime();

}  // namespace
}  // namespace jumar::hostcann
