#ifndef LIBS_TILING_ROW_QUANT_H_
#define LIBS_TILING_ROW_QUANT_H_

// Quantisation of rows (tokens) to 8 bits with a scale per row or per group of columns, as dynamic W8A8 and FP8 linear layers need it:
// scale = max|x| / largest code, code = round(x / scale).

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/row_stream.h"

namespace jumar::tiling {

struct RowQuantProblem {
  int64_t rows = 256;
  int64_t columns = 7168;
  DType input = DType::kBf16;  // bf16, fp16 or fp32
  DType output = DType::kInt8; // int8, fp8 or hif8
  int64_t group = 0;           // columns that share a scale; 0: the whole row
  int64_t smooth = 0;          // 1: columns are multiplied by a vector first
};

std::span<const TypedField<RowQuantProblem>> RowQuantFields();

// The row as the stream of bytes and passes that the model counts. InvalidArgument for a type that can't be, or sizes beyond 2^60.
absl::StatusOr<RowStream> RowQuantStream(const RowQuantProblem& problem);

absl::StatusOr<RowTiling> SolveRowQuant(const RowQuantProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ROW_QUANT_H_
