#ifndef LIBS_TILING_MATMUL_SEARCH_INL_H_
#define LIBS_TILING_MATMUL_SEARCH_INL_H_

#include <array>

#include "libs/tiling/matmul_model.h"

namespace jumar::tiling {

// The candidates follow from the problem alone, capacities only strike some out: more capacity never gives a slower tiling. Each size is
// the even division of the box that comes next to a target.
inline constexpr std::array<int64_t, 13> kTileTargets = {512, 384, 320, 256, 192, 160, 128, 96, 80, 64, 48, 32, 16};
inline constexpr std::array<int64_t, 9> kStepTargets = {8192, 4096, 2048, 1024, 512, 256, 128, 64, 32};  // bytes of a row along k
inline constexpr std::array<int64_t, 6> kL0Targets = {1024, 512, 256, 128, 64, 32};

struct Sizes {
  std::array<int64_t, 16> size;
  int count = 0;
  void Add(int64_t value) {
    if (count == 0 || size[static_cast<size_t>(count - 1)] != value) size[static_cast<size_t>(count++)] = value;
  }
  const int64_t* begin() const { return size.data(); }
  const int64_t* end() const { return size.data() + count; }
};

// Even divisions of `extent`, multiples of `multiple`, largest first.
template <size_t N>
Sizes Divisions(int64_t extent, int64_t multiple, const std::array<int64_t, N>& targets) {
  Sizes sizes;
  for (const int64_t target : targets) sizes.Add(RoundUp(CeilDiv(extent, CeilDiv(extent, std::max(target, multiple))), multiple));
  return sizes;
}

template <class WholeMachine>
BestTiles SearchTiles(const ProductRates& rates, const Machine& machine, std::span<const BoxCount> boxes, double limit,
                      const WholeMachine& extra) {
  std::array<int64_t, kStepTargets.size()> step_targets;
  std::array<int64_t, kL0Targets.size()> l0_targets;
  for (size_t i = 0; i < step_targets.size(); ++i) step_targets[i] = kStepTargets[i] / rates.element;
  for (size_t i = 0; i < l0_targets.size(); ++i) l0_targets[i] = kL0Targets[i] / rates.element;
  const Box& box = boxes[0].box;
  int64_t count = 0;
  for (const BoxCount& more : boxes) count += more.count;
  const Sizes tiles_m = Divisions(box.m, kFractal, kTileTargets), tiles_n = Divisions(box.n, kFractal, kTileTargets);
  const Sizes steps_k = Divisions(box.k, rates.fractal_k, step_targets);
  BestTiles best = {.seconds = limit};
  for (const int64_t tile_m : tiles_m) {
    for (const int64_t tile_n : tiles_n) {
      if (tile_m * tile_n * 4 > machine.l0c) continue;
      // Below what nothing with these tiles comes: the rates, and the steps that L0 at its largest allows.
      const int64_t most_k =
          std::max(rates.fractal_k, std::min(machine.l0a / (tile_m * rates.element), machine.l0b / (tile_n * rates.element)));
      double cube = 0, mte1 = 0, a_once = 0, b_once = 0, a_all = 0, b_all = 0;
      for (const BoxCount& more : boxes) {
        const int64_t tm = CeilDiv(more.box.m, tile_m), tn = CeilDiv(more.box.n, tile_n);
        const double n = ToDouble(more.count), k = ToDouble(more.box.k), a = n * ToDouble(more.box.read_m * more.box.read_k),
                     b = n * ToDouble(more.box.read_n * more.box.read_k);
        const double least_steps = n * ToDouble(tm * tn * CeilDiv(more.box.k, most_k)) * rates.step;
        cube += n * ToDouble(more.box.m * more.box.n) * k * rates.mac + least_steps;
        mte1 += n * k * (ToDouble(more.box.m * tn) * rates.l0a + ToDouble(more.box.n * tm) * rates.l0b) + least_steps;
        a_once += a, b_once += b, a_all += a * ToDouble(tn), b_all += b * ToDouble(tm);
      }
      if (std::max(cube, mte1) >= best.seconds) continue;
      for (const Resident resident : {Resident::kNone, Resident::kA, Resident::kB}) {
        if ((resident == Resident::kA && box.n <= tile_n) || (resident == Resident::kB && box.m <= tile_m))
          continue;  // nothing to stay for
        const double read = rates.a_seconds * ((resident == Resident::kA ? a_once : a_all) + (resident == Resident::kB ? b_once : b_all));
        const double whole = extra(tile_m, tile_n, resident);
        if (std::max(read, whole) >= best.seconds) continue;
        for (const int64_t step_k : steps_k) {
          BoxTiles tiles = {tile_m, tile_n, step_k, step_k, resident, 1};
          if (L1Bytes(rates, box, tiles, count) > machine.l1) continue;
          for (const int64_t l0_k : Divisions(step_k, rates.fractal_k, l0_targets)) {
            tiles.l0_k = l0_k;
            if (!L0Fits(rates, machine, box, tiles, count)) continue;
            for (const int64_t copies : {2, 1}) {
              if (copies * tile_m * tile_n * 4 > machine.l0c) continue;
              tiles.l0c_copies = copies;
              const double seconds = std::max(CoreSeconds(BoxesWork(rates, boxes, tiles)), whole);
              if (seconds < best.seconds) best = {tiles, seconds};
            }
          }
        }
      }
    }
  }
  return best;
}

}  // namespace jumar::tiling

#endif  // LIBS_TILING_MATMUL_SEARCH_INL_H_
