// Where the weights of a panel lie in each layout. Included once per SIMD target, see Highway's foreach_target.h.

#if defined(LIBS_QUANT_GEMM_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LIBS_QUANT_GEMM_WEIGHTS_INL_H_
#undef LIBS_QUANT_GEMM_WEIGHTS_INL_H_
#else
#define LIBS_QUANT_GEMM_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "libs/quant/gemm_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace jumar::quant::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Strides {  // in elements: column j, step block b at b * block + j * column
  size_t column;
  size_t block;  // from 16 k's to the next 16
};

inline int64_t PaddedTo16(int64_t size) { return (size + 15) / 16 * 16; }

// Of layouts whose weights are neighbours along k.
inline Strides StridesOf(const GemmArgs& args) {
  if (args.layout == WeightLayout::kNK) return {static_cast<size_t>(args.ldw), 16};
  return {16, static_cast<size_t>(PaddedTo16(args.n)) * 16};
}

template <typename T>
const T* FirstOfPanel(const GemmArgs& args, int64_t panel) {
  return static_cast<const T*>(args.w) + (args.layout == WeightLayout::kNK ? panel * kPanel * args.ldw : panel * 256);
}

inline bool IsAlongK(WeightLayout layout) { return layout == WeightLayout::kNK || layout == WeightLayout::kFractalNz; }

// The transposes of kBlock x kBlock squares that lie side by side in the blocks of vectors of D: rows[i] becomes the i-th column of each.
template <class D, int kBlock = 16 / sizeof(hn::TFromD<D>)>
HWY_INLINE void TransposeSquares(D d, hn::Vec<D> (&rows)[kBlock]) {
#pragma GCC unroll 3
  for (int half = kBlock / 2; half > 0; half /= 2) {  // each pass interleaves row i with row i + kBlock / 2
    hn::Vec<D> in[kBlock];
#pragma GCC unroll 8
    for (int i = 0; i < kBlock; ++i) in[i] = rows[i];
#pragma GCC unroll 4
    for (int i = 0; i < kBlock / 2; ++i) {
      rows[2 * i] = hn::InterleaveLower(d, in[i], in[i + kBlock / 2]);
      rows[2 * i + 1] = hn::InterleaveUpper(d, in[i], in[i + kBlock / 2]);
    }
  }
}

// fractal[16 n][16 k] = the block [k_count, n_count] of a row-major [k, n] matrix, transposed; what is outside the block is zero.
template <typename T>
void TransposeBlock(const T* HWY_RESTRICT w, int64_t ldw, int64_t k_count, int64_t n_count, T* HWY_RESTRICT fractal) {
  if (k_count < 16 || n_count < 16) {
    std::fill_n(fractal, 256, T{});
    for (int64_t kk = 0; kk < k_count; ++kk) {
      for (int64_t j = 0; j < n_count; ++j) fractal[j * 16 + kk] = w[kk * ldw + j];
    }
    return;
  }
  using U = hwy::UnsignedFromSize<sizeof(T)>;
  constexpr int kBlock = 16 / sizeof(T);
  const auto* in = reinterpret_cast<const U*>(w);
  auto* out = reinterpret_cast<U*>(fractal);
#if HWY_MAX_BYTES >= 32
  if constexpr (sizeof(T) == 2) {  // two squares in a vector
    const hn::FixedTag<U, 16> d;
    hn::Vec<decltype(d)> top[8], bottom[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) top[i] = hn::LoadU(d, in + i * ldw);
    TransposeSquares(d, top);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) bottom[i] = hn::LoadU(d, in + (i + 8) * ldw);
    TransposeSquares(d, bottom);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      hn::StoreU(hn::ConcatLowerLower(d, bottom[i], top[i]), d, out + i * 16);
      hn::StoreU(hn::ConcatUpperUpper(d, bottom[i], top[i]), d, out + (i + 8) * 16);
    }
    return;
  }
#endif
  const hn::FixedTag<U, kBlock> d;
  for (int kk = 0; kk < 16; kk += kBlock) {
    for (int j = 0; j < 16; j += kBlock) {
      hn::Vec<decltype(d)> rows[kBlock];
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i) rows[i] = hn::LoadU(d, in + (kk + i) * ldw + j);
      TransposeSquares(d, rows);
#pragma GCC unroll 8
      for (int i = 0; i < kBlock; ++i) hn::StoreU(rows[i], d, out + (j + i) * 16 + kk);
    }
  }
}

// The fractal of panel `panel` and block `block` of k, of a layout whose weights are not neighbours along k.
template <typename T>
void TransposeFractal(const GemmArgs& args, int64_t panel, int64_t block, T* fractal) {
  const T* w = static_cast<const T*>(args.w);
  const int64_t k_count = std::min<int64_t>(16, args.k - block * 16), n_count = std::min<int64_t>(16, args.n - panel * 16);
  if (args.layout == WeightLayout::kFractalNzKN) return TransposeBlock(w + (panel * (PaddedTo16(args.k) / 16) + block) * 256, 16, k_count, n_count, fractal);
  TransposeBlock(w + block * 16 * args.ldw + panel * 16, args.ldw, k_count, n_count, fractal);
}

}  // namespace jumar::quant::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
