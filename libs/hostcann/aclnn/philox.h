// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011): a bijection from a
// counter, under a key, to 128 random bits. Element i of an operator's output depends on (seed, offset, i) only, so it is the
// same for any number of threads; torch_npu moves `offset` on from operator to operator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace jumar::hostcann::aclnn {

class Philox {
 public:
  using Block = std::array<uint32_t, 4>;

  Philox(uint64_t seed, uint64_t offset) : seed_(seed), offset_(offset) {}

  // 128 random bits; `index` counts blocks.
  Block operator()(uint64_t index) const {
    Block c = {Low(index), High(index), Low(offset_), High(offset_)};
    uint32_t k0 = Low(seed_), k1 = High(seed_);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
      c = {High(p1) ^ c[1] ^ k0, Low(p1), High(p0) ^ c[3] ^ k1, Low(p0)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return c;
  }

 private:
  static uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
  uint64_t seed_, offset_;
};

// 64 of a block's bits.
inline uint64_t Bits64(const Philox::Block& b, int half) {
  return uint64_t{b[static_cast<size_t>(2 * half + 1)]} << 32 | b[static_cast<size_t>(2 * half)];
}
// In [0, 1), on the grid of the type: 24 or 53 bits.
inline float Uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
inline double Uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

}  // namespace jumar::hostcann::aclnn
