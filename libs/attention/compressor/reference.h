#ifndef LIBS_ATTENTION_COMPRESSOR_REFERENCE_H_
#define LIBS_ATTENTION_COMPRESSOR_REFERENCE_H_

#include <vector>

#include "libs/attention/compressor/compressor.h"

namespace jumar::attention {

// compressor.h in float64, as its formula reads, for one entry of a whole sequence: kv and gate are [>= (group + 1) * ratio, W], dense, of the
// arguments' type. Of `args` the shape, ape, norm and tables count, not tokens or state.
struct CompressedReference {
  std::vector<double> out;    // [D], not rounded
  std::vector<double> bound;  // what a result may differ by, the rounding to the type included
};
CompressedReference CompressorReference(const CompressorArgs& args, const void* kv, const void* gate, int64_t group);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_COMPRESSOR_REFERENCE_H_
