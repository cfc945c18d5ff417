#ifndef LIBS_TILING_ATTENTION_FLASH_PIPES_H_
#define LIBS_TILING_ATTENTION_FLASH_PIPES_H_

// Seconds that each pipe of a core is busy with rows, KV blocks and entries. Inner part of flash_model.

#include "libs/tiling/attention/flash_model.h"

namespace jumar::tiling {

// Rows of `queries` queries each; counts may be fractions in a guess.
struct FlashCount {
  int64_t queries = 0;
  double rows = 0, blocks = 0, entries = 0;  // entries: rounded up to fractals
};

struct FlashBytes {
  double kv = 0;         // GM to L1
  double kv_again = 0;   // of those: V of a block that was read for QK just before
  double q = 0, out = 0;
  double workspace_read = 0, workspace_write = 0;  // S, P, O', O
  double l1_to_l0 = 0, l0c_out = 0, vector = 0, macs = 0;

  void operator+=(const FlashBytes& o);
};

// Whether S, P and O' go between cube and vector unit without GM.
inline bool HasDirectWay(const Machine& machine) { return machine.unified() || machine.architecture == Architecture::kA5; }

// What a core does, and in how many steps each pipe does it.
struct FlashBusy {
  PipeSeconds busy = {};
  PipeSeconds steps = {};
  FlashBytes bytes = {};

  // Pipes hand on what a small tile holds, a load into L1, a product, a run of rows; only cube and vector unit wait for each other's blocks.
  CoreWork Work(const Machine& machine) const;
};

void AddBusy(const FlashWork& work, const FlashTile& tile, const FlashLayout& layout, const Machine& machine, const FlashCount& count, FlashBusy& core);

// Seconds that HBM and L2 need for the bytes of all cores.
struct SharedSeconds {
  double hbm = 0, l2 = 0;
  double hbm_read = 0, hbm_write = 0;  // bytes
};
SharedSeconds SharedOf(const FlashWork& work, const FlashSums& sums, const FlashLayout& layout, const Machine& machine, const FlashBytes& bytes);

// Seconds to read a piece's bytes of KV through one MTE2: contiguous runs cost a command each.
double KvReadSeconds(const FlashWork& work, const Machine& machine, double bytes);

}  // namespace jumar::tiling

#endif  // LIBS_TILING_ATTENTION_FLASH_PIPES_H_
