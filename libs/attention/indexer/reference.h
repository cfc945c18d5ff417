#ifndef LIBS_ATTENTION_INDEXER_REFERENCE_H_
#define LIBS_ATTENTION_INDEXER_REFERENCE_H_

#include <vector>

#include "libs/attention/indexer/lightning_indexer.h"

namespace jumar::attention {

// lightning_indexer.h in float64, as its formula reads: the scores of the entries that a query sees.
//
// bounds[s] is what the kernel's score may err, with u = 2^-24: a product of D elements by (D + 2) u of its magnitude (none of int8), a
// weight by u, the sum over H heads by (H + 2) u of its magnitude, the last scale by u; 2^-100 for subnormal bf16 pairs, which the CPU's
// product drops.
struct IndexerReferenceRow {
  std::vector<double> scores, bounds;
};
IndexerReferenceRow IndexerReference(const LightningIndexerArgs& args, int64_t seq, int64_t query);

// The indices of the row, by sorting all scores.
std::vector<int32_t> ReferenceIndices(const IndexerReferenceRow& row, int64_t top_k);

}  // namespace jumar::attention

#endif  // LIBS_ATTENTION_INDEXER_REFERENCE_H_
