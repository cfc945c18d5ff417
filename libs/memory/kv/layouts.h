#ifndef LIBS_MEMORY_KV_LAYOUTS_H_
#define LIBS_MEMORY_KV_LAYOUTS_H_

// Makers of the page layouts that vLLM's models on Ascend (and FlashMLA, whose rows checkpoints' tools know) use. All constexpr: a bad
// argument gives a layout whose ok() is false (a static_assert fails) and whose Validate() tells the argument.
//
// Only geometry: how the numbers of a row are encoded is libs/quant's matter.

#include "libs/memory/kv/layout.h"

namespace jumar::memory::kv {

enum class Order : uint8_t {
  kTokenMajor,  // [blocks, block_size, heads, dim], also read as [blocks, block_size, heads * dim]
  kHeadMajor,   // [blocks, heads, block_size, dim]
  kFractal,     // [blocks, heads * dim / c0, block_size, c0], c0 = 16 elements (32 of one byte): PA_NZ of aclnnScatterPaKvCache
};

struct KvShape {
  int64_t heads = 0, head_dim = 0, block_size = 0;
  Element element = Element::kBFloat16;
};

namespace internal {

class Maker {
 public:
  constexpr Maker(const char* name, int64_t block_size) {
    layout_.name = name;
    layout_.block_size = block_size;
    Need("block_size", block_size, kMaxBlockSize);
  }
  constexpr bool Need(const char* what, int64_t value, int64_t limit) {
    if (value < 1 || value > limit) Refuse(what, value, "it must be from 1 to 2^30 (bytes of a row, or tokens)");
    return layout_.ok();
  }
  constexpr void Refuse(const char* what, int64_t value, const char* mend) {
    if (layout_.ok()) layout_.error = what, layout_.error_value = value, layout_.error_mend = mend;
  }
  // A row of heads * dim elements per token, behind what is in the plane.
  constexpr void Rows(const char* name, Element element, int64_t heads, int64_t dim, Order order, int64_t plane) {
    if (!Need("heads", heads, kMaxRowBytes) || !Need("dim", dim, kMaxRowBytes)) return;
    const int64_t size = ElementBytes(element);
    if (heads > kMaxRowBytes / size / dim) return Refuse("heads", heads, "heads * dim elements must take at most 2^30 bytes");
    const int64_t row = heads * dim * size, bs = layout_.block_size;
    const int64_t c0 = size == 1 ? 32 : 16;
    if (order == Order::kFractal && heads * dim % c0 != 0) {
      return Refuse("heads * dim", heads * dim, "a fractal layout needs a multiple of 16 elements (32 of one byte)");
    }
    const int64_t chunk = order == Order::kTokenMajor ? row : order == Order::kHeadMajor ? dim * size : c0 * size;
    Add(name, element, heads, plane, {row, chunk, chunk == row ? row : bs * chunk, chunk}, bs * row);
  }
  // Parts that alternate token by token, `stride` bytes from a token's to the next's. The one at 0 in the row opens a section of the page.
  constexpr void Packed(const char* name, Element element, int64_t row, int64_t in_row, int64_t stride) {
    if (!layout_.ok()) return;
    if (in_row == 0) section_ = layout_.page_bytes[0];
    Add(name, element, 1, 0, {row, row, row, stride}, in_row == 0 ? stride * layout_.block_size : 0);
    layout_.parts[static_cast<size_t>(layout_.num_parts - 1)].offset = section_ + in_row;
  }
  constexpr void PadPage(const char* what, int64_t multiple) {
    if (Need(what, multiple, kMaxRowBytes)) layout_.page_bytes[0] = (layout_.page_bytes[0] + multiple - 1) / multiple * multiple;
  }
  constexpr PageLayout Done() const {
    if (layout_.ok()) return layout_;
    PageLayout refused;
    refused.name = layout_.name, refused.error = layout_.error, refused.error_value = layout_.error_value,
    refused.error_mend = layout_.error_mend;
    return refused;
  }

 private:
  constexpr void Add(const char* name, Element element, int64_t heads, int64_t plane, RowGeometry rows, int64_t bytes) {
    const auto p = static_cast<size_t>(plane);
    layout_.parts[static_cast<size_t>(layout_.num_parts++)] = {name, element, heads, plane, layout_.page_bytes[p], rows};
    layout_.page_bytes[p] += bytes;
    if (plane >= layout_.num_planes) layout_.num_planes = plane + 1;
  }
  PageLayout layout_;
  int64_t section_ = 0;  // where the page's newest section of packed parts begins
};

}  // namespace internal

// K and V as two planes: [2, blocks, ...] in vLLM's terms, or two tensors. Parts "k", "v".
constexpr PageLayout SeparateKv(const KvShape& s, Order order) {
  internal::Maker m("gqa", s.block_size);
  m.Rows("k", s.element, s.heads, s.head_dim, order, 0);
  m.Rows("v", s.element, s.heads, s.head_dim, order, 1);
  return m.Done();
}

// K and V in one page, V behind K: [blocks, 2, ...]. Parts "k", "v".
constexpr PageLayout JointKv(const KvShape& s, Order order) {
  internal::Maker m("gqa-joint", s.block_size);
  m.Rows("k", s.element, s.heads, s.head_dim, order, 0);
  m.Rows("v", s.element, s.heads, s.head_dim, order, 0);
  return m.Done();
}

// Absorbed MLA: latents and rotated keys as two planes, one "head". Parts "latent", "rope".
constexpr PageLayout Mla(int64_t block_size, Order order = Order::kTokenMajor, Element element = Element::kBFloat16, int64_t latent = 512,
                         int64_t rope = 64) {
  internal::Maker m("mla", block_size);
  m.Rows("latent", element, 1, latent, order, 0);
  m.Rows("rope", element, 1, rope, order, 1);
  return m.Done();
}

// K = V of DeepSeek V4 unquantised: one row of `dim`. Part "kv".
constexpr PageLayout SharedKv(int64_t block_size, Element element = Element::kBFloat16, int64_t dim = 512) {
  internal::Maker m("shared", block_size);
  m.Rows("kv", element, 1, dim, Order::kTokenMajor, 0);
  return m.Done();
}

// 656 bytes per token: 512 E4M3 latents, 64 bf16 of rope, 4 fp32 scales (one per 128).
enum class RowOrder : uint8_t {
  kRopeThenScales,  // vllm-ascend's KV-quantised sparse attention
  kScalesThenRope,  // FlashMLA's V3.2 cache
};
constexpr PageLayout Packed656(int64_t block_size, RowOrder order = RowOrder::kRopeThenScales) {
  internal::Maker m("packed656", block_size);
  const bool rope_first = order == RowOrder::kRopeThenScales;
  m.Packed("latent", Element::kE4M3, 512, 0, 656);
  m.Packed("rope", Element::kBFloat16, 128, rope_first ? 512 : 528, 656);
  m.Packed("scales", Element::kFloat32, 16, rope_first ? 640 : 512, 656);
  return m.Done();
}

// 640 bytes per token (950): 64 bf16 of rope, 448 E4M3, 7 E8M0 scales (one per 64), 57 bytes of padding.
constexpr PageLayout Packed640(int64_t block_size) {
  internal::Maker m("packed640", block_size);
  m.Packed("rope", Element::kBFloat16, 128, 0, 640);
  m.Packed("values", Element::kE4M3, 448, 128, 640);
  m.Packed("scales", Element::kE8M0, 7, 576, 640);
  return m.Done();
}

// 584 bytes per token, split over the page: [block_size, 448 E4M3 | 64 bf16 of rope], then [block_size, 7 E8M0 scales | 1 byte].
// FlashMLA's form has pages padded to a multiple of 576 bytes; page_multiple = 1 leaves them.
constexpr PageLayout PageSplit584(int64_t block_size, int64_t page_multiple = 576) {
  internal::Maker m("split584", block_size);
  m.Packed("values", Element::kE4M3, 448, 0, 576);
  m.Packed("rope", Element::kBFloat16, 128, 448, 576);
  m.Packed("scales", Element::kE8M0, 7, 0, 8);
  m.PadPage("page_multiple", page_multiple);
  return m.Done();
}

// The lightning indexer's keys, split over the page: [block_size, 128] values, then a scale per token.
// E4M3 and fp32: 132 bytes per token (950); int8 and fp16: 130 (910B, 910_93).
constexpr PageLayout IndexerKeys(int64_t block_size, Element values = Element::kE4M3, Element scale = Element::kFloat32,
                                 int64_t dim = 128) {
  internal::Maker m("indexer", block_size);
  m.Rows("values", values, 1, dim, Order::kTokenMajor, 0);
  m.Rows("scales", scale, 1, 1, Order::kTokenMajor, 0);
  return m.Done();
}

// The compressor's state, fp32 [blocks, block_size, 2 * coff * dim]: kv, then the score with its position's bias added. coff is 2 where
// groups overlap (C4), 1 where they don't (C128). The indexer's own compressor: dim = 128, coff = 2.
constexpr PageLayout CompressorState(int64_t block_size, int64_t dim = 512, int64_t coff = 2) {
  internal::Maker m("state", block_size);
  if (coff != 1 && coff != 2) {
    m.Refuse("coff", coff, "it must be 1 (no overlap) or 2");
  } else if (dim < 1 || dim > kMaxRowBytes / 16) {
    m.Refuse("dim", dim, "it must be from 1 to 2^26");
  } else {
    m.Packed("kv", Element::kFloat32, coff * dim * 4, 0, 2 * coff * dim * 4);
    m.Packed("score", Element::kFloat32, coff * dim * 4, coff * dim * 4, 2 * coff * dim * 4);
  }
  return m.Done();
}

// The same layout in pages of `bytes`, for a group that shares its pages with larger ones (hybrid.h). One plane only.
constexpr PageLayout InPagesOf(PageLayout l, int64_t bytes) {
  if (!l.ok()) return l;
  if (l.num_planes != 1) {
    l.error = "num_planes", l.error_value = l.num_planes, l.error_mend = "only a layout of one plane can be padded";
  } else if (bytes < l.page_bytes[0]) {
    l.error = "page_bytes", l.error_value = bytes, l.error_mend = "it must be at least the layout's own page";
  } else {
    l.page_bytes[0] = bytes;
  }
  return l;
}

}  // namespace jumar::memory::kv

#endif  // LIBS_MEMORY_KV_LAYOUTS_H_
