#include "libs/quant/fractal_nz.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace jumar::quant {
namespace {

absl::Status Check(int64_t rows, int64_t cols, int64_t element_size) {
  if (element_size != 1 && element_size != 2 && element_size != 4) {
    return absl::InvalidArgumentError(absl::StrCat("fractal NZ: element size ", element_size, " is not 1, 2 or 4"));
  }
  if (rows < 0 || cols < 0) {
    return absl::InvalidArgumentError(absl::StrCat("fractal NZ: shape [", rows, ", ", cols, "] is negative"));
  }
  int64_t bytes;
  if (rows > INT64_MAX - 32 || cols > INT64_MAX - 32 || __builtin_mul_overflow((rows + 15) / 16 * 16, (cols + 31) / 32 * 32, &bytes) ||
      __builtin_mul_overflow(bytes, element_size, &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("fractal NZ: shape [", rows, ", ", cols, "] is too large"));
  }
  return absl::OkStatus();
}

absl::Status CheckData(int64_t rows, int64_t cols, int64_t element_size, const void* nd, int64_t ld, const void* nz) {
  if (auto status = Check(rows, cols, element_size); !status.ok()) return status;
  if (rows == 0 || cols == 0) return absl::OkStatus();
  if (nd == nullptr || nz == nullptr) return absl::InvalidArgumentError("fractal NZ: a matrix is null");
  if (ld < cols) {
    return absl::InvalidArgumentError(absl::StrCat("fractal NZ: leading dimension ", ld, " is less than the ", cols, " columns"));
  }
  return absl::OkStatus();
}

// Calls copy(nd offset, nz offset, bytes of data, bytes of padding) for each run of C0 elements, in the order of nz.
// Rows below the matrix have no data.
template <typename Copy>
void ForEachRun(int64_t rows, int64_t cols, int64_t element_size, int64_t ld, const Copy& copy) {
  const int64_t c0 = FractalCols(element_size), rows_padded = (rows + kFractalRows - 1) / kFractalRows * kFractalRows;
  int64_t nz = 0;
  for (int64_t col = 0; col < cols; col += c0) {
    const int64_t data = std::min(c0, cols - col);
    for (int64_t row = 0; row < rows_padded; ++row, nz += c0) {
      const int64_t count = row < rows ? data : 0;
      copy((row * ld + col) * element_size, nz * element_size, count * element_size, (c0 - count) * element_size);
    }
  }
}

}  // namespace

absl::StatusOr<std::array<int64_t, 4>> FractalNzShape(int64_t rows, int64_t cols, int64_t element_size) {
  if (auto status = Check(rows, cols, element_size); !status.ok()) return status;
  const int64_t c0 = FractalCols(element_size);
  return std::array<int64_t, 4>{(cols + c0 - 1) / c0, (rows + kFractalRows - 1) / kFractalRows, kFractalRows, c0};
}

absl::StatusOr<int64_t> FractalNzBytes(int64_t rows, int64_t cols, int64_t element_size) {
  auto shape = FractalNzShape(rows, cols, element_size);
  if (!shape.ok()) return shape.status();
  return (*shape)[0] * (*shape)[1] * (*shape)[2] * (*shape)[3] * element_size;
}

absl::Status PackFractalNz(int64_t rows, int64_t cols, int64_t element_size, const void* nd, int64_t ld, void* nz) {
  if (auto status = CheckData(rows, cols, element_size, nd, ld, nz); !status.ok()) return status;
  const char* in = static_cast<const char*>(nd);
  char* out = static_cast<char*>(nz);
  ForEachRun(rows, cols, element_size, ld, [&](int64_t from, int64_t to, int64_t data, int64_t padding) {
    if (data > 0) std::memcpy(out + to, in + from, data);
    if (padding > 0) std::memset(out + to + data, 0, padding);
  });
  return absl::OkStatus();
}

absl::Status UnpackFractalNz(int64_t rows, int64_t cols, int64_t element_size, const void* nz, void* nd, int64_t ld) {
  if (auto status = CheckData(rows, cols, element_size, nd, ld, nz); !status.ok()) return status;
  const char* in = static_cast<const char*>(nz);
  char* out = static_cast<char*>(nd);
  ForEachRun(rows, cols, element_size, ld, [&](int64_t to, int64_t from, int64_t data, int64_t) {
    if (data > 0) std::memcpy(out + to, in + from, data);
  });
  return absl::OkStatus();
}

}  // namespace jumar::quant
