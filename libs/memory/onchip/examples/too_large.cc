// Doesn't compile: two copies of scores and two of results, 64 KiB each.

#include "libs/memory/onchip/examples/softmax_tile.h"

using Tile = jumar::memory::onchip::examples::SoftmaxTile<64, 256>;

int main() { return Tile::kMap.ok() ? 0 : 1; }
