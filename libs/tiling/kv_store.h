#ifndef LIBS_TILING_KV_STORE_H_
#define LIBS_TILING_KV_STORE_H_

// Writing new rows of keys and values into their slots of the paged cache: a copy GM -> UB -> GM by the vector cores, no arithmetic.
// Slots that follow each other are one run, and a run is one write (libs/memory/kv merges them).

#include <span>

#include "absl/status/statusor.h"
#include "libs/tiling/fields.h"
#include "libs/tiling/row_stream.h"

namespace jumar::tiling {

struct KvStoreProblem {
  int64_t tokens = 256;
  int64_t row_bytes = 2048;  // of one token in one tensor
  int64_t tensors = 2;       // K and V; 1 for the latent of MLA
  int64_t runs = 0;          // of consecutive slots; 0: as many as tokens
};

std::span<const TypedField<KvStoreProblem>> KvStoreFields();

// The stream's rows are blocks of 32 bytes: a copy can be cut anywhere.
absl::StatusOr<RowStream> KvStoreStream(const KvStoreProblem& problem);
absl::StatusOr<RowTiling> SolveKvStore(const KvStoreProblem& problem, const HardwareSpec& spec);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_KV_STORE_H_
