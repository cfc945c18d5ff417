#include "libs/memory/kv/rows.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/memory/kv/runs.h"
#include "libs/memory/kv/token_copy.h"

namespace jumar::memory::kv {
namespace {

using internal::TokenCopy;

RowGeometry GeometryOf(int64_t row_bytes, int64_t stride) { return {row_bytes, row_bytes, row_bytes, stride}; }

// The first error by index, whatever the cut of the loop.
class FirstError {
 public:
  void Add(int64_t index, absl::Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (status_.ok() || index < index_) index_ = index, status_ = std::move(status);
  }
  absl::Status Get() { return std::move(status_); }

 private:
  std::mutex mutex_;
  int64_t index_ = 0;
  absl::Status status_;
};

absl::Status CheckSides(const PartRows<const std::byte>& cache, const DenseRows<const std::byte>& rows, size_t slots) {
  if (auto status = Check("cache", cache); !status.ok()) return status;
  if (auto status = Check("rows", rows); !status.ok()) return status;
  if (Overlap(cache.bytes, rows.bytes)) return absl::InvalidArgumentError("the rows overlap the cache; give a copy of them");
  if (static_cast<int64_t>(slots) > rows.count) return absl::InvalidArgumentError(absl::StrCat(slots, " slots for ", rows.count, " rows"));
  return absl::OkStatus();
}

// Runs of slots, cut at blocks, each as (row, block, token, length).
template <class Slot, class Fn>
absl::Status ForEachSlotRun(std::span<const Slot> slots, int64_t num_slots, int64_t block_size, const RowGeometry& cache,
                            const ParallelFor& parallel, const Fn& fn) {
  FirstError error;
  Share(parallel, static_cast<int64_t>(slots.size()), cache.row_bytes, [&](int64_t begin, int64_t end) {
    error.Add(begin, ForEachRun(slots, begin, end, {.num_slots = num_slots, .block_size = block_size}, [&](const CopyRun& run) {
                fn(run.src, run.dst / block_size, run.dst % block_size, run.length);
              }));
  });
  return error.Get();
}

template <class Slot>
absl::Status Store(const DenseRows<const std::byte>& rows, std::span<const Slot> slots, const PartRows<std::byte>& cache,
                   const ParallelFor& parallel) {
  if (auto status = CheckSides(cache, rows, slots.size()); !status.ok()) return status;
  const auto copy = TokenCopy::Create(GeometryOf(rows.row_bytes, rows.stride), cache.rows);
  if (!copy.ok()) return copy.status();
  const bool stream = static_cast<int64_t>(slots.size()) * rows.row_bytes >= internal::kStreamBytes;
  return ForEachSlotRun(slots, cache.num_slots(), cache.block_size, cache.rows, parallel,
                        [&](int64_t row, int64_t block, int64_t token, int64_t n) {
                          if (stream) {
                            copy->Stream(rows.at(row), cache.at(block, token), n, rows.at(row + n));
                          } else {
                            copy->Run(rows.at(row), cache.at(block, token), n);
                          }
                        });
}

template <class Slot>
absl::Status Load(const PartRows<const std::byte>& cache, std::span<const Slot> slots, const DenseRows<std::byte>& rows,
                  const ParallelFor& parallel) {
  if (auto status = CheckSides(cache, rows, slots.size()); !status.ok()) return status;
  const auto copy = TokenCopy::Create(cache.rows, GeometryOf(rows.row_bytes, rows.stride));
  if (!copy.ok()) return copy.status();
  return ForEachSlotRun(slots, cache.num_slots(), cache.block_size, cache.rows, parallel,
                        [&](int64_t row, int64_t block, int64_t token, int64_t n) { copy->Run(cache.at(block, token), rows.at(row), n); });
}

}  // namespace

absl::Status StoreRows(const DenseRows<const std::byte>& rows, std::span<const int64_t> slots, const PartRows<std::byte>& cache,
                       const ParallelFor& parallel) {
  return Store(rows, slots, cache, parallel);
}
absl::Status StoreRows(const DenseRows<const std::byte>& rows, std::span<const int32_t> slots, const PartRows<std::byte>& cache,
                       const ParallelFor& parallel) {
  return Store(rows, slots, cache, parallel);
}
absl::Status LoadRows(const PartRows<const std::byte>& cache, std::span<const int64_t> slots, const DenseRows<std::byte>& rows,
                      const ParallelFor& parallel) {
  return Load(cache, slots, rows, parallel);
}
absl::Status LoadRows(const PartRows<const std::byte>& cache, std::span<const int32_t> slots, const DenseRows<std::byte>& rows,
                      const ParallelFor& parallel) {
  return Load(cache, slots, rows, parallel);
}

absl::Status LoadStretches(const PartRows<const std::byte>& cache, const Stretches& s, const DenseRows<std::byte>& rows,
                           const ParallelFor& parallel) {
  if (auto status = CheckSides(cache, rows, 0); !status.ok()) return status;
  if (auto status = s.block_table.Check(); !status.ok()) return status;
  const auto requests = static_cast<int64_t>(s.count.size());
  if (requests > s.block_table.rows) {
    return absl::InvalidArgumentError(absl::StrCat(requests, " requests, but the block table has ", s.block_table.rows, " rows"));
  }
  if (!s.first.empty() && s.first.size() != s.count.size()) {
    return absl::InvalidArgumentError(absl::StrCat(s.first.size(), " first tokens for ", requests, " requests"));
  }
  const auto copy = TokenCopy::Create(cache.rows, GeometryOf(rows.row_bytes, rows.stride));
  if (!copy.ok()) return copy.status();

  struct Stretch {
    int64_t row, block, token, length;
  };
  std::vector<Stretch> pieces;
  int64_t row = 0;
  for (int64_t r = 0; r < requests; ++r) {
    int64_t position = s.first.empty() ? 0 : s.first[static_cast<size_t>(r)], left = s.count[static_cast<size_t>(r)];
    if (position < 0) return absl::InvalidArgumentError(absl::StrCat("first[", r, "] is ", position, "; it must not be negative"));
    if (left < 0 || left > rows.count - row) {
      return absl::InvalidArgumentError(
          absl::StrCat("seq_lens[", r, "] is ", left, "; there is room for ", rows.count, " tokens, ", row, " are taken"));
    }
    while (left > 0) {
      const int64_t column = position / cache.block_size, token = position % cache.block_size;
      const auto block = s.block_table.At(r, column, cache.num_blocks);
      if (!block.ok()) return absl::InvalidArgumentError(absl::StrCat("token ", position, ": ", block.status().message()));
      const int64_t n = std::min(left, cache.block_size - token);
      pieces.push_back({row, *block, token, n});
      row += n, position += n, left -= n;
    }
  }
  const auto n = static_cast<int64_t>(pieces.size());
  Share(parallel, n, n == 0 ? 0 : row * rows.row_bytes / n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Stretch& p = pieces[static_cast<size_t>(i)];
      copy->Run(cache.at(p.block, p.token), rows.at(p.row), p.length);
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::memory::kv
