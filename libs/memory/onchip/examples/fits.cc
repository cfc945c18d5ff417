#include "libs/memory/onchip/examples/softmax_tile.h"

using Tile = jumar::memory::onchip::examples::SoftmaxTile<32, 256>;

static_assert(Tile::kScores.Offset(1) == 32 * 256 * 4);

int main() { return Tile::kMap.ok() ? 0 : 1; }
