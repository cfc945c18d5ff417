// Any values as the problem of any attention solver: no overflow, no endless loop; a solution keeps its bound and fits the chip.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "libs/tiling/registry.h"
#include "libs/tiling/synthetic_spec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace jumar::tiling;
  constexpr const char* kNames[] = {"paged_prefill", "paged_decode", "mla_decode", "lightning_indexer", "selected_attention", "shared_kv_attention"};
  const auto byte = [&]() -> uint8_t {
    if (size == 0) return 0;
    --size;
    return *data++;
  };
  const Solver& solver = **FindSolver(kNames[byte() % std::size(kNames)]);
  const HardwareSpec spec = byte() % 4 == 0 ? SyntheticUnifiedSpec() : SyntheticSpec();
  Values values;
  for (const Field& field : solver.fields) {
    std::vector<int64_t>& numbers = values.emplace_back();
    for (int count = field.list ? 1 + byte() % 6 : 1; count > 0; --count) {
      const uint8_t kind = byte();
      uint64_t value = 0;
      const size_t bytes = std::min<size_t>(size, kind % 9);
      if (bytes > 0) std::memcpy(&value, data, bytes);
      data += bytes;
      size -= bytes;
      if (kind >= 0xf0) {
        numbers.push_back(static_cast<int64_t>(value));  // mostly out of range
      } else if (kind >= 0x80) {
        numbers.push_back(field.min + static_cast<int64_t>(value % static_cast<uint64_t>(field.max - field.min + 1)));
      } else {
        numbers.push_back(field.min + static_cast<int64_t>(value % static_cast<uint64_t>(std::min<int64_t>(field.max - field.min + 1, 2000))));
      }
      if (field.name == "batch" && numbers.back() > 300) numbers.back() = 0;  // time, not correctness
    }
  }
  const auto solution = solver.solve(values, spec);
  if (!solution.ok()) return 0;
  if (!(solution->prediction.seconds >= solution->bound.Seconds() * (1 - 1e-9))) std::abort();
  if (!CheckBuffers(solution->buffers, spec).ok()) std::abort();
  int64_t blocks = 0;
  for (const Share& share : solution->shares) {
    if (share.range[0][0] != blocks) std::abort();
    blocks = share.range[0][1];
  }
  if (blocks != solution->axes[0].extent) std::abort();
  return 0;
}
