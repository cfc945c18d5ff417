#include "libs/attention/mla/mla_prolog.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "libs/attention/rows/rows.h"
#include "libs/memory/kv/rows.h"
#include "libs/quant/convert.h"
#include "libs/quant/int8_gemm/int8_gemm.h"
#include "libs/quant/int8_gemm/row_quant.h"
#include "libs/quant/scratch_buffer.h"

namespace jumar::attention {
namespace {

namespace kv = memory::kv;

constexpr int64_t kMaxRopeDim = 1024, kMaxHeads = 1024;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("mla_prolog: ", parts...));
}

absl::Status CheckShape(const MlaPrologArgs& args) {
  if (args.tokens < 0 || args.tokens > kMaxMlaTokens) return Invalid("tokens = ", args.tokens, " is not in [0, ", kMaxMlaTokens, "]");
  struct Size {
    const char* name;
    int64_t value, limit;
  };
  for (const auto& [name, value, limit] : {Size{"hidden", args.hidden, kMaxMlaDim}, {"q_rank", args.q_rank, kMaxMlaDim}, {"heads", args.heads, kMaxHeads},
                                           {"nope_dim", args.nope_dim, kMaxMlaDim}, {"kv_rank", args.kv_rank, kMaxMlaDim}, {"rope_dim", args.rope_dim, kMaxRopeDim}}) {
    if (value < 1 || value > limit) return Invalid(name, " = ", value, " is not in [1, ", limit, "]");
  }
  if (args.rope_dim % 2 != 0) return Invalid("rope_dim = ", args.rope_dim, " is odd");
  const bool down = args.w_dq.scale != nullptr, up = args.w_uq_qr.scale != nullptr;
  if ((args.w_dkv_kr.scale != nullptr) != down || (down && !up)) {
    return Invalid("scales are given for w_dq: ", down, ", w_uq_qr: ", up, ", w_dkv_kr: ", args.w_dkv_kr.scale != nullptr,
                   "; int8 are all three weights, or w_uq_qr alone, or none");
  }
  if (down != (args.x_scale != nullptr)) return Invalid("x_scale is ", down ? "null" : "given", "; int8 w_dq and w_dkv_kr need it, others take none");
  if (!up && args.smooth_cq != nullptr) return Invalid("smooth_cq is given, but w_uq_qr is not int8");
  return absl::OkStatus();
}

absl::Status CheckPointers(const MlaPrologArgs& args) {
  struct Pointer {
    const char* name;
    const void* value;
  };
  for (const auto& [name, value] : {Pointer{"x", args.x}, {"w_dq", args.w_dq.data}, {"w_uq_qr", args.w_uq_qr.data}, {"w_dkv_kr", args.w_dkv_kr.data},
                                    {"w_uk", args.w_uk}, {"gamma_cq", args.gamma_cq}, {"gamma_ckv", args.gamma_ckv}, {"cos", args.cos}, {"sin", args.sin},
                                    {"query", args.query}, {"query_rope", args.query_rope}}) {
    if (value == nullptr) return Invalid(name, " is null");
  }
  // Rows may not overlap; the GEMM takes matrices whose rows are at least as far apart as they are wide.
  struct Stride {
    const char* name;
    int64_t value, least;
  };
  for (const auto& [name, value, least] :
       {Stride{"x_stride", args.x_stride, args.hidden}, {"query_head_stride", args.query_head_stride, args.kv_rank},
        {"query_token_stride", args.query_token_stride, args.kv_rank}, {"query_rope_head_stride", args.query_rope_head_stride, args.rope_dim},
        {"query_rope_token_stride", args.query_rope_token_stride, args.rope_dim}}) {
    if (value < least) return Invalid(name, " = ", value, " is less than a row, ", least);
  }
  for (const auto& [name, weight, least] : {std::tuple("w_dq", &args.w_dq, args.q_rank), {"w_uq_qr", &args.w_uq_qr, args.heads * (args.nope_dim + args.rope_dim)},
                                            {"w_dkv_kr", &args.w_dkv_kr, args.kv_rank + args.rope_dim}}) {
    const int64_t k = weight == &args.w_uq_qr ? args.q_rank : args.hidden;
    const bool rows = weight->layout == quant::WeightLayout::kNK, columns = weight->layout == quant::WeightLayout::kKN;
    if ((rows && weight->ld < k) || (columns && weight->ld < least)) return Invalid(name, ".ld = ", weight->ld, " is less than a row, ", rows ? k : least);
  }
  return absl::OkStatus();
}

absl::Status CheckCaches(const MlaPrologArgs& args) {
  if (args.slots == nullptr) return absl::OkStatus();
  const int64_t size = quant::SizeOf(args.type);
  for (const auto& [name, cache, width] : {std::tuple("kv_cache", &args.kv_cache, args.kv_rank), {"kr_cache", &args.kr_cache, args.rope_dim}}) {
    if (auto status = kv::Check(name, *cache); !status.ok()) return Invalid(status.message());
    if (cache->rows.row_bytes != width * size) return Invalid(name, " has rows of ", cache->rows.row_bytes, " bytes; they must have ", width * size);
  }
  const int64_t capacity = std::min(args.kv_cache.num_slots(), args.kr_cache.num_slots());
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (args.slots[t] < -1 || args.slots[t] >= capacity) {
      return Invalid("slots[", t, "] = ", args.slots[t], " is neither -1 nor in [0, ", capacity, "), the caches' slots");
    }
  }
  return absl::OkStatus();
}

quant::Int8GemmOut Int8Out(DType type) {
  switch (type) {
    case DType::kF32: return quant::Int8GemmOut::kF32;
    case DType::kF16: return quant::Int8GemmOut::kF16;
    case DType::kBF16: return quant::Int8GemmOut::kBF16;
  }
  return quant::Int8GemmOut::kF32;
}

quant::Int8Layout Int8LayoutOf(quant::WeightLayout layout) {
  switch (layout) {
    case quant::WeightLayout::kNK: return quant::Int8Layout::kNK;
    case quant::WeightLayout::kKN: return quant::Int8Layout::kKN;
    case quant::WeightLayout::kFractalNz: return quant::Int8Layout::kFractalNK;
    case quant::WeightLayout::kFractalNzKN: return quant::Int8Layout::kFractalKN;
  }
  return quant::Int8Layout::kNK;
}

// Rows of `type`, or of int8 with a scale each.
struct Rows {
  const void* data;
  int64_t stride;
  const float* scale = nullptr;
};

absl::Status Multiply(const MlaPrologArgs& args, const Rows& a, int64_t m, const MlaWeight& w, int64_t k, int64_t n, void* out, tiling::Executor& executor) {
  if (w.scale == nullptr) {
    return quant::Gemm({.m = m, .n = n, .k = k, .type = args.type, .a = a.data, .lda = a.stride, .w = w.data, .ldw = w.ld, .layout = w.layout, .out = out, .ldo = n},
                       executor);
  }
  return quant::Int8Gemm({.m = m, .n = n, .k = k, .a = static_cast<const int8_t*>(a.data), .lda = a.stride, .w = static_cast<const int8_t*>(w.data), .ldw = w.ld,
                          .layout = Int8LayoutOf(w.layout), .scale = {w.scale}, .token_scale = {a.scale}, .out_type = Int8Out(args.type), .out = out, .ldo = n},
                         executor);
}

// query[:, h] = up[:, h, :nope_dim] . w_uk[h].
absl::Status Absorb(const MlaPrologArgs& args, const char* up, int64_t m, char* query, tiling::Executor& executor) {
  const int64_t size = quant::SizeOf(args.type), head = args.nope_dim + args.rope_dim;
  const auto multiply = [&](int64_t h, tiling::Executor& pool) {
    return quant::Gemm({.m = m, .n = args.kv_rank, .k = args.nope_dim, .type = args.type, .a = up + h * head * size, .lda = args.heads * head,
                        .w = static_cast<const char*>(args.w_uk) + h * args.nope_dim * args.kv_rank * size, .ldw = args.kv_rank,
                        .layout = quant::WeightLayout::kKN, .out = query + h * args.query_head_stride * size, .ldo = args.query_token_stride},
                       pool);
  };
  if (args.heads < executor.num_workers()) {
    for (int64_t h = 0; h < args.heads; ++h) {
      if (auto status = multiply(h, executor); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // Sizes and strides are the same for all heads: if one is taken, all are.
  if (auto status = multiply(0, executor); !status.ok()) return status;
  executor.ParallelFor(args.heads - 1, 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin + 1; h < end + 1; ++h) multiply(h, tiling::InlineExecutor()).IgnoreError();
  });
  return absl::OkStatus();
}

// Pairs of neighbours to the two halves of a row.
template <typename Bits>
void Part(const char* from, char* to, int64_t half) {
  const Bits* in = reinterpret_cast<const Bits*>(from);
  Bits* out = reinterpret_cast<Bits*>(to);
  for (int64_t i = 0; i < half; ++i) {
    out[i] = in[2 * i];
    out[i + half] = in[2 * i + 1];
  }
}

struct HeadRows {
  char* data;
  int64_t token_stride, head_stride;
};

absl::Status Rotate(const MlaPrologArgs& args, int64_t first_token, int64_t m, int64_t heads, const HeadRows& x, const HeadRows& out, tiling::Executor& executor) {
  const int64_t size = quant::SizeOf(args.type), half = args.rope_dim / 2;
  executor.ParallelFor(m, std::max<int64_t>(1, 16384 / (heads * args.rope_dim)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const char* from = x.data + (t * x.token_stride + h * x.head_stride) * size;
        char* to = out.data + (t * out.token_stride + h * out.head_stride) * size;
        size == 2 ? Part<uint16_t>(from, to, half) : Part<uint32_t>(from, to, half);
      }
    }
  });
  const int64_t table = first_token * args.table_stride * size;
  return Rope({.type = args.type, .tokens = m, .heads = heads, .head_dim = args.rope_dim, .rotary_dim = args.rope_dim, .x = out.data,
               .x_token_stride = out.token_stride, .x_head_stride = out.head_stride, .table_type = args.type, .cos = static_cast<const char*>(args.cos) + table,
               .sin = static_cast<const char*>(args.sin) + table, .table_stride = args.table_stride, .out = out.data, .out_token_stride = out.token_stride,
               .out_head_stride = out.head_stride},
              executor);
}

// One buffer cut into aligned pieces.
class Arena {
 public:
  explicit Arena(char* base) : at_(base) {}
  char* Take(int64_t bytes) {
    char* piece = at_;
    at_ += Rounded(bytes);
    return piece;
  }
  static int64_t Rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  char* at_;
};

struct Scratch {
  float *gamma_cq, *gamma_ckv, *cq_scale;
  char *cq, *codes, *up, *down, *rotated;
};

int64_t Bytes(const MlaPrologArgs& args, int64_t m, Scratch* scratch, char* base) {
  const int64_t size = quant::SizeOf(args.type), up = args.heads * (args.nope_dim + args.rope_dim), down = args.kv_rank + args.rope_dim;
  const int64_t sizes[] = {args.q_rank * 4, args.kv_rank * 4, m * 4, m * args.q_rank * size, m * args.q_rank, m * up * size, m * down * size, m * args.rope_dim * size};
  int64_t total = 0;
  for (int64_t s : sizes) total += Arena::Rounded(s);
  if (scratch == nullptr) return total;
  Arena arena(base);
  char* pieces[std::size(sizes)];
  for (size_t i = 0; i < std::size(sizes); ++i) pieces[i] = arena.Take(sizes[i]);
  *scratch = {reinterpret_cast<float*>(pieces[0]), reinterpret_cast<float*>(pieces[1]), reinterpret_cast<float*>(pieces[2]), pieces[3], pieces[4], pieces[5],
              pieces[6], pieces[7]};
  return total;
}

absl::Status ScaledGamma(const MlaPrologArgs& args, const void* gamma, int64_t count, float scale, float* out) {
  auto status = quant::Convert(args.type, gamma, DType::kF32, out, count, tiling::InlineExecutor());
  for (int64_t i = 0; scale != 1 && i < count; ++i) out[i] *= scale;
  return status;
}

absl::Status Queries(const MlaPrologArgs& args, const Rows& x, int64_t first, int64_t m, const Scratch& s, tiling::Executor& executor) {
  const int64_t size = quant::SizeOf(args.type), head = args.nope_dim + args.rope_dim;
  if (auto status = Multiply(args, x, m, args.w_dq, args.hidden, args.q_rank, s.cq, executor); !status.ok()) return status;
  Rows latent = {s.cq, args.q_rank};
  if (args.w_uq_qr.scale != nullptr) {
    const quant::Int8Rows to = {.factor = {args.smooth_cq}, .out = reinterpret_cast<int8_t*>(s.codes), .ldo = args.q_rank, .scale = s.cq_scale};
    latent = {s.codes, args.q_rank, s.cq_scale};
    if (auto status = quant::NormQuantizeRows({.rows = m, .cols = args.q_rank, .type = args.type, .x = s.cq, .ldx = args.q_rank, .gamma = {s.gamma_cq},
                                               .epsilon = args.epsilon_cq, .to = std::span(&to, 1)},
                                              executor);
        !status.ok()) {
      return status;
    }
  } else if (auto status = RmsNorm({.type = args.type, .rows = m, .cols = args.q_rank, .x = s.cq, .x_stride = args.q_rank, .weight = s.gamma_cq,
                                    .epsilon = args.epsilon_cq, .out = s.cq, .out_stride = args.q_rank},
                                   executor);
             !status.ok()) {
    return status;
  }
  auto status = Multiply(args, latent, m, args.w_uq_qr, args.q_rank, args.heads * head, s.up, executor);
  if (!status.ok()) return status;
  status = Absorb(args, s.up, m, static_cast<char*>(args.query) + first * args.query_token_stride * size, executor);
  if (!status.ok()) return status;
  return Rotate(args, first, m, args.heads, {s.up + args.nope_dim * size, args.heads * head, head},
                {static_cast<char*>(args.query_rope) + first * args.query_rope_token_stride * size, args.query_rope_token_stride, args.query_rope_head_stride},
                executor);
}

absl::Status Keys(const MlaPrologArgs& args, const Rows& x, int64_t first, int64_t m, const Scratch& s, tiling::Executor& executor) {
  if (args.slots == nullptr) return absl::OkStatus();
  const int64_t size = quant::SizeOf(args.type), width = args.kv_rank + args.rope_dim;
  auto status = Multiply(args, x, m, args.w_dkv_kr, args.hidden, width, s.down, executor);
  if (!status.ok()) return status;
  status = Rotate(args, first, m, 1, {s.down + args.kv_rank * size, width, 0}, {s.rotated, args.rope_dim, 0}, executor);
  if (!status.ok()) return status;
  status = RmsNorm({.type = args.type, .rows = m, .cols = args.kv_rank, .x = s.down, .x_stride = width, .weight = s.gamma_ckv, .epsilon = args.epsilon_ckv,
                    .out = s.down, .out_stride = width},
                   executor);
  if (!status.ok()) return status;
  const auto store = [&](char* rows, int64_t row, int64_t stride, const kv::PartRows<std::byte>& cache) {
    const int64_t bytes = ((m - 1) * stride + row) * size;
    const kv::DenseRows<const std::byte> from = {{reinterpret_cast<const std::byte*>(rows), static_cast<size_t>(bytes)}, m, row * size, stride * size};
    return kv::StoreRows(from, std::span(args.slots + first, static_cast<size_t>(m)), cache,
                         [&](int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) { executor.ParallelFor(n, grain, body); });
  };
  status = store(s.down, args.kv_rank, width, args.kv_cache);
  if (!status.ok()) return status;
  return store(s.rotated, args.rope_dim, args.rope_dim, args.kr_cache);
}

}  // namespace

absl::Status MlaProlog(const MlaPrologArgs& args, tiling::Executor& executor) {
  if (auto status = CheckShape(args); !status.ok()) return status;
  if (args.tokens == 0) return absl::OkStatus();
  if (auto status = CheckPointers(args); !status.ok()) return status;
  if (auto status = CheckCaches(args); !status.ok()) return status;

  static thread_local quant::ScratchBuffer buffer;
  const int64_t most = std::min(args.tokens, kMlaTokensAtOnce);
  char* base = buffer.Get(Bytes(args, most, nullptr, nullptr));
  if (base == nullptr) return absl::ResourceExhaustedError("mla_prolog: no memory for the products of a chunk of tokens");
  Scratch scratch;
  Bytes(args, most, &scratch, base);
  auto status = ScaledGamma(args, args.gamma_cq, args.q_rank, args.query_scale, scratch.gamma_cq);
  status.Update(ScaledGamma(args, args.gamma_ckv, args.kv_rank, args.kv_scale, scratch.gamma_ckv));
  const int64_t element = args.x_scale != nullptr ? 1 : quant::SizeOf(args.type);
  for (int64_t first = 0; status.ok() && first < args.tokens; first += kMlaTokensAtOnce) {
    const int64_t m = std::min(kMlaTokensAtOnce, args.tokens - first);
    const Rows x = {static_cast<const char*>(args.x) + first * args.x_stride * element, args.x_stride, args.x_scale == nullptr ? nullptr : args.x_scale + first};
    status = Queries(args, x, first, m, scratch, executor);
    if (status.ok()) status = Keys(args, x, first, m, scratch, executor);
  }
  return status;
}

}  // namespace jumar::attention
