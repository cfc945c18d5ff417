#ifndef LIBS_TILING_MATMUL_MODEL_H_
#define LIBS_TILING_MATMUL_MODEL_H_

// The cost of one core's box of a product, shared by the solvers that use the cube for a product: matmul, grouped matmul, compressor.

#include <algorithm>
#include <cstdint>
#include <span>

#include "libs/tiling/checked.h"
#include "libs/tiling/matmul.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

// Pieces of a row of ND that MTE2 reads cost whole sectors. An assumption of the model, not a figure of a chip.
inline constexpr int64_t kSectorBytes = 128;

// What is the same for all tilings of a problem.
struct ProductRates {
  int64_t element;          // bytes
  int64_t fractal_k;
  WeightLayout layout;
  double a_seconds, b_seconds;   // MTE2, per element
  double l0a, l0b;               // MTE1, per element
  double mac;                    // cube, per multiply-add
  double fix;                    // FIX, per element of the sum
  double step;                   // what each step costs besides

  ProductRates(const Machine& machine, DType type, WeightLayout b_layout)
      : element(Bytes(type)),
        fractal_k(FractalK(type)),
        layout(b_layout),
        a_seconds(static_cast<double>(element) / machine.read_rate),
        b_seconds(a_seconds),
        l0a(static_cast<double>(element) / machine.l0a_rate),
        l0b(static_cast<double>(element) / machine.l0b_rate),
        mac(1.0 / machine.Macs(type)),
        fix(4.0 / machine.fix_rate),
        step(machine.step_seconds) {}

  double Sectors(int64_t elements) const {  // what a piece of a row costs, against its bytes
    const int64_t bytes = elements * element;
    return static_cast<double>(RoundUp(bytes, kSectorBytes)) / static_cast<double>(bytes);
  }
};

// A core's box: multiples of the fractal, and what of it is read (the matrix may end before).
struct Box {
  int64_t m, n, k;
  int64_t read_m, read_n, read_k;
};

struct BoxTiles {
  int64_t tile_m, tile_n, step_k, l0_k;
  Resident resident;
  int64_t l0c_copies;
};

inline BoxTiles TilesOf(const MatmulChoice& choice) {
  return {choice.tile_m, choice.tile_n, choice.step_k, choice.l0_k, choice.resident, choice.l0c_copies};
}

inline double ToDouble(int64_t value) { return static_cast<double>(value); }

// So many boxes of the same size, one after the other.
struct BoxCount {
  Box box;
  int64_t count;
};

// Pipes' seconds of one core for `boxes` boxes of the same size.
inline CoreWork BoxWork(const ProductRates& rates, const Box& box, const BoxTiles& tiles, int64_t boxes) {
  const int64_t tm = CeilDiv(box.m, tiles.tile_m), tn = CeilDiv(box.n, tiles.tile_n);
  const int64_t steps = tm * tn * boxes * CeilDiv(box.k, tiles.step_k);
  const int64_t l0_steps = CeilDiv(tiles.step_k, tiles.l0_k);
  const double a_piece = rates.Sectors(tiles.step_k);
  const double b_piece = rates.layout == WeightLayout::kNz   ? 1.0
                         : rates.layout == WeightLayout::kNd ? rates.Sectors(tiles.tile_n)
                                                             : a_piece;
  const double a_once = ToDouble(box.read_m) * ToDouble(box.read_k) * rates.a_seconds * a_piece;
  const double b_once = ToDouble(box.read_n) * ToDouble(box.read_k) * rates.b_seconds * b_piece;
  const double n_boxes = ToDouble(boxes), n_steps = ToDouble(steps);
  CoreWork work;
  work.steps = steps;
  work.busy[kMte2] = n_boxes * (a_once * (tiles.resident == Resident::kA ? 1.0 : ToDouble(tn)) +
                                b_once * (tiles.resident == Resident::kB ? 1.0 : ToDouble(tm))) +
                     n_steps * rates.step;
  work.busy[kMte1] = n_boxes * ToDouble(box.k) * (ToDouble(box.m * tn) * rates.l0a + ToDouble(box.n * tm) * rates.l0b) +
                     n_steps * ToDouble(l0_steps) * rates.step;
  work.busy[kCube] = n_boxes * ToDouble(box.m) * ToDouble(box.n) * ToDouble(box.k) * rates.mac + n_steps * ToDouble(l0_steps) * rates.step;
  work.busy[kFix] = n_boxes * (ToDouble(box.m) * ToDouble(box.n) * rates.fix + ToDouble(tm * tn) * rates.step);
  // Of one step: what MTE2 brings at once; the block that then goes through L0 in l0_steps, of which MTE1 leads with one; one tile's
  // results.
  const double step_k = ToDouble(std::min(tiles.step_k, box.k)), m = ToDouble(std::min(tiles.tile_m, box.m)),
               n = ToDouble(std::min(tiles.tile_n, box.n));
  const double read_m = ToDouble(std::min(tiles.tile_m, box.read_m)), read_n = ToDouble(std::min(tiles.tile_n, box.read_n));
  work.step[kMte2] = step_k * (read_m * rates.a_seconds * a_piece + read_n * rates.b_seconds * b_piece) + rates.step;
  const double mte1 = step_k / ToDouble(l0_steps) * (m * rates.l0a + n * rates.l0b) + rates.step;
  const double cube = step_k / ToDouble(l0_steps) * m * n * rates.mac + rates.step;
  work.step[kMte1] = mte1;
  work.step[kCube] = ToDouble(l0_steps - 1) * std::max(mte1, cube) + cube;
  work.step[kFix] = m * n * rates.fix + rates.step;
  if (tiles.l0c_copies == 1) work.turn[kFix] = work.turn[kCube];
  return work;
}

// The same for boxes of several sizes; the first is the largest.
inline CoreWork BoxesWork(const ProductRates& rates, std::span<const BoxCount> boxes, const BoxTiles& tiles) {
  CoreWork work = BoxWork(rates, boxes[0].box, tiles, boxes[0].count);
  for (const BoxCount& more : boxes.subspan(1)) {
    const CoreWork other = BoxWork(rates, more.box, tiles, more.count);
    work.steps += other.steps;
    for (int pipe = 0; pipe < kNumPipes; ++pipe) {
      work.busy[pipe] += other.busy[pipe];
      work.step[pipe] = std::max(work.step[pipe], other.step[pipe]);
    }
  }
  return work;
}

// Copies of the buffers that a box needs: one where there is nothing to overlap with.
struct BoxCopies {
  int64_t step;   // of A's and B's steps in L1
  int64_t panel;  // of the resident panel
  int64_t l0;
};
inline BoxCopies CopiesOf(const Box& box, const BoxTiles& tiles, int64_t boxes) {
  const int64_t tm = CeilDiv(box.m, tiles.tile_m), tn = CeilDiv(box.n, tiles.tile_n), k_steps = CeilDiv(box.k, tiles.step_k);
  const int64_t steps = tm * tn * boxes * k_steps;
  const int64_t panels = boxes * (tiles.resident == Resident::kA ? tm : tn);
  return {std::min<int64_t>(2, steps), std::min<int64_t>(2, panels), std::min<int64_t>(2, steps * CeilDiv(tiles.step_k, tiles.l0_k))};
}

inline int64_t L1Bytes(const ProductRates& rates, const Box& box, const BoxTiles& tiles, int64_t boxes) {
  const BoxCopies copies = CopiesOf(box, tiles, boxes);
  const int64_t a = tiles.resident == Resident::kA ? copies.panel * tiles.tile_m * RoundUp(box.k, tiles.step_k)
                                                   : copies.step * tiles.tile_m * tiles.step_k;
  const int64_t b = tiles.resident == Resident::kB ? copies.panel * tiles.tile_n * RoundUp(box.k, tiles.step_k)
                                                   : copies.step * tiles.tile_n * tiles.step_k;
  return (a + b) * rates.element;
}

inline bool L0Fits(const ProductRates& rates, const Machine& machine, const Box& box, const BoxTiles& tiles, int64_t boxes) {
  const int64_t copies = CopiesOf(box, tiles, boxes).l0;
  return copies * tiles.tile_m * tiles.l0_k * rates.element <= machine.l0a &&
         copies * tiles.tile_n * tiles.l0_k * rates.element <= machine.l0b;
}

// The least that a core with such a box does, whatever its tiles; see libs/tiling/README.md, "Bound of a product".
struct BoxBound {
  double read, l0, cube, fix;
};
BoxBound BoundBox(const ProductRates& rates, const Machine& machine, const Box& box);

// The fastest tiles of a core's boxes (the first is the largest), if that is below `limit` seconds; else tile_m = 0. `extra(tile_m, tile_n,
// resident)` is what the whole machine needs at least with such tiles (HBM), which the time can't go below.
struct BestTiles {
  BoxTiles tiles = {};
  double seconds = 0;
};
template <class WholeMachine>
BestTiles SearchTiles(const ProductRates& rates, const Machine& machine, std::span<const BoxCount> boxes, double limit,
                      const WholeMachine& extra);

}  // namespace jumar::tiling

#include "libs/tiling/matmul_search-inl.h"

#endif  // LIBS_TILING_MATMUL_MODEL_H_
