// Plans whatever the bytes say: a plan that succeeds is sound, and no other input order changes it; one that fails says why.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "libs/memory/onchip/plan.h"
#include "libs/memory/onchip/spec.h"
#include "libs/memory/onchip/svg.h"
#include "libs/memory/onchip/text.h"
#include "libs/memory/onchip/verify.h"

using namespace jumar::memory::onchip;  // NOLINT

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  int64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | Byte();
    return static_cast<int64_t>(word);
  }
  // Mostly from 1 to 64 KiB, sometimes anything.
  int64_t Size() {
    const uint8_t kind = Byte();
    return kind == 255 ? Word() : 1 + int64_t{Byte()} * kind;
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

// Mostly one that can be planned; `odd` picks what is out of the ordinary.
Buffer AnyBuffer(Bytes& bytes, const std::vector<Buffer>& earlier) {
  Buffer b;
  const uint8_t odd = bytes.Byte();
  b.name = Name(("b" + std::to_string(odd == 1 ? 0 : earlier.size())).c_str());
  b.space = static_cast<Space>(bytes.Byte() % (odd == 2 ? 256 : 3));
  b.bytes = bytes.Size();
  b.policy = static_cast<Policy>(bytes.Byte() % (odd == 3 ? 256 : kNumPolicies));
  b.lifetime.first = odd == 4 ? static_cast<int32_t>(bytes.Word()) : bytes.Byte() % 16;
  const int64_t last = int64_t{b.lifetime.first} + bytes.Byte() % 8;
  b.lifetime.last = odd == 5 ? static_cast<int32_t>(bytes.Word()) : static_cast<int32_t>(std::min<int64_t>(last, Lifetime::kEnd));
  const int pipes = bytes.Byte(), producer = pipes % kNumPipes, step = 1 + pipes / kNumPipes % (kNumPipes - 2);
  b.handover.producer = static_cast<Pipe>(producer);
  b.handover.consumer = producer == 0 ? Pipe::kNone : static_cast<Pipe>(1 + (producer - 1 + step) % (kNumPipes - 1));
  if (odd == 6) b.handover.consumer = static_cast<Pipe>(bytes.Byte());
  if (odd == 7) b.alignment = bytes.Word();
  if (odd == 8) b.pinned_offset = bytes.Word();
  if (odd == 9) b.alias_of = Name(("b" + std::to_string(bytes.Byte())).c_str());
  if (odd % 16 == 13) b.alignment = int64_t{512} << bytes.Byte() % 8;
  if (odd % 16 == 14) b.pinned_offset = bytes.Byte() * 4096;
  if (odd % 16 == 15 && !earlier.empty()) {
    const Buffer& target = earlier[bytes.Byte() % earlier.size()];
    b.alias_of = target.name;
    b.space = target.space;
    b.lifetime.first = target.lifetime.last == Lifetime::kEnd ? Lifetime::kEnd : target.lifetime.last + 1;
    b.lifetime.last = Lifetime::kEnd;
  }
  return b;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    (void)ParseBuffer(text);
    (void)ParseBuffer("a:UB:1:" + std::string(text));
    Capacities read;
    (void)ParseCapacities(text, read);
  }
  Bytes bytes(data, size);
  Capacities capacities = {.ub = 1 << 20, .l1 = 1 << 20, .l0a = 1 << 20, .events_per_pair = 127};
  const uint8_t tight = bytes.Byte();
  if (tight < 64) capacities.ub = bytes.Size();
  if (tight < 32) capacities.l1 = bytes.Size();
  if (tight % 4 == 0) capacities.events_per_pair = tight == 0 ? static_cast<int32_t>(bytes.Word()) : 8;
  const int count = bytes.Byte() % (tight == 1 ? 64 : 17);
  std::vector<Buffer> buffers;
  while (!bytes.empty() && static_cast<int>(buffers.size()) < count) buffers.push_back(AnyBuffer(bytes, buffers));

  const Map map = Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size()));
  Require(ErrorText(map.view()).empty() == map.ok());
  Require(Table(map.view()).size() > 10 && Svg(map.view()).size() > 100);
  if (!map.ok()) {
    if (map.error.kind == ErrorKind::kOverCapacity) Require(map.Used(map.error.space) > capacities.Of(map.error.space));
    return 0;
  }
  Require(Verify(map.view()).ok());
  std::reverse(buffers.begin(), buffers.end());
  const Map reversed = Plan(capacities, buffers.data(), static_cast<int64_t>(buffers.size()));
  for (int i = 0; i < map.count; ++i) {
    const Placement again = reversed.At(map.buffers[i].name);
    Require(again.offset == map.placements[i].offset && std::memcmp(again.forward, map.placements[i].forward, sizeof again.forward) == 0);
  }
  return 0;
}
