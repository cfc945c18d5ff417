// How a chunk of codes becomes vectors of numbers, by format and instruction set. Included once per SIMD target.
//
// A decoder has
//   Element            bf16 (multiplied in pairs by one instruction) or float
//   kChunk, kBytes     codes that are decoded together, and their bytes
//   kVectors           vectors that they fill
//   Source(position)   which k of the chunk stands at a position of those vectors; activations are packed likewise
// A lane of fp32 sums holds k's of one 16-wide part of the chunk, and the parts lie in the lanes in order: lane l has those of k = l * kChunk / lanes.

#if defined(LIBS_QUANT_WEIGHT_GEMM_DECODERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_WEIGHT_GEMM_DECODERS_INL_H_
#undef LIBS_QUANT_WEIGHT_GEMM_DECODERS_INL_H_
#else
#define LIBS_QUANT_WEIGHT_GEMM_DECODERS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "libs/quant/float_vectors-inl.h"
#include "libs/quant/format/format.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);
using D8 = hn::Repartition<uint8_t, DF>;
using D16 = hn::Repartition<uint16_t, DF>;
using D32 = hn::Repartition<uint32_t, DF>;
using DI32 = hn::Repartition<int32_t, DF>;
using DB = hn::Repartition<hwy::bfloat16_t, DF>;

#undef JUMAR_WEIGHT_GEMM_DOT
#if HWY_NATIVE_DOT_BF16 && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL
#define JUMAR_WEIGHT_GEMM_DOT 1
#else
#define JUMAR_WEIGHT_GEMM_DOT 0
#endif

template <typename T>
HWY_INLINE VF MultiplyAdd(hn::Vec<hn::Repartition<T, DF>> a, hn::Vec<hn::Repartition<T, DF>> w, VF sum) {
  if constexpr (sizeof(T) == 4) {
    return hn::MulAdd(a, w, sum);
  } else {
#if JUMAR_WEIGHT_GEMM_DOT
    VF unused = hn::Zero(DF());
    return hn::ReorderWidenMulAccumulate(DF(), a, w, sum, unused);
#else
    return sum;
#endif
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// fp32.

// Bytes or halves of bytes in 32-bit words, each made a float where it stands: it becomes the mantissa's low bits of a number whose unit is its
// lowest bit's place, from which that number is then taken off. `Offset` is added to every code by flipping its sign bit, or contained in it.
template <int kBits, int kShift, int kFlip, int kOffset, int kScaleLog2 = 0>
HWY_INLINE VF InPlace(hn::Vec<D32> words) {
  const D32 du;
  constexpr uint32_t kMask = ((1u << kBits) - 1) << kShift;
  constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 23 - kShift + kScaleLog2) << 23;
  constexpr double kUnit = kScaleLog2 == 0 ? 1.0 : 0.5;
  constexpr float kBase = static_cast<float>(kUnit * (static_cast<double>(1u << (23 - kShift)) + kOffset));
  static_assert(kShift + kBits <= 23 && (kScaleLog2 == 0 || kScaleLog2 == -1));
  const auto bits = hn::Xor(hn::And(words, hn::Set(du, kMask)), hn::Set(du, kMagic | static_cast<uint32_t>(kFlip) << kShift));
  return hn::Sub(hn::BitCast(DF(), bits), hn::Set(DF(), kBase));
}

template <Format kFormat>
struct WideDecoder;

template <>
struct WideDecoder<Format::kI4> {  // a word holds 8 neighbours
  using Element = float;
  static constexpr int kChunk = 8 * kLanes, kBytes = 4 * kLanes, kVectors = 8;
  static constexpr int Source(int position) { return position % kLanes * 8 + position / kLanes; }
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    const auto low = hn::BitCast(D32(), hn::LoadU(D8(), p)), high = hn::ShiftRight<16>(low);
    out[0] = InPlace<4, 0, 8, 8>(low);
    out[1] = InPlace<4, 4, 8, 8>(low);
    out[2] = InPlace<4, 8, 8, 8>(low);
    out[3] = InPlace<4, 12, 8, 8>(low);
    out[4] = InPlace<4, 0, 8, 8>(high);
    out[5] = InPlace<4, 4, 8, 8>(high);
    out[6] = InPlace<4, 8, 8, 8>(high);
    out[7] = InPlace<4, 12, 8, 8>(high);
  }
};

template <>
struct WideDecoder<Format::kE2M1> {
  using Element = float;
  static constexpr int kChunk = 8 * kLanes, kBytes = 4 * kLanes, kVectors = 8;
  static constexpr int Source(int position) { return position % kLanes * 8 + position / kLanes; }
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    // Twice the value, and 12: 0 to 24.
    static constexpr uint8_t kTable[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    const D8 d8;
    const auto codes = hn::LoadU(d8, p), table = hn::LoadDup128(d8, kTable), mask = hn::Set(d8, uint8_t{15});
    const auto even = hn::BitCast(D32(), hn::TableLookupBytes(table, hn::And(codes, mask)));
    const auto high_codes = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(D16(), codes)));
    const auto odd = hn::BitCast(D32(), hn::TableLookupBytes(table, hn::And(high_codes, mask)));
    out[0] = InPlace<5, 0, 0, 12, -1>(even);
    out[1] = InPlace<5, 0, 0, 12, -1>(odd);
    out[2] = InPlace<5, 8, 0, 12, -1>(even);
    out[3] = InPlace<5, 8, 0, 12, -1>(odd);
    out[4] = InPlace<5, 16, 0, 12, -1>(even);
    out[5] = InPlace<5, 16, 0, 12, -1>(odd);
    out[6] = InPlace<5, 8, 0, 12, -1>(hn::ShiftRight<16>(even));
    out[7] = InPlace<5, 8, 0, 12, -1>(hn::ShiftRight<16>(odd));
  }
};

// One vector in the order of memory.
struct InOrder {
  using Element = float;
  static constexpr int kChunk = kLanes, kBytes = kLanes, kVectors = 1;
  static constexpr int Source(int position) { return position; }
};

template <>
struct WideDecoder<Format::kI8> : InOrder {
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    const hn::Rebind<int8_t, DF> d;
    out[0] = hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, reinterpret_cast<const int8_t*>(p))));
  }
};

// The 8-bit floats are fp16 numbers, E4M3 but for a factor of 256.
template <>
struct WideDecoder<Format::kE4M3> : InOrder {
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    const hn::Rebind<int16_t, DF> d16;
    const auto wide = hn::PromoteTo(d16, hn::LoadU(hn::Rebind<int8_t, DF>(), reinterpret_cast<const int8_t*>(p)));  // the sign in bits 7 to 15
    const auto largest = hn::Set(d16, 0x3F80);
    auto half = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xBF80)));
    const auto nan = hn::VecFromMask(d16, hn::Eq(hn::And(half, largest), largest));
    half = hn::Or(half, hn::And(nan, hn::Set(d16, 0x7E00)));
    out[0] = hn::Mul(quant::HWY_NAMESPACE::WidenF16(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half)), hn::Set(DF(), 256.0f));
  }
};

template <>
struct WideDecoder<Format::kE5M2> : InOrder {
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    const hn::Rebind<uint16_t, DF> d16;
    const auto half = hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(hn::Rebind<uint8_t, DF>(), p)));
    out[0] = quant::HWY_NAMESPACE::WidenF16(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
  }
};

template <>
struct WideDecoder<Format::kHiF8> : InOrder {
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VF (&out)[kVectors]) const {
    out[0] = hn::GatherIndex(DF(), kDecoded<Format::kHiF8>.f32.data(), hn::PromoteTo(DI32(), hn::LoadU(hn::Rebind<uint8_t, DF>(), p)));
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// bf16 pairs, on AVX-512 with VBMI.

#if JUMAR_WEIGHT_GEMM_DOT
using VB = hn::Vec<DB>;
template <typename T, class V>
HWY_INLINE auto Indices(V v) {  // the instructions look at the bits that they need only
  return hn::Indices512<T>{v.raw};
}

template <Format kFormat>
struct NibbleDotDecoder {
  using Element = hwy::bfloat16_t;
  static constexpr int kChunk = 128, kBytes = 64, kVectors = 4;
  static constexpr int Source(int position) { return position % 32 * 4 + position / 32; }
  HWY_INLINE NibbleDotDecoder() : table(hn::LoadU(D16(), kDecoded<kFormat>.bf16.data())) {}  // 16 numbers, twice
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VB (&out)[kVectors]) const {
    const auto codes = hn::BitCast(D16(), hn::LoadU(D8(), p));
    out[0] = hn::BitCast(DB(), hn::TableLookupLanes(table, Indices<uint16_t>(codes)));
    out[1] = hn::BitCast(DB(), hn::TableLookupLanes(table, Indices<uint16_t>(hn::ShiftRight<4>(codes))));
    out[2] = hn::BitCast(DB(), hn::TableLookupLanes(table, Indices<uint16_t>(hn::ShiftRight<8>(codes))));
    out[3] = hn::BitCast(DB(), hn::TableLookupLanes(table, Indices<uint16_t>(hn::ShiftRight<12>(codes))));
  }
  hn::Vec<D16> table;
};

struct MagnitudeBytes {
  alignas(64) uint8_t low[128], high[128];
};
template <Format kFormat>
constexpr MagnitudeBytes MakeMagnitudeBytes() {
  MagnitudeBytes bytes = {};
  for (size_t i = 0; i < 128; ++i) {
    bytes.low[i] = static_cast<uint8_t>(kDecoded<kFormat>.bf16[i]);
    bytes.high[i] = static_cast<uint8_t>(kDecoded<kFormat>.bf16[i] >> 8);
  }
  return bytes;
}
template <Format kFormat>
constexpr MagnitudeBytes kMagnitudeBytes = MakeMagnitudeBytes<kFormat>();

// Sign and magnitude: the bytes of a bf16 number come from tables of 128 magnitudes.
template <Format kFormat>
struct ByteDotDecoder {
  using Element = hwy::bfloat16_t;
  static constexpr int kChunk = 64, kBytes = 64, kVectors = 2;
  static constexpr int Source(int position) { return position % 32 / 8 * 16 + position / 32 * 8 + position % 8; }
  HWY_INLINE ByteDotDecoder()
      : low0(hn::Load(D8(), kMagnitudeBytes<kFormat>.low)),
        low1(hn::Load(D8(), kMagnitudeBytes<kFormat>.low + 64)),
        high0(hn::Load(D8(), kMagnitudeBytes<kFormat>.high)),
        high1(hn::Load(D8(), kMagnitudeBytes<kFormat>.high + 64)) {}
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VB (&out)[kVectors]) const {
    const D8 d8;
    const auto codes = hn::LoadU(d8, p);
    auto low = hn::TwoTablesLookupLanes(low0, low1, Indices<uint8_t>(codes));
    auto high = hn::TwoTablesLookupLanes(high0, high1, Indices<uint8_t>(codes));
    high = hn::Or(high, hn::And(codes, hn::Set(d8, uint8_t{0x80})));
    if constexpr (kFormat == Format::kHiF8) {  // -0 is its NaN
      const auto nan = hn::Eq(codes, hn::Set(d8, uint8_t{0x80}));
      low = hn::IfThenElse(nan, hn::Set(d8, uint8_t{0xC0}), low);
      high = hn::IfThenElse(nan, hn::Set(d8, uint8_t{0x7F}), high);
    }
    out[0] = hn::BitCast(DB(), hn::InterleaveLower(d8, low, high));
    out[1] = hn::BitCast(DB(), hn::InterleaveUpper(d8, low, high));
  }
  hn::Vec<D8> low0, low1, high0, high1;
};

struct Int8DotDecoder {
  using Element = hwy::bfloat16_t;
  static constexpr int kChunk = 32, kBytes = 32, kVectors = 1;
  static constexpr int Source(int position) { return position; }
  HWY_INLINE void Decode(const uint8_t* HWY_RESTRICT p, VB (&out)[kVectors]) const {
    const hn::Rebind<int8_t, DF> d;
    const auto* codes = reinterpret_cast<const int8_t*>(p);
    out[0] = hn::OrderedDemote2To(DB(), hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, codes))),
                                  hn::ConvertTo(DF(), hn::PromoteTo(DI32(), hn::LoadU(d, codes + 16))));
  }
};
#endif

// Calls fn with the decoder for a format; `dot` only where there is one.
template <class Fn>
HWY_INLINE auto WithDecoder(Format format, bool dot, Fn fn) {
#if JUMAR_WEIGHT_GEMM_DOT
  if (dot) {
    switch (format) {
      case Format::kI4: return fn(NibbleDotDecoder<Format::kI4>());
      case Format::kE2M1: return fn(NibbleDotDecoder<Format::kE2M1>());
      case Format::kE4M3: return fn(ByteDotDecoder<Format::kE4M3>());
      case Format::kE5M2: return fn(ByteDotDecoder<Format::kE5M2>());
      case Format::kHiF8: return fn(ByteDotDecoder<Format::kHiF8>());
      default: return fn(Int8DotDecoder());
    }
  }
#endif
  (void)dot;
  switch (format) {
    case Format::kI4: return fn(WideDecoder<Format::kI4>());
    case Format::kE2M1: return fn(WideDecoder<Format::kE2M1>());
    case Format::kE4M3: return fn(WideDecoder<Format::kE4M3>());
    case Format::kE5M2: return fn(WideDecoder<Format::kE5M2>());
    case Format::kHiF8: return fn(WideDecoder<Format::kHiF8>());
    default: return fn(WideDecoder<Format::kI8>());
  }
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
