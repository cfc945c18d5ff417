// The fixed rule for row-wise kernels: ceil(rows / cores) rows a core, and as many rows a step as UB holds in two copies.

#include <algorithm>
#include <functional>

#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/baselines/shapes.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/kv_row.h"
#include "libs/tiling/kv_store.h"
#include "libs/tiling/row_quant.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kTokens[] = {1,   2,   3,   4,   6,   8,   12,  16,  20,  24,  32,   40,   48,   64,   80,   96,    112,
                               128, 144, 160, 176, 192, 224, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384, 32768};

absl::StatusOr<Prediction> PredictStream(const absl::StatusOr<RowStream>& stream, const HardwareSpec& spec) {
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<Machine> machine = MakeMachine(spec, kVectorFigures);
  if (!machine.ok()) return machine.status();
  const int64_t rows = CeilDiv(stream->rows, machine->vector_cores);
  const int64_t row_bytes = 2 * (stream->read_bytes + stream->write_bytes) + stream->work_bytes;
  int64_t step = std::clamp<int64_t>((machine->ub - stream->weight_bytes) / row_bytes, 1, rows);
  absl::StatusOr<RowTiling> tiling = EvaluateRows(*stream, *machine, step, 1, 2);
  for (; !tiling.ok() && step > 1; --step) tiling = EvaluateRows(*stream, *machine, step - 1, 1, 2);  // padding of 32 bytes
  if (!tiling.ok()) tiling = EvaluateRows(*stream, *machine, 1, 1, 1);
  if (!tiling.ok()) return tiling.status();
  return tiling->prediction;
}

std::vector<Values> RowQuantGrid() {
  std::vector<Values> grid;
  for (const int64_t columns : {1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384, 18432, 25600, 28672}) {
    for (const int64_t rows : kTokens) {
      for (const int64_t group : {0, 128}) {
        for (const DType output : {DType::kInt8, DType::kFp8}) {
          for (const int64_t smooth : {0, 1}) {
            if (output == DType::kFp8 && smooth == 1) continue;
            const RowQuantProblem problem = {.rows = rows, .columns = columns, .output = output, .group = group, .smooth = smooth};
            grid.push_back(ToValues(RowQuantFields(), problem));
          }
        }
      }
    }
  }
  return grid;
}

std::vector<Values> KvRowGrid() {
  std::vector<Values> grid;
  for (int64_t layout = 0; layout < static_cast<int64_t>(std::size(kKvRowLayoutNames)); ++layout) {
    for (const int64_t tokens : kTokens) {
      for (const int64_t norm : {0, 1}) {
        for (const int64_t run : {1, 4, 16, 64, 128, 1024}) {
          const KvRowProblem problem = {.tokens = tokens, .layout = layout, .norm = norm, .runs = CeilDiv(tokens, run)};
            grid.push_back(ToValues(KvRowFields(), problem));
        }
      }
    }
  }
  return grid;
}

std::vector<Values> KvStoreGrid() {
  std::vector<Values> grid;
  struct Row {
    int64_t bytes, tensors;
  };
  // Heads of keys and values times their size, in bf16 and int8, per rank; latents of MLA; packed rows.
  for (const Row& row : {Row{256, 2}, Row{512, 2}, Row{1024, 2}, Row{2048, 2}, Row{128, 2}, Row{1152, 1}, Row{656, 1}, Row{584, 1},
                         Row{640, 1}, Row{132, 1}, Row{256, 1}}) {
    for (const int64_t tokens : kTokens) {
      for (const int64_t run : {1, 4, 16, 64, 128, 1024}) {
        const KvStoreProblem problem = {.tokens = tokens, .row_bytes = row.bytes, .tensors = row.tensors, .runs = CeilDiv(tokens, run)};
            grid.push_back(ToValues(KvStoreFields(), problem));
      }
    }
  }
  return grid;
}

}  // namespace

Baseline RowQuantBaseline() {
  return {"row_quant", RowQuantGrid, [](const Values& values, const HardwareSpec& spec) {
            return PredictStream(RowQuantStream(FromValues(RowQuantFields(), values)), spec);
          }};
}
Baseline KvRowBaseline() {
  return {"kv_row", KvRowGrid, [](const Values& values, const HardwareSpec& spec) {
            return PredictStream(KvRowStream(FromValues(KvRowFields(), values)), spec);
          }};
}
Baseline KvStoreBaseline() {
  return {"kv_store", KvStoreGrid, [](const Values& values, const HardwareSpec& spec) {
            return PredictStream(KvStoreStream(FromValues(KvStoreFields(), values)), spec);
          }};
}

}  // namespace jumar::tiling
