#include "libs/tiling/attention/flash_pipes.h"

#include <algorithm>
#include <cmath>

#include "libs/tiling/checked.h"

namespace jumar::tiling {
namespace {

constexpr double kFp32Bytes = 4;
constexpr double kOutputPasses = 2;  // O * factor, + O'

// Rounded to tiles: blocks of fewer entries need fewer of them.
double Tiles(double blocks, double entries, int64_t block, int64_t tile) { return tile >= block ? blocks : blocks + entries / static_cast<double>(tile); }

FlashBytes BytesOf(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine, const FlashCount& count) {
  const double m = static_cast<double>(count.queries * tile.heads), m16 = static_cast<double>(RoundUp(count.queries * tile.heads, kFractal));
  const double size = static_cast<double>(Bytes(w.type)), key = static_cast<double>(w.key_dim), value = static_cast<double>(w.value_dim);
  const double scores = m * count.entries, outputs = m * value;
  const double panels = std::ceil(m16 / static_cast<double>(layout.m0)), n1 = static_cast<double>(layout.n1);
  FlashBytes bytes;
  bytes.kv_again = w.shared_kv && !tile.keep_kv ? count.entries * value * size : 0;
  bytes.kv = count.entries * static_cast<double>(w.entry_bytes()) + bytes.kv_again;
  bytes.q = count.rows * m * key * size;
  bytes.out = count.rows * (outputs * size + static_cast<double>(count.queries * w.output_bytes));
  const double s = scores * kFp32Bytes, p = w.value_dim > 0 ? scores * size : 0, o = count.blocks * outputs * kFp32Bytes;
  if (!HasDirectWay(machine)) {
    bytes.workspace_write = s + p + o;
    bytes.workspace_read = s + p + o;
  }
  if (!tile.output_in_ub) {
    bytes.workspace_write += o;
    bytes.workspace_read += o;
  }
  // QK: A anew for every n0 entries, B for every panel of m0 rows. PV: A for every n1 of the output's columns.
  bytes.l1_to_l0 = m16 * key * size * Tiles(count.blocks, count.entries, tile.entries, layout.n0) + count.entries * key * size * panels;
  if (w.value_dim > 0) bytes.l1_to_l0 += m16 * count.entries * size * std::ceil(value / n1) + count.entries * value * size * panels;
  bytes.l0c_out = s + o;
  bytes.vector = s * static_cast<double>(w.score_passes) + o * kOutputPasses + count.rows * outputs * kFp32Bytes +
                 static_cast<double>(count.queries * w.select_passes) * count.entries * kFp32Bytes;
  bytes.macs = m16 * count.entries * (key + value);
  return bytes;
}

}  // namespace

void FlashBytes::operator+=(const FlashBytes& o) {
  kv += o.kv, kv_again += o.kv_again, q += o.q, out += o.out, workspace_read += o.workspace_read, workspace_write += o.workspace_write;
  l1_to_l0 += o.l1_to_l0, l0c_out += o.l0c_out, vector += o.vector, macs += o.macs;
}

double KvReadSeconds(const FlashWork& work, const Machine& machine, double bytes) {
  const double run = work.run_bytes > 0 ? static_cast<double>(work.run_bytes) / machine.read_rate : 0;
  const double command = machine.step_seconds * kRunCycles / kStepCycles;
  const double seconds = bytes / machine.read_rate;
  return work.run_bytes > 0 && command > run ? seconds * command / run : seconds;
}

CoreWork FlashBusy::Work(const Machine& machine) const {
  CoreWork work = {.steps = static_cast<int64_t>(steps[kCube]), .busy = busy};
  if (machine.unified()) work.TakeTurns(kMte2, kVectorIn);
  for (int pipe = 0; pipe < kNumPipes; ++pipe) work.step[pipe] = busy[pipe] / std::max(1.0, steps[pipe]);
  return work;
}

void AddBusy(const FlashWork& w, const FlashTile& tile, const FlashLayout& layout, const Machine& machine, const FlashCount& count, FlashBusy& core) {
  const double m = static_cast<double>(count.queries * tile.heads), m16 = static_cast<double>(RoundUp(count.queries * tile.heads, kFractal));
  const double size = static_cast<double>(Bytes(w.type)), key = static_cast<double>(w.key_dim), value = static_cast<double>(w.value_dim);
  const double aivs = static_cast<double>(machine.vectors_per_cube), step = machine.step_seconds;
  const bool direct = HasDirectWay(machine), pv = w.value_dim > 0;
  const FlashBytes bytes = BytesOf(w, tile, layout, machine, count);
  const double s = m * count.entries * kFp32Bytes, p = pv ? m * count.entries * size : 0, o = count.blocks * m * value * kFp32Bytes;
  const double panels = std::ceil(m16 / static_cast<double>(layout.m0)), n1 = static_cast<double>(layout.n1);
  const double loads = Tiles(count.blocks, count.entries, tile.entries, layout.l1_entries);
  const double key_tiles = panels * Tiles(count.blocks, count.entries, tile.entries, layout.n0);
  const double value_tiles = pv ? panels * count.blocks * std::ceil(value / n1) : 0;
  const double products = key_tiles * std::ceil(key / static_cast<double>(layout.k0)) +
                          (pv ? panels * std::ceil(value / n1) * Tiles(count.blocks, count.entries, tile.entries, layout.k1) : 0);
  const double chunks = count.blocks * std::ceil(m / aivs / static_cast<double>(layout.vector_rows)) * (pv ? 2 : 1);
  const double a_bytes = m16 * key * size * Tiles(count.blocks, count.entries, tile.entries, layout.n0) + (pv ? m16 * count.entries * size * std::ceil(value / n1) : 0);
  core.bytes += bytes;
  PipeSeconds& busy = core.busy;
  busy[kMte2] += KvReadSeconds(w, machine, bytes.kv) + (bytes.q + (direct ? 0 : p)) / machine.read_rate +
                 step * (count.rows + loads * (pv && !tile.keep_kv ? 2 : 1) + (direct || !pv ? 0 : loads));
  busy[kMte1] += a_bytes / machine.l0a_rate + (bytes.l1_to_l0 - a_bytes) / machine.l0b_rate + step * products;
  busy[kCube] += bytes.macs / machine.Macs(w.type) + step * products;
  busy[kFix] += bytes.l0c_out / machine.fix_rate + step * (key_tiles + value_tiles);
  const double accumulator = tile.output_in_ub ? 0 : o;
  busy[kVectorIn] += ((direct ? 0 : s + o) + accumulator) / (machine.read_rate * aivs) + step * chunks;
  busy[kVector] += bytes.vector / (machine.vector_rate * aivs) + step * chunks;
  busy[kMte3] += (p + accumulator + bytes.out) / (machine.write_rate * aivs) + step * (chunks + count.rows);
  const PipeSeconds steps = {loads * (pv && !tile.keep_kv ? 2 : 1), products, count.blocks, key_tiles + value_tiles, chunks, count.blocks, chunks};
  for (int pipe = 0; pipe < kNumPipes; ++pipe) core.steps[pipe] += steps[pipe];
}

SharedSeconds SharedOf(const FlashWork& w, const FlashSums& sums, const FlashLayout& layout, const Machine& machine, const FlashBytes& bytes) {
  // KV of the heads that are worked on at the same time comes from HBM once if half of L2 holds it; V read again is still there.
  const double heads = static_cast<double>(w.kv_heads) * sums.sequences, share = std::min(1.0, static_cast<double>(machine.cube_cores) / std::max(1.0, heads));
  const double half = static_cast<double>(machine.l2) / 2, by_rows = bytes.kv - bytes.kv_again;
  // The pieces of a split row find Q in L2, and leave their partial results there.
  const double size = static_cast<double>(Bytes(w.type)), query_heads = sums.queries * static_cast<double>(w.kv_heads * w.group);
  SharedSeconds shared;
  shared.hbm_read = (sums.kv_bytes * share <= half ? sums.kv_bytes : std::max(sums.kv_bytes, by_rows)) + query_heads * static_cast<double>(w.key_dim) * size;
  shared.hbm_write = query_heads * static_cast<double>(w.value_dim) * size + sums.queries * static_cast<double>(w.kv_heads * w.output_bytes);
  if (static_cast<double>(layout.workspace_bytes) > half) {
    shared.hbm_read += bytes.workspace_read;
    shared.hbm_write += bytes.workspace_write;
  }
  shared.hbm = (shared.hbm_read + shared.hbm_write) / machine.hbm_rate;
  shared.l2 = (bytes.kv + bytes.q + bytes.out + bytes.workspace_read + bytes.workspace_write) / machine.l2_rate;
  return shared;
}

}  // namespace jumar::tiling
