#ifndef LIBS_TILING_MATMUL_H_
#define LIBS_TILING_MATMUL_H_

// C[m, n] = A[m, k] B[k, n] by the cube cores.
//
// The cores form a grid of cores_m x cores_n x cores_k, and each has one box of the m x n x k cuboid. A core walks over its box's output in
// tiles of tile_m x tile_n, whose sums stay in L0C, and along k in steps: step_k of A and B come to L1 (in two copies), l0_k of those to
// L0A and L0B. One operand's panel may stay in L1 while the tiles that need it pass. Where k is divided over cores, each writes FP32
// partial sums to a workspace, and the vector cores add them up afterwards: deterministic, no atomics.

#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/model.h"
#include "libs/tiling/row_stream.h"

namespace jumar::tiling {

// How B lies in GM: rows of k (ND), rows of n (ND, transposed), or fractals (NZ). libs/quant/fractal_nz.h has the last one.
enum class WeightLayout : int64_t { kNd, kNdTransposed, kNz };
inline constexpr std::string_view kWeightLayoutNames[] = {"nd", "nd_t", "nz"};

struct MatmulProblem {
  int64_t m = 256;
  int64_t n = 7168;
  int64_t k = 7168;
  DType input = DType::kBf16;  // of A and B; the sums are 32 bits wide
  int64_t output_bytes = 2;    // of an element of C
  int64_t layout = static_cast<int64_t>(WeightLayout::kNz);  // of B
  int64_t consumed = 0;        // 1: who follows reads C at once, so that it crosses HBM only if L2 doesn't hold it
};

enum class Resident : int64_t { kNone, kA, kB };  // whose panel stays in L1

struct MatmulChoice {
  int64_t cores_m = 1, cores_n = 1, cores_k = 1;
  int64_t tile_m = kFractal, tile_n = kFractal;  // multiples of 16
  int64_t step_k = kFractal, l0_k = kFractal;    // multiples of FractalK(input)
  Resident resident = Resident::kNone;
  int64_t l0c_copies = 1;                        // 2: FIX empties one while the cube fills the other
};

struct MatmulTiling {
  MatmulChoice choice;
  int64_t core_m = 0, core_n = 0, core_k = 0;    // a core's box
  std::optional<RowTiling> reduction;            // of the partial sums, if cores_k > 1
  CoreWork slowest = {};
  Traffic traffic = {};
  Prediction prediction = {};
  Bound bound = {};
};

std::span<const TypedField<MatmulProblem>> MatmulFields();

// The fastest legal tiling under the model. InvalidArgument for a problem out of range or a type that the chip lacks, FailedPrecondition
// for figures that nobody published. Where the vector cores' figures are unknown, k isn't divided over cores.
absl::StatusOr<MatmulTiling> SolveMatmul(const MatmulProblem& problem, const HardwareSpec& spec);

// What a given tiling would take. InvalidArgument says why it isn't legal.
absl::StatusOr<MatmulTiling> EvaluateMatmul(const MatmulProblem& problem, const MatmulChoice& choice, const HardwareSpec& spec);

std::vector<Buffer> MatmulBuffers(const MatmulProblem& problem, const MatmulTiling& tiling);
Solution DescribeMatmul(const MatmulProblem& problem, const MatmulTiling& tiling, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_MATMUL_H_
