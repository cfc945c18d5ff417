// Any bytes as calls of a sleep pool over a driver that fails where the bytes say so: what is awake holds its value, and in the end
// everything wakes and can be freed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "libs/memory/device/sleep_pool.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// A driver whose memory is one word a chunk.
class TinyMemory final : public jumar::memory::VirtualMemory {
 public:
  int fail_in = -1;  // calls until one fails; negative: never
  uint64_t& WordAt(void* base) { return chunks.at(mapped.at(base)); }

  uint64_t granularity() const override { return 64; }
  absl::StatusOr<void*> Reserve(uint64_t bytes) override {
    if (Fails()) return Failure();
    reserved[reinterpret_cast<void*>(next_ += 4096)] = bytes;
    return reinterpret_cast<void*>(next_);
  }
  absl::Status Release(void* base, uint64_t bytes) override {
    Require(reserved.at(base) == bytes && mapped.count(base) == 0);
    if (Fails()) return Failure();
    reserved.erase(base);
    return absl::OkStatus();
  }
  absl::StatusOr<Handle> CreatePhysical(uint64_t, const std::string&) override {
    if (Fails()) return Failure();
    chunks[++next_handle_] = 0;
    return next_handle_;
  }
  absl::Status DestroyPhysical(Handle handle) override {
    for (const auto& [base, other] : mapped) Require(other != handle);
    Require(chunks.count(handle) == 1);
    if (Fails()) return Failure();
    chunks.erase(handle);
    return absl::OkStatus();
  }
  absl::Status Map(void* base, uint64_t, Handle handle) override {
    Require(reserved.count(base) == 1 && chunks.count(handle) == 1 && mapped.count(base) == 0);
    if (Fails()) return Failure();
    mapped[base] = handle;
    return absl::OkStatus();
  }
  absl::Status Unmap(void* base, uint64_t) override {
    Require(mapped.count(base) == 1);
    if (Fails()) return Failure();
    mapped.erase(base);
    return absl::OkStatus();
  }
  absl::StatusOr<void*> AllocateHost(uint64_t) override {
    if (Fails()) return Failure();
    ++num_host;
    return new uint64_t(0);
  }
  void FreeHost(void* host) override {
    --num_host;
    delete static_cast<uint64_t*>(host);
  }
  absl::Status CopyToHost(void* host, const void* device, uint64_t) override {
    if (Fails()) return Failure();
    *static_cast<uint64_t*>(host) = WordAt(const_cast<void*>(device));
    return absl::OkStatus();
  }
  absl::Status CopyToDevice(void* device, const void* host, uint64_t) override {
    if (Fails()) return Failure();
    WordAt(device) = *static_cast<const uint64_t*>(host);
    return absl::OkStatus();
  }
  absl::Status Synchronize() override { return Fails() ? Failure() : absl::OkStatus(); }

  std::map<void*, uint64_t> reserved;
  std::map<void*, Handle> mapped;
  std::map<Handle, uint64_t> chunks;
  int num_host = 0;

 private:
  bool Fails() { return fail_in >= 0 && fail_in-- == 0; }
  static absl::Status Failure() { return absl::ResourceExhaustedError("injected"); }
  uint64_t next_ = 1 << 20;
  Handle next_handle_ = 0;
};

struct Model {
  std::string tag;
  std::optional<uint64_t> value;  // none: dropped
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> tags = {"weights", "kv_cache", "other"};
  TinyMemory memory;
  {
    jumar::memory::SleepPool pool(&memory);
    std::map<void*, Model> live;
    uint64_t value = 0;
    for (size_t at = 0; at + 2 < size; at += 3) {
      const std::string& tag = tags[data[at + 1] % tags.size()];
      memory.fail_in = data[at + 2] % 2 == 0 ? -1 : data[at + 2] / 2 % 16;
      const auto drop_awake = [&](bool same) {
        for (auto& [base, model] : live) {
          if (pool.IsAwake(base) && (model.tag == tag) == same) model.value.reset();
        }
      };
      switch (data[at] % 5) {
        case 0:
          if (const auto base = pool.Allocate(1 + data[at + 2], tag); base.ok()) {
            memory.WordAt(*base) = ++value;
            live[*base] = {tag, value};
          }
          break;
        case 1:
          if (!live.empty()) {
            const auto it = std::next(live.begin(), data[at + 1] % live.size());
            if (!pool.Free(it->first).ok()) {
              memory.fail_in = -1;
              Require(pool.Free(it->first).ok());
            }
            live.erase(it);
          }
          break;
        case 2:
          drop_awake(/*same=*/false);
          pool.Sleep({tag}).IgnoreError();
          break;
        case 3:
          drop_awake(/*same=*/true);
          pool.Discard({tag}).IgnoreError();
          break;
        default:
          pool.Wake({tag}).IgnoreError();
      }
      for (const auto& [base, model] : live) {
        if (pool.IsAwake(base) && model.value.has_value()) Require(memory.WordAt(base) == *model.value);
      }
    }
    memory.fail_in = -1;
    pool.Wake({}).IgnoreError();  // an error if nothing sleeps
    for (const auto& [base, model] : live) {
      Require(pool.IsAwake(base) && (!model.value.has_value() || memory.WordAt(base) == *model.value));
    }
    Require(memory.num_host == 0);
  }
  Require(memory.reserved.empty() && memory.mapped.empty() && memory.chunks.empty() && memory.num_host == 0);
  return 0;
}
