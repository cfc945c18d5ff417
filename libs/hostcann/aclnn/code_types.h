// aclDataTypes that only products and quantisation take. No other operator knows them: they are not in DType's list, and ToScalarType refuses them.
#pragma once

#include "libs/hostcann/aclnn/acl_types.h"

namespace jumar::hostcann::aclnn {

inline constexpr DType kHiF8 = static_cast<DType>(34), kF8E8M0 = static_cast<DType>(37), kF4E2M1 = static_cast<DType>(40);

// Two elements to a byte, the first in the lower half. ItemSize is 0; sizes and strides count elements, but torch_npu gives the offset in bytes.
constexpr bool Has4Bits(DType dtype) { return dtype == kF4E2M1; }

inline void* CodesOf(const aclTensor& t) { return static_cast<char*>(t.base) + t.offset * (Has4Bits(t.dtype) ? 1 : ItemSize(t.dtype)); }

}  // namespace jumar::hostcann::aclnn
