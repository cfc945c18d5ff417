#include "libs/attention/mla/test_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "libs/quant/scalar.h"

namespace jumar::attention {
namespace {

constexpr int64_t kGap = 3;

memory::kv::PartRows<std::byte> Cache(std::vector<std::byte>& bytes, int64_t blocks, int64_t block_size, int64_t width, int64_t size, bool fractal) {
  const int64_t row = width * size, stride = block_size * row + 32, chunk = fractal ? 16 * size : row;
  bytes.resize(static_cast<size_t>(blocks * stride));
  return {bytes, blocks, block_size, stride, {row, chunk, fractal ? block_size * chunk : row, chunk}};
}

}  // namespace

std::vector<char> MlaProblem::Numbers(int64_t rows, int64_t cols, int64_t ld, double deviation, double mean) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<char> bytes(static_cast<size_t>(rows * ld * quant::SizeOf(args.type)), '\xff');
  for (int64_t i = 0; i < rows * cols; ++i) quant::StoreScalar(args.type, normal(rng_), bytes.data(), i / cols * ld + i % cols);
  return bytes;
}

std::vector<float> MlaProblem::Scales(int64_t count, double size) {
  std::uniform_real_distribution<double> uniform(0.5 * size, size);
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(static_cast<float>(uniform(rng_)));
  return scales;
}

MlaWeight MlaProblem::Weight(int64_t k, int64_t n, bool int8) {
  const double deviation = 1 / std::sqrt(static_cast<double>(k));
  if (!int8) {
    kept_.push_back(Numbers(k, n, n + kGap, deviation));
    return {kept_.back().data(), quant::WeightLayout::kKN, n + kGap};
  }
  std::vector<char> codes(static_cast<size_t>(k * (n + kGap)));
  for (char& code : codes) code = static_cast<char>(static_cast<int>(rng_() % 255) - 127);
  kept_.push_back(std::move(codes));
  scales_.push_back(Scales(n, deviation / 64));
  return {kept_.back().data(), quant::WeightLayout::kKN, n + kGap, scales_.back().data()};
}

MlaProblem::MlaProblem(const MlaShape& s, DType type, MlaForm form, bool fractal, uint32_t seed) : rng_(seed) {
  args = {.type = type, .tokens = s.tokens, .hidden = s.hidden, .q_rank = s.q_rank, .heads = s.heads, .nope_dim = s.nope_dim, .kv_rank = s.kv_rank,
          .rope_dim = s.rope_dim, .epsilon_cq = 1e-5f, .epsilon_ckv = 3e-6f, .query_scale = 0.75f, .kv_scale = 1.5f};
  const bool int8_x = form == MlaForm::kInt8, int8_up = form != MlaForm::kFloat;
  const auto keep = [&](std::vector<char> bytes) { return kept_.emplace_back(std::move(bytes)).data(); };
  args.x_stride = s.hidden + kGap;
  if (int8_x) {
    std::vector<char> codes(static_cast<size_t>(s.tokens * args.x_stride));
    for (char& code : codes) code = static_cast<char>(static_cast<int>(rng_() % 256) - 128);
    args.x = keep(std::move(codes));
    args.x_scale = scales_.emplace_back(Scales(s.tokens, 1.0 / 64)).data();
  } else {
    args.x = keep(Numbers(s.tokens, s.hidden, args.x_stride, 1));
  }
  args.w_dq = Weight(s.hidden, s.q_rank, int8_x);
  args.w_uq_qr = Weight(s.q_rank, s.heads * (s.nope_dim + s.rope_dim), int8_up);
  args.w_dkv_kr = Weight(s.hidden, s.kv_rank + s.rope_dim, int8_x);
  args.w_uk = keep(Numbers(s.heads * s.nope_dim, s.kv_rank, s.kv_rank, 1 / std::sqrt(static_cast<double>(s.nope_dim))));
  args.gamma_cq = keep(Numbers(1, s.q_rank, s.q_rank, 0.3, 1));
  args.gamma_ckv = keep(Numbers(1, s.kv_rank, s.kv_rank, 0.3, 1));
  if (int8_up) args.smooth_cq = scales_.emplace_back(Scales(s.q_rank, 2)).data();
  args.table_stride = s.rope_dim + kGap;
  // Not of angles: the two halves of a table are used as they are.
  args.cos = keep(Numbers(s.tokens, s.rope_dim, args.table_stride, 1));
  args.sin = keep(Numbers(s.tokens, s.rope_dim, args.table_stride, 1));

  const int64_t size = quant::SizeOf(type), blocks = s.tokens / s.block_size + 2;
  args.query_head_stride = s.kv_rank + kGap, args.query_token_stride = s.heads * args.query_head_stride + kGap;
  args.query_rope_head_stride = s.rope_dim + 1, args.query_rope_token_stride = s.heads * args.query_rope_head_stride;
  query.resize(static_cast<size_t>(s.tokens * args.query_token_stride * size));
  query_rope.resize(static_cast<size_t>(s.tokens * args.query_rope_token_stride * size));
  args.query = query.data(), args.query_rope = query_rope.data();
  args.kv_cache = Cache(kv_cache, blocks, s.block_size, s.kv_rank, size, fractal);
  args.kr_cache = Cache(kr_cache, blocks, s.block_size, s.rope_dim, size, fractal);
  slots.resize(static_cast<size_t>(args.kv_cache.num_slots()));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), rng_);
  slots.resize(static_cast<size_t>(s.tokens));
  for (size_t t = 2; t < slots.size(); t += 3) slots[t] = -1;
  args.slots = slots.data();
  Forget();
}

void MlaProblem::Forget() {
  for (auto* bytes : {&query, &query_rope}) std::fill(bytes->begin(), bytes->end(), '\xff');
  for (auto* bytes : {&kv_cache, &kr_cache}) std::fill(bytes->begin(), bytes->end(), std::byte{0xff});
}

double MlaProblem::CacheValue(const memory::kv::PartRows<std::byte>& cache, int64_t slot, int64_t column) const {
  const int64_t size = quant::SizeOf(args.type), block = slot / cache.block_size;
  return quant::LoadScalar(args.type, cache.bytes.data() + block * cache.block_stride + cache.rows.ByteOffset(slot % cache.block_size, column * size), 0);
}

}  // namespace jumar::attention
