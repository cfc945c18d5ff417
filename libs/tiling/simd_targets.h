#ifndef LIBS_TILING_SIMD_TARGETS_H_
#define LIBS_TILING_SIMD_TARGETS_H_

// Included before any Highway header by every source with SIMD code: the instruction sets that it is compiled for. x86-64: SSE2 (any
// CPU), AVX2, AVX-512 (AVX3), AVX-512 with bf16 (AVX3_ZEN4, AVX3_SPR). AArch64: NEON, NEON_BF16. SVE vectors cannot be elements of
// an array, which the kernels' register tiles are; SVE machines run the NEON code.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitised kernel takes minutes to compile for each set; the two left out here run the code of their neighbours.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_AVX3_SPR | HWY_ALL_SVE)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_ALL_SVE)
#endif

#endif  // LIBS_TILING_SIMD_TARGETS_H_
