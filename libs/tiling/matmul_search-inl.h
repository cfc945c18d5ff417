#ifndef LIBS_TILING_MATMUL_SEARCH_INL_H_
#define LIBS_TILING_MATMUL_SEARCH_INL_H_

#include <array>

#include "libs/tiling/matmul_model.h"

namespace jumar::tiling {

// The candidates follow from the problem alone, capacities only strike some out: more capacity never gives a slower tiling. Each size is the
// even division of the box that comes next to a target.
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
BestTiles SearchTiles(const ProductRates& rates, const Machine& machine, const Box& box, int64_t boxes, double limit, const WholeMachine& extra) {
  std::array<int64_t, kStepTargets.size()> step_targets;
  std::array<int64_t, kL0Targets.size()> l0_targets;
  for (size_t i = 0; i < step_targets.size(); ++i) step_targets[i] = kStepTargets[i] / rates.element;
  for (size_t i = 0; i < l0_targets.size(); ++i) l0_targets[i] = kL0Targets[i] / rates.element;
  const Sizes tiles_m = Divisions(box.m, kFractal, kTileTargets), tiles_n = Divisions(box.n, kFractal, kTileTargets);
  const Sizes steps_k = Divisions(box.k, rates.fractal_k, step_targets);
  BestTiles best = {.seconds = limit};
  const double volume = ToDouble(boxes) * ToDouble(box.m) * ToDouble(box.n) * ToDouble(box.k);
  for (const int64_t tile_m : tiles_m) {
    for (const int64_t tile_n : tiles_n) {
      if (tile_m * tile_n * 4 > machine.l0c) continue;
      const int64_t tm = CeilDiv(box.m, tile_m), tn = CeilDiv(box.n, tile_n);
      // Below what nothing with these tiles comes: the rates, and the steps that L0 at its largest allows.
      const int64_t most_k = std::max(rates.fractal_k, std::min(machine.l0a / (tile_m * rates.element), machine.l0b / (tile_n * rates.element)));
      const double least_steps = ToDouble(boxes * tm * tn * CeilDiv(box.k, most_k)) * rates.step;
      const double mte1 = ToDouble(boxes) * ToDouble(box.k) * (ToDouble(box.m * tn) * rates.l0a + ToDouble(box.n * tm) * rates.l0b);
      if (std::max(volume * rates.mac, mte1) + least_steps >= best.seconds) continue;
      for (const Resident resident : {Resident::kNone, Resident::kA, Resident::kB}) {
        if ((resident == Resident::kA && tn == 1) || (resident == Resident::kB && tm == 1)) continue;  // nothing to stay for
        const double read = ToDouble(boxes) * ToDouble(box.read_k) * rates.a_seconds *
                            (ToDouble(box.read_m) * (resident == Resident::kA ? 1.0 : ToDouble(tn)) + ToDouble(box.read_n) * (resident == Resident::kB ? 1.0 : ToDouble(tm)));
        const double whole = extra(tile_m, tile_n, resident);
        if (std::max(read, whole) >= best.seconds) continue;
        for (const int64_t step_k : steps_k) {
          BoxTiles tiles = {tile_m, tile_n, step_k, step_k, resident, 1};
          if (L1Bytes(rates, box, tiles, boxes) > machine.l1) continue;
          for (const int64_t l0_k : Divisions(step_k, rates.fractal_k, l0_targets)) {
            tiles.l0_k = l0_k;
            if (!L0Fits(rates, machine, box, tiles, boxes)) continue;
            for (const int64_t copies : {2, 1}) {
              if (copies * tile_m * tile_n * 4 > machine.l0c) continue;
              tiles.l0c_copies = copies;
              const double seconds = std::max(CoreSeconds(BoxWork(rates, box, tiles, boxes)), whole);
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
