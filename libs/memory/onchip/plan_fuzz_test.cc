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
  // Mostly reasonable, sometimes anything.
  int64_t Size() {
    const uint8_t kind = Byte();
    return kind < 8 ? Word() : int64_t{Byte()} * (kind % 64);
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

Buffer AnyBuffer(Bytes& bytes, int i) {
  Buffer b;
  const uint8_t odd = bytes.Byte();
  b.name = Name(("b" + std::to_string(odd == 1 ? 0 : i)).c_str());
  b.space = static_cast<Space>(bytes.Byte() % (odd == 2 ? 256 : 3));
  b.bytes = bytes.Size();
  b.policy = static_cast<Policy>(bytes.Byte() % (odd == 3 ? 256 : kNumPolicies));
  b.lifetime.first = odd == 4 ? static_cast<int32_t>(bytes.Word()) : bytes.Byte() % 16;
  b.lifetime.last = odd == 5 ? static_cast<int32_t>(bytes.Word()) : b.lifetime.first + bytes.Byte() % 8;
  b.handover.producer = static_cast<Pipe>(bytes.Byte() % (odd == 6 ? 256 : kNumPipes));
  b.handover.consumer =
      static_cast<Pipe>(odd == 7                             ? bytes.Byte()
                        : b.handover.producer == Pipe::kNone ? 0
                                                             : 1 + static_cast<int>(b.handover.producer) % (kNumPipes - 1));
  if (odd % 16 == 8) b.alignment = bytes.Size();
  if (odd % 16 == 9) b.alignment = int64_t{1} << bytes.Byte() % 64;
  if (odd % 16 == 10) b.pinned_offset = bytes.Size();
  if (odd % 16 == 11) b.pinned_offset = bytes.Byte() * 32;
  if (odd % 16 == 12) b.alias_of = Name(("b" + std::to_string(bytes.Byte() % 8)).c_str());
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
  Capacities capacities = {.ub = bytes.Size(), .l1 = bytes.Size(), .l0a = bytes.Size()};
  capacities.events_per_pair = static_cast<int32_t>(bytes.Byte() < 250 ? 8 : bytes.Word());
  std::vector<Buffer> buffers;
  for (int i = 0; !bytes.empty() && i < kMaxBuffers + 2; ++i) buffers.push_back(AnyBuffer(bytes, i));

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
