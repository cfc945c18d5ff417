#ifndef LIBS_ATTENTION_MLA_TEST_PROBLEM_H_
#define LIBS_ATTENTION_MLA_TEST_PROBLEM_H_

// Random problems for the tests and the benchmark.

#include <random>
#include <vector>

#include "libs/attention/mla/mla_prolog.h"

namespace jumar::attention {

struct MlaShape {
  int64_t tokens, hidden, q_rank, heads, nope_dim, kv_rank, rope_dim, block_size;
};

enum class MlaForm { kFloat, kInt8Up, kInt8 };  // see mla_prolog.h

// All rows have a gap of NaN behind them; caches are NaN. `fractal` caches need kv_rank and rope_dim in multiples of 16.
class MlaProblem {
 public:
  MlaProblem(const MlaShape& shape, DType type, MlaForm form, bool fractal, uint32_t seed);
  MlaProblem(const MlaProblem&) = delete;

  MlaPrologArgs args;
  std::vector<int64_t> slots;  // distinct, some -1
  std::vector<char> query, query_rope;
  std::vector<std::byte> kv_cache, kr_cache;

  void Forget();  // outputs and caches are NaN again
  double CacheValue(const memory::kv::PartRows<std::byte>& cache, int64_t slot, int64_t column) const;

 private:
  std::vector<char> Numbers(int64_t rows, int64_t cols, int64_t ld, double deviation, double mean = 0);
  std::vector<float> Scales(int64_t count, double size);
  MlaWeight Weight(int64_t k, int64_t n, bool int8);

  std::mt19937 rng_;
  std::vector<std::vector<char>> kept_;
  std::vector<std::vector<float>> scales_;
};

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_MLA_TEST_PROBLEM_H_
