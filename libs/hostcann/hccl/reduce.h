// Arithmetic of collectives: element-wise over the ranks' buffers, always in the order of the ranks.
#ifndef LIBS_HOSTCANN_HCCL_REDUCE_H_
#define LIBS_HOSTCANN_HCCL_REDUCE_H_

#include <cstdint>
#include <span>
#include <string>

namespace jumar::hostcann {

// Bytes of one element of an HCCL data type, or 0 for a type that there is not.
uint64_t ElementBytes(int32_t type);
// "fp32", or "data type 99".
std::string TypeName(int32_t type);
// "sum", or "reduction 9".
std::string ReductionName(int32_t reduction);

// Whether Reduce has the type: integers of up to 64 bits, fp16, bf16, fp32, fp64.
bool IsReducible(int32_t type);
bool IsReduction(int32_t reduction);

// out[i] = inputs[0][i] op inputs[1][i] op ... for i < count. fp16 and bf16 are computed in fp32 and rounded once; integers wrap;
// the maximum and the minimum with a NaN are NaN. `out` may be one of the inputs.
void Reduce(int32_t type, int32_t reduction, std::span<const void* const> inputs, void* out, uint64_t count);

}  // namespace jumar::hostcann

#endif  // LIBS_HOSTCANN_HCCL_REDUCE_H_
