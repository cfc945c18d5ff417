#include "libs/quant/packed/row_codec.h"

#include <array>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "hwy/base.h"
#include "libs/quant/scale/row_kernel.h"

namespace jumar::quant {
namespace {

using memory::kv::Element;
using memory::kv::Part;

absl::Status Bad(const RowCodec& codec, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("packed rows of layout ", codec.layout.name, ": ", what));
}

using Scales = std::array<float, kMaxRowGroups>;

// What the stored scale will be worth.
float Rounded(const RowCodec& codec, float scale) {
  return codec.scales.element == Element::kFloat16 ? hwy::F32FromF16(hwy::F16FromF32(scale)) : scale;
}

void StoreScales(const RowCodec& codec, const float* scales, std::byte* to) {
  for (int64_t g = 0; g < codec.groups; ++g) {
    switch (codec.scales.element) {
      case Element::kE8M0: to[g] = static_cast<std::byte>(Encode(Format::kE8M0, scales[g], Overflow::kSaturate)); break;
      case Element::kFloat16: {
        const hwy::float16_t half = hwy::F16FromF32(scales[g]);
        std::memcpy(to + 2 * g, &half, 2);
        break;
      }
      default: std::memcpy(to + 4 * g, scales + g, 4);
    }
  }
}

void LoadScales(const RowCodec& codec, const std::byte* from, float* scales) {
  for (int64_t g = 0; g < codec.groups; ++g) {
    switch (codec.scales.element) {
      case Element::kE8M0: scales[g] = kDecoded<Format::kE8M0>.f32[static_cast<uint8_t>(from[g])]; break;
      case Element::kFloat16: {
        hwy::float16_t half;
        std::memcpy(&half, from + 2 * g, 2);
        scales[g] = hwy::F32FromF16(half);
        break;
      }
      default: std::memcpy(scales + g, from + 4 * g, 4);
    }
  }
}

float Magnitude(DType type, uint32_t bits) {
  if (type == DType::kF32) return std::bit_cast<float>(bits);
  if (type == DType::kBF16) return std::bit_cast<float>(bits << 16);
  return hwy::F32FromF16(hwy::float16_t::FromBits(static_cast<uint16_t>(bits)));
}

absl::Status CheckCall(const RowCodec& codec, const memory::kv::ConstBlocks& pages, std::span<const int64_t> slots, bool has_values,
                       int64_t stride, bool has_rope, int64_t rope_stride) {
  if (absl::Status status = memory::kv::Check("pages", pages); !status.ok()) return status;
  if (pages.page_bytes < codec.layout.page_bytes[0]) {
    return Bad(codec, absl::StrCat("pages have ", pages.page_bytes, " bytes; they need ", codec.layout.page_bytes[0]));
  }
  if (slots.empty()) return absl::OkStatus();
  const int64_t most = std::numeric_limits<int64_t>::max() / 8 / static_cast<int64_t>(slots.size());
  if (!has_values) return Bad(codec, "values are null");
  if (stride < codec.dims || stride > most) return Bad(codec, absl::StrCat("stride is ", stride, "; a row has ", codec.dims, " values"));
  if (has_rope && (rope_stride < codec.rope_dims || rope_stride > most)) {
    return Bad(codec, absl::StrCat("rope_stride is ", rope_stride, "; a row has ", codec.rope_dims));
  }
  const int64_t num_slots = pages.num_blocks * codec.layout.block_size;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < -1 || slots[i] >= num_slots) {
      return Bad(codec, absl::StrCat("slot ", slots[i], " of row ", i, " is outside; it must be -1 (none) or in [0, ", num_slots, ")"));
    }
  }
  return absl::OkStatus();
}

constexpr int64_t kGrain = 16;  // rows that are worth another thread

}  // namespace

absl::StatusOr<RowCodec> MakeRowCodec(const memory::kv::PageLayout& layout, Rule rule) {
  RowCodec codec;
  codec.layout = layout, codec.rule = rule;
  if (absl::Status status = memory::kv::Validate(layout); !status.ok()) return status;
  if (layout.num_planes != 1) return Bad(codec, "its parts must share one plane");
  for (int64_t i = 0; i < layout.num_parts; ++i) {
    const Part& part = layout.parts[static_cast<size_t>(i)];
    const std::string_view name = part.name;
    if (name == "values" || name == "latent") codec.values = part;
    if (name == "scales") codec.scales = part;
    if (name == "rope") codec.rope = part;
    if (part.rows.chunk_bytes != part.rows.row_bytes) return Bad(codec, absl::StrCat("part ", name, " must be a token's bytes in one piece"));
  }
  if (codec.values.rows.row_bytes == 0 || codec.scales.rows.row_bytes == 0) return Bad(codec, "it needs a part values (or latent) and scales");
  if (codec.values.element != Element::kE4M3 && codec.values.element != Element::kInt8) {
    return Bad(codec, absl::StrCat("values are ", ElementName(codec.values.element), "; they must be e4m3 or int8"));
  }
  const Element scale = codec.scales.element;
  if (scale != Element::kFloat32 && scale != Element::kE8M0 && scale != Element::kFloat16) {
    return Bad(codec, absl::StrCat("scales are ", ElementName(scale), "; they must be fp32, fp16 or e8m0"));
  }
  if (scale == Element::kE8M0 && !IsPowerOfTwo(RuleOf(rule))) {
    return Bad(codec, absl::StrCat("scales are E8M0; rule ", RuleOf(rule).name, " gives other than powers of two"));
  }
  if (codec.rope.rows.row_bytes != 0 && codec.rope.element != Element::kBFloat16) return Bad(codec, "rope must be bf16");
  codec.format = codec.values.element == Element::kInt8 ? Format::kI8 : Format::kE4M3;
  codec.dims = codec.values.rows.row_bytes;
  codec.groups = codec.scales.rows.row_bytes / memory::kv::ElementBytes(scale);
  codec.rope_dims = codec.rope.rows.row_bytes / 2;
  if (codec.groups > kMaxRowGroups || codec.groups < 1 || codec.dims % codec.groups != 0) {
    return Bad(codec, absl::StrCat(codec.groups, " scales for ", codec.dims, " values; they must divide them, at most ", kMaxRowGroups));
  }
  return codec;
}

void EncodeTokenWithScales(const RowCodec& codec, DType type, const void* values, const float* scales, const uint16_t* rope,
                           std::byte* page, int64_t token) {
  internal::QuantizeRow(codec.format, type, values, {codec.dims, codec.group()}, scales, nullptr,
                        reinterpret_cast<uint8_t*>(page + RowCodec::Offset(codec.values, token)));
  StoreScales(codec, scales, page + RowCodec::Offset(codec.scales, token));
  if (rope != nullptr) std::memcpy(page + RowCodec::Offset(codec.rope, token), rope, static_cast<size_t>(codec.rope.rows.row_bytes));
}

void EncodeToken(const RowCodec& codec, DType type, const void* values, const uint16_t* rope, std::byte* page, int64_t token) {
  std::array<uint32_t, kMaxRowGroups> maxima = {};
  internal::MaxMagnitudes(type, values, {codec.dims, codec.group()}, maxima.data());
  Scales scales;
  for (int64_t g = 0; g < codec.groups; ++g) {
    const auto at = static_cast<size_t>(g);
    scales[at] = Rounded(codec, ScaleOf(RuleOf(codec.rule), codec.format, Magnitude(type, maxima[at])));
  }
  EncodeTokenWithScales(codec, type, values, scales.data(), rope, page, token);
}

void DecodeToken(const RowCodec& codec, const std::byte* page, int64_t token, DType type, void* values, float* scales, uint16_t* rope) {
  Scales own;
  float* s = scales == nullptr ? own.data() : scales;
  LoadScales(codec, page + RowCodec::Offset(codec.scales, token), s);
  internal::DequantizeRow(codec.format, reinterpret_cast<const uint8_t*>(page + RowCodec::Offset(codec.values, token)),
                          {codec.dims, codec.group()}, s, nullptr, type, values);
  if (rope != nullptr) std::memcpy(rope, page + RowCodec::Offset(codec.rope, token), static_cast<size_t>(codec.rope.rows.row_bytes));
}

absl::Status WriteRows(const RowCodec& codec, const TokenRows& rows, std::span<const int64_t> slots, const memory::kv::MutableBlocks& pages,
                       tiling::Executor& executor) {
  absl::Status status = CheckCall(codec, pages, slots, rows.values != nullptr, rows.stride, rows.rope != nullptr, rows.rope_stride);
  if (!status.ok()) return status;
  executor.ParallelFor(static_cast<int64_t>(slots.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = slots[static_cast<size_t>(i)], block_size = codec.layout.block_size;
      if (slot < 0) continue;
      EncodeToken(codec, rows.type, static_cast<const char*>(rows.values) + i * rows.stride * SizeOf(rows.type),
                  rows.rope == nullptr ? nullptr : rows.rope + i * rows.rope_stride, pages.page(slot / block_size), slot % block_size);
    }
  });
  return absl::OkStatus();
}

absl::Status ReadRows(const RowCodec& codec, const memory::kv::ConstBlocks& pages, std::span<const int64_t> slots,
                      const MutableTokenRows& rows, tiling::Executor& executor) {
  absl::Status status = CheckCall(codec, pages, slots, rows.values != nullptr, rows.stride, rows.rope != nullptr, rows.rope_stride);
  if (!status.ok()) return status;
  executor.ParallelFor(static_cast<int64_t>(slots.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = slots[static_cast<size_t>(i)], block_size = codec.layout.block_size;
      if (slot < 0) continue;
      DecodeToken(codec, pages.page(slot / block_size), slot % block_size, rows.type,
                  static_cast<char*>(rows.values) + i * rows.stride * SizeOf(rows.type), nullptr,
                  rows.rope == nullptr ? nullptr : rows.rope + i * rows.rope_stride);
    }
  });
  return absl::OkStatus();
}

}  // namespace jumar::quant
