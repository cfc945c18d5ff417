// For tests of CachingPool: a source of addresses without memory, and streams that run as far as the test lets them.
#ifndef LIBS_MEMORY_DEVICE_CACHING_POOL_FAKES_H_
#define LIBS_MEMORY_DEVICE_CACHING_POOL_FAKES_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/device/caching_pool.h"

namespace jumar::memory {

// Addresses without memory.
class FakeSource final : public SegmentSource {
 public:
  absl::StatusOr<void*> AllocateSegment(uint64_t bytes) override {
    if (used + bytes > limit) return absl::ResourceExhaustedError("the device is full");
    used += bytes;
    const uint64_t base = next_;
    next_ += bytes + (uint64_t{2} << 20);
    sizes_[base] = bytes;
    return reinterpret_cast<void*>(base);
  }
  absl::Status FreeSegment(void* base) override {
    if (refuses) return absl::InternalError("refused");
    const auto it = sizes_.find(reinterpret_cast<uint64_t>(base));
    if (it == sizes_.end()) return absl::NotFoundError("not a segment");
    used -= it->second;
    sizes_.erase(it);
    return absl::OkStatus();
  }
  uint64_t limit = UINT64_MAX / 2, used = 0;
  bool refuses = false;

 private:
  uint64_t next_ = uint64_t{1} << 40;
  std::map<uint64_t, uint64_t> sizes_;
};

// How many operations of each other stream are over before something runs.
using Behind = std::map<uint64_t, uint64_t>;

inline void Merge(Behind& into, const Behind& from) {
  for (const auto& [stream, position] : from) into[stream] = std::max(into[stream], position);
}

// A stream is the operations that it was given, each with what it runs behind, and how many it has done. A wait is one of them.
struct FakeStream final : OrderedStream {
  explicit FakeStream(uint64_t id) : number(id) {}
  uint64_t id() const override { return number; }
  absl::StatusOr<std::shared_ptr<const StreamMarker>> Record() override;
  absl::Status WaitFor(const StreamMarker& marker) override;
  void Submit() {
    behind[number] = operations.size();
    operations.push_back(behind);
  }

  const uint64_t number;
  std::vector<Behind> operations;
  uint64_t done = 0;
  Behind behind;  // of what is submitted next
  bool fails = false;
};
struct FakeMarker final : StreamMarker {
  explicit FakeMarker(const FakeStream& stream) : stream(stream), position(stream.operations.size()), behind(stream.behind) {
    behind[stream.number] = position;
  }
  bool Reached() const override { return stream.done >= position; }
  const FakeStream& stream;
  const uint64_t position;
  Behind behind;
};
inline absl::StatusOr<std::shared_ptr<const StreamMarker>> FakeStream::Record() {
  if (fails) return absl::InternalError("the stream failed");
  return std::make_shared<FakeMarker>(*this);
}
inline absl::Status FakeStream::WaitFor(const StreamMarker& marker) {
  if (fails) return absl::InternalError("the stream failed");
  Merge(behind, static_cast<const FakeMarker&>(marker).behind);
  Submit();
  return absl::OkStatus();
}

// Lets stream `s` do its next operation, unless that waits for another stream. Stream i has the id i + 1.
inline bool Advance(std::vector<std::unique_ptr<FakeStream>>& streams, size_t s) {
  FakeStream& stream = *streams[s];
  if (stream.done == stream.operations.size()) return false;
  for (const auto& [other, position] : stream.operations[stream.done]) {
    if (streams[other - 1]->done < position) return false;
  }
  ++stream.done;
  return true;
}

// May what `stream` does from now on use bytes that stream `user` used last in its operation number `position`?
inline bool Ordered(const FakeStream& stream, const FakeStream& user, uint64_t position) {
  const auto known = stream.behind.find(user.number);
  return user.number == stream.number || user.done >= position || (known != stream.behind.end() && known->second >= position);
}

}  // namespace jumar::memory

#endif  // LIBS_MEMORY_DEVICE_CACHING_POOL_FAKES_H_
