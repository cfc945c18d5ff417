#ifndef LIBS_QUANT_PACKED_ROW_CODEC_H_
#define LIBS_QUANT_PACKED_ROW_CODEC_H_

// Quantised KV rows: a token's latent or key as 8-bit codes, a scale per group, and the rotated part in bf16, where a page layout of
// libs/memory/kv puts them. One codec for the operators that write a cache, the kernels that read it and the tests of both.
//
//   absl::StatusOr<RowCodec> codec = MakeRowCodec(memory::kv::Packed656(128), Rule::kDeepSeek);
//   absl::Status status = WriteRows(*codec, {.type = DType::kBF16, .values = latent, .stride = 512, .rope = rope, .rope_stride = 64},
//                                   slots, pages, executor);
//
//   layout             values        scales           rule of its writers
//   Packed656          512 E4M3      4 fp32 of 128    deepseek
//   Packed640          448 E4M3      7 E8M0 of 64     deepseek_ue8m0
//   PageSplit584       448 E4M3      7 E8M0 of 64     deepseek_ue8m0
//   IndexerKeys (132)  128 E4M3      1 fp32           deepseek or vllm_group
//   IndexerKeys (130)  128 int8      1 fp16           cann_dynamic
//
// A scale is rounded to its element first, then divides the values, so that a reader undoes exactly what the writer did. Bytes between the
// parts (padding) are neither read nor written.
//
// Round trip: DecodeToken gives scales and values; EncodeTokenWithScales of the two gives the row's bytes again, if its scales are positive
// and no value over- or underflows fp32. (By the rule it need not: the largest value may have been rounded, and with it the scale.)

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "libs/memory/kv/layout.h"
#include "libs/memory/kv/views.h"
#include "libs/quant/dtype.h"
#include "libs/quant/format/format.h"
#include "libs/quant/scale/scale_rule.h"
#include "libs/tiling/executor.h"

namespace jumar::quant {

inline constexpr int64_t kMaxRowGroups = 64;

struct RowCodec {
  memory::kv::PageLayout layout;
  memory::kv::Part values, scales, rope;  // rope: no bytes where the layout has none
  Format format = Format::kE4M3;
  Rule rule = Rule::kDeepSeek;
  int64_t dims = 0, groups = 0;  // values of a token; scales of a token, each of dims / groups values
  int64_t rope_dims = 0;

  int64_t group() const { return dims / groups; }
  // Where a token's part lies in its page.
  static int64_t Offset(const memory::kv::Part& part, int64_t token) { return part.offset + token * part.rows.token_stride; }
};

// Of a layout with a part "values" or "latent" (E4M3 or int8), a part "scales" (fp32, E8M0 or fp16) and perhaps "rope" (bf16), all in one plane
// and each token's in one piece. InvalidArgument says what the layout lacks, or that the rule's scales aren't powers of two for E8M0.
absl::StatusOr<RowCodec> MakeRowCodec(const memory::kv::PageLayout& layout, Rule rule);

// One token: values [dims] of the type, rope [rope_dims] bf16 bits (null: left as it is, or not wanted). No checks: `page` has the layout's
// bytes, `token` lies in it.
void EncodeToken(const RowCodec& codec, DType type, const void* values, const uint16_t* rope, std::byte* page, int64_t token);
void EncodeTokenWithScales(const RowCodec& codec, DType type, const void* values, const float* scales, const uint16_t* rope,
                           std::byte* page, int64_t token);
// scales: [groups], or null.
void DecodeToken(const RowCodec& codec, const std::byte* page, int64_t token, DType type, void* values, float* scales, uint16_t* rope);

struct TokenRows {
  DType type = DType::kBF16;
  const void* values = nullptr;  // [n, dims], rows `stride` elements apart
  int64_t stride = 0;
  const uint16_t* rope = nullptr;  // [n, rope_dims] bf16, rows `rope_stride` elements apart; null: a part not written
  int64_t rope_stride = 0;
};
struct MutableTokenRows {
  DType type = DType::kBF16;
  void* values = nullptr;
  int64_t stride = 0;
  uint16_t* rope = nullptr;
  int64_t rope_stride = 0;
};

// Row i to slot slots[i] of the cache (token slots[i] % block_size of page slots[i] / block_size); -1: nowhere. InvalidArgument, before a row is
// written, for a slot outside, pages smaller than the layout's, or a stride less than the row. Of two rows for one slot, either may stay.
absl::Status WriteRows(const RowCodec& codec, const TokenRows& rows, std::span<const int64_t> slots, const memory::kv::MutableBlocks& pages,
                       tiling::Executor& executor);
// Row i from slot slots[i]; of -1, it stays as it is. Any bytes are a row: a NaN code or scale gives NaN.
absl::Status ReadRows(const RowCodec& codec, const memory::kv::ConstBlocks& pages, std::span<const int64_t> slots,
                      const MutableTokenRows& rows, tiling::Executor& executor);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_PACKED_ROW_CODEC_H_
