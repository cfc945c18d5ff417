// Between aclTensors and libs/memory/kv: caches of rows, one per token, and the rows that go into them.
#pragma once

#include <string>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/memory/kv/rows.h"

namespace jumar::hostcann::aclnn {

namespace kv = memory::kv;

inline kv::ParallelFor KvParallel() {
  return [](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) { ComputeExecutor().ParallelFor(n, grain, body); };
}

// Rows of `row_bytes` at `data`, `stride` apart.
inline kv::DenseRows<std::byte> KvDenseRows(void* data, int64_t count, int64_t row_bytes, int64_t stride) {
  const int64_t bytes = count == 0 ? 0 : (count - 1) * stride + row_bytes;
  return {{static_cast<std::byte*>(data), static_cast<size_t>(bytes)}, count, row_bytes, stride};
}

// A cache at `data`, whose rows lie as `rows` says within blocks `block_stride` bytes apart.
inline kv::PartRows<std::byte> KvCache(const char* name, void* data, int64_t num_blocks, int64_t block_size, int64_t block_stride,
                                       const kv::RowGeometry& rows) {
  const auto block = kv::Extent(rows, block_size);
  Require(block.ok(), "the cache of `", name, "`: ", std::string(block.status().message()));
  const int64_t bytes = num_blocks == 0 ? 0 : (num_blocks - 1) * block_stride + *block;
  return {{static_cast<std::byte*>(data), static_cast<size_t>(bytes)}, num_blocks, block_size, block_stride, rows};
}

}  // namespace jumar::hostcann::aclnn
