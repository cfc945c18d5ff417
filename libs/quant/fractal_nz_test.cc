#include "libs/quant/fractal_nz.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace jumar::quant {
namespace {

using Shape = std::array<int64_t, 4>;

TEST(FractalNzTest, ShapesAreThoseOfTorchNpu) {
  EXPECT_EQ(*FractalNzShape(576, 1536, 2), (Shape{96, 36, 16, 16}));
  EXPECT_EQ(*FractalNzShape(17, 33, 2), (Shape{3, 2, 16, 16}));
  EXPECT_EQ(*FractalNzShape(17, 33, 4), (Shape{3, 2, 16, 16}));
  EXPECT_EQ(*FractalNzShape(17, 33, 1), (Shape{2, 2, 16, 32}));
  EXPECT_EQ(*FractalNzShape(0, 5, 2), (Shape{1, 0, 16, 16}));
  EXPECT_EQ(*FractalNzBytes(17, 33, 2), 3 * 2 * 16 * 16 * 2);
  EXPECT_EQ(*FractalNzBytes(0, 5, 2), 0);
}

TEST(FractalNzTest, EveryElementLiesWhereTheLayoutSaysAndPaddingIsZero) {
  for (int64_t size : {1, 2, 4}) {
    const int64_t c0 = FractalCols(size);
    for (int64_t rows : {1, 15, 16, 17, 40}) {
      for (int64_t cols : {1, 15, 16, 17, 31, 32, 33, 70}) {
        const int64_t ld = cols + 3;
        std::vector<char> nd(rows * ld * size);
        std::mt19937 rng(rows * 100 + cols);
        for (char& byte : nd) byte = static_cast<char>(rng() | 1);  // never zero
        std::vector<char> nz(*FractalNzBytes(rows, cols, size), char{-1});
        ASSERT_TRUE(PackFractalNz(rows, cols, size, nd.data(), ld, nz.data()).ok());
        const int64_t rows_padded = (rows + 15) / 16 * 16, cols_padded = (cols + c0 - 1) / c0 * c0;
        ASSERT_EQ(static_cast<int64_t>(nz.size()), rows_padded * cols_padded * size);
        for (int64_t r = 0; r < rows_padded; ++r) {
          for (int64_t c = 0; c < cols_padded; ++c) {
            const int64_t at = (((c / c0) * (rows_padded / 16) + r / 16) * 16 + r % 16) * c0 + c % c0;
            for (int64_t b = 0; b < size; ++b) {
              const char want = r < rows && c < cols ? nd[(r * ld + c) * size + b] : char{0};
              ASSERT_EQ(nz[at * size + b], want) << rows << "x" << cols << " of " << size << " bytes at " << r << ", " << c;
            }
          }
        }
      }
    }
  }
}

TEST(FractalNzTest, UnpackInvertsPackAndLeavesTheGapBetweenRowsAlone) {
  std::mt19937 rng(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t size = int64_t{1} << (rng() % 3), rows = rng() % 50, cols = rng() % 80, ld = cols + rng() % 4;
    std::vector<char> nd(rows * ld * size);
    for (char& byte : nd) byte = static_cast<char>(rng());
    std::vector<char> nz(*FractalNzBytes(rows, cols, size), char{-1}), back(rows * ld * size, char{0x55});
    ASSERT_TRUE(PackFractalNz(rows, cols, size, nd.data(), ld, nz.data()).ok());
    ASSERT_TRUE(UnpackFractalNz(rows, cols, size, nz.data(), back.data(), ld).ok());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t b = 0; b < cols * size; ++b) ASSERT_EQ(back[r * ld * size + b], nd[r * ld * size + b]) << "round " << round;
      for (int64_t b = cols * size; b < ld * size; ++b) ASSERT_EQ(back[r * ld * size + b], 0x55) << "round " << round;
    }
  }
}

TEST(FractalNzTest, ErrorsNameTheValue) {
  char data[8] = {};
  EXPECT_NE(FractalNzShape(2, 2, 3).status().message().find("element size 3"), std::string::npos);
  EXPECT_NE(FractalNzShape(-2, 2, 2).status().message().find("[-2, 2]"), std::string::npos);
  EXPECT_FALSE(FractalNzBytes(INT64_MAX, 2, 2).ok());
  EXPECT_FALSE(FractalNzBytes(int64_t{1} << 40, int64_t{1} << 40, 2).ok());
  EXPECT_NE(PackFractalNz(2, 4, 1, data, 3, data).message().find("leading dimension 3"), std::string::npos);
  EXPECT_FALSE(PackFractalNz(2, 4, 1, nullptr, 4, data).ok());
  EXPECT_FALSE(UnpackFractalNz(2, 4, 1, nullptr, data, 4).ok());
  EXPECT_TRUE(PackFractalNz(0, 4, 1, nullptr, 4, nullptr).ok());
}

}  // namespace
}  // namespace jumar::quant
