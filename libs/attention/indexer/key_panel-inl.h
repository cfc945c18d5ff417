// Products of query rows with a tile of keys, a key in each lane. Included once per SIMD target, see Highway's foreach_target.h.
//
// A tile is kTileKeys keys, transposed: word d of the panel's row holds the d-th 32 bits of each key. A word is one fp32, two bf16 or four
// bytes where the CPU multiplies those directly, else the elements are widened first. Query rows are words in the same form, and each
// product is one chain over the depth: neither the rows nor the keys that are computed together change a bit.

#if defined(LIBS_ATTENTION_INDEXER_KEY_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_ATTENTION_INDEXER_KEY_PANEL_INL_H_
#undef LIBS_ATTENTION_INDEXER_KEY_PANEL_INL_H_
#else
#define LIBS_ATTENTION_INDEXER_KEY_PANEL_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "libs/attention/indexer/key_code.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::attention::key_panel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace fv = quant::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;
constexpr int kLanes = hn::MaxLanes(DF());
constexpr int kVectors = kTileKeys / kLanes;
struct F32Math {
  using Element = float;
  using Sum = VF;
  static HWY_INLINE Sum Start(int32_t) { return hn::Zero(DF()); }
  static HWY_INLINE Sum Add(VU q, VU k, Sum sum) { return hn::MulAdd(hn::BitCast(DF(), q), hn::BitCast(DF(), k), sum); }
};

#if HWY_NATIVE_DOT_BF16
struct BF16Math {
  using Element = hwy::bfloat16_t;
  using Sum = VF;
  static HWY_INLINE Sum Start(int32_t) { return hn::Zero(DF()); }
  static HWY_INLINE Sum Add(VU q, VU k, Sum sum) {
    const hn::Repartition<hwy::bfloat16_t, DF> d;
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), hn::BitCast(d, q), hn::BitCast(d, k), sum, unused);
  }
};
#else
using BF16Math = F32Math;
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
struct I8Math {  // keys are unsigned, code + 128; a row starts at -128 times the sum of its codes
  using Element = int8_t;
  using Sum = VI;
  static HWY_INLINE Sum Start(int32_t code_sum) { return hn::Set(DI(), -128 * code_sum); }
  static HWY_INLINE Sum Add(VU q, VU k, Sum sum) {
    return hn::SumOfMulQuadAccumulate(DI(), hn::BitCast(hn::Repartition<uint8_t, DF>(), k), hn::BitCast(hn::Repartition<int8_t, DF>(), q), sum);
  }
};
#else
struct I8Math {
  using Element = int16_t;
  using Sum = VI;
  static HWY_INLINE Sum Start(int32_t) { return hn::Zero(DI()); }
  static HWY_INLINE Sum Add(VU q, VU k, Sum sum) {
    const hn::Repartition<int16_t, DF> d;
    sum = hn::Add(sum, hn::WidenMulPairwiseAdd(DI(), hn::BitCast(d, q), hn::BitCast(d, k)));
#if HWY_ARCH_X86
    asm volatile("" : "+v"(sum.raw));  // else GCC multiplies everything first, and the sums don't find registers
#endif
    return sum;
  }
};
#endif

template <class Key>
using MathOf = std::conditional_t<std::is_same_v<Key, KeyCode<quant::Format::kI8>>, I8Math,
                                  std::conditional_t<std::is_same_v<Key, hwy::bfloat16_t> || std::is_same_v<Key, KeyCode<quant::Format::kE4M3>>,
                                                     BF16Math, F32Math>>;

template <class Key>
constexpr int64_t WordsOf(int64_t dim) { return dim * static_cast<int64_t>(sizeof(typename MathOf<Key>::Element)) / 4; }

// Whether a key's words are its own bytes.
template <class Key>
inline constexpr bool kRaw = sizeof(Key) == sizeof(typename MathOf<Key>::Element);

// A row of `dim` elements, a multiple of 16, as words.
template <class Key>
HWY_INLINE void WidenRow(const Key* HWY_RESTRICT in, int64_t dim, uint32_t* HWY_RESTRICT words) {
  using Element = typename MathOf<Key>::Element;
  [[maybe_unused]] Element* HWY_RESTRICT out = reinterpret_cast<Element*>(words);
  if constexpr (kRaw<Key>) {
    std::memcpy(words, in, dim * sizeof(Key));
  } else if constexpr (std::is_same_v<Element, float>) {
    for (int64_t d = 0; d < dim; d += kLanes) {
      if constexpr (std::is_same_v<Key, KeyCode<quant::Format::kE4M3>>) {
        const hn::Rebind<uint8_t, DF> d8;
        hn::StoreU(quant::HWY_NAMESPACE::DecodeF32<quant::Format::kE4M3>(DF(), hn::LoadU(d8, reinterpret_cast<const uint8_t*>(in + d))), DF(), out + d);
      } else {
        hn::StoreU(fv::LoadF32(DF(), in + d), DF(), out + d);
      }
    }
  } else if constexpr (std::is_same_v<Element, int16_t>) {
    const hn::CappedTag<int16_t, 16> d16;
    for (int64_t d = 0; d < dim; d += hn::MaxLanes(d16)) {
      hn::StoreU(hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, decltype(d16)>(), reinterpret_cast<const int8_t*>(in + d))), d16, out + d);
    }
  } else {
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::Repartition<hwy::bfloat16_t, decltype(d8)> db;
    for (int64_t d = 0; d < dim; d += 16) {
      hn::Vec<decltype(db)> lower, upper;
      quant::HWY_NAMESPACE::DecodeBF16<quant::Format::kE4M3>(d8, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(in + d)), lower, upper);
      hn::StoreU(lower, db, out + d);
      hn::StoreU(upper, db, out + d + 8);
    }
  }
}

// The sum of a query row's codes where the keys' offset has to be taken off again.
template <class Key>
HWY_INLINE int32_t RowStart(const Key* row, int64_t dim) {
  int32_t sum = 0;
  if constexpr (std::is_same_v<Key, KeyCode<quant::Format::kI8>> && kRaw<Key>) {
    for (int64_t d = 0; d < dim; ++d) sum += static_cast<int8_t>(row[d].bits);
  }
  return sum;
}

// Words w .. w + 3 of every fourth row, from row i: a block of 128 bits for each.
template <class D>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, const uint32_t* const* rows, int64_t w) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + w);
  } else {
    const hn::Half<D> dh;
    return hn::Combine(d, LoadBlocks(dh, rows + hn::MaxLanes(dh), w), LoadBlocks(dh, rows, w));
  }
}

// panel[d][j] = word d of row j, each word xor `flip`; words is a multiple of 4.
HWY_INLINE void TransposeWords(const uint32_t* const* rows, int64_t words, uint32_t flip, uint32_t* HWY_RESTRICT panel) {
  static_assert(kLanes >= 4);
  const DU d;
  const hn::Repartition<uint64_t, DU> d64;
  const VU mask = hn::Set(d, flip);
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    for (int64_t w = 0; w < words; w += 4) {
      const auto load = [&](int i) HWY_ATTR { return hn::Xor(LoadBlocks(d, rows + j + i, w), mask); };
      const VU r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
      const auto a0 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)), a1 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto b0 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1)), b1 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      uint32_t* HWY_RESTRICT out = panel + w * kTileKeys + j;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, a0, a1)), d, out);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, a0, a1)), d, out + kTileKeys);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, b0, b1)), d, out + 2 * kTileKeys);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, b0, b1)), d, out + 3 * kTileKeys);
    }
  }
}

// The panel of the keys at `rows`, of which all kTileKeys must be readable. `widened` holds PanelWords(dim), and so does the panel.
constexpr int64_t PanelWords(int64_t dim) { return kTileKeys * dim; }
template <class Key>
void MakePanel(const char* const* rows, int64_t dim, uint32_t* widened, uint32_t* panel) {
  const uint32_t* words[kTileKeys];
  for (int64_t j = 0; j < kTileKeys; ++j) {
    if constexpr (kRaw<Key>) {
      words[j] = reinterpret_cast<const uint32_t*>(rows[j]);
    } else {
      words[j] = widened + j * dim;
      WidenRow(reinterpret_cast<const Key*>(rows[j]), dim, widened + j * dim);
    }
  }
  constexpr bool kFlip = std::is_same_v<Key, KeyCode<quant::Format::kI8>> && kRaw<Key>;
  TransposeWords(words, WordsOf<Key>(dim), kFlip ? 0x80808080u : 0, panel);
}

// The rows of the keys [begin, end) of pages of `page_size`, at most kTileKeys, and their memory asked for.
template <class Key>
HWY_INLINE void LocateKeys(const Key* k, const int32_t* pages, int64_t page_size, int64_t page_stride, int64_t token_stride, int64_t dim,
                           int64_t begin, int64_t end, const char** rows) {
  for (int64_t key = begin; key < end;) {
    const int64_t slot = key % page_size, run_end = std::min(end, key - slot + page_size);
    const Key* row = k + pages[key / page_size] * page_stride + slot * token_stride;
    for (; key < run_end; ++key, row += token_stride) {
      const char* bytes = reinterpret_cast<const char*>(row);
      rows[key - begin] = bytes;
      for (int64_t byte = 0; byte < dim * static_cast<int64_t>(sizeof(Key)); byte += 64) hwy::Prefetch(bytes + byte);
    }
  }
}

// The register tile: rows, and vectors of keys. Products of pairs of int16 need registers for themselves.
template <class Math>
struct Tile {
  static constexpr bool kPairs = std::is_same_v<typename Math::Element, int16_t> && kLanes == 8;
  static constexpr int kRows = (HWY_ARCH_X86 && kLanes == 16) ? 8 : kPairs ? 6 : kLanes == 8 || HWY_ARCH_ARM_A64 ? 3 : 1;
  static constexpr int kColumns = kPairs ? 2 : kVectors;
};

template <class Math, int kRows, int kFirst, class Fn>
HWY_INLINE void MultiplyTile(int64_t first_row, const uint32_t* HWY_RESTRICT rows, const int32_t* starts, int64_t words,
                             const uint32_t* HWY_RESTRICT panel, const Fn& fn) {
  constexpr int kColumns = Tile<Math>::kColumns;
  const DU du;
  typename Math::Sum sums[kRows][kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kColumns; ++v) sums[i][v] = Math::Start(starts[i]);
  }
  for (int64_t w = 0; w < words; ++w) {
    VU keys[kColumns];
#pragma GCC unroll 16
    for (int v = 0; v < kColumns; ++v) keys[v] = hn::Load(du, panel + w * kTileKeys + (kFirst + v) * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const VU left = hn::Set(du, rows[i * words + w]);
#pragma GCC unroll 16
      for (int v = 0; v < kColumns; ++v) sums[i][v] = Math::Add(left, keys[v], sums[i][v]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < kColumns; ++v) {
      if constexpr (std::is_same_v<typename Math::Sum, VF>) {
        fn(first_row + i, kFirst + v, sums[i][v]);
      } else {
        fn(first_row + i, kFirst + v, hn::ConvertTo(DF(), sums[i][v]));  // below 2^24: exact
      }
    }
  }
  if constexpr (kFirst + kColumns < kVectors) MultiplyTile<Math, kRows, kFirst + kColumns>(first_row, rows, starts, words, panel, fn);
}

// fn(row, v, products): the fp32 products of a row with the keys of the tile's v-th vector, for each v by ascending row. Rows lie `words`
// apart.
template <class Math, int kRows = Tile<Math>::kRows, class Fn>
HWY_INLINE void MultiplyRows(int64_t rows, int64_t first, const uint32_t* HWY_RESTRICT q, const int32_t* starts, int64_t words,
                             const uint32_t* HWY_RESTRICT panel, const Fn& fn) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) MultiplyTile<Math, kRows, 0>(first + r, q + r * words, starts + r, words, panel, fn);
  if constexpr (kRows > 1) {
    if (r < rows) MultiplyRows<Math, kRows / 2>(rows - r, first + r, q + r * words, starts + r, words, panel, fn);
  }
}

}  // namespace jumar::attention::key_panel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
