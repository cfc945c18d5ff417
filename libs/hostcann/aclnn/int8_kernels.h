// Between the quantised operators and the int8 kernels of libs/quant/int8_gemm. A function here plans a task from shapes, types and addresses
// alone, so that a replay of a captured graph costs the work only. It returns nullptr for what the kernels don't take: the operator
// then does it with ATen.
#pragma once

#include <optional>
#include <vector>

#include "libs/hostcann/aclnn/quant.h"
#include "libs/quant/int8_gemm/int8_gemm.h"
#include "libs/quant/int8_gemm/row_quant.h"

namespace jumar::hostcann::aclnn {

// One number, or `count`; absent for an absent or empty tensor. Floats, and, as scales, the words of aclnnTransQuantParam. nullopt for others,
// and for strides.
std::optional<quant::Numbers> KernelNumbers(const OptTensor& t, int64_t count, bool words = false);

// A matrix [k, n] of int8, or a stack of such `stride` bytes apart, dense or a view, in ND or FRACTAL_NZ. `transpose`: [n, k] is given.
struct Int8Weight {
  quant::Int8Layout layout = quant::Int8Layout::kNK;
  const int8_t* data = nullptr;
  int64_t n = 0, k = 0, ldw = 0, stack = 1, stride = 0;
};
std::optional<Int8Weight> KernelWeight(const char* name, const aclTensor& w, bool transpose);

// aclnnQuantMatmul*: x1 [.., k] by x2 [k, n].
Task PlanInt8Matmul(const aclTensor& x1, const aclTensor& x2, bool transpose2, const OptTensor& x1_scale, const OptTensor& x2_scale,
                    const OptTensor& x2_offset, const OptTensor& bias, const Tensor& out);

// The product of groups of rows with their experts' weights; lists as aclnnGroupedMatmul* get them.
struct Int8Grouped {
  Tensor x;
  std::vector<aclTensor> weight, scale, bias;
  OptTensor token_scale;  // a number per row
  Tensor group_list;
  int64_t group_list_type = 0;
};
Task PlanInt8Grouped(const Int8Grouped& product, const Tensor& y);
// Then SwiGLU and dynamic quantisation. `smooth`: [columns of y], or a row per expert or one for all.
Task PlanInt8GroupedSwiglu(const Int8Grouped& product, const OptTensor& smooth, const Tensor& y, const Tensor& y_scale);

// x, contiguous, as rows of its last dimension.
std::optional<quant::RowsIn> KernelRows(const Tensor& x);
// y, contiguous int8 [rows, cols], as `kind` makes it; `factor` and `offset` per column or one.
std::optional<quant::Int8Rows> KernelInt8Rows(quant::Int8Rows::Kind kind, const OptTensor& factor, const OptTensor& offset, const Tensor& y,
                                              const OptTensor& scale, int64_t rows, int64_t cols);
Task PlanInt8Rows(const Tensor& x, quant::Int8Rows::Kind kind, const OptTensor& factor, const OptTensor& offset, const Tensor& y,
                  const OptTensor& scale);

// (x + residual) to `sum`, its RMS norm to one or two int8 tensors.
Task PlanInt8Norm(const Tensor& x, const OptTensor& residual, const OptTensor& sum, const Tensor& gamma, const OptTensor& beta, double epsilon,
                  const std::vector<std::optional<quant::Int8Rows>>& to);

// SwiGLU of rows of floats or int32 sums, then dynamic quantisation. weight_scale and smooth may have a row per group of `groups` (ends: type
// 0, counts: 1).
struct Int8Gated {
  Tensor x;
  OptTensor weight_scale = {}, activation_scale = {}, bias = {}, smooth = {}, groups = {};
  int64_t group_type = 0;
  bool activate_left = false;
};
Task PlanInt8Gated(const Int8Gated& gated, const Tensor& y, const Tensor& scale);

}  // namespace jumar::hostcann::aclnn
