// What the quantised operators share. A quotient is rounded to the nearest, a half to the even; what leaves the range of a type is
// its end. Everything between is computed in fp32, sums of integer products in int32.
//
// int4 comes packed: eight numbers in an int32, or two in an int8, the first in the lowest bits.
#pragma once

#include <vector>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace arg {

struct Bools {
  using C = const aclBoolArray*;
  using Body = const std::vector<uint8_t>&;  // empty if not given
  static std::vector<uint8_t> Capture(const char*, C a) { return a == nullptr ? std::vector<uint8_t>() : a->v; }
};

}  // namespace arg
#define JUMAR_ARG_Bools(x) Bools, x

Tensor F32(const Tensor& t);
OptTensor F32(const OptTensor& t);

// out = value, rounded and cut to out's type: an integer type, packed int4 (out has an eighth or half of the elements), or fp8.
void PutRounded(const Tensor& out, const Tensor& value);
// Largest and smallest number that PutRounded writes to `out` for `elements` values.
std::pair<double, double> QuantizedRange(const Tensor& out, int64_t elements);

// x as an fp32 matrix of rows of its last dimension.
Tensor Rows(const Tensor& x);
// The group of each of `rows` rows; a group ends where `groups` says (type 0) or has as many rows (type 1). Rows behind the last group
// belong to it.
Tensor GroupOfRows(const Tensor& groups, int64_t type, int64_t rows);
// x * smooth, row by row of the matrix x; of several rows of smooth, that of the row's group.
Tensor Smooth(const Tensor& x, const OptTensor& smooth, const OptTensor& groups, int64_t group_type);
// Symmetric, a scale per row: scale = max |x| / largest number of y.
void DynamicQuantize(const Tensor& x, const Tensor& y, const Tensor& scale);

// The scales of a product as fp32: from float types, or from the low half of the 64-bit words that aclnnTransQuantParam makes.
Tensor ScaleOf(const Tensor& t);
// The offset in such a word; nullopt for float types.
OptTensor OffsetOf(const Tensor& t);

// What lies in the storage of a FRACTAL_NZ tensor of 2 or 3 dimensions: dense matrices [rows, cols], one behind the other, of which the tensor may
// be a transposed view. Throws if the storage isn't that.
struct NzMatrices {
  int64_t stack, rows, cols;
  bool transposed;
};
NzMatrices NzMatricesOf(const char* name, const aclTensor& w);
// The matrix of a weight in ND or FRACTAL_NZ, or a stack of such, dense or a view.
Tensor DenseWeight(const char* name, const aclTensor& w);
// [..., n] of packed int32 -> [..., 8n] of int8. A transposed matrix is packed along its first axis.
Tensor UnpackInt4(const Tensor& packed);
// int8 [m, k] (or [..., k], or batches) times int8 [k, n], in int32: exact.
Tensor IntProduct(const Tensor& a, const Tensor& b);

void RefuseGiven(const char* name, bool given);

}  // namespace jumar::hostcann::aclnn
