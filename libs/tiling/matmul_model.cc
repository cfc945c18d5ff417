#include "libs/tiling/matmul_model.h"

#include <cmath>

namespace jumar::tiling {

BoxBound BoundBox(const ProductRates& rates, const Machine& machine, const Box& box) {
  const double m = ToDouble(box.m), n = ToDouble(box.n), k = ToDouble(box.k);
  const double read_m = ToDouble(box.read_m), read_n = ToDouble(box.read_n), read_k = ToDouble(box.read_k);
  const double sums = ToDouble(machine.l0c / 4);  // that L0C holds: tile_m * tile_n is at most this
  double read = 2 * read_k * std::sqrt(read_m * n * read_n * m / sums);
  const double panel = ToDouble(machine.l1 / rates.element) / k;  // rows of a panel over all of k that L1 holds
  const double most = std::min(panel, sums / ToDouble(kFractal));
  if (panel >= ToDouble(kFractal)) read = std::min({read, read_k * (read_m + read_n * m / most), read_k * (read_n + read_m * n / most)});
  read = std::max(read, read_k * (read_m + read_n)) * rates.a_seconds;
  return {.read = read,
          .l0 = std::max(k * (m * rates.l0a + n * rates.l0b), 2 * k * m * n * std::sqrt(rates.l0a * rates.l0b / sums)),
          .cube = m * n * k * rates.mac,
          .fix = m * n * rates.fix};
}

}  // namespace jumar::tiling
