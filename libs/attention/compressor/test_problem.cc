#include "libs/attention/compressor/test_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr int64_t kGap = 3;  // elements of NaN behind each row
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Normal(std::mt19937& rng, int64_t count, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(normal(rng));
  return numbers;
}

}  // namespace

CompressorProblem::CompressorProblem(const Shape& given, std::vector<int64_t> given_lengths, uint32_t seed)
    : shape(given), lengths(std::move(given_lengths)) {
  std::mt19937 rng(seed);
  std::normal_distribution<double> normal;
  int64_t longest = 1, num_blocks = 0;
  for (int64_t length : lengths) {
    for (auto* rows : {&kv, &gate}) {
      std::vector<char> bytes(static_cast<size_t>(length * width() * quant::SizeOf(shape.type)));
      for (int64_t i = 0; i < length * width(); ++i) quant::StoreScalar(shape.type, (rows == &gate ? 3 : 1) * normal(rng), bytes.data(), i);
      rows->push_back(std::move(bytes));
    }
    longest = std::max(longest, length);
    num_blocks += (length + shape.state_block_size - 1) / shape.state_block_size;
  }
  ape_ = Normal(rng, shape.ratio * width(), 0, 1);
  norm_weight_ = Normal(rng, shape.head_dim, 1, 0.3);
  const int64_t half = shape.rope_dim / 2;
  for (int64_t i = 0; i < longest * half; ++i) {
    const double angle = static_cast<double>(i / half) * std::pow(10000.0, -static_cast<double>(i % half) / std::max<int64_t>(1, half));
    cos_.push_back(static_cast<float>(std::cos(angle)));
    sin_.push_back(static_cast<float>(std::sin(angle)));
  }

  table_width_ = (longest + shape.state_block_size - 1) / shape.state_block_size;
  std::vector<int32_t> blocks(static_cast<size_t>(num_blocks + 2));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), rng);
  block_table.assign(lengths.size() * static_cast<size_t>(table_width_), -1);
  size_t next = 0;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t b = 0; b * shape.state_block_size < lengths[s]; ++b) block_table[s * static_cast<size_t>(table_width_) + static_cast<size_t>(b)] = blocks[next++];
  }
  args = {.type = shape.type, .head_dim = shape.head_dim, .ratio = shape.ratio, .overlap = shape.overlap, .ape = ape_.data(),
          .state_block_stride = shape.state_block_size * 2 * width() + kGap, .state_block_size = shape.state_block_size,
          .num_state_blocks = num_blocks + 2, .state_table_stride = table_width_, .norm_weight = norm_weight_.data(), .epsilon = 1e-5f,
          .rope_dim = shape.rope_dim, .cos = cos_.data(), .sin = sin_.data(), .table_stride = half, .table_rows = longest};
  ForgetState();
}

void CompressorProblem::ForgetState() { state.assign(static_cast<size_t>(args.num_state_blocks * args.state_block_stride), kNan); }

void CompressorProblem::FreeState(int64_t seq, int64_t position) {
  int32_t& block = block_table[static_cast<size_t>(seq * table_width_ + position / shape.state_block_size)];
  if (block >= 0) std::fill_n(state.begin() + block * args.state_block_stride, args.state_block_stride, kNan);
  block = -1;
}

absl::Status CompressorProblem::Run(std::span<const Chunk> chunks, tiling::Executor& executor, std::vector<char>& entries) {
  const int64_t size = quant::SizeOf(shape.type), stride = width() + kGap, row_bytes = width() * size;
  std::vector<int64_t> ends, starts;
  std::vector<int32_t> table;
  int64_t tokens = 0, groups = 0;
  for (const Chunk& chunk : chunks) {
    ends.push_back(tokens += chunk.tokens);
    starts.push_back(chunk.start);
    groups += CompletedGroups(chunk.start, chunk.tokens, shape.ratio);
    const auto row = block_table.begin() + chunk.seq * table_width_;
    table.insert(table.end(), row, row + table_width_);
  }
  call_kv_.assign(static_cast<size_t>(tokens * stride * size), char{-1});
  call_gate_ = call_kv_;
  int64_t token = 0;
  for (const Chunk& chunk : chunks) {
    for (int64_t t = 0; t < chunk.tokens; ++t, ++token) {
      std::memcpy(call_kv_.data() + token * stride * size, kv[static_cast<size_t>(chunk.seq)].data() + (chunk.start + t) * row_bytes, static_cast<size_t>(row_bytes));
      std::memcpy(call_gate_.data() + token * stride * size, gate[static_cast<size_t>(chunk.seq)].data() + (chunk.start + t) * row_bytes, static_cast<size_t>(row_bytes));
    }
  }
  const int64_t out_stride = shape.head_dim + kGap;
  call_out_.assign(static_cast<size_t>(groups * out_stride * size), char{-1});

  CompressorArgs call = args;
  call.num_seqs = static_cast<int64_t>(chunks.size());
  call.query_ends = ends.data(), call.starts = starts.data();
  call.kv = call_kv_.data(), call.kv_stride = stride, call.gate = call_gate_.data(), call.gate_stride = stride;
  call.state = state.data(), call.state_block_table = table.data();
  call.out = call_out_.data(), call.out_stride = out_stride;
  if (auto status = Compress(call, executor); !status.ok()) return status;
  entries.clear();
  for (int64_t g = 0; g < groups; ++g) {
    const char* row = call_out_.data() + g * out_stride * size;
    entries.insert(entries.end(), row, row + shape.head_dim * size);
    if (!std::all_of(row + shape.head_dim * size, row + out_stride * size, [](char c) { return c == char{-1}; })) {
      return absl::InternalError("wrote between the rows of out");
    }
  }
  return absl::OkStatus();
}

}  // namespace jumar::attention
