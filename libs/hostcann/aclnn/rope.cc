// Rotary position embedding: x * cos + rotate(x) * sin, in fp32, rounded once.
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>

#include <array>
#include <vector>

#include "libs/attention/rows/rows.h"
#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

using attention::RopeArgs;

Tensor Rotate(const Tensor& x, bool interleaved) {
  if (!interleaved) {
    const std::vector<Tensor> halves = x.chunk(2, -1);
    return at::cat({halves[1].neg(), halves[0]}, -1);
  }
  const Tensor even = x.slice(-1, 0, std::nullopt, 2), odd = x.slice(-1, 1, std::nullopt, 2);
  return at::stack({odd.neg(), even}, -1).flatten(-2);
}

// out = x * cos + rotate(x) * sin with full-width tables that broadcast against x; the first cos.size(-1) elements turn.
void RopeAten(const Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  const at::ScalarType wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t turned = cos.size(-1);
  const Tensor f = x.narrow(-1, 0, turned).to(wide);
  const Tensor y = at::add(at::mul(f, cos.to(wide)), at::mul(Rotate(f, interleaved), sin.to(wide)));
  if (!out.is_same(x) && turned < x.size(-1))
    out.narrow(-1, turned, x.size(-1) - turned).copy_(x.narrow(-1, turned, x.size(-1) - turned));
  out.narrow(-1, 0, turned).copy_(y);
}

// The kernel calls for a [b, s, n, d] tensor, given the dimensions of batch, token and head, and tables of the same rank
// whose head dimension is 1. Empty if a type or stride is one that the kernel doesn't take.
std::vector<RopeArgs> PlanRope(const aclTensor& x, const aclTensor& cos, const aclTensor& sin, const aclTensor& out, int batch,
                               int token, int head, bool interleaved) {
  const auto type = KernelType(x.dtype), table_type = KernelType(cos.dtype);
  const int last = x.sizes.n - 1;
  if (!type || !table_type || sin.dtype != cos.dtype || out.dtype != x.dtype || !SameShape(cos, sin)) return {};
  if (*table_type != *type && *table_type != quant::DType::kF32) return {};
  if (x.strides[last] != 1 || out.strides[last] != 1 || cos.strides[last] != 1 || sin.strides[last] != 1) return {};
  if (cos.sizes[head] != 1 || cos.sizes[last] % 2 != 0 || cos.sizes[last] > x.sizes[last]) return {};
  if (cos.sizes[token] != 1 && (cos.sizes[token] != x.sizes[token] || cos.strides[token] != sin.strides[token])) return {};
  const int64_t batches = batch < 0 ? 1 : x.sizes[batch];
  if (batch >= 0 && cos.sizes[batch] != 1 && (cos.sizes[batch] != batches || cos.strides[batch] != sin.strides[batch])) return {};
  const auto at = [&](const aclTensor& t, int64_t b) {
    const int64_t step = batch < 0 || t.sizes[batch] == 1 ? 0 : t.strides[batch];
    return static_cast<char*>(t.data()) + b * step * ItemSize(t.dtype);
  };
  std::vector<RopeArgs> calls;
  for (int64_t b = 0; b < batches; ++b) {
    calls.push_back(RopeArgs{.type = *type,
                             .tokens = x.sizes[token],
                             .heads = x.sizes[head],
                             .head_dim = x.sizes[last],
                             .rotary_dim = cos.sizes[last],
                             .interleaved = interleaved,
                             .x = at(x, b),
                             .x_token_stride = x.strides[token],
                             .x_head_stride = x.strides[head],
                             .table_type = *table_type,
                             .cos = at(cos, b),
                             .sin = at(sin, b),
                             .table_stride = cos.sizes[token] == 1 ? 0 : cos.strides[token],
                             .out = at(out, b),
                             .out_token_stride = out.strides[token],
                             .out_head_stride = out.strides[head]});
  }
  return calls;
}

Task RunRope(std::vector<RopeArgs> calls) {
  return [calls = std::move(calls)] {
    for (const RopeArgs& args : calls) Check(attention::Rope(args, ComputeExecutor()));
  };
}

void CheckRope(const aclTensor& x, const aclTensor& cos, const aclTensor& sin) {
  for (const auto& [name, t] : {std::pair("x", &x), {"cos", &cos}, {"sin", &sin}}) {
    Require(IsBaseFormat(t->format), "argument `", name, "` has format ", FormatName(t->format), "; it must be ND (2)");
  }
  Require(x.sizes.n >= 3 && cos.sizes.n == x.sizes.n, "x has shape ", ToString(x.sizes), " and cos ", ToString(cos.sizes),
          "; both must have the same 3 or 4 dimensions");
  Require(SameShape(cos, sin), "cos has shape ", ToString(cos.sizes), " but sin ", ToString(sin.sizes));
}

Task PlanRotaryPositionEmbedding(const aclTensor& x, const aclTensor& cos, const aclTensor& sin, int64_t mode,
                                 const OptTensor& rotate, const aclTensor& out) {
  CheckRope(x, cos, sin);
  Require(mode == 0 || mode == 1, "mode is ", mode, "; hostcann has 0 (half) and 1 (interleave)");
  if (rotate) {
    return [x = ToTensor(x), cos = ToTensor(cos), sin = ToTensor(sin), rotate = *rotate, out = ToTensor(out)] {
      const Tensor f = x.to(at::kFloat);
      Put(out, at::add(at::mul(f, cos.to(at::kFloat)), at::mul(at::matmul(f, rotate.to(at::kFloat)), sin.to(at::kFloat))));
    };
  }
  // The tables tell which dimension the heads are: the one where they broadcast.
  const int n = x.sizes.n;
  const int head = cos.sizes[n - 2] == 1 ? n - 2 : n - 3, token = head == n - 2 ? n - 3 : n - 2;
  auto calls = PlanRope(x, cos, sin, out, n == 4 ? 0 : -1, token, head, mode == 1);
  if (!calls.empty()) return RunRope(std::move(calls));
  return [x = ToTensor(x), cos = ToTensor(cos), sin = ToTensor(sin), out = ToTensor(out), mode] {
    RopeAten(out, x, cos, sin, mode == 1);
  };
}

// aclnnApplyRotaryPosEmb's layouts: dimensions of batch (-1: none), token and head.
struct Layout {
  int64_t code;
  int rank, batch, token, head;
};
constexpr std::array<Layout, 4> kLayouts = {{{1, 4, 0, 1, 2}, {2, 4, 1, 0, 2}, {3, 4, 0, 2, 1}, {4, 3, -1, 0, 1}}};

Task PlanApplyRotary(const aclTensor& query, const aclTensor& key, const aclTensor& cos, const aclTensor& sin, int64_t layout,
                     const std::string& mode) {
  Require(mode == "half" || mode == "interleave", "rotary mode is \"", mode, "\"; hostcann has \"half\" and \"interleave\"");
  Require(layout >= 1 && layout <= 4, "layout is ", layout, "; it must be 1 (BSND), 2 (SBND), 3 (BNSD) or 4 (TND)");
  CheckRope(query, cos, sin);
  CheckRope(key, cos, sin);
  const Layout& l = kLayouts[static_cast<size_t>(layout - 1)];
  Require(query.sizes.n == l.rank && key.sizes.n == l.rank, "query has shape ", ToString(query.sizes), " and key ",
          ToString(key.sizes), "; layout ", layout, " has ", l.rank, " dimensions");
  const bool interleaved = mode == "interleave";
  auto calls = PlanRope(query, cos, sin, query, l.batch, l.token, l.head, interleaved);
  auto key_calls = PlanRope(key, cos, sin, key, l.batch, l.token, l.head, interleaved);
  if (!calls.empty() && !key_calls.empty()) {
    calls.insert(calls.end(), key_calls.begin(), key_calls.end());
    return RunRope(std::move(calls));
  }
  return [q = ToTensor(query), k = ToTensor(key), cos = ToTensor(cos), sin = ToTensor(sin), interleaved] {
    RopeAten(q, q, cos, sin, interleaved);
    RopeAten(k, k, cos, sin, interleaved);
  };
}

// vLLM's form: query and key are [tokens, heads * head_size], the table is [positions, rotary_dim] with the cosines in its
// first half. With 2-D positions [m, tokens] (multimodal), frequency i takes its position from row `section of i`.
Task PlanRopeWithCache(const aclTensor& positions, const aclTensor& query, const aclTensor& key, const aclTensor& cache,
                       const IntList& sections, int64_t head_size, bool neox, int64_t cache_mode, const aclTensor& query_out,
                       const aclTensor& key_out) {
  Require(
      head_size > 0 && query.sizes.n == 2 && key.sizes.n == 2 && query.sizes[1] % head_size == 0 && key.sizes[1] % head_size == 0,
      "query has shape ", ToString(query.sizes), " and key ", ToString(key.sizes), "; both must be [tokens, heads * ", head_size,
      "]");
  Require(cache.sizes.n == 2 && cache.sizes[1] % 2 == 0 && cache.sizes[1] <= head_size, "cos_sin_cache has shape ",
          ToString(cache.sizes), "; it must be [positions, rotary_dim] with an even rotary_dim of at most head_size ", head_size);
  const int64_t tokens = query.sizes[0], rotary_dim = cache.sizes[1];
  Require(positions.sizes[positions.sizes.n - 1] == tokens && key.sizes[0] == tokens, "positions have shape ",
          ToString(positions.sizes), " and key ", ToString(key.sizes), "; query has ", tokens, " tokens");
  const auto type = KernelType(query.dtype), table_type = KernelType(cache.dtype);
  Require(type && table_type && key.dtype == query.dtype, "query is ", DTypeName(query.dtype), ", key ", DTypeName(key.dtype),
          ", cos_sin_cache ", DTypeName(cache.dtype), "; they must be float32, float16 or bfloat16");
  const auto rows = [&](const char* name, const aclTensor& t) {
    const auto view = AsRows(t, 1);
    Require(view.has_value(), "argument `", name, "` has strides ", ToString(t.strides), "; its rows must be contiguous");
    return view->stride;
  };
  const auto args = [&](const aclTensor& x, const aclTensor& out, const char* name) {
    return RopeArgs{.type = *type,
                    .tokens = tokens,
                    .heads = x.sizes[1] / head_size,
                    .head_dim = head_size,
                    .rotary_dim = rotary_dim,
                    .interleaved = !neox,
                    .x = x.data(),
                    .x_token_stride = rows(name, x),
                    .x_head_stride = head_size,
                    .table_type = *table_type,
                    .compact_table = true,
                    .table_rows = cache.sizes[0],
                    .out = out.data(),
                    .out_token_stride = rows(name, out),
                    .out_head_stride = head_size};
  };
  RopeArgs q = args(query, query_out, "query"), k = args(key, key_out, "key");
  const bool mixed_table = *table_type != *type && *table_type != quant::DType::kF32;  // the kernel takes its own type or fp32
  const bool multimodal = positions.sizes.n == 2;
  if (!multimodal && positions.dtype == DType::kI64 && IsContiguous(positions) && !mixed_table) {
    for (RopeArgs* a : {&q, &k}) {
      a->cos = cache.data();
      a->sin = static_cast<const char*>(cache.data()) + rotary_dim / 2 * ItemSize(cache.dtype);
      a->table_stride = rows("cos_sin_cache", cache);
      a->positions = static_cast<const int64_t*>(positions.data());
    }
    return RunRope({q, k});
  }
  if (multimodal) {
    int64_t sum = 0;
    for (int64_t s : sections) sum += s;
    Require(static_cast<int64_t>(sections.size()) == positions.sizes[0] && sum == rotary_dim / 2, "positions have shape ",
            ToString(positions.sizes), " but mrope_section has ", sections.size(), " parts with the sum ", sum,
            "; it must have one part per row and the sum ", rotary_dim / 2);
    Require(cache_mode == 0 || sections.size() == 3, "cache_mode interleave needs 3 sections; there are ", sections.size());
  }
  // The table rows of each token, gathered and converted when it runs.
  return [=, positions = ToTensor(positions), cache = ToTensor(cache)]() mutable {
    const Tensor index = positions.to(at::kLong);
    Require(index.numel() == 0 || (index.min().item<int64_t>() >= 0 && index.max().item<int64_t>() < cache.size(0)),
            "a position is outside of [0, ", cache.size(0), ")");
    Tensor table = cache.to(at::kFloat).index_select(0, index.flatten());  // [m * tokens, rotary_dim]
    if (multimodal) {
      const Tensor all = table.view({index.size(0), tokens, 2, rotary_dim / 2});
      Tensor mixed = all[0].clone();
      if (cache_mode == 1) {  // frequencies 1, 4, 7, ... from row 1 and 2, 5, 8, ... from row 2, as far as their sections reach
        for (int64_t row = 1; row < 3; ++row) {
          const int64_t end = 3 * sections[static_cast<size_t>(row)];
          mixed.slice(-1, row, end, 3).copy_(all[row].slice(-1, row, end, 3));
        }
      } else {
        int64_t begin = 0;
        for (size_t row = 0; row < sections.size(); begin += sections[row++]) {
          mixed.narrow(-1, begin, sections[row]).copy_(all[static_cast<int64_t>(row)].narrow(-1, begin, sections[row]));
        }
      }
      table = mixed.view({tokens, rotary_dim});
    }
    for (RopeArgs* a : {&q, &k}) {
      a->table_type = quant::DType::kF32;
      a->cos = table.const_data_ptr();
      a->sin = table.const_data_ptr<float>() + rotary_dim / 2;
      a->table_stride = rotary_dim;
      a->table_rows = tokens;
      Check(attention::Rope(*a, ComputeExecutor()));
    }
  };
}

}  // namespace

ACLNN_PLAN(RotaryPositionEmbedding, Raw(x), Raw(cos), Raw(sin), I64(mode), Raw(out)) {
  return PlanRotaryPositionEmbedding(x, cos, sin, mode, std::nullopt, out);
}
ACLNN_PLAN(RotaryPositionEmbeddingV2, Raw(x), Raw(cos), Raw(sin), I64(mode), OptIn(rotate), Raw(out)) {
  return PlanRotaryPositionEmbedding(x, cos, sin, mode, rotate, out);
}
ACLNN_PLAN(ApplyRotaryPosEmb, Raw(query), Raw(key), Raw(cos), Raw(sin), I64(layout)) {
  return PlanApplyRotary(query, key, cos, sin, layout, "half");
}
ACLNN_PLAN(ApplyRotaryPosEmbV2, Raw(query), Raw(key), Raw(cos), Raw(sin), I64(layout), Text(rotary_mode)) {
  return PlanApplyRotary(query, key, cos, sin, layout, rotary_mode);
}
ACLNN_PLAN(RopeWithSinCosCache, Raw(positions), Raw(query), Raw(key), Raw(cos_sin_cache), Ints(mrope_section), I64(head_size),
           Flag(is_neox_style), Raw(query_out), Raw(key_out)) {
  return PlanRopeWithCache(positions, query, key, cos_sin_cache, mrope_section, head_size, is_neox_style, 0, query_out, key_out);
}
ACLNN_PLAN(RopeWithSinCosCacheV2, Raw(positions), Raw(query), Raw(key), Raw(cos_sin_cache), Ints(mrope_section), I64(head_size),
           Flag(is_neox_style), I64(cache_mode), Raw(query_out), Raw(key_out)) {
  return PlanRopeWithCache(positions, query, key, cos_sin_cache, mrope_section, head_size, is_neox_style, cache_mode, query_out,
                           key_out);
}
ACLNN_OP(InterleaveRope, In(x), In(cos), In(sin), Out(out)) {
  // Pairs that stand side by side are first brought into halves.
  const Tensor halves = x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2);
  RopeAten(out, halves, cos, sin, false);
}

}  // namespace jumar::hostcann::aclnn
