#ifndef LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_KERNEL_H_
#define LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_KERNEL_H_

#include <cstdint>

#include "libs/attention/hyper_connections/hyper_connections.h"

namespace jumar::attention::internal {

// scaled [n D] = x of the token * gamma, in fp32. Returns the sum of the squares of x.
float ScaleStreams(const HyperConnectionPreArgs& args, int64_t token, float* scaled);

// in of the token, from its pre [n].
void CollapseStreams(const HyperConnectionPreArgs& args, int64_t token, const float* pre);

void SinkhornTokens(const SinkhornArgs& args, int64_t begin, int64_t end);

void SpreadStreams(const HyperConnectionPostArgs& args, int64_t begin, int64_t end);

}  // namespace jumar::attention::internal

#endif  // LIBS_ATTENTION_HYPER_CONNECTIONS_HYPER_KERNEL_H_
