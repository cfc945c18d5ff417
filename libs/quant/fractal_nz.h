#ifndef LIBS_QUANT_FRACTAL_NZ_H_
#define LIBS_QUANT_FRACTAL_NZ_H_

// The FRACTAL_NZ weight layout: a row-major matrix [rows, cols] cut into fractals of 16 rows by C0 columns, C0 = 16 elements
// (32 for one-byte types), zero padded at the right and the bottom:
//
//   nz[cols_pad / C0][rows_pad / 16][16][C0],   element (r, c) at nz[c / C0][r / 16][r % 16][c % C0]
//
// A batch is a dense sequence of such matrices. Same shape as torch_npu's format 29 (a 4-byte type also has C0 = 16).

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace jumar::quant {

inline constexpr int64_t kFractalRows = 16;

constexpr int64_t FractalCols(int64_t element_size) { return element_size == 1 ? 32 : 16; }

// {column blocks, row blocks, 16, C0} of one matrix. InvalidArgument for an element size other than 1, 2, 4, a negative
// dimension, or a size that does not fit int64.
absl::StatusOr<std::array<int64_t, 4>> FractalNzShape(int64_t rows, int64_t cols, int64_t element_size);

// Bytes of one packed matrix; 0 if a dimension is 0. Same errors.
absl::StatusOr<int64_t> FractalNzBytes(int64_t rows, int64_t cols, int64_t element_size);

// nd: row-major, `ld` elements from row to row (ld >= cols). `nz` holds FractalNzBytes; its padding is written as zero.
// The two must not overlap.
absl::Status PackFractalNz(int64_t rows, int64_t cols, int64_t element_size, const void* nd, int64_t ld, void* nz);
absl::Status UnpackFractalNz(int64_t rows, int64_t cols, int64_t element_size, const void* nz, void* nd, int64_t ld);

}  // namespace jumar::quant

#endif  // LIBS_QUANT_FRACTAL_NZ_H_
