#include "libs/hostcann/aclnn/kernel.h"

#include <algorithm>
#include <stdexcept>

#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {

std::optional<quant::DType> KernelType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return quant::DType::kF32;
    case DType::kF16: return quant::DType::kF16;
    case DType::kBF16: return quant::DType::kBF16;
    default: return std::nullopt;
  }
}

void Check(const absl::Status& status) {
  if (!status.ok()) throw ArgumentError(std::string(status.message()));
}

std::optional<Axis> Merge(const aclTensor& t, int first, int last) {
  Axis axis{1, 1};
  bool started = false;
  int64_t expected = 0;
  for (int i = last - 1; i >= first; --i) {
    axis.size *= t.sizes[i];
    if (t.sizes[i] == 1) continue;
    if (!started) {
      axis.stride = t.strides[i];
      started = true;
    } else if (t.strides[i] != expected) {
      if (t.numel() != 0) return std::nullopt;
    }
    expected = t.strides[i] * t.sizes[i];
  }
  return axis;
}

std::optional<RowView> AsRows(const aclTensor& t, int inner) {
  if (inner > t.sizes.n) return std::nullopt;
  const auto outer_axis = Merge(t, 0, t.sizes.n - inner);
  const auto inner_axis = Merge(t, t.sizes.n - inner, t.sizes.n);
  if (!outer_axis || !inner_axis || (inner_axis->size > 1 && inner_axis->stride != 1)) return std::nullopt;
  // A single row has no stride of its own; kernels want one that is at least a row long.
  const int64_t stride = outer_axis->size > 1 ? outer_axis->stride : inner_axis->size;
  return RowView{outer_axis->size, inner_axis->size, stride};
}

bool IsContiguous(const aclTensor& t) {
  const auto axis = Merge(t, 0, t.sizes.n);
  return axis && (axis->size <= 1 || axis->stride == 1);
}

bool SameShape(const aclTensor& a, const aclTensor& b) {
  return std::equal(a.sizes.begin(), a.sizes.end(), b.sizes.begin(), b.sizes.end());
}

int64_t GrainFor(int64_t bytes) { return std::max<int64_t>(1, (int64_t{64} << 10) / std::max<int64_t>(1, bytes)); }

}  // namespace jumar::hostcann::aclnn
