#ifndef LIBS_QUANT_SCALAR_H_
#define LIBS_QUANT_SCALAR_H_

// One element at a time, for references and tests: reading and rounding fp32, fp16 and bf16 by their definition.

#include <cstdint>

#include "libs/quant/dtype.h"

namespace jumar::quant {

double LoadScalar(DType type, const void* data, int64_t index);

// Rounds to nearest, ties to even; overflow gives infinity, NaN stays NaN.
void StoreScalar(DType type, double value, void* data, int64_t index);

// Half a unit in the last place of `type` at |value|: the most that one rounding can change.
double HalfUlp(DType type, double value);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_SCALAR_H_
