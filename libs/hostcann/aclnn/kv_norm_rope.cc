// The key and value rows of MLA: normalised, rotated, and written to their caches.
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>

#include <algorithm>

#include "libs/hostcann/aclnn/kv_rows.h"
#include "libs/hostcann/aclnn/quant.h"

namespace jumar::hostcann::aclnn {
namespace {

Tensor RmsNormed(const Tensor& x, const Tensor& gamma, double eps) {
  return at::mul(at::mul(x, at::rsqrt(x.square().mean({-1}, true).add(eps))), F32(gamma).flatten());
}

// Pairs of neighbours are brought to the two halves first.
Tensor Rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor k = x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
  const auto halves = k.chunk(2, -1);
  return at::add(at::mul(k, F32(cos)), at::mul(at::cat({halves[1].neg(), halves[0]}, -1), F32(sin)));
}

// How `cache_mode` says that rows lie in a cache.
struct Mode {
  bool paged, by_block, nz;
};
Mode ParseMode(const std::string& mode) {
  if (mode == "Norm") return {false, false, false};
  if (mode == "PA" || mode == "PA_BNSD") return {true, false, false};
  if (mode == "PA_NZ") return {true, false, true};
  if (mode == "PA_BLK_BNSD") return {true, true, false};
  if (mode == "PA_BLK_NZ") return {true, true, true};
  Fail("cacheMode is \"", mode, "\"; it must be Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ");
}

// Where the cache has the row of each token; negative for one that isn't kept. Norm: [batch, 1, length, d], an index per token within its
// batch. Paged: [blocks, block_size, 1, d], a slot per token or, by block, the first slot of each block of a sequence.
Tensor Slots(const Mode& mode, const Tensor& index, const Tensor& cache, int64_t batch, int64_t tokens) {
  const Tensor flat = index.flatten().to(at::kLong);
  const int64_t block_size = cache.size(1), blocks = (tokens + block_size - 1) / block_size;
  const int64_t needed = mode.by_block ? batch * blocks : batch * tokens;
  Require(flat.numel() == needed, "index has ", flat.numel(), " entries; it must have ", needed);
  if (!mode.paged) {
    const Tensor begins = at::arange(batch).mul(cache.size(2)).repeat_interleave(tokens);
    return at::add(flat, begins).masked_fill(flat.lt(0), -1);
  }
  if (!mode.by_block) return flat;
  const Tensor t = at::arange(tokens).repeat({batch});
  const Tensor page = at::add(t.div(block_size, "floor"), at::arange(batch).mul(blocks).repeat_interleave(tokens));
  const Tensor first = flat.index_select(0, page);
  return at::add(first, t.remainder(block_size)).masked_fill(first.lt(0), -1);
}

// Quantised, if there is a scale.
void Store(const char* name, const Mode& mode, const Tensor& slots, const Tensor& rows, const OptTensor& scale, const OptTensor& offset,
           const Tensor& cache) {
  const int64_t d = cache.size(-1), capacity = cache.numel() / std::max<int64_t>(1, d), block_size = cache.size(1);
  Require(rows.size(-1) == d && cache.is_contiguous(), name, " has rows of ", d, " and must be contiguous; the values have ",
          rows.size(-1));
  Tensor values = rows;
  if (scale) values = at::mul(values, F32(*scale).flatten());
  if (scale && offset) values = at::add(values, F32(*offset).flatten());
  const Tensor stored = at::empty(values.sizes(), cache.options());
  scale ? PutRounded(stored, values) : Put(stored, values);
  const int64_t size = cache.element_size(), row_bytes = d * size, width = size == 1 ? 32 : 16;
  Require(!mode.nz || d % width == 0, name, " has rows of ", d, "; in an NZ mode they must be a multiple of ", width);
  // Without fractals, slot after slot is row after row, across blocks as well.
  const auto where = mode.nz
                         ? KvCache(name, cache.data_ptr(), capacity / block_size, block_size, block_size * row_bytes,
                                   {row_bytes, width * size, block_size * width * size, width * size})
                         : KvCache(name, cache.data_ptr(), 1, capacity, capacity * row_bytes, {row_bytes, row_bytes, row_bytes, row_bytes});
  const Tensor kept = slots.clamp_min(-1).contiguous();  // negative: not kept
  const absl::Status status =
      kv::StoreRows(KvDenseRows(stored.data_ptr(), stored.size(0), row_bytes, row_bytes),
                    std::span(kept.const_data_ptr<int64_t>(), static_cast<size_t>(kept.numel())), where, KvParallel());
  Require(status.ok(), name, ": ", std::string(status.message()));
}

struct Call {
  Tensor kv, gamma, cos, sin, index, k_cache, ckv_cache;
  OptTensor k_scale, ckv_scale, k_offset, ckv_offset, v;
  double eps;
  bool output;
  Tensor k_out, ckv_out;
};

Task Plan(const Call& c, const std::string& cache_mode) {
  const Mode mode = ParseMode(cache_mode);
  Require(c.kv.dim() == 4 && c.kv.size(1) == 1, "kv must be [batch, 1, tokens, width]");
  Require(c.k_cache.dim() == 4 && c.ckv_cache.dim() == 4, "kCache has ", c.k_cache.dim(), " dimensions and ckvCache ", c.ckv_cache.dim(),
          "; they must have 4");
  Require(c.k_scale.has_value() == c.ckv_scale.has_value(), "kRopeScale and cKvScale must be given together");
  const int64_t width = c.kv.size(3), normed = c.gamma.numel(), rope = c.cos.size(-1);
  Require(c.v ? normed == width : normed + rope == width, "kv has ", width, " columns; gamma has ", normed, " and cos ", rope);
  return [=] {
    const int64_t batch = c.kv.size(0), tokens = c.kv.size(2);
    const Tensor kv = F32(c.kv);
    Tensor k, value;
    if (c.v) {  // all of kv is normalised, its first columns are rotated, and the values come apart
      const Tensor y = RmsNormed(kv, c.gamma, c.eps);
      k = at::cat({Rotated(y.narrow(3, 0, rope), c.cos, c.sin), y.narrow(3, rope, width - rope)}, -1);
      value = F32(*c.v);
    } else {
      value = RmsNormed(kv.narrow(3, 0, normed), c.gamma, c.eps);
      k = Rotated(kv.narrow(3, normed, rope), c.cos, c.sin);
    }
    const Tensor keys = k.reshape({batch * tokens, -1}), values = value.reshape({batch * tokens, -1});
    Store("kCache", mode, Slots(mode, c.index, c.k_cache, batch, tokens), keys, c.k_scale, c.k_offset, c.k_cache);
    Store("ckvCache", mode, Slots(mode, c.index, c.ckv_cache, batch, tokens), values, c.ckv_scale, c.ckv_offset, c.ckv_cache);
    if (!c.output) return;
    Put(c.k_out, k);
    Put(c.ckv_out, value);
  };
}

}  // namespace

ACLNN_PLAN(KvRmsNormRopeCache, In(kv), In(gamma), In(cos), In(sin), In(index), Out(k_cache), Out(ckv_cache), OptIn(k_rope_scale),
           OptIn(c_kv_scale), OptIn(k_rope_offset), OptIn(c_kv_offset), F64(eps), Text(cache_mode), Flag(is_output_kv), Out(k_rope),
           Out(c_kv)) {
  return Plan({kv, gamma, cos, sin, index, k_cache, ckv_cache, k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, std::nullopt, eps,
               is_output_kv, k_rope, c_kv},
              cache_mode);
}
ACLNN_PLAN(KvRmsNormRopeCacheV2, In(kv), In(gamma), In(cos), In(sin), In(index), Out(k_cache), Out(ckv_cache), OptIn(k_rope_scale),
           OptIn(c_kv_scale), OptIn(k_rope_offset), OptIn(c_kv_offset), OptIn(v), F64(eps), Text(cache_mode), Flag(is_output_kv),
           Out(k_rope), Out(c_kv)) {
  return Plan({kv, gamma, cos, sin, index, k_cache, ckv_cache, k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v, eps, is_output_kv,
               k_rope, c_kv},
              cache_mode);
}

}  // namespace jumar::hostcann::aclnn
