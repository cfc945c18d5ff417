#ifndef LIBS_MEMORY_KV_TEST_UTIL_H_
#define LIBS_MEMORY_KV_TEST_UTIL_H_

// What the tests of this folder share: memory with random bytes, and errors as text.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "libs/memory/kv/layout.h"
#include "libs/memory/kv/views.h"

namespace jumar::memory::kv {

using Random = std::mt19937_64;

// In [low, high].
inline int64_t Between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

inline std::vector<std::byte> RandomBytes(Random& random, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

inline std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// A cache of a layout: its planes with a gap behind each page, all random at first.
struct TestCache {
  TestCache(const PageLayout& layout, int64_t num_blocks, int64_t gap, Random& random) : layout(layout), num_blocks(num_blocks) {
    for (int64_t i = 0; i < layout.num_planes; ++i) {
      stride[i] = layout.page_bytes[static_cast<size_t>(i)] + gap;
      bytes[i] = RandomBytes(random, stride[i] * num_blocks);
    }
  }
  std::vector<MutableBlocks> planes() {
    std::vector<MutableBlocks> views;
    for (int64_t i = 0; i < layout.num_planes; ++i)
      views.push_back({bytes[i], num_blocks, layout.page_bytes[static_cast<size_t>(i)], stride[i]});
    return views;
  }
  std::vector<ConstBlocks> const_planes() {
    const auto views = planes();
    return {views.begin(), views.end()};
  }
  // Byte c of the row of a part, by the formula in layout.h.
  std::byte& at(int64_t part, int64_t block, int64_t token, int64_t c) {
    const Part& p = layout.parts[static_cast<size_t>(part)];
    return bytes[p.plane][static_cast<size_t>(block * stride[p.plane] + p.offset + token * p.rows.token_stride +
                                              c / p.rows.chunk_bytes * p.rows.chunk_stride + c % p.rows.chunk_bytes)];
  }

  PageLayout layout;
  int64_t num_blocks;
  int64_t stride[kMaxPlanes] = {};
  std::vector<std::byte> bytes[kMaxPlanes];
};

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_TEST_UTIL_H_
