// Any bytes as calls of a caching pool by three streams: nobody gets bytes that another stream may still use, blocks don't overlap, and
// all of it can be given back in the end.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "libs/memory/device/caching_pool.h"
#include "libs/memory/device/caching_pool_fakes.h"

namespace {

using jumar::memory::FakeStream;

void Require(bool condition) {
  if (!condition) std::abort();
}

struct Use {
  uint64_t end;
  size_t stream;
  uint64_t position;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const auto next = [&]() -> uint64_t { return at < size ? data[at++] : 0; };
  jumar::memory::FakeSource source;
  source.limit = next() << 16;
  jumar::memory::CachingPool pool(
      {.segment_bytes = 1 << 16, .reuse_reached = next() % 2 == 0, .reuse_with_wait = next() % 2 == 0}, &source);
  std::vector<std::unique_ptr<FakeStream>> streams;
  for (uint64_t id = 1; id <= 3; ++id) streams.push_back(std::make_unique<FakeStream>(id));
  std::map<uint64_t, std::pair<uint64_t, size_t>> live;  // address -> end, stream
  std::vector<std::pair<uint64_t, Use>> uses;
  while (at < size) {
    const uint64_t what = next();
    const size_t s = what % 3;
    switch (what / 3 % 4) {
      case 0: {
        const uint64_t bytes = next() << (next() % 64);
        const auto base = pool.Allocate(bytes, *streams[s]);
        if (!base.ok()) break;
        const auto begin = reinterpret_cast<uint64_t>(*base), end = begin + bytes;
        const auto behind = live.lower_bound(begin);
        Require(behind == live.end() || behind->first >= end);
        Require(behind == live.begin() || std::prev(behind)->second.first <= begin);
        for (const auto& [first, use] : uses) {
          Require(first >= end || use.end <= begin || jumar::memory::Ordered(*streams[s], *streams[use.stream], use.position));
        }
        streams[s]->Submit();
        uses.push_back({begin, {end, s, streams[s]->operations.size()}});
        live[begin] = {end, s};
        break;
      }
      case 1: {
        if (live.empty()) break;
        const auto it = std::next(live.begin(), static_cast<long>(next() % live.size()));
        Require(pool.Free(reinterpret_cast<void*>(it->first), *streams[it->second.second]).ok());
        live.erase(it);
        break;
      }
      case 2:
        jumar::memory::Advance(streams, s);
        break;
      default:
        Require(pool.Trim(next() << 16).ok());
    }
    Require(pool.Stats().reserved_bytes == source.used && pool.Stats().num_allocations == live.size());
  }
  for (const auto& [base, block] : live) Require(pool.Free(reinterpret_cast<void*>(base), *streams[block.second]).ok());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < streams.size(); ++s) moved = jumar::memory::Advance(streams, s) || moved;
  }
  Require(pool.Trim(0).ok() && source.used == 0);
  return 0;
}
