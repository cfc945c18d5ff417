// Between aclTensors and the kernels of libs/quant and libs/attention, which take pointers and strides.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "libs/hostcann/aclnn/acl_types.h"
#include "libs/quant/dtype.h"
#include "libs/tiling/executor.h"

namespace jumar::hostcann::aclnn {

// The kernels' name of a floating-point type, or nullopt for a type that they don't take.
std::optional<quant::DType> KernelType(DType dtype);

// Throws ArgumentError or std::runtime_error with the status's message.
void Check(const absl::Status& status);

// Dimensions [first, last) of a view as one dimension.
struct Axis {
  int64_t size = 1;
  int64_t stride = 0;  // of elements; 1 for an axis of at most one element
};
// nullopt if no single stride walks them. Dimensions of size 1 don't matter.
std::optional<Axis> Merge(const aclTensor& t, int first, int last);

// A view as rows of contiguous elements: its last `inner` dimensions are the columns.
struct RowView {
  int64_t rows = 0, cols = 0, stride = 0;  // stride from row to row, in elements
};
std::optional<RowView> AsRows(const aclTensor& t, int inner);

bool IsContiguous(const aclTensor& t);
bool SameShape(const aclTensor& a, const aclTensor& b);

// Grain of a loop over items of `bytes` each, so that a thread gets enough to be worth waking: 64 KiB.
int64_t GrainFor(int64_t bytes);

}  // namespace jumar::hostcann::aclnn
