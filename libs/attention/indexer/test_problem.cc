#include "libs/attention/indexer/test_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

void Store(const LightningIndexerArgs& args, void* data, int64_t i, float value) {
  if (!args.format) return quant::StoreScalar(args.type, value, data, i);
  static_cast<uint8_t*>(data)[i] = quant::Encode(*args.format, value, quant::Overflow::kSaturate);
}

}  // namespace

const char* Name(Keys keys) {
  switch (keys) {
    case Keys::kF32: return "float32";
    case Keys::kF16: return "float16";
    case Keys::kBF16: return "bfloat16";
    case Keys::kI8: return "int8";
    case Keys::kE4M3: return "e4m3";
  }
  return "";
}

IndexerProblem::IndexerProblem(const IndexerCase& c, Keys keys, uint32_t seed, bool small_integers) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  args.type = keys == Keys::kF32 ? DType::kF32 : keys == Keys::kF16 ? DType::kF16 : DType::kBF16;
  if (keys == Keys::kI8) args.format = quant::Format::kI8;
  if (keys == Keys::kE4M3) args.format = quant::Format::kE4M3;
  args.scales_type = keys == Keys::kI8 ? DType::kF16 : DType::kF32;
  args.weights_type = keys == Keys::kE4M3 ? DType::kF32 : keys == Keys::kBF16 ? DType::kBF16 : DType::kF16;
  args.num_seqs = static_cast<int64_t>(c.sequences.size());
  args.num_heads = c.heads, args.head_dim = c.head_dim, args.top_k = c.top_k;
  args.cmp_ratio = c.cmp_ratio, args.causal = c.causal;
  const int64_t element = args.format ? 1 : quant::SizeOf(args.type), gap = 16;
  const auto number = [&] { return small_integers ? static_cast<float>(static_cast<int>(rng() % 5) - 2) : normal(rng) * (args.format ? 20 : 1); };

  int64_t tokens = 0, entries = 0, blocks = 0, most_blocks = 1;
  for (const SequenceShape& s : c.sequences) {
    tokens += s.queries;
    query_ends.push_back(tokens);
    kv_lens.push_back(s.tokens);
    entries += s.tokens / c.cmp_ratio;
    if (c.block_size > 0) {
      const int64_t used = (s.tokens / c.cmp_ratio + c.block_size - 1) / c.block_size;
      blocks += used;
      most_blocks = std::max(most_blocks, used);
    }
  }
  args.query_ends = query_ends.data(), args.kv_lens = kv_lens.data();

  args.q_head_stride = c.head_dim + gap, args.q_token_stride = c.heads * args.q_head_stride + gap;
  q.assign(tokens * args.q_token_stride * element, char{-1});
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t d = 0; d < c.head_dim; ++d) Store(args, q.data(), t * args.q_token_stride + h * args.q_head_stride + d, number());
    }
  }
  args.weights_token_stride = args.q_scales_token_stride = c.heads + 3;
  weights.assign(tokens * args.weights_token_stride * 4, char{-1});
  q_scales = weights;
  for (int64_t i = 0; i < tokens * args.weights_token_stride; ++i) {
    if (i % args.weights_token_stride >= c.heads) continue;
    quant::StoreScalar(args.weights_type, small_integers ? static_cast<int>(rng() % 4) - 1 : normal(rng), weights.data(), i);
    quant::StoreScalar(args.scales_type, small_integers ? 0.5f * (1 + rng() % 2) : 0.01f + 0.001f * (rng() % 100), q_scales.data(), i);
  }

  args.k_token_stride = c.head_dim + gap, args.k_scales_token_stride = 2;
  int64_t rows = entries;
  if (c.block_size > 0) {
    args.block_size = c.block_size, args.num_blocks = blocks + 3, args.block_table_stride = most_blocks + 1;
    args.k_block_stride = c.block_size * args.k_token_stride + gap;
    args.k_scales_block_stride = c.block_size * args.k_scales_token_stride + 1;
    rows = args.num_blocks * (c.block_size + 1);
    std::vector<int32_t> order(args.num_blocks);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng);
    block_table.assign(args.num_seqs * args.block_table_stride + 1, -7);
    size_t next = 0;
    for (int64_t s = 0; s < args.num_seqs; ++s) {
      const int64_t used = (kv_lens[s] / c.cmp_ratio + c.block_size - 1) / c.block_size;
      for (int64_t i = 0; i < used; ++i) block_table[s * args.block_table_stride + i] = order[next++];
    }
    args.block_table = block_table.data();
  }
  k.assign(rows * args.k_token_stride * element + 64, char{-1});
  k_scales.assign(rows * args.k_scales_token_stride * 4 + 64, char{-1});
  args.q = q.data(), args.k = k.data(), args.weights = weights.data();
  if (args.format) args.q_scales = q_scales.data(), args.k_scales = k_scales.data();
  for (int64_t s = 0; s < args.num_seqs; ++s) {
    for (int64_t e = 0; e < kv_lens[s] / c.cmp_ratio; ++e) {
      for (int64_t d = 0; d < c.head_dim; ++d) SetKey(s, e, d, number());
      const int64_t row = KeyRow(s, e);
      const int64_t scale = args.block_table == nullptr ? row / args.k_token_stride * args.k_scales_token_stride
                                                        : row / args.k_block_stride * args.k_scales_block_stride +
                                                              row % args.k_block_stride / args.k_token_stride * args.k_scales_token_stride;
      quant::StoreScalar(args.scales_type, small_integers ? 0.25f * (1 + rng() % 2) : 0.01f + 0.001f * (rng() % 100), k_scales.data(), scale);
    }
  }
  args.indices_token_stride = args.scores_token_stride = c.top_k + 1;
  indices.assign(tokens * args.indices_token_stride + 1, -99);
  scores.assign(tokens * args.scores_token_stride + 1, -99);
  args.indices = indices.data(), args.scores = scores.data();
}

int64_t IndexerProblem::KeyRow(int64_t seq, int64_t entry) const {
  if (args.block_table != nullptr) {
    return args.block_table[seq * args.block_table_stride + entry / args.block_size] * args.k_block_stride +
           entry % args.block_size * args.k_token_stride;
  }
  for (int64_t s = 0; s < seq; ++s) entry += kv_lens[s] / args.cmp_ratio;
  return entry * args.k_token_stride;
}

void IndexerProblem::SetKey(int64_t seq, int64_t entry, int64_t d, float value) { Store(args, k.data(), KeyRow(seq, entry) + d, value); }

}  // namespace jumar::attention
