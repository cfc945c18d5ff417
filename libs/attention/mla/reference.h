#ifndef LIBS_ATTENTION_MLA_REFERENCE_H_
#define LIBS_ATTENTION_MLA_REFERENCE_H_

// MlaProlog in float64, and how far the fp32 computation with its roundings may be from it.

#include <vector>

#include "libs/attention/mla/mla_prolog.h"

namespace jumar::attention {

// A number and a bound of the error of what was computed for it.
struct Bounded {
  double value = 0, error = 0;
};

struct MlaPrologReference {
  std::vector<Bounded> query;       // [heads, kv_rank]
  std::vector<Bounded> query_rope;  // [heads, rope_dim]
  std::vector<Bounded> latent;      // [kv_rank]
  std::vector<Bounded> key_rope;    // [rope_dim]
};

// Of one token. Weights must lie as kKN.
MlaPrologReference ReferenceMlaProlog(const MlaPrologArgs& args, int64_t token);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_MLA_REFERENCE_H_
