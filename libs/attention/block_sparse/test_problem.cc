#include "libs/attention/block_sparse/test_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "libs/quant/scalar.h"

namespace jumar::attention {

BlockProblem::BlockProblem(const BlockCase& c, DType type, uint32_t seed, bool small_integers) : shape(c) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const auto number = [&] { return small_integers ? static_cast<float>(static_cast<int>(rng() % 5) - 2) : normal(rng); };
  const int64_t size = quant::SizeOf(type);
  int64_t most = 1, used = 0;
  for (const BlockSequence& s : c.sequences) {
    query_ends.push_back(tokens += s.queries);
    kv_lens.push_back(s.keys);
    most = std::max(most, (s.keys + c.page_size - 1) / c.page_size);
    used += (s.keys + c.page_size - 1) / c.page_size;
  }
  const int64_t pages = used + 2, stride = most + 1, seqs = static_cast<int64_t>(c.sequences.size());
  std::vector<int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), rng);
  block_table.assign(seqs * stride + 1, -3);
  size_t next = 0;
  for (int64_t s = 0; s < seqs; ++s) {
    for (int64_t i = 0; i * c.page_size < kv_lens[s]; ++i) block_table[s * stride + i] = order[next++];
  }

  index_q.assign((tokens * c.kv_heads * c.head_dim + 1) * size, char{-1});
  for (int64_t i = 0; i < tokens * c.kv_heads * c.head_dim; ++i) quant::StoreScalar(type, number(), index_q.data(), i);
  q.assign((tokens * c.heads * c.head_dim + 1) * size, char{-1});
  for (int64_t i = 0; i < tokens * c.heads * c.head_dim; ++i) quant::StoreScalar(type, number(), q.data(), i);
  index_k.assign(pages * c.page_size * c.head_dim * size, char{-1});
  k.assign(pages * c.page_size * c.kv_heads * c.head_dim * size, char{-1});
  v = k;
  for (int64_t s = 0; s < seqs; ++s) {
    for (int64_t j = 0; j < kv_lens[s]; ++j) {
      const int64_t slot = block_table[s * stride + j / c.page_size] * c.page_size + j % c.page_size;
      for (int64_t d = 0; d < c.head_dim; ++d) quant::StoreScalar(type, number(), index_k.data(), slot * c.head_dim + d);
      for (int64_t d = 0; d < c.kv_heads * c.head_dim; ++d) {
        quant::StoreScalar(type, number(), k.data(), slot * c.kv_heads * c.head_dim + d);
        quant::StoreScalar(type, number(), v.data(), slot * c.kv_heads * c.head_dim + d);
      }
    }
  }
  indices.assign(tokens * c.kv_heads * c.top_k + 1, -77);
  out.assign((tokens * c.heads * c.head_dim + 1) * size, char{-1});
  lse.assign(tokens * c.heads + 1, NAN);

  select.type = type, select.num_seqs = seqs, select.num_heads = c.kv_heads, select.num_key_heads = 1, select.head_dim = c.head_dim;
  select.q = index_q.data(), select.q_token_stride = c.kv_heads * c.head_dim, select.q_head_stride = c.head_dim;
  select.k = index_k.data(), select.k_page_stride = c.page_size * c.head_dim, select.k_token_stride = c.head_dim;
  select.block_table = block_table.data(), select.block_table_stride = stride, select.page_size = c.page_size, select.num_pages = pages;
  select.query_ends = query_ends.data(), select.kv_lens = kv_lens.data();
  select.block_tokens = c.block_tokens, select.top_k = c.top_k;
  select.indices = indices.data(), select.indices_token_stride = c.top_k, select.indices_head_stride = tokens * c.top_k;

  PagedAttentionArgs& dense = attention.dense;
  dense.type = type, dense.num_seqs = seqs, dense.num_heads = c.heads, dense.num_kv_heads = c.kv_heads, dense.head_dim = c.head_dim;
  dense.q = q.data(), dense.q_token_stride = c.heads * c.head_dim, dense.q_head_stride = c.head_dim;
  dense.k = k.data(), dense.k_block_stride = c.page_size * c.kv_heads * c.head_dim, dense.k_token_stride = c.kv_heads * c.head_dim;
  dense.v = v.data(), dense.v_block_stride = dense.k_block_stride, dense.v_token_stride = dense.k_token_stride;
  dense.k_head_stride = dense.v_head_stride = c.head_dim;
  dense.block_table = block_table.data(), dense.block_table_stride = stride, dense.block_size = c.page_size, dense.num_blocks = pages;
  dense.query_ends = query_ends.data(), dense.kv_lens = kv_lens.data(), dense.window_right = 0;
  dense.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  dense.out = out.data(), dense.out_token_stride = c.heads * c.head_dim, dense.out_head_stride = c.head_dim;
  dense.lse = lse.data(), dense.lse_token_stride = c.heads, dense.lse_head_stride = 1;
  attention.selected_tokens = c.block_tokens, attention.top_k = c.top_k;
  attention.indices = indices.data(), attention.indices_token_stride = c.top_k, attention.indices_head_stride = tokens * c.top_k;
}

void* BlockProblem::Row(std::vector<char>& cache, int64_t seq, int64_t position, int64_t kv_head) {
  const PagedAttentionArgs& a = attention.dense;
  const int64_t block = block_table[seq * a.block_table_stride + position / a.block_size];
  const int64_t at = block * a.k_block_stride + position % a.block_size * a.k_token_stride + kv_head * a.k_head_stride;
  return cache.data() + at * (a.kv_format ? 1 : quant::SizeOf(a.type));
}

void BlockProblem::UseE4M3Keys(uint32_t seed) {
  std::mt19937 rng(seed);
  const auto code = [&](std::vector<char>& from) {
    std::vector<char> codes(from.size() / quant::SizeOf(select.type));
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<char>(quant::Encode(quant::Format::kE4M3, quant::LoadScalar(select.type, from.data(), i), quant::Overflow::kSaturate));
    }
    from = codes;
  };
  code(index_q), code(index_k);
  select.format = quant::Format::kE4M3, select.q = index_q.data(), select.k = index_k.data();
}

void BlockProblem::UseE4M3Cache(uint32_t seed) {
  std::mt19937 rng(seed);
  const PagedAttentionArgs& a = attention.dense;
  for (auto [cache, scales] : {std::pair{&k, &k_scales}, std::pair{&v, &v_scales}}) {
    std::vector<char> codes(cache->size() / quant::SizeOf(a.type));
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<char>(quant::Encode(quant::Format::kE4M3, quant::LoadScalar(a.type, cache->data(), i), quant::Overflow::kSaturate));
    }
    *cache = codes;
    scales->resize(codes.size() / a.head_dim);
    for (float& scale : *scales) scale = 0.5f + (rng() % 100) / 100.0f;
  }
  attention.dense.kv_format = quant::Format::kE4M3, attention.dense.k = k.data(), attention.dense.v = v.data();
  KvScales scales = {k_scales.data(), KvScales::Per::kSlot, 0, a.block_size * a.num_kv_heads, a.num_kv_heads, 1};
  attention.dense.k_scales = scales;
  scales.data = v_scales.data();
  attention.dense.v_scales = scales;
}

void BlockProblem::RandomLists(uint32_t seed) {
  std::mt19937 rng(seed);
  int64_t most = 1;
  for (int64_t keys : kv_lens) most = std::max(most, keys / shape.block_tokens + 2);
  for (int32_t& index : indices) index = rng() % 4 == 0 ? -1 : static_cast<int32_t>(rng() % most);
}

}  // namespace jumar::attention
