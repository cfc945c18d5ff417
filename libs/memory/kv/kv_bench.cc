// Rates of the copies, each beside memcpy of the same bytes in the same pattern, alternating within one run; times of the slot mapping.
//
// "ratio" is the median over the iterations of (memcpy's time / ours) of one pair: 1 = memcpy's bandwidth.

#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/memory/kv/copy.h"
#include "libs/memory/kv/layouts.h"
#include "libs/memory/kv/rows.h"
#include "libs/memory/kv/slots.h"
#include "libs/memory/kv/transpose.h"

namespace jumar::memory::kv {
namespace {

constexpr int64_t kBytes = int64_t{128} << 20;  // of each side: beyond any cache

// Of this thread, so that what else the machine runs doesn't count.
double Seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::byte> Memory() {
  std::vector<std::byte> bytes(static_cast<size_t>(kBytes));
  for (size_t i = 0; i < bytes.size(); i += 64) bytes[i] = static_cast<std::byte>(i >> 6);
  return bytes;
}

std::vector<BlockPair> Shuffled(int64_t blocks) {
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<BlockPair> pairs;
  for (int64_t i = 0; i < blocks; ++i) pairs.push_back({order[static_cast<size_t>(i)], order[static_cast<size_t>(blocks - 1 - i)]});
  return pairs;
}

// `ours` and memcpy of the same pages from the same places to the same places.
template <class Fn>
void Compare(benchmark::State& state, std::span<const std::byte> from, std::span<std::byte> to, int64_t page,
             std::span<const BlockPair> pairs, const Fn& ours) {
  std::vector<double> ratios;
  int64_t round = 0;
  const auto plain = [&] {
    for (const BlockPair& p : pairs) {
      std::memcpy(&to[static_cast<size_t>(p.dst * page)], &from[static_cast<size_t>(p.src * page)], static_cast<size_t>(page));
    }
  };
  for (auto _ : state) {
    double a = Seconds(), b, c;
    if (round++ % 2 == 0) {
      plain(), b = Seconds(), ours(), c = Seconds();
      state.SetIterationTime(c - b);
      ratios.push_back((b - a) / (c - b));
    } else {
      ours(), b = Seconds(), plain(), c = Seconds();
      state.SetIterationTime(b - a);
      ratios.push_back((c - b) / (b - a));
    }
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["ratio"] = ratios[ratios.size() / 2];
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(pairs.size()) * page);
}

void BM_CopyBlocks(benchmark::State& state) {
  auto memory = Memory();
  const int64_t page = state.range(0), blocks = kBytes / page;
  auto pairs = Shuffled(blocks / 2);
  for (BlockPair& p : pairs) p.dst += blocks / 2;
  const std::vector<MutableBlocks> planes = {{memory, blocks, page, page}};
  Compare(state, memory, memory, page, pairs, [&] { benchmark::DoNotOptimize(CopyBlocks(planes, pairs).ok()); });
}

void BM_SwapBlocks(benchmark::State& state) {
  auto from = Memory(), to = Memory();
  const int64_t page = state.range(0), blocks = kBytes / page;
  const auto pairs = Shuffled(blocks);
  const std::vector<ConstBlocks> source = {{from, blocks, page, page}};
  const std::vector<MutableBlocks> destination = {{to, blocks, page, page}};
  Compare(state, from, to, page, pairs, [&] { benchmark::DoNotOptimize(SwapBlocks(source, destination, pairs).ok()); });
}

void BM_Transpose(benchmark::State& state, Order a, Order b) {
  auto from = Memory(), to = Memory();
  const KvShape shape = {.heads = 8, .head_dim = 128, .block_size = state.range(0)};
  // One part alone, so that a page is one run of memory for memcpy as well.
  const PageLayout source = JointKv(shape, a), destination = JointKv(shape, b);
  const int64_t page = source.page_bytes[0], blocks = kBytes / page;
  const auto pairs = Shuffled(blocks);
  const std::vector<ConstBlocks> planes_from = {{from, blocks, page, page}};
  const std::vector<MutableBlocks> planes_to = {{to, blocks, page, page}};
  Compare(state, from, to, page, pairs,
          [&] { benchmark::DoNotOptimize(TransposeBlocks({&source, planes_from}, {&destination, planes_to}, pairs).ok()); });
}

void BM_StoreRows(benchmark::State& state, Order order) {
  auto from = Memory(), to = Memory();
  const PageLayout layout = JointKv({.heads = 8, .head_dim = 128, .block_size = 128}, order);
  const auto part = *RowsOf<std::byte>(layout, 0, to, kBytes / layout.page_bytes[0]);
  const int64_t page = layout.page_bytes[0] / 2, row = page / 128;
  auto pairs = Shuffled(part.num_blocks);
  std::vector<int64_t> slots;
  for (BlockPair& p : pairs) {
    for (int64_t t = 0; t < 128; ++t) slots.push_back(p.dst * 128 + t);
    p.dst *= 2;
  }
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i].src = static_cast<int64_t>(i);
  const DenseRows<const std::byte> rows = {from, static_cast<int64_t>(slots.size()), row, row};
  Compare(state, from, to, page, pairs, [&] { benchmark::DoNotOptimize(StoreRows(rows, std::span<const int64_t>(slots), part).ok()); });
}

// Requests of equal length that end at position 40,000 or so.
void BM_Slots(benchmark::State& state) {
  const int64_t requests = state.range(0), each = state.range(1), cp = state.range(2), tokens = requests * each, width = 512;
  std::vector<int32_t> table(static_cast<size_t>(requests * width)), starts;
  std::vector<int64_t> positions, slots(static_cast<size_t>(tokens));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937_64(1));
  for (int64_t r = 0; r <= requests; ++r) starts.push_back(static_cast<int32_t>(r * each));
  for (int64_t t = 0; t < tokens; ++t) positions.push_back(40000 + t / each * 17 % 5000 + t % each);
  const SlotMapping m = {.query_start_loc = starts,
                         .positions = positions,
                         .block_table = {table, requests, width, width},
                         .num_blocks = requests * width,
                         .block_size = 128,
                         .context_parallel = {cp, 0, 1},
                         .pad = kPadSlot};
  for (auto _ : state) {
    if (!ComputeSlots(m, std::span<int64_t>(slots)).ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(slots.data());
    benchmark::ClobberMemory();
  }
  state.counters["tokens"] = static_cast<double>(tokens);
}

BENCHMARK(BM_CopyBlocks)->Arg(16 << 10)->Arg(64 << 10)->Arg(512 << 10)->UseManualTime();
BENCHMARK(BM_SwapBlocks)->Arg(16 << 10)->Arg(64 << 10)->Arg(512 << 10)->UseManualTime();
// Block sizes of 16 and 128: parts of 32 and 256 KiB.
BENCHMARK_CAPTURE(BM_Transpose, token_to_head, Order::kTokenMajor, Order::kHeadMajor)->Arg(16)->Arg(128)->UseManualTime();
BENCHMARK_CAPTURE(BM_Transpose, head_to_token, Order::kHeadMajor, Order::kTokenMajor)->Arg(16)->Arg(128)->UseManualTime();
BENCHMARK_CAPTURE(BM_Transpose, token_to_fractal, Order::kTokenMajor, Order::kFractal)->Arg(16)->Arg(128)->UseManualTime();
BENCHMARK_CAPTURE(BM_Transpose, fractal_to_token, Order::kFractal, Order::kTokenMajor)->Arg(16)->Arg(128)->UseManualTime();
BENCHMARK_CAPTURE(BM_Transpose, head_to_fractal, Order::kHeadMajor, Order::kFractal)->Arg(16)->Arg(128)->UseManualTime();
BENCHMARK_CAPTURE(BM_StoreRows, token_major, Order::kTokenMajor)->UseManualTime();
BENCHMARK_CAPTURE(BM_StoreRows, head_major, Order::kHeadMajor)->UseManualTime();
BENCHMARK_CAPTURE(BM_StoreRows, fractal, Order::kFractal)->UseManualTime();
// {requests, tokens each, context-parallel ranks}
BENCHMARK(BM_Slots)
    ->Args({1, 4096, 1})
    ->Args({16, 256, 1})
    ->Args({256, 16, 1})
    ->Args({256, 1, 1})
    ->Args({4096, 1, 1})
    ->Args({1, 4096, 4})
    ->Args({256, 1, 4});

}  // namespace
}  // namespace jumar::memory::kv
