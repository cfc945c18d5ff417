#ifndef LIBS_TILING_ATTENTION_FLASH_MODEL_H_
#define LIBS_TILING_ATTENTION_FLASH_MODEL_H_

// The time of attention kernels of the flash kind on cube and vector cores: what all solvers of this folder share.
//
// A core takes rows: `queries` query tokens times `heads` query heads that share a KV head, folded into M rows of a matrix. Over the KV
// entries of a row it goes in blocks of N entries:
//
//   AIC   S = Q K^T          Q stays in L1; K comes GM -> L1; S (fp32) leaves L0C
//   AIV   P = exp(S - max)   online softmax, rows dealt out to the AIVs of the AIC; P in the type of K
//   AIC   O' = P V           O' (fp32) leaves L0C
//   AIV   O = O * exp(..) + O'
//
// S, P and O' cross GM (which L2 holds) where cube and vector units are separate cores without a way between them (A2, A3); on the 310P and
// the 950 they go directly. Cube and vector work on different blocks at the same time: S, P and O' have kStages copies.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "libs/tiling/balance.h"
#include "libs/tiling/model.h"

namespace jumar::tiling {

// One kernel's work, free of what the operator is called.
struct FlashWork {
  std::span<const int64_t> query_lens = {};  // [batch]
  std::span<const int64_t> kv_lens = {};     // [batch]
  KvView view = {};
  int64_t kv_heads = 1;
  int64_t group = 1;          // query heads that share a KV head
  int64_t key_dim = 128;      // elements of the product QK
  int64_t value_dim = 128;    // of the product PV; 0 = there is none, as in an indexer
  bool shared_kv = false;     // V is a part of K's row: one read serves both
  DType type = DType::kBf16;  // of Q, K, V and P
  int64_t run_bytes = 0;      // contiguous bytes of KV in GM; 0 = as long as a tile
  bool whole_group = false;   // all heads of the group in one tile: their scores are summed up
  int64_t score_passes = 6;   // of the vector unit over S: scale, max, subtract, exp, sum, cast
  int64_t select_passes = 0;  // over one fp32 for each (query, entry): top-k
  int64_t output_bytes = 0;   // of a query beside the rows of O: selected indices

  int64_t entry_bytes() const { return (shared_kv ? key_dim : key_dim + value_dim) * Bytes(type); }
};

struct FlashTile {
  int64_t queries = 1;            // of a row
  int64_t heads = 1;              // of the group; divides it
  int64_t entries = 128;          // N: a multiple of 16
  bool keep_kv = false;           // the block stays in L1 until PV, instead of V's being read again (shared_kv), or being read on its own
  bool output_in_ub = true;       // O is kept in UB, not in GM

  friend bool operator==(const FlashTile&, const FlashTile&) = default;
};

// What follows from a tile: sizes of the smaller tiles inside.
struct FlashLayout {
  int64_t rows = 0;               // M = queries * heads
  int64_t l1_entries = 0;         // K or V in one load
  int64_t m0 = 0, n0 = 0, k0 = 0;  // of a product QK in L0: rows, entries, elements of a key
  int64_t n1 = 0, k1 = 0;          // of a product PV: elements of a value, entries
  int64_t vector_rows = 0;        // of M that an AIV takes at once
  int64_t workspace_bytes = 0;    // of S, P, O' of all cores, in GM; 0 where there is a direct way
};

struct FlashPlan {
  FlashTile tile = {};
  FlashLayout layout = {};
  BalanceProblem balance_problem = {};  // its spans are the work's
  BalanceResult balance = {};
  int64_t partial_bytes = 0;            // of split rows: O in fp32, maximum and sum
  std::vector<double> core_seconds = {};
  CoreWork slowest = {};
  Traffic traffic = {};
  Prediction prediction = {};
};

enum class Split : uint8_t {
  kBalance,    // Balance
  kFixedRule,  // BalanceByFixedRule
};

inline constexpr int64_t kStages = 2;
inline constexpr int64_t kMaxTileEntries = 2048, kMaxTileRows = 1024;
inline constexpr int64_t kMaxM0 = 128, kMaxN0 = 256;  // of a product in L0

// Assumptions of the model, as kStepCycles is one: what a barrier of all cores costs, and a command for one contiguous run of memory.
inline constexpr int64_t kBarrierCycles = 512;
inline constexpr int64_t kRunCycles = 8;

// Which figures of the chip are needed.
constexpr uint32_t FlashNeeds(DType type) { return kCubeFigures | kVectorFigures | MacFigure(type); }

// InvalidArgument where numbers of elements or bytes exceed 2^60, and what CheckView and CheckSequence refuse. All the functions below
// expect work that passed it.
absl::Status CheckWork(const FlashWork& work);

// ResourceExhausted names the memory that even the smallest inner tiles exceed. InvalidArgument: entries that aren't a multiple of 16, more
// than kMaxTileEntries entries or kMaxTileRows rows, heads that don't divide the group, several queries of a selection (each picks its own).
absl::StatusOr<FlashLayout> Layout(const FlashWork& work, const FlashTile& tile, const Machine& machine);

// The same for a search over many tiles, which has no use for a text: the tile must be what Layout demands, and the answer is the memory
// that is too small.
enum class FlashFit : uint8_t { kFits, kL0, kL0C, kL1, kUb };
FlashFit FitLayout(const FlashWork& work, const FlashTile& tile, const Machine& machine, FlashLayout& layout);

std::vector<Buffer> FlashBuffers(const FlashWork& work, const FlashTile& tile, const FlashLayout& layout, const Machine& machine);

// Sums over the batch.
struct FlashSums {
  double sequences = 0;           // with queries
  double queries = 0, pairs = 0;  // (query, entry) pairs, of one head, entries in whole fractals
  double kv_bytes = 0;            // of KV that somebody sees, each once; the queries of a selection pick different entries while there are any
  double entries = 0;             // that sequences see, of one head; each once, in whole fractals
  double longest = 0;             // entries that the last query of a sequence sees, in whole fractals
  double shortest = 0;            // the least such number
  double fewest = 0;              // entries that the first query of a sequence sees, the least such number: any row has as many
  int64_t most_queries = 0;       // of a sequence

  // By the number of fractals that a sequence's last query sees: bucket b has those of 2^(b-1) < fractals <= 2^b.
  struct Bucket {
    double sequences = 0, queries = 0, fractals = 0, query_fractals = 0;
  };
  std::array<Bucket, 48> buckets = {};
  int num_buckets = 0;
};
FlashSums SumsOf(const FlashWork& work);

// The tile's prediction, with the split over the cores. The errors of Layout and of Balance.
absl::StatusOr<FlashPlan> EvaluateFlash(const FlashWork& work, const FlashSums& sums, const FlashTile& tile, const Machine& machine, Split split);

// A lower bound on EvaluateFlash's seconds of this tile, however it is split: a perfect balance, without latency.
double LeastSeconds(const FlashWork& work, const FlashSums& sums, const FlashTile& tile, const FlashLayout& layout, const Machine& machine);

// A guess of EvaluateFlash's seconds in O(1), for ranking; not a bound.
double GuessSeconds(const FlashWork& work, const FlashSums& sums, const FlashTile& tile, const FlashLayout& layout, const Machine& machine);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_FLASH_MODEL_H_
