#include "libs/attention/indexer/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

double Load(const LightningIndexerArgs& args, const void* data, int64_t i) {
  if (args.format) return quant::Decode(*args.format, static_cast<const uint8_t*>(data)[i]);
  return quant::LoadScalar(args.type, data, i);
}

}  // namespace

IndexerReferenceRow IndexerReference(const LightningIndexerArgs& args, int64_t seq, int64_t query) {
  constexpr double u = 0x1p-24;
  const int64_t query_start = args.query_starts != nullptr ? args.query_starts[seq] : seq == 0 ? 0 : args.query_ends[seq - 1];
  const int64_t num_queries = args.query_ends[seq] - query_start, token = query_start + query;
  int64_t visible = args.kv_lens[seq] / args.cmp_ratio;
  if (args.causal) {
    const int64_t seen = args.kv_lens[seq] - num_queries + query + 1;
    visible = seen < 0 ? 0 : seen / args.cmp_ratio;
  }
  int64_t kv_start = 0;
  for (int64_t s = 0; s < seq; ++s) kv_start += args.kv_lens[s] / args.cmp_ratio;
  if (args.kv_starts != nullptr) kv_start = args.kv_starts[seq];

  IndexerReferenceRow row;
  for (int64_t s = 0; s < visible; ++s) {
    int64_t k = (kv_start + s) * args.k_token_stride, k_scale = (kv_start + s) * args.k_scales_token_stride;
    if (args.block_table != nullptr) {
      const int64_t block = args.block_table[seq * args.block_table_stride + s / args.block_size], slot = s % args.block_size;
      k = block * args.k_block_stride + slot * args.k_token_stride;
      k_scale = block * args.k_scales_block_stride + slot * args.k_scales_token_stride;
    }
    double score = 0, bound = 0, sum = 0;
    for (int64_t h = 0; h < args.num_heads; ++h) {
      const int64_t q = token * args.q_token_stride + h * args.q_head_stride;
      double product = 0, magnitude = 0;
      for (int64_t d = 0; d < args.head_dim; ++d) {
        const double term = Load(args, args.q, q + d) * Load(args, args.k, k + d);
        product += term;
        magnitude += std::fabs(term);
      }
      double weight = quant::LoadScalar(args.weights_type, args.weights, token * args.weights_token_stride + h);
      if (args.format) weight *= quant::LoadScalar(args.scales_type, args.q_scales, token * args.q_scales_token_stride + h);
      const double relu = product < 0 ? 0 : product;
      score += weight * relu;
      sum += std::fabs(weight) * magnitude;
      const double product_error = args.format == quant::Format::kI8 ? 0 : (args.head_dim + 2) * u * magnitude;
      bound += std::fabs(weight) * (product_error + 2 * u * relu);
    }
    bound += (args.num_heads + 3) * u * sum + 0x1p-100;
    if (args.format) {
      const double scale = quant::LoadScalar(args.scales_type, args.k_scales, k_scale);
      score *= scale;
      bound *= std::fabs(scale);
    }
    row.scores.push_back(score);
    row.bounds.push_back(1.001 * bound);
  }
  return row;
}

std::vector<int32_t> ReferenceIndices(const IndexerReferenceRow& row, int64_t top_k) {
  std::vector<int32_t> order(row.scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const double x = row.scores[a], y = row.scores[b];
    return std::isnan(y) ? !std::isnan(x) : x > y;
  });
  order.resize(top_k, -1);
  return order;
}

}  // namespace jumar::attention
