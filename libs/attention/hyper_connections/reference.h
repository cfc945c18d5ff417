#ifndef LIBS_ATTENTION_HYPER_CONNECTIONS_REFERENCE_H_
#define LIBS_ATTENTION_HYPER_CONNECTIONS_REFERENCE_H_

#include <vector>

#include "libs/attention/hyper_connections/hyper_connections.h"

namespace jumar::attention {

// hyper_connections.h in float64, one token, and for each number what a result may differ by (roundings to the outputs' types included).
struct Bounded {
  std::vector<double> value, bound;
};

struct PreReference {
  Bounded in, post, res, inverse_rms, mix, pre;
};
PreReference HyperConnectionPreReference(const HyperConnectionPreArgs& args, int64_t token);

Bounded SinkhornReference(const SinkhornArgs& args, int64_t token);

Bounded HyperConnectionPostReference(const HyperConnectionPostArgs& args, int64_t token);  // [n, D]

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_HYPER_CONNECTIONS_REFERENCE_H_
