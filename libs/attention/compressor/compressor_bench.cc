// The compressor over the registry's sizes, against what the machine can read in the same run:
//   ReadBandwidth   compare with the counter bytes: rows of kv and gate read, state written, entries written
// JUMAR_SIMD=AVX2 forces an instruction set; JUMAR_BENCH_THREADS sets the threads (2).

#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "libs/attention/compressor/compressor.h"
#include "libs/attention/compressor/test_problem.h"
#include "libs/quant/bench_util.h"

namespace jumar::attention {
namespace {

void Run(benchmark::State& state, const CompressorProblem::Shape& shape, int64_t tokens, int64_t start) {
  tiling::Executor& pool = quant::BenchmarkPool();
  CompressorProblem problem(shape, {start + tokens}, 1);
  std::vector<char> out;
  if (start > 0 && !problem.Run(std::vector<Chunk>{{0, 0, start}}, pool, out).ok()) return state.SkipWithError("the prefix failed");

  const int64_t size = quant::SizeOf(shape.type), width = problem.width(), groups = CompletedGroups(start, tokens, shape.ratio), end = tokens;
  out.resize(static_cast<size_t>(groups * problem.out_bytes()));
  CompressorArgs args = problem.args;
  args.num_seqs = 1, args.query_ends = &end, args.starts = &start;
  args.kv = problem.kv[0].data() + start * width * size, args.gate = problem.gate[0].data() + start * width * size;
  args.kv_stride = args.gate_stride = width;
  args.state = problem.state.data(), args.state_block_table = problem.block_table.data();
  args.out = out.data(), args.out_stride = shape.head_dim;
  for (auto _ : state) {
    if (!Compress(args, pool).ok()) state.SkipWithError("compressor failed");
  }
  state.counters["bytes"] = quant::Rate(static_cast<double>(tokens * 2 * width * (size + 4) + groups * problem.out_bytes()));
  state.SetLabel(tiling::SimdTarget());
}

const int registered = [] {
  quant::RegisterMachineLimits();
#define JUMAR_COMPRESSOR_BENCH(name, head_dim, ratio, overlap, rope_dim, state_block_size, tokens, start)                        \
  benchmark::RegisterBenchmark("Compressor/" #name, [](benchmark::State& state) {                                               \
    Run(state, {DType::kBF16, head_dim, ratio, overlap, rope_dim, state_block_size}, tokens, start);                            \
  })->UseRealTime()->Unit(benchmark::kMicrosecond);
#include "libs/attention/compressor/cases.inc"
  return 0;
}();

}  // namespace
}  // namespace jumar::attention
