#include "libs/hostcann/aclnn/attention_scales.h"

#include <algorithm>
#include <string>
#include <vector>

#include "libs/hostcann/aclnn/kernel.h"

namespace jumar::hostcann::aclnn {

using attention::KvScales;

std::optional<quant::Format> CacheFormat(const aclTensor& cache, DType query) {
  switch (cache.dtype) {
    case DType::kI8: return quant::Format::kI8;
    case DType::kF8E4M3: return quant::Format::kE4M3;
    case DType::kF8E5M2: return quant::Format::kE5M2;
    default: break;
  }
  Require(cache.dtype == query, "query is ", DTypeName(query), " but a key or value is ", DTypeName(cache.dtype),
          "; it must be the same, or int8, float8_e4m3fn or float8_e5m2 with scales");
  return std::nullopt;
}

namespace {

// The sizes without leading ones, as far as there are more dimensions than `keep`.
Dims Trimmed(const Dims& dims, int keep) {
  Dims out;
  const int skip = dims.n > keep && dims[0] == 1 ? dims.n - keep : 0;
  for (int i = 0; i < skip; ++i) {
    if (dims[i] != 1) return dims;
  }
  for (int i = skip; i < dims.n; ++i) out.v[out.n++] = dims[i];
  return out;
}

bool Is(const Dims& dims, std::initializer_list<int64_t> wanted) { return std::equal(dims.begin(), dims.end(), wanted.begin(), wanted.end()); }

// Scales of one mode that have a value per token: their strides, or a message with the shape that they must have.
KvScales PerToken(const char* name, const aclTensor& t, ScaleMode mode, const CacheShape& shape) {
  const bool per_head = mode == ScaleMode::kTokenHead || mode == ScaleMode::kTokenHeadPaged;
  const bool paged = mode == ScaleMode::kTokenPaged || mode == ScaleMode::kTokenHeadPaged;
  Require(!paged || shape.block_size > 0, name, ": mode ", static_cast<int64_t>(mode), " has scales in pages, but there is no block_table");
  const int dims = per_head ? 3 : 2;
  const Dims sizes = Trimmed(t.sizes, dims);
  const int64_t outer = paged ? shape.blocks : shape.batches, tokens = paged ? shape.block_size : shape.tokens;
  Require(t.dtype == DType::kF32 && sizes.n == dims && sizes[0] >= outer && (!per_head || sizes[1] == shape.heads) &&
              (paged ? sizes[dims - 1] == tokens : sizes[dims - 1] >= tokens),
          name, " is ", DTypeName(t.dtype), " of shape ", ToString(t.sizes), "; mode ", static_cast<int64_t>(mode), " needs float32 [", outer, ", ",
          per_head ? std::to_string(shape.heads) + ", " : "", tokens, "]");
  const int first = t.sizes.n - dims;
  KvScales scales{.data = static_cast<const float*>(t.data()), .per = paged ? KvScales::Per::kSlot : KvScales::Per::kPosition};
  (paged ? scales.block_stride : scales.seq_stride) = t.strides[first];
  scales.head_stride = per_head ? t.strides[first + 1] : 0;
  scales.token_stride = t.strides[t.sizes.n - 1];
  return scales;
}

}  // namespace

CacheScales PlanScales(const char* name, const aclTensor& scale, int64_t mode, const CacheShape& shape) {
  Require(mode >= 0 && mode <= 5, "the mode of ", name, " is ", mode, "; hostcann has 0 to 5");
  Require(IsBaseFormat(scale.format), name, " has format ", FormatName(scale.format), "; it must be ND (2)");
  const auto m = static_cast<ScaleMode>(mode);
  if (m != ScaleMode::kChannel && m != ScaleMode::kHead) return {.scales = PerToken(name, scale, m, shape)};

  Require(KernelType(scale.dtype).has_value(), name, " is ", DTypeName(scale.dtype), "; it must be float32, float16 or bfloat16");
  CacheScales out{.scales = {.per = KvScales::Per::kChannel}, .convert = scale};
  const Dims& sizes = scale.sizes;
  if (m == ScaleMode::kHead) {
    Require(Is(sizes, {shape.heads}), name, " has shape ", ToString(sizes), "; mode 2 needs [", shape.heads, "]");
    out.scales.head_stride = 1;
  } else if (!Is(sizes, {1})) {
    const Dims flat = Trimmed(sizes, 1), two = Trimmed(sizes, 2), three = Trimmed(sizes, 3);
    Require(Is(flat, {shape.heads * shape.dim}) || Is(two, {shape.heads, shape.dim}) || Is(three, {shape.heads, 1, shape.dim}), name, " has shape ",
            ToString(sizes), "; mode 0 needs [1], [", shape.heads * shape.dim, "], [", shape.heads, ", ", shape.dim, "] or [", shape.heads, ", 1, ",
            shape.dim, "], also with a leading 1");
    out.scales.head_stride = shape.dim;
    out.scales.channel_stride = 1;
  }
  return out;
}

aclTensor HalfOfScales(const aclTensor& both, int64_t half) {
  Require(both.sizes.n >= 1 && both.sizes[0] == 2, "antiquant_scale has shape ", ToString(both.sizes), "; its first dimension must be 2, for key and value");
  aclTensor out = both;
  out.offset += half * both.strides[0];
  if (both.sizes.n == 1) {  // per tensor
    out.sizes.v[0] = 1;
    return out;
  }
  out.sizes.n = out.strides.n = both.sizes.n - 1;
  std::copy(both.sizes.begin() + 1, both.sizes.end(), out.sizes.v);
  std::copy(both.strides.begin() + 1, both.strides.end(), out.strides.v);
  return out;
}

}  // namespace jumar::hostcann::aclnn
