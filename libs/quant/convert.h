#ifndef LIBS_QUANT_CONVERT_H_
#define LIBS_QUANT_CONVERT_H_

// Element-wise conversion between fp32, fp16 and bf16, vectorised. Widening is exact; narrowing rounds to nearest, ties to even,
// overflow to infinity, and keeps NaN a NaN.

#include <cstdint>

#include "absl/status/status.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

// out[i] = in[i] for i < count. `in` and `out` may be equal only if both types have the same size.
absl::Status Convert(DType in_type, const void* in, DType out_type, void* out, int64_t count, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_CONVERT_H_
