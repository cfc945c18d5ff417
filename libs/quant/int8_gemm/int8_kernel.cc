#include "libs/quant/int8_gemm/int8_kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "libs/quant/int8_gemm/scratch.h"
#include "libs/tiling/simd_targets.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// This kernel gains by AVX-512 with dot products of bytes, but without bf16 (Ice Lake): AVX3_DL.
#define HWY_WANT_AVX3_DL
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_ALL_SVE)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "libs/quant/int8_gemm/int8_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "libs/quant/int8_gemm/int8_epilogue-inl.h"
#include "libs/quant/int8_gemm/int8_panel-inl.h"
#include "libs/quant/int8_gemm/int8_stream-inl.h"

// A stripe of weights is packed into a panel, a part of k at a time that fits the first-level cache; tiles of rows go over it. A lane of a
// sum belongs to one column, so that nothing has to be added up across lanes. The sums of the stripe wait in a buffer between the parts.
//
// A dot product of bytes wants one side unsigned: w + 128 is, and Σ a (w + 128) = Σ a w + 128 Σ a, so that a row's sums start with -128 Σ a.

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal {
namespace HWY_NAMESPACE {

// A tile: rows by vectors, as many as leave a few registers beside the sums.
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3) || HWY_ARCH_ARM_A64
constexpr int kTileVectors = kLanes == 16 ? 2 : 4;
constexpr int kTileRows = kLanes == 16 ? 12 : 6;
#else
constexpr int kTileVectors = 2;
constexpr int kTileRows = 6;
#endif
constexpr int64_t kPartSteps = 128;  // a panel of 16 KiB

// kRows rows (bytes a_stride apart) by kTileVectors vectors of a panel.
template <int kRows>
HWY_NOINLINE void Tile(const char* HWY_RESTRICT a, int64_t a_stride, const int32_t* HWY_RESTRICT panel, int64_t steps, int32_t* HWY_RESTRICT sums) {
  const DI di;
  VI sum[kRows][kTileVectors];
  LoadSums(sums, sum);
  for (int64_t step = 0; step < steps; ++step) {
    VI weights[kTileVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kTileVectors; ++v) weights[v] = hn::Load(di, panel + v * kLanes);
    AddStep(a, a_stride, weights, sum);
    a += sizeof(int32_t);
    panel += kColumns;
  }
  StoreSums(sum, sums);
}

using TileFunction = void (*)(const char*, int64_t, const int32_t*, int64_t, int32_t*);

template <int... kRows>
TileFunction TileOf(int rows, std::integer_sequence<int, kRows...>) {
  static constexpr TileFunction kTiles[] = {Tile<kRows + 1>...};
  return kTiles[rows - 1];
}

void PackRows(const Int8GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  const hn::Repartition<int8_t, DI> d8;
  const hn::Repartition<int16_t, DI> d16;
  const hn::Rebind<int8_t, decltype(d16)> half;
  const int64_t stride = PackedInt8RowBytes(args.k), padded = (args.k + 63) / 64 * 64;
  for (int64_t row = row_begin; row < row_end; ++row) {
    const int8_t* in = args.a + row * args.lda;
    char* out = static_cast<char*>(packed) + row * stride;
    int32_t start = 0;
    if constexpr (kDot) {
      const auto ones = hn::Set(hn::Repartition<uint8_t, DI>(), uint8_t{1});
      VI sum = hn::Zero(DI());
      for (int64_t k = 0; k < padded; k += hn::MaxLanes(d8)) {
        const int64_t left = std::max<int64_t>(0, args.k - k);
        const auto codes = left >= static_cast<int64_t>(hn::MaxLanes(d8)) ? hn::LoadU(d8, in + k) : hn::LoadN(d8, in + k, left);
        hn::StoreU(codes, d8, reinterpret_cast<int8_t*>(out) + k);
        sum = hn::SumOfMulQuadAccumulate(DI(), ones, codes, sum);
      }
      start = -128 * hn::ReduceSum(DI(), sum);
    } else {
      for (int64_t k = 0; k < padded; k += hn::MaxLanes(d16)) {
        const int64_t left = std::max<int64_t>(0, args.k - k);
        const auto codes = left >= static_cast<int64_t>(hn::MaxLanes(d16)) ? hn::LoadU(half, in + k) : hn::LoadN(half, in + k, left);
        hn::StoreU(hn::PromoteTo(d16, codes), d16, reinterpret_cast<int16_t*>(out) + k);
      }
    }
    std::memcpy(out + stride - sizeof(start), &start, sizeof(start));
  }
}

// The sums of a stripe of few rows, straight from the weights; false if there are too many rows, or the layout asks for a panel.
template <int... kRows>
bool StreamRows(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, const char* a, int64_t a_stride, int64_t rows, int32_t* sums,
                std::integer_sequence<int, kRows...>) {
  if (args.layout == Int8Layout::kFractalKN) {
    const int8_t* from = w + stripe * ((args.k + 15) / 16 * 16 * kColumns);
    const int64_t steps = (args.k + kPerLane - 1) / kPerLane;
    return ((rows == kRows + 1 && kRows < kStreamStripeRows &&
             (StreamStripe<std::min(kRows + 1, kStreamStripeRows)>(a, a_stride, from, steps, sums), true)) || ...);
  }
  if (args.layout == Int8Layout::kKN) return false;
  return ((rows == kRows + 1 && kRows < kStreamColumnsRows &&
           (StreamColumns<std::min(kRows + 1, kStreamColumnsRows)>(args, w, stripe, a, a_stride, sums), true)) || ...);
}

// The sums of a stripe of any number of rows, through panels.
void PanelRows(const Int8GemmArgs& args, const int8_t* w, int64_t stripe, const char* a, int64_t a_stride, int64_t rows, int32_t* panel, int32_t* sums) {
  const int64_t steps = (args.k + kPerLane - 1) / kPerLane, tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t vectors = (std::min(kColumns, args.n - stripe * kColumns) + kLanes - 1) / kLanes;
  for (int64_t step = 0; step < steps; step += kPartSteps) {
    const int64_t part = std::min(kPartSteps, steps - step);
    PackPanel(args, w, stripe, step * kPerLane, std::min(args.k, (step + part) * kPerLane), panel);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t begin = rows * tile / tiles, end = rows * (tile + 1) / tiles;
      const TileFunction compute = TileOf(static_cast<int>(end - begin), std::make_integer_sequence<int, kTileRows>());
      for (int64_t v = 0; v < vectors; v += kTileVectors) {
        compute(a + begin * a_stride + step * sizeof(int32_t), a_stride, panel + v * kLanes, part, sums + begin * kColumns + v * kLanes);
      }
    }
  }
}

void StripeRange(const Int8GemmArgs& args, const Int8Group& group, const void* packed, int64_t row_begin, int64_t row_end,
                 int64_t stripe_begin, int64_t stripe_end) {
  const DI di;
  const int64_t stride = PackedInt8RowBytes(args.k), rows = row_end - row_begin, panel_bytes = kPartSteps * kColumns * sizeof(int32_t);
  const char* const a = static_cast<const char*>(packed) + row_begin * stride;
  char* const scratch = Scratch<ScratchUse::kPanel>(panel_bytes + rows * kColumns * sizeof(int32_t));
  int32_t* const panel = reinterpret_cast<int32_t*>(scratch);
  int32_t* const sums = reinterpret_cast<int32_t*>(scratch + panel_bytes);
  for (int64_t stripe = stripe_begin; stripe < stripe_end; ++stripe) {
    for (int64_t row = 0; row < rows; ++row) {
      int32_t start;
      std::memcpy(&start, a + (row + 1) * stride - sizeof(start), sizeof(start));
      for (int64_t j = 0; j < kColumns; j += kLanes) hn::Store(hn::Set(di, start), di, sums + row * kColumns + j);
    }
    if (!StreamRows(args, group.w, stripe, a, stride, rows, sums, std::make_integer_sequence<int, 12>())) {
      PanelRows(args, group.w, stripe, a, stride, rows, panel, sums);
    }
    WriteStripe(args, group, sums, row_begin, row_end, stripe);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace jumar::quant::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jumar::quant::internal {

HWY_EXPORT(PackRows);
HWY_EXPORT(StripeRange);

int64_t PackedInt8RowBytes(int64_t k) {
  // Room for int16; not a multiple of 4 KiB, so that the rows of a tile fall into different cache sets.
  return (k + 63) / 64 * 128 + 64;
}

void PackInt8Rows(const Int8GemmArgs& args, int64_t row_begin, int64_t row_end, void* packed) {
  HWY_DYNAMIC_DISPATCH(PackRows)(args, row_begin, row_end, packed);
}

void ComputeInt8Stripes(const Int8GemmArgs& args, const Int8Group& group, const void* packed, int64_t row_begin, int64_t row_end,
                        int64_t stripe_begin, int64_t stripe_end) {
  HWY_DYNAMIC_DISPATCH(StripeRange)(args, group, packed, row_begin, row_end, stripe_begin, stripe_end);
}

}  // namespace jumar::quant::internal
#endif  // HWY_ONCE
