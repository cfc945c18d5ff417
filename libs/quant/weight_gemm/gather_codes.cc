// Columns of a weight that doesn't lie as rows of codes along k.
#include <algorithm>
#include <cstring>

#include "libs/quant/weight_gemm/weight_kernel.h"

namespace jumar::quant::internal {
namespace {

// Transposes 8 x 8 bytes: byte c of rows[r] becomes byte r of rows[c].
void TransposeBytes(uint64_t (&rows)[8]) {
  const auto swap = [&](int distance, int shift, uint64_t mask) {
    for (int i = 0; i < 8; ++i) {
      if (i & distance) continue;
      const uint64_t difference = ((rows[i] >> shift) ^ rows[i + distance]) & mask;
      rows[i] ^= difference << shift;
      rows[i + distance] ^= difference;
    }
  };
  swap(4, 32, 0x00000000FFFFFFFF);
  swap(2, 16, 0x0000FFFF0000FFFF);
  swap(1, 8, 0x00FF00FF00FF00FF);
}

// Up to 8 bytes, the first in the lowest bits.
uint64_t LoadBytes(const uint8_t* p, int64_t count) {
  uint64_t word = 0;
  if (count > 0) std::memcpy(&word, p, static_cast<size_t>(std::min<int64_t>(count, 8)));
  return word;
}

void GatherBytes(const uint8_t* w, int64_t ldw, int64_t k, int64_t columns, uint8_t* out, int64_t stride) {
  for (int64_t k0 = 0; k0 < k; k0 += 8) {
    for (int64_t c = 0; c < columns; c += 8) {
      uint64_t rows[8] = {};
      for (int64_t i = 0; i < std::min<int64_t>(8, k - k0); ++i) rows[i] = LoadBytes(w + (k0 + i) * ldw + c, columns - c);
      TransposeBytes(rows);
      for (int64_t i = 0; i < std::min<int64_t>(8, columns - c); ++i) std::memcpy(out + (c + i) * stride + k0, &rows[i], 8);
    }
  }
}

void GatherNibbles(const uint8_t* w, int64_t ldw, int64_t k, int64_t columns, uint8_t* out, int64_t stride) {
  constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0F;
  for (int64_t k0 = 0; k0 < k; k0 += 16) {
    uint64_t even[8] = {}, odd[8] = {};  // columns; a byte of each row, two k's in it
    for (int64_t i = 0; i < 8 && k0 + 2 * i < k; ++i) {
      const uint64_t first = LoadBytes(w + (k0 + 2 * i) * ldw, (columns + 1) / 2);
      const uint64_t second = k0 + 2 * i + 1 < k ? LoadBytes(w + (k0 + 2 * i + 1) * ldw, (columns + 1) / 2) : 0;
      even[i] = (first & kLow) | (second & kLow) << 4;
      odd[i] = (first >> 4 & kLow) | (second & ~kLow);
    }
    TransposeBytes(even);
    TransposeBytes(odd);
    for (int64_t c = 0; c < columns; ++c) std::memcpy(out + c * stride + k0 / 2, c % 2 == 0 ? &even[c / 2] : &odd[c / 2], 8);
  }
}

void GatherFractals(const WeightGemmArgs& args, int64_t first, int64_t columns, uint8_t* out, int64_t stride) {
  const int64_t block = (args.n + 15) / 16 * 16 * 32;
  for (int64_t b = 0; b < (args.k + 31) / 32; ++b) {
    const uint8_t* from = static_cast<const uint8_t*>(args.w) + b * block + first * 32;
    for (int64_t c = 0; c < columns; ++c) std::memcpy(out + c * stride + b * 32, from + c * 32, 32);
  }
}

}  // namespace

void GatherCodes(const WeightGemmArgs& args, int64_t first, int64_t columns, uint8_t* out, int64_t stride) {
  if (args.layout == CodeLayout::kFractalNz) return GatherFractals(args, first, columns, out, stride);
  const auto* w = static_cast<const uint8_t*>(args.w);
  if (Bits(args.format) == 8) return GatherBytes(w + first, args.ldw, args.k, columns, out, stride);
  GatherNibbles(w + first / 2, args.ldw, args.k, columns, out, stride);
}

}  // namespace jumar::quant::internal
