#include "libs/attention/paged/test_problem.h"

#include <algorithm>
#include <bit>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr int64_t kUnusedBlocks = 3;

}  // namespace

AttentionProblem::AttentionProblem(DType type, const std::vector<SequenceShape>& shapes, int64_t heads, int64_t kv_heads,
                                   int64_t head_dim, int64_t value_head_dim, int64_t block_size, int64_t window_left,
                                   int64_t window_right, uint32_t seed, int64_t gap)
    : shapes(shapes) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const int64_t size = quant::SizeOf(type);
  int64_t tokens = 0, keys = 0, blocks = 0, max_blocks = 0;
  for (const SequenceShape& shape : shapes) {
    query_ends.push_back(tokens += shape.queries);
    kv_lens.push_back(shape.keys);
    keys += shape.keys;
    if (block_size > 0) {
      blocks += (shape.keys + block_size - 1) / block_size;
      max_blocks = std::max(max_blocks, (shape.keys + block_size - 1) / block_size);
    }
  }
  args.type = type;
  args.num_seqs = shapes.size();
  args.num_heads = heads;
  args.num_kv_heads = kv_heads;
  args.head_dim = head_dim;
  args.value_head_dim = value_head_dim;
  args.q_head_stride = head_dim + gap;
  args.q_token_stride = heads * args.q_head_stride;
  args.out_head_stride = value_head_dim + gap;
  args.out_token_stride = heads * args.out_head_stride;
  args.k_head_stride = head_dim + gap;
  args.k_token_stride = kv_heads * args.k_head_stride;
  args.v_head_stride = value_head_dim + gap;
  args.v_token_stride = kv_heads * args.v_head_stride;
  args.query_ends = query_ends.data();
  args.kv_lens = kv_lens.data();
  args.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  args.window_left = window_left;
  args.window_right = window_right;
  int64_t slots = keys;
  if (block_size > 0) {
    args.block_size = block_size;
    args.num_blocks = blocks + kUnusedBlocks;
    args.k_block_stride = block_size * args.k_token_stride;
    args.v_block_stride = block_size * args.v_token_stride;
    args.block_table_stride = max_blocks + 1;
    slots = args.num_blocks * block_size;
    std::vector<int32_t> free(args.num_blocks);  // a random permutation of the blocks
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), rng);
    block_table.assign(std::max<int64_t>(1, args.num_seqs * args.block_table_stride), -1);
    for (size_t s = 0; s < shapes.size(); ++s) {
      for (int64_t b = 0; b * block_size < shapes[s].keys; ++b) {
        block_table[s * args.block_table_stride + b] = free.back();
        free.pop_back();
      }
    }
    args.block_table = block_table.data();
  }

  q.assign(tokens * args.q_token_stride * size, char{-1});  // all bits set: NaN in every type
  k.assign(slots * args.k_token_stride * size, char{-1});
  v.assign(slots * args.v_token_stride * size, char{-1});
  out.assign(tokens * args.out_token_stride * size, char{-1});
  lse.assign(tokens * heads, NAN);
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = out.data();
  args.lse = lse.data();
  args.lse_token_stride = heads;
  args.lse_head_stride = 1;

  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < head_dim; ++d) {
        quant::StoreScalar(type, normal(rng), q.data(), t * args.q_token_stride + h * args.q_head_stride + d);
      }
    }
  }
  for (size_t s = 0; s < shapes.size(); ++s) {
    for (int64_t j = 0; j < shapes[s].keys; ++j) {
      for (int64_t h = 0; h < kv_heads; ++h) {
        for (int64_t d = 0; d < head_dim; ++d) quant::StoreScalar(type, normal(rng), K(s, j, h), d);
        for (int64_t d = 0; d < value_head_dim; ++d) quant::StoreScalar(type, normal(rng), V(s, j, h), d);
      }
    }
  }
}

namespace {
char* Row(std::vector<char>& cache, const AttentionProblem& p, int64_t seq, int64_t position, int64_t kv_head, int64_t block_stride,
          int64_t token_stride, int64_t head_stride) {
  const PagedAttentionArgs& args = p.args;
  int64_t offset = 0;
  if (args.block_size > 0) {
    offset = p.block_table[seq * args.block_table_stride + position / args.block_size] * block_stride +
             position % args.block_size * token_stride;
  } else {
    offset = (std::accumulate(p.kv_lens.begin(), p.kv_lens.begin() + seq, int64_t{0}) + position) * token_stride;
  }
  return cache.data() + (offset + kv_head * head_stride) * (args.kv_format ? 1 : quant::SizeOf(args.type));
}
}  // namespace

void* AttentionProblem::K(int64_t seq, int64_t position, int64_t kv_head) {
  return Row(k, *this, seq, position, kv_head, args.k_block_stride, args.k_token_stride, args.k_head_stride);
}

void* AttentionProblem::V(int64_t seq, int64_t position, int64_t kv_head) {
  return Row(v, *this, seq, position, kv_head, args.v_block_stride, args.v_token_stride, args.v_head_stride);
}

void AttentionProblem::Quantize(quant::Format format, TestScales k_kind, TestScales v_kind, uint32_t seed) {
  std::mt19937 rng(seed);
  const int64_t size = quant::SizeOf(args.type);
  const int64_t keys = std::accumulate(kv_lens.begin(), kv_lens.end(), int64_t{0});
  const int64_t longest = kv_lens.empty() ? 0 : *std::max_element(kv_lens.begin(), kv_lens.end());
  args.kv_format = format;
  const char poison = format == quant::Format::kI8 ? char{-128} : char{-1};
  k.assign(k.size() / size, poison);
  v.assign(v.size() / size, poison);
  args.k = k.data();
  args.v = v.data();
  // Dequantised numbers are about as large as those of a normal distribution.
  const float unit = format == quant::Format::kI8 ? 0x1p-6f : format == quant::Format::kE4M3 ? 0x1p-4f : 0x1p-2f;
  std::uniform_real_distribution<float> scale(0.5f * unit, 1.5f * unit);
  if (k_kind == TestScales::kNone) args.scale *= unit;
  const auto code = [&] {
    for (;;) {
      const uint8_t c = static_cast<uint8_t>(rng());
      if (std::fabs(quant::Decode(format, c)) * unit <= 3) return static_cast<char>(c);
    }
  };
  const auto fill = [&](TestScales kind, int64_t dim, std::vector<float>& data, KvScales& out) {
    const int64_t heads = args.num_kv_heads;
    data.clear();
    out = {};
    if (kind == TestScales::kNone) return;
    if (kind == TestScales::kSlot || kind == TestScales::kPosition) {
      const bool by_slot = kind == TestScales::kSlot, paged = args.block_size > 0;
      const int64_t tokens = !by_slot ? longest : paged ? args.block_size : keys;
      const int64_t outer = !by_slot ? args.num_seqs : paged ? args.num_blocks : 1;
      out.per = by_slot ? KvScales::Per::kSlot : KvScales::Per::kPosition;
      out.token_stride = 1;
      out.head_stride = tokens;
      (by_slot ? out.block_stride : out.seq_stride) = heads * tokens;
      data.assign(std::max<int64_t>(1, outer * heads * tokens), NAN);
      int64_t start = 0;
      for (size_t s = 0; s < shapes.size(); start += shapes[s++].keys) {
        for (int64_t j = 0; j < shapes[s].keys; ++j) {
          const int64_t token = !by_slot ? s * out.seq_stride + j
                                : paged  ? block_table[s * args.block_table_stride + j / args.block_size] * out.block_stride + j % args.block_size
                                         : start + j;
          for (int64_t h = 0; h < heads; ++h) data[token + h * out.head_stride] = scale(rng);
        }
      }
    } else {
      const bool per_channel = kind == TestScales::kChannel || kind == TestScales::kStridedChannel;
      out.channel_stride = kind == TestScales::kChannel ? 1 : kind == TestScales::kStridedChannel ? 3 : 0;
      out.head_stride = kind == TestScales::kTensor ? 0 : kind == TestScales::kHead ? 2 : dim * out.channel_stride;
      data.assign(1 + (heads - 1) * out.head_stride + (dim - 1) * out.channel_stride, NAN);
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < (per_channel ? dim : 1); ++d) data[h * out.head_stride + d * out.channel_stride] = scale(rng);
      }
    }
    out.data = data.data();
  };
  fill(k_kind, args.head_dim, k_scales, args.k_scales);
  fill(v_kind, args.value_head_dim, v_scales, args.v_scales);
  for (size_t s = 0; s < shapes.size(); ++s) {
    for (int64_t j = 0; j < shapes[s].keys; ++j) {
      for (int64_t h = 0; h < args.num_kv_heads; ++h) {
        for (int64_t d = 0; d < args.head_dim; ++d) static_cast<char*>(K(s, j, h))[d] = code();
        for (int64_t d = 0; d < args.value_head_dim; ++d) static_cast<char*>(V(s, j, h))[d] = code();
      }
    }
  }
}

void AttentionProblem::SplitRope(int64_t dims) {
  const int64_t size = quant::SizeOf(args.type), gap = 5;
  // Rows lie one after the other in either memory, so a row's number tells where its second part goes.
  const auto split = [&](std::vector<char>& from, int64_t row_stride, std::vector<char>& to) {
    const int64_t rows = static_cast<int64_t>(from.size()) / (row_stride * size);
    to.assign(rows * (dims + gap) * size, char{-1});
    for (int64_t r = 0; r < rows; ++r) {
      char* part = from.data() + (r * row_stride + args.head_dim - dims) * size;
      std::copy(part, part + dims * size, to.data() + r * (dims + gap) * size);
      std::fill(part, part + dims * size, char{-1});
    }
  };
  split(q, args.q_head_stride, q_rope);
  split(k, args.k_head_stride, k_rope);
  args.q_rope = q_rope.data(), args.q_rope_head_stride = dims + gap, args.q_rope_token_stride = args.num_heads * (dims + gap);
  args.k_rope = k_rope.data(), args.k_rope_head_stride = dims + gap, args.k_rope_token_stride = args.num_kv_heads * (dims + gap);
  args.k_rope_block_stride = args.block_size * args.k_rope_token_stride;
  args.head_dim -= dims;
  args.rope_dim = dims;
}

char* AttentionProblem::Out(int64_t token, int64_t head) {
  return out.data() + (token * args.out_token_stride + head * args.out_head_stride) * quant::SizeOf(args.type);
}

void AttentionProblem::PoisonOutput() {
  std::fill(out.begin(), out.end(), char{-1});
  std::fill(lse.begin(), lse.end(), NAN);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, std::bit_cast<uint32_t, float>, std::bit_cast<uint32_t, float>);
}

}  // namespace jumar::attention
