#ifndef LIBS_QUANT_WEIGHT_GEMM_WEIGHT_KERNEL_H_
#define LIBS_QUANT_WEIGHT_GEMM_WEIGHT_KERNEL_H_

// The SIMD part of weight_gemm.h: one source, compiled for each instruction set, chosen at run time. Internal to this folder.

#include <cstdint>

#include "libs/quant/weight_gemm/weight_gemm.h"

namespace jumar::quant::internal {

inline constexpr int64_t kPanelColumns = 16;  // of w that a task decodes together
inline constexpr int64_t kMaxUnit = 128;      // k's whose common scale is looked up once; a multiple of every kernel's chunk, and the segment where it is one itself
// k's, about, where scales don't vary along k. Short ones cost prefill, and long ones decode: its one chain of sums waits for itself.
inline constexpr int64_t kUsualSegment = 128, kUsualDotSegment = 1024;
inline constexpr int64_t kMaxSegment = kUsualDotSegment * 3 / 2;
inline constexpr int64_t kLeastUnit = 16;     // k's that share a scale, at least

// What the loops need to know of a problem, for the current instruction set.
struct WeightPlan {
  bool dot = false;         // bf16 pairs by one instruction, else fp32
  int64_t chunk = 0;        // k's that are decoded together
  int64_t segment = 0;      // k's whose products are summed before they are scaled: one or more chunks
  int64_t segments = 0;     // of k, the last one zero padded
  int64_t unit = 0;         // k's that certainly share a scale; 0: all
  bool lanes_vary = false;  // a segment has several units (it is one chunk)
  bool rows_vary = false;   // activations have scales along k
  // Bytes from the start of a packed row to its parts.
  int64_t sums_at = 0, scales_at = 0, row_bytes = 0;

  int64_t units() const { return unit == 0 ? 1 : (segments * segment + unit - 1) / unit; }
};

constexpr bool Varies(const Scales& s, int64_t k) { return s.data != nullptr && s.depth != 0 && s.depth < k; }

// The rest of the fields; `unit` is given.
void FinishWeightPlan(const WeightGemmArgs& args, WeightPlan& plan);

// Packs rows of activations: decoded, zero padded, in the order of the weight's decoder; their sums and scales behind.
// `packed` is where row `first` goes.
void PackActivationRows(const WeightGemmArgs& args, const WeightPlan& plan, int64_t first, int64_t end, char* packed);

// out of rows [row_begin, row_end) and the 16 columns from `column` on (and, for kSwiGlu, from `column` + n / 2). `packed`: row_begin's row.
void ComputeWeightPanel(const WeightGemmArgs& args, const WeightPlan& plan, int64_t row_begin, int64_t row_end, int64_t column, const char* packed);

// The codes of the columns [first, first + columns) as kNK: rows of k codes, `stride` bytes apart. What is behind k in a row's last byte is not defined.
void GatherCodes(const WeightGemmArgs& args, int64_t first, int64_t columns, uint8_t* out, int64_t stride);

}  // namespace jumar::quant::internal

#endif  // LIBS_QUANT_WEIGHT_GEMM_WEIGHT_KERNEL_H_
