// What follows from a tile: the smaller tiles inside, and the buffers.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "libs/tiling/attention/flash_model.h"
#include "libs/tiling/attention/flash_pipes.h"
#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr int64_t kProbabilityEntries = 128;
constexpr int64_t kLoadBytes = 48 * 1024;
constexpr int64_t kStatBytes = 96;    // of a row in UB: maximum, sum and factor, a block each

int64_t UbBytesPerRow(const FlashWork& w, const FlashTile& tile) {
  const int64_t scores = 2 * tile.entries * 4, output = 2 * w.value_dim * 4;
  if (w.value_dim == 0) return scores + 2 * tile.entries * 4;
  return scores + 2 * tile.entries * Bytes(w.type) + (tile.output_in_ub ? output : 2 * output);
}

int64_t UbBytesFixed(const FlashWork& w, const FlashTile& tile, int64_t rows_of_aiv) {
  return rows_of_aiv * (kStatBytes + (tile.output_in_ub ? RoundUp(w.value_dim * 4, kBlockBytes) : 0)) + 4 * RoundUp(w.output_bytes, kBlockBytes);
}

}  // namespace

FlashFit FitLayout(const FlashWork& w, const FlashTile& tile, const Machine& machine, FlashLayout& layout) {
  layout = {.rows = tile.queries * tile.heads};
  const int64_t size = Bytes(w.type), m16 = RoundUp(layout.rows, kFractal), fractal_k = FractalK(w.type);
  layout.m0 = std::min(m16, kMaxM0);
  const int64_t columns = machine.l0c / (2 * 4 * layout.m0) / kFractal * kFractal;
  if (columns < kFractal) return FlashFit::kL0C;
  const auto depth = [&](int64_t n, int64_t of) {
    const int64_t fits = std::min(machine.l0a / (2 * size * layout.m0), machine.l0b / (2 * size * n)) / fractal_k * fractal_k;
    return std::min(fits, RoundUp(of, fractal_k));
  };
  layout.n0 = std::min({tile.entries, kMaxN0, columns});
  layout.k0 = depth(layout.n0, w.key_dim);
  if (w.value_dim > 0) {
    layout.n1 = std::min({RoundUp(w.value_dim, kFractal), kMaxN0, columns});
    layout.k1 = depth(layout.n1, tile.entries);
  }
  if (layout.k0 < fractal_k || (w.value_dim > 0 && layout.k1 < fractal_k)) return FlashFit::kL0;

  const int64_t q = m16 * w.key_dim * size, widest = std::max(w.key_dim, w.value_dim) * size;
  const int64_t probability = w.value_dim > 0 ? 2 * m16 * size : 0;  // of an entry
  // A load of this size costs little beside its bytes, and lets the cube begin soon.
  const int64_t load = std::min(tile.entries, RoundUp(kLoadBytes / (w.key_dim * size), kFractal));
  if (tile.keep_kv) {
    layout.l1_entries = load;
    if (q + kStages * tile.entries * w.entry_bytes() + probability * std::min(tile.entries, kProbabilityEntries) > machine.l1) return FlashFit::kL1;
  } else {
    for (layout.l1_entries = load;; layout.l1_entries = RoundUp(layout.l1_entries / 2, kFractal)) {
      if (q + 2 * layout.l1_entries * widest + probability * std::min(layout.l1_entries, kProbabilityEntries) <= machine.l1) break;
      if (layout.l1_entries == kFractal) return FlashFit::kL1;
    }
  }

  const int64_t of_aiv = CeilDiv(m16, machine.vectors_per_cube), room = machine.ub - UbBytesFixed(w, tile, of_aiv);
  layout.vector_rows = std::min(of_aiv, room / UbBytesPerRow(w, tile));
  if (layout.vector_rows < 1) return FlashFit::kUb;

  const int64_t scores = m16 * tile.entries, output = m16 * w.value_dim * 4;
  if (!HasDirectWay(machine)) layout.workspace_bytes = kStages * (scores * 4 + (w.value_dim > 0 ? scores * size + output : 0));
  if (!tile.output_in_ub) layout.workspace_bytes += output;
  layout.workspace_bytes *= machine.cube_cores;
  return FlashFit::kFits;
}

absl::StatusOr<FlashLayout> Layout(const FlashWork& w, const FlashTile& tile, const Machine& machine) {
  if (tile.queries < 1 || tile.heads < 1 || w.group % tile.heads != 0 || (w.whole_group && tile.heads != w.group)) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: ", tile.queries, " queries x ", tile.heads, " heads don't tile a group of ", w.group, " heads"));
  }
  if (tile.queries > kMaxTileRows / tile.heads) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: ", tile.queries, " queries x ", tile.heads, " heads are more than ", kMaxTileRows, " rows"));
  }
  if (tile.entries < kFractal || tile.entries > kMaxTileEntries || tile.entries % kFractal != 0) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: entries = ", tile.entries, " is not a multiple of 16 up to ", kMaxTileEntries));
  }
  if (w.view.max_selected > 0 && tile.queries > 1) {
    return absl::InvalidArgumentError(absl::StrCat("attention tile: queries = ", tile.queries, ", but each query selects its own entries: take 1"));
  }
  FlashLayout layout;
  const auto exhausted = [&](std::string_view memory, int64_t has) {
    return absl::ResourceExhaustedError(absl::StrCat("attention tile of ", tile.queries, " queries x ", tile.heads, " heads, ", tile.entries,
                                                     " entries, dims ", w.key_dim, " and ", w.value_dim, " doesn't fit ", std::string(memory),
                                                     " of ", has, " bytes; take a smaller one"));
  };
  switch (FitLayout(w, tile, machine, layout)) {
    case FlashFit::kFits: return layout;
    case FlashFit::kL0: return exhausted("L0A or L0B", std::min(machine.l0a, machine.l0b));
    case FlashFit::kL0C: return exhausted("L0C", machine.l0c);
    case FlashFit::kL1: return exhausted("L1", machine.l1);
    case FlashFit::kUb: return exhausted("UB", machine.ub);
  }
  return layout;
}

std::vector<Buffer> FlashBuffers(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine) {
  const int64_t size = Bytes(w.type), m16 = RoundUp(layout.rows, kFractal), of_aiv = CeilDiv(m16, machine.vectors_per_cube);
  const bool pv = w.value_dim > 0;
  std::vector<Buffer> buffers = {{.name = "Q", .memory = Memory::kL1, .bytes = m16 * w.key_dim * size}};
  buffers.push_back({.name = tile.keep_kv ? "KV" : "K or V",
                     .memory = Memory::kL1,
                     .bytes = tile.keep_kv ? tile.entries * w.entry_bytes() : layout.l1_entries * std::max(w.key_dim, w.value_dim) * size,
                     .copies = 2});
  if (pv) buffers.push_back({.name = "P", .memory = Memory::kL1, .bytes = m16 * std::min(layout.l1_entries, kProbabilityEntries) * size, .copies = 2});
  buffers.push_back({.name = "Q or P", .memory = Memory::kL0A, .bytes = layout.m0 * std::max(layout.k0, layout.k1) * size, .copies = 2});
  buffers.push_back({.name = "K or V", .memory = Memory::kL0B, .bytes = std::max(layout.n0 * layout.k0, layout.n1 * layout.k1) * size, .copies = 2});
  buffers.push_back({.name = pv ? "S or O'" : "S", .memory = Memory::kL0C, .bytes = layout.m0 * std::max(layout.n0, layout.n1) * 4, .copies = 2});
  buffers.push_back({.name = "S", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * 4, .copies = 2});
  if (!pv) {
    buffers.push_back({.name = "score", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * 4, .copies = 2});
  } else {
    buffers.push_back({.name = "P", .memory = Memory::kUb, .bytes = layout.vector_rows * tile.entries * size, .copies = 2});
    buffers.push_back({.name = "O'", .memory = Memory::kUb, .bytes = layout.vector_rows * w.value_dim * 4, .copies = 2});
    buffers.push_back({.name = "O", .memory = Memory::kUb, .bytes = (tile.output_in_ub ? of_aiv : layout.vector_rows) * w.value_dim * 4,
                       .copies = tile.output_in_ub ? 1 : 2});
  }
  buffers.push_back({.name = "maximum, sum, factor", .memory = Memory::kUb, .bytes = of_aiv * kStatBytes});
  if (w.output_bytes > 0) buffers.push_back({.name = "selected", .memory = Memory::kUb, .bytes = w.output_bytes, .copies = 4});
  return buffers;
}

}  // namespace jumar::tiling
