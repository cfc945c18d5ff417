#ifndef LIBS_QUANT_WEIGHT_GEMM_WEIGHT_PROBLEM_H_
#define LIBS_QUANT_WEIGHT_GEMM_WEIGHT_PROBLEM_H_

// Seeded random problems for the tests of weight_gemm.h. Whatever lies beside the matrices is NaN, or a large number where there is none.

#include <cstdint>
#include <string>
#include <vector>

#include "libs/quant/weight_gemm/weight_gemm.h"

namespace jumar::quant {

// How a table of scales is made: its sharing, and which axis its neighbours lie along.
struct ScaleSpec {
  bool present = true;
  ScaleType type = ScaleType::kF32;
  int64_t rows = 1, depth = 0;  // as in Scales
  bool rows_first = false;      // [groups, rows] in memory, else [rows, groups]
  int64_t run = 1;              // 2: [groups / 2, rows, 2]
};

struct WeightProblemSpec {
  int64_t m = 1, n = 16, k = 128;
  Activations activations = DType::kBF16;
  Format format = Format::kI8;
  CodeLayout layout = CodeLayout::kNK;
  ScaleSpec scale = {}, offset = {.present = false}, a_scale = {.present = false};
  bool bias = false;
  DType out = DType::kF32;
  Epilogue epilogue = Epilogue::kNone;
  uint32_t seed = 1;
};

class WeightProblem {
 public:
  explicit WeightProblem(const WeightProblemSpec& spec);
  WeightProblem(const WeightProblem&) = delete;

  // args points into this object.
  WeightGemmArgs args;
  const WeightProblemSpec spec;

  double Out(int64_t i, int64_t j) const;
  bool MarginsAreUntouched() const;
  std::string Name() const;
  // Row `i` of out, to compare bits.
  std::string OutBytes(int64_t i) const;
  // Writes a code of column `j` in the problem's layout.
  void SetCode(int64_t j, int64_t k, uint8_t code);
  void SetActivation(int64_t i, int64_t k, double value);

 private:
  Scales MakeScales(const ScaleSpec& spec, int64_t rows, bool offset, std::vector<char>& storage);

  int64_t width_;  // of out
  uint32_t state_;
  double Uniform();  // [0, 1)
  std::vector<char> a_, w_, out_, bias_, scale_, offset_, a_scale_;
};

}  // namespace jumar::quant

#endif  // LIBS_QUANT_WEIGHT_GEMM_WEIGHT_PROBLEM_H_
