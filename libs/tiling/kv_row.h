#ifndef LIBS_TILING_KV_ROW_H_
#define LIBS_TILING_KV_ROW_H_

// The epilogue that makes a token's row for the KV cache: norm of the latent part, RoPE of the rest, quantisation, and the row packed as
// libs/quant lays it out. The cache's pages scatter the rows, so every row may be a write of its own.

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/row_stream.h"

namespace jumar::tiling {

// What a row holds, by its bytes (research: DeepSeek V3.2 and V4, FlashMLA's tests/quant.py).
//   mla_1152      512 + 64 values of bf16
//   fp8_656       512 e4m3, 4 fp32 scales, 64 bf16
//   fp8_640       64 bf16, 448 e4m3, 7 e8m0 scales, padded to a multiple of 128
//   fp8_584       448 e4m3, 64 bf16, 7 e8m0 scales and a byte
//   indexer_132   128 e4m3 and an fp32 scale
enum class KvRowLayout : int64_t { kMla1152, kFp8Row656, kFp8Row640, kFp8Row584, kIndexer132 };
inline constexpr std::string_view kKvRowLayoutNames[] = {"mla_1152", "fp8_656", "fp8_640", "fp8_584", "indexer_132"};

struct KvRowProblem {
  int64_t tokens = 256;
  int64_t layout = static_cast<int64_t>(KvRowLayout::kFp8Row656);
  int64_t norm = 1;       // 1: RMSNorm of the part without RoPE, whose weights every core keeps
  int64_t runs = 0;       // of consecutive slots; 0: as many as tokens
};

std::span<const TypedField<KvRowProblem>> KvRowFields();
absl::StatusOr<RowStream> KvRowStream(const KvRowProblem& problem);
absl::StatusOr<RowTiling> SolveKvRow(const KvRowProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_KV_ROW_H_
