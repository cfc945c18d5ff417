// The fused pre-work of multi-head latent attention, by libs/attention/mla.
#include "libs/attention/mla/mla_prolog.h"

#include <algorithm>
#include <string>
#include <vector>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/kv_rows.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {
namespace {

using attention::MlaPrologArgs;
using attention::MlaWeight;

// What the pages take, as the hardware does: of V2, CANN's page; of V3, torch_npu's of npu_mla_prolog_v3, which is younger than CANN's.
struct Sizes {
  std::vector<int64_t> hidden, q_rank, nope;
  bool any_block_of_16s;  // 16, 32 .. 1024; else 16 and 128
};
const Sizes kV2 = {{7168, 7680}, {1536}, {128}, false};
const Sizes kV3 = {{1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192}, {1536, 2048}, {128, 192}, true};
const std::vector<int64_t> kHeads = {1, 2, 4, 8, 16, 32, 64, 128}, kKvRank = {512}, kRope = {64};

void RequireSize(const char* name, int64_t value, const std::vector<int64_t>& allowed) {
  std::string list;
  for (int64_t a : allowed) list += (list.empty() ? "" : ", ") + std::to_string(a);
  Require(std::find(allowed.begin(), allowed.end(), value) != allowed.end(), name, " is ", value, "; the operator takes ", list);
}

struct Call {
  aclTensor x, w_dq, w_uq_qr, w_uk, w_dkv_kr, gamma_cq, gamma_ckv, sin, cos;
  std::optional<aclTensor> index;
  aclTensor kv_cache, kr_cache;
  std::optional<aclTensor> x_scale, dq_scale, uq_qr_scale, dkv_kr_scale, ckv_scale, ckr_scale, smooth;
  double epsilon_cq, epsilon_ckv;
  std::string mode;
  aclTensor query, query_rope;
  double query_scale = 1, kv_scale = 1;
};

const void* Dense(const char* name, const aclTensor& t, DType dtype, int64_t elements) {
  Require(IsBaseFormat(t.format) && t.dtype == dtype && IsContiguous(t) && t.numel() == elements, "`", name, "` is ", DTypeName(t.dtype), " of shape ",
          ToString(t.sizes), "; it must be dense, of ", elements, " elements of ", DTypeName(dtype));
  return t.data();
}

bool Given(const std::optional<aclTensor>& t) { return t && t->numel() > 0; }

const float* Floats(const char* name, const std::optional<aclTensor>& t, int64_t elements) {
  return Given(t) ? static_cast<const float*>(Dense(name, *t, DType::kF32, elements)) : nullptr;
}

// A weight [k, n] cast to FRACTAL_NZ as it is.
MlaWeight Weight(const char* name, const aclTensor& t, int64_t k, int64_t n, const char* scale_name, const std::optional<aclTensor>& scale) {
  Require(t.sizes.n == 2 && t.sizes[0] == k && t.sizes[1] == n, "`", name, "` has shape ", ToString(t.sizes), "; it must be [", k, ", ", n, "]");
  Require(t.dtype == DType::kBF16 || t.dtype == DType::kI8, "`", name, "` is ", DTypeName(t.dtype), "; it must be bfloat16 or int8");
  Require(t.format == kFormatFractalNz, "`", name, "` has format ", FormatName(t.format), "; it must be FRACTAL_NZ (29): torch_npu.npu_format_cast");
  const auto shape = quant::FractalNzShape(k, n, ItemSize(t.dtype));
  Check(shape.status());
  Require(t.offset == 0 && t.strides[1] == 1 && t.strides[0] == n && t.storage_sizes.n >= 4 && std::equal(shape->begin(), shape->end(), t.storage_sizes.end() - 4),
          "`", name, "` must be a whole [", k, ", ", n, "] weight, not transposed; its strides are ", ToString(t.strides), " and its storage ",
          ToString(t.storage_sizes));
  const bool int8 = t.dtype == DType::kI8;
  Require(int8 == Given(scale), "`", scale_name, "` is ", int8 ? "null" : "given", ", but `", name, "` is ", DTypeName(t.dtype));
  return {t.data(), quant::WeightLayout::kFractalNzKN, 0, Floats(scale_name, scale, n)};
}

memory::kv::PartRows<std::byte> Cache(const char* name, const aclTensor& t, int64_t width, bool nz) {
  Require(t.sizes.n == 4 && t.sizes[2] == 1 && t.sizes[3] == width, "`", name, "` has shape ", ToString(t.sizes), "; it must be [blocks, block_size, 1, ", width, "]");
  Dense(name, t, DType::kBF16, t.numel());
  const int64_t row = width * 2, block_size = t.sizes[1], chunk = nz ? 32 : row;
  return KvCache(name, t.data(), t.sizes[0], block_size, block_size * row, {row, chunk, nz ? block_size * chunk : row, chunk});
}

Task Plan(const Call& c, const Sizes& sizes) {
  const bool flat = c.x.sizes.n == 2;
  Require(flat || c.x.sizes.n == 3, "`tokenX` has shape ", ToString(c.x.sizes), "; it must be [tokens, hidden] or [batch, tokens, hidden]");
  Require(c.w_uk.sizes.n == 3 && c.w_dq.sizes.n == 2 && c.cos.sizes.n == c.x.sizes.n, "`weightUk` has shape ", ToString(c.w_uk.sizes), ", `weightDq` ",
          ToString(c.w_dq.sizes), ", `ropeCos` ", ToString(c.cos.sizes), "; they must have 3, 2 and ", c.x.sizes.n, " dimensions");
  MlaPrologArgs args{.type = quant::DType::kBF16, .tokens = flat ? c.x.sizes[0] : c.x.sizes[0] * c.x.sizes[1], .hidden = c.x.sizes[c.x.sizes.n - 1],
                     .q_rank = c.w_dq.sizes[1], .heads = c.w_uk.sizes[0], .nope_dim = c.w_uk.sizes[1], .kv_rank = c.w_uk.sizes[2],
                     .rope_dim = c.cos.sizes[c.cos.sizes.n - 1]};
  RequireSize("the hidden size", args.hidden, sizes.hidden);
  RequireSize("the rank of the queries", args.q_rank, sizes.q_rank);
  RequireSize("the number of heads", args.heads, kHeads);
  RequireSize("the head size without rope", args.nope_dim, sizes.nope);
  RequireSize("the rank of keys and values", args.kv_rank, kKvRank);
  RequireSize("the size of rope", args.rope_dim, kRope);
  Require(c.mode == "PA_BSND" || c.mode == "PA_NZ", "cacheMode is \"", c.mode, "\"; hostcann has PA_BSND and PA_NZ");
  Require(!Given(c.ckv_scale) && !Given(c.ckr_scale), "quantScaleCkv or quantScaleCkr is given; hostcann has no quantised caches here");

  args.w_dq = Weight("weightDq", c.w_dq, args.hidden, args.q_rank, "dequantScaleWDq", c.dq_scale);
  args.w_uq_qr = Weight("weightUqQr", c.w_uq_qr, args.q_rank, args.heads * (args.nope_dim + args.rope_dim), "dequantScaleWUqQr", c.uq_qr_scale);
  args.w_dkv_kr = Weight("weightDkvKr", c.w_dkv_kr, args.hidden, args.kv_rank + args.rope_dim, "dequantScaleWDkvKr", c.dkv_kr_scale);
  args.x = Dense("tokenX", c.x, args.w_dq.scale != nullptr ? DType::kI8 : DType::kBF16, args.tokens * args.hidden), args.x_stride = args.hidden;
  args.x_scale = Floats("dequantScaleX", c.x_scale, args.tokens);
  args.w_uk = Dense("weightUk", c.w_uk, DType::kBF16, args.heads * args.nope_dim * args.kv_rank);
  args.gamma_cq = Dense("rmsnormGammaCq", c.gamma_cq, DType::kBF16, args.q_rank);
  args.gamma_ckv = Dense("rmsnormGammaCkv", c.gamma_ckv, DType::kBF16, args.kv_rank);
  args.epsilon_cq = static_cast<float>(c.epsilon_cq), args.epsilon_ckv = static_cast<float>(c.epsilon_ckv);
  args.query_scale = static_cast<float>(c.query_scale), args.kv_scale = static_cast<float>(c.kv_scale);
  args.smooth_cq = Floats("smoothScalesCq", c.smooth, args.q_rank);
  args.cos = Dense("ropeCos", c.cos, DType::kBF16, args.tokens * args.rope_dim), args.sin = Dense("ropeSin", c.sin, DType::kBF16, args.tokens * args.rope_dim);
  args.table_stride = args.rope_dim;
  args.query = const_cast<void*>(Dense("query", c.query, DType::kBF16, args.tokens * args.heads * args.kv_rank));
  args.query_head_stride = args.kv_rank, args.query_token_stride = args.heads * args.kv_rank;
  args.query_rope = const_cast<void*>(Dense("queryRope", c.query_rope, DType::kBF16, args.tokens * args.heads * args.rope_dim));
  args.query_rope_head_stride = args.rope_dim, args.query_rope_token_stride = args.heads * args.rope_dim;

  args.kv_cache = Cache("kvCache", c.kv_cache, args.kv_rank, c.mode == "PA_NZ");
  args.kr_cache = Cache("krCache", c.kr_cache, args.rope_dim, c.mode == "PA_NZ");
  const int64_t block = args.kv_cache.block_size;
  Require(block == args.kr_cache.block_size && args.kv_cache.num_blocks == args.kr_cache.num_blocks, "kvCache ", ToString(c.kv_cache.sizes), " and krCache ",
          ToString(c.kr_cache.sizes), " have different blocks");
  Require(sizes.any_block_of_16s ? block % 16 == 0 && block >= 16 && block <= 1024 : block == 16 || block == 128, "the block size is ", block, "; the operator takes ",
          sizes.any_block_of_16s ? "multiples of 16 to 1024" : "16 and 128");
  Require(c.index.has_value(), "argument `cacheIndex` is null; cacheMode ", c.mode, " needs it");
  const auto* slots = static_cast<const int64_t*>(Dense("cacheIndex", *c.index, DType::kI64, args.tokens));
  if (args.kv_cache.num_blocks > 0) args.slots = slots;
  return [args] { Check(attention::MlaProlog(args, ComputeExecutor())); };
}

}  // namespace

#define MLA_WEIGHTS Raw(token_x), Raw(weight_dq), Raw(weight_uq_qr), Raw(weight_uk), Raw(weight_dkv_kr), Raw(rmsnorm_gamma_cq), Raw(rmsnorm_gamma_ckv), Raw(rope_sin), Raw(rope_cos)
#define MLA_SCALES                                                                                                                                     \
  OptRaw(dequant_scale_x), OptRaw(dequant_scale_w_dq), OptRaw(dequant_scale_w_uq_qr), OptRaw(dequant_scale_w_dkv_kr), OptRaw(quant_scale_ckv),             \
      OptRaw(quant_scale_ckr), OptRaw(smooth_scales_cq)
#define MLA_CALL(index)                                                                                                                                \
  Call {                                                                                                                                               \
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos, index, kv_cache, kr_cache,      \
        dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr, quant_scale_ckv, quant_scale_ckr, smooth_scales_cq,          \
        rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv, cache_mode, query, query_rope                                                                           \
  }

// dequant_scale_q_nope has a number only where the query is int8, and so hostcann leaves it alone.
ACLNN_PLAN(MlaPrologV2WeightNz, MLA_WEIGHTS, Raw(cache_index), Raw(kv_cache), Raw(kr_cache), MLA_SCALES, F64(rmsnorm_epsilon_cq), F64(rmsnorm_epsilon_ckv),
           Text(cache_mode), Raw(query), Raw(query_rope), OptRaw(dequant_scale_q_nope)) {
  return Plan(MLA_CALL(cache_index), kV2);
}

// As torch_npu calls it of CANN 8.5 on: no queryNormFlag, which the page has, and kNopeClipAlpha is a tensor.
ACLNN_PLAN(MlaPrologV3WeightNz, MLA_WEIGHTS, Raw(kv_cache), Raw(kr_cache), OptRaw(cache_index), MLA_SCALES, OptRaw(actual_seq_len), OptRaw(k_nope_clip_alpha),
           F64(rmsnorm_epsilon_cq), F64(rmsnorm_epsilon_ckv), Text(cache_mode), I64(weight_quant_mode), I64(kv_quant_mode), I64(query_quant_mode),
           I64(ckvkr_repo_mode), I64(quant_scale_repo_mode), I64(tile_size), F64(qc_qr_scale), F64(kc_scale), Raw(query), Raw(query_rope),
           OptRaw(dequant_scale_q_nope), OptRaw(query_norm), OptRaw(dequant_scale_q_norm)) {
  Require(!Given(query_norm), "query_norm is asked for (query_norm_flag); hostcann doesn't give it");
  Require(kv_quant_mode == 0 && query_quant_mode == 0 && ckvkr_repo_mode == 0 && quant_scale_repo_mode == 0, "kv_quant_mode is ", kv_quant_mode,
          ", query_quant_mode ", query_quant_mode, ", ckvkr_repo_mode ", ckvkr_repo_mode, ", quant_scale_repo_mode ", quant_scale_repo_mode,
          "; hostcann has caches and queries of bfloat16, where all are 0");
  Require(!Given(k_nope_clip_alpha), "k_nope_clip_alpha is given; it belongs to quantised caches, which hostcann doesn't have here");
  const int64_t mode = weight_dq.dtype == DType::kI8 ? 2 : weight_uq_qr.dtype == DType::kI8 ? 1 : 0;
  Require(weight_quant_mode == mode, "weight_quant_mode is ", weight_quant_mode, ", but weightDq is ", DTypeName(weight_dq.dtype), " and weightUqQr ",
          DTypeName(weight_uq_qr.dtype), ", which is ", mode);
  Call call = MLA_CALL(cache_index);
  call.query_scale = qc_qr_scale, call.kv_scale = kc_scale;
  return Plan(call, kV3);
}

}  // namespace jumar::hostcann::aclnn
