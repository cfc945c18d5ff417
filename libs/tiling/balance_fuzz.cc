// Any bytes as a problem: no overflow, no endless loop; what is not refused covers every KV block once.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "libs/tiling/balance.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace jumar::tiling;
  const auto take = [&]() -> int64_t {
    // A byte says how large the number is: mostly small ones, some at the limits.
    if (size == 0) return 0;
    const uint8_t kind = *data++;
    --size;
    uint64_t value = 0;
    const size_t bytes = std::min<size_t>(size, kind % 9);
    std::memcpy(&value, data, bytes);
    data += bytes;
    size -= bytes;
    return static_cast<int64_t>(kind & 0x80 ? value : value % 5000);
  };
  BalanceProblem p;
  p.heads = take();
  p.query_block = take();
  p.kv_block = take();
  p.view = {.causal = take() % 2 == 0, .window = take(), .ratio = take(), .max_selected = take(), .leading_entries = take()};
  if (p.view.window % 2 == 0) p.view.window = 0;
  if (p.view.ratio % 2 == 0) p.view.ratio = 1;
  p.cost = {take(), take(), take(), take(), take(), take(), take()};
  p.kv_unit = take() % 2 == 0 ? p.kv_block : 1;
  p.cores = take();
  std::vector<int64_t> queries, keys;
  while (size > 0) {
    queries.push_back(take());
    keys.push_back(take());
  }
  p.query_lens = queries;
  p.kv_lens = keys;
  const auto balance = Balance(p);
  if (!balance.ok()) return 0;

  int64_t work = 0, rows = 0, pieces = 0, whole = 0, split = 0;
  for (size_t i = 0; i < queries.size(); ++i) rows += (queries[i] + p.query_block - 1) / p.query_block;
  if (rows > 10'000 || p.heads > 100) return 0;  // too many to go through
  for (int64_t core = 0; core < p.cores; ++core) {
    ForEachPiece(p, *balance, core, [&](const Piece& piece) {
      const int64_t tokens = std::min(p.query_block, queries[piece.batch] - piece.query_block * p.query_block);
      if (piece.kv_begin > piece.kv_end || tokens < 1) std::abort();
      if (piece.partial < 0) ++whole;
    });
    ForEachRowCount(p, *balance, balance->shares[core].begin, balance->shares[core].end, [&](const RowCount& count) {
      pieces += count.rows;
      work += count.blocks * (p.cost.per_block + p.cost.per_block_query * count.queries) + count.units * (p.cost.per_unit + p.cost.per_unit_query * count.queries);
    });
  }
  for (const Merge& merge : balance->merges) {
    if (merge.num_pieces < 2) std::abort();
    pieces -= merge.num_pieces;
    ++split;
  }
  if (pieces != whole || work + (whole + split) * p.cost.per_row != balance->work) std::abort();
  return 0;
}
