#ifndef LIBS_TILING_GROUPED_TASKS_H_
#define LIBS_TILING_GROUPED_TASKS_H_

#include <cstdint>

#include "libs/tiling/checked.h"
#include "libs/tiling/grouped_matmul.h"
#include "libs/tiling/matmul_model.h"

namespace jumar::tiling {

// How a group's rows are divided: evenly, in whole fractals; the last part has what is left.
struct Parts {
  int64_t size, count;
};
inline Parts PartsOf(int64_t rows, int64_t task_m) {
  const int64_t size = RoundUp(CeilDiv(rows, CeilDiv(rows, task_m)), kFractal);
  return {size, CeilDiv(rows, size)};
}

inline BoxTiles TilesOf(const GroupedMatmulChoice& choice) {
  return {choice.tile_m, choice.tile_n, choice.step_k, choice.l0_k, choice.resident, choice.l0c_copies};
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_GROUPED_TASKS_H_
