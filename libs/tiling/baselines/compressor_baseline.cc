// The fixed rule for the compressor: 64 features a core with all that belongs to them, 128 tokens a block (256 without overlap), the cores
// that are left divide the tokens, k in steps of 256.

#include <algorithm>

#include "libs/tiling/baselines/baselines.h"
#include "libs/tiling/checked.h"
#include "libs/tiling/compressor.h"

namespace jumar::tiling {
namespace {

std::vector<Values> Grid() {
  std::vector<Values> grid;
  struct Variant {
    int64_t head_dim, ratio, overlap;
  };
  for (const Variant& variant : {Variant{512, 4, 1}, Variant{128, 4, 1}, Variant{512, 128, 0}}) {
    for (const int64_t hidden : {2048, 3072, 4096, 5120, 6144, 7168, 8192}) {
      for (int64_t batch = 1; batch <= 256; batch *= 2) {  // decode, 1 to 4 tokens a sequence: 1 / ratio of the sequences complete a group
        for (const int64_t speculated : {1, 2, 4}) {
          const int64_t tokens = batch * speculated;
          for (const int64_t entries : {CeilDiv(tokens, variant.ratio), std::min(tokens, batch)}) {
            const CompressorProblem problem = {tokens, entries, hidden, variant.head_dim, variant.ratio, variant.overlap, DType::kBf16};
            grid.push_back(ToValues(CompressorFields(), problem));
          }
        }
      }
      for (int64_t tokens = 128; tokens <= 65536; tokens *= 2) {  // prefill, whole and in chunks
        for (const int64_t more : {0, 1, 3, 7, 100}) {
          const CompressorProblem problem = {
              tokens + more, (tokens + more) / variant.ratio, hidden, variant.head_dim, variant.ratio, variant.overlap, DType::kBf16};
          grid.push_back(ToValues(CompressorFields(), problem));
        }
      }
    }
  }
  return grid;
}

absl::StatusOr<Prediction> Predict(const Values& values, const HardwareSpec& spec) {
  const CompressorProblem problem = FromValues(CompressorFields(), values);
  const MatmulProblem projection = CompressorProjection(problem);
  MatmulChoice choice;
  choice.cores_n = std::min(spec.aic_cores, CeilDiv(problem.head_dim, 64));
  choice.cores_m = std::min(spec.aic_cores / choice.cores_n, CeilDiv(problem.tokens, kFractal));
  const int64_t core_m = CeilDiv(CeilDiv(projection.m, kFractal), choice.cores_m) * kFractal,
                core_n = CeilDiv(CeilDiv(projection.n, kFractal), choice.cores_n) * kFractal;
  choice.tile_m = std::min<int64_t>(core_m, problem.overlap ? 128 : 256);
  choice.tile_n = std::min<int64_t>(core_n, 128 * (1 + problem.overlap));
  choice.step_k = std::min<int64_t>(256, RoundUp(problem.hidden, FractalK(problem.input)));
  choice.l0_k = std::min<int64_t>(64, choice.step_k);
  choice.l0c_copies = 2 * choice.tile_m * choice.tile_n * 4 <= spec.l0c_bytes ? 2 : 1;
  const absl::StatusOr<CompressorTiling> tiling = EvaluateCompressor(problem, choice, spec);
  if (!tiling.ok()) return tiling.status();
  return tiling->prediction;
}

}  // namespace

Baseline CompressorBaseline() { return {"compressor", Grid, Predict}; }

}  // namespace jumar::tiling
