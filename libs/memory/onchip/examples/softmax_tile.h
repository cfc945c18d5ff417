#ifndef LIBS_MEMORY_ONCHIP_EXAMPLES_SOFTMAX_TILE_H_
#define LIBS_MEMORY_ONCHIP_EXAMPLES_SOFTMAX_TILE_H_

// The buffers of a row softmax on one vector core, as its kernel would include them. Scores come in by MTE2 and results leave by MTE3, both
// double buffered; maxima and sums are scratch. A tile that is too large doesn't compile: fits.cc and too_large.cc show both.
//
// In the kernel (Ascend C), with Tile = SoftmaxTile<32, 256>:
//
//   LocalTensor<float> scores(TPosition::VECIN, Tile::kScores.Offset(i % 2), kRows * kCols);
//   WaitFlag<HardEvent::V_MTE2>(Tile::kScores.backward[i % 2]);   // the vector unit is done with this copy
//   DataCopy(scores, ...);
//   SetFlag<HardEvent::MTE2_V>(Tile::kScores.forward[i % 2]);

#include "libs/memory/onchip/onchip.h"

namespace jumar::memory::onchip::examples {

template <int kRows, int kCols>
struct SoftmaxTile {
  static constexpr int64_t kTileBytes = int64_t{4} * kRows * kCols;  // float
  static constexpr Capacities kCore = {.ub = 192 * 1024};            // of a 910B; a host program reads libs/tiling/hardware.h

  // Steps: 0 copy in, 1 maxima, 2 subtract and exponential, 3 sums, 4 divide, 5 copy out.
  static constexpr Buffer kBuffers[] = {
      {.name = "scores", .space = Space::kUb, .bytes = kTileBytes, .policy = Policy::kDouble, .lifetime = {0, 2},
       .handover = {Pipe::kMte2, Pipe::kVector}},
      {.name = "maxima", .space = Space::kUb, .bytes = int64_t{32} * kRows, .lifetime = {1, 2}},
      {.name = "results", .space = Space::kUb, .bytes = kTileBytes, .policy = Policy::kDouble, .lifetime = {2, 5},
       .handover = {Pipe::kVector, Pipe::kMte3}},
      {.name = "sums", .space = Space::kUb, .bytes = int64_t{32} * kRows, .lifetime = {3, 4}},
  };
  static constexpr auto kMap = Plan(kCore, kBuffers);
  static_assert(kFits<kMap>);

  static constexpr Placement kScores = kMap.At("scores");
  static constexpr Placement kResults = kMap.At("results");
};

}  // namespace jumar::memory::onchip::examples

#endif  // LIBS_MEMORY_ONCHIP_EXAMPLES_SOFTMAX_TILE_H_
