#ifndef LIBS_TILING_ATTENTION_FLASH_SEARCH_H_
#define LIBS_TILING_ATTENTION_FLASH_SEARCH_H_

// The fastest tile of a FlashWork, and what no tile beats.

#include <optional>

#include "absl/status/statusor.h"
#include "libs/tiling/attention/flash_model.h"

namespace jumar::tiling {

// A lower bound on EvaluateFlash of every legal tile, however it is split over the cores:
//   hbm        KV that is seen (what the queries of a selection pick), Q and O, each once
//   l2         those, KV again for every so many rows as L1 and UB can hold, and S, P, O' where they cross GM
//   the pipes  the same per core at a perfect balance, products padded to fractals; either the longest row stays whole, and one core
//              takes that long, or rows are split, and a barrier comes on top
Bound BoundFlash(const FlashWork& work, const FlashSums& sums, const Machine& machine);

// Ranks tiles by GuessSeconds and evaluates the best ones, until one is near the bound; `fixed` (the tile of a fixed rule) is among them where
// it is legal. ResourceExhausted if no tile fits the chip.
absl::StatusOr<FlashPlan> SearchFlash(const FlashWork& work, const FlashSums& sums, const Machine& machine, const Bound& bound,
                                     const std::optional<FlashTile>& fixed);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_FLASH_SEARCH_H_
