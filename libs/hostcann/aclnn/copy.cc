// Copies and type conversions, and whole rows by index.
#include <ATen/ops/embedding.h>

#include <cstring>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"

namespace jumar::hostcann::aclnn {
namespace {

void RequireBase(const char* name, const aclTensor& t) {
  Require(IsBaseFormat(t.format), "argument `", name, "` has format ", FormatName(t.format),
          "; cast it to ND (2) with npu_format_cast first");
}

// out[i] = in[i], rows of `row_bytes`.
void CopyRows(char* out, int64_t out_stride, const char* in, int64_t in_stride, int64_t rows, int64_t row_bytes) {
  ComputeExecutor().ParallelFor(rows, GrainFor(row_bytes), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::memcpy(out + r * out_stride, in + r * in_stride, static_cast<size_t>(row_bytes));
  });
}

constexpr int64_t kLargeCopy = int64_t{1} << 20;

}  // namespace

ACLNN_PLAN(InplaceCopy, Raw(self), Raw(src)) {
  RequireBase("self", self);
  RequireBase("src", src);
  const int64_t size = ItemSize(self.dtype);
  if (self.dtype == src.dtype && SameShape(self, src)) {
    if (IsContiguous(self) && IsContiguous(src)) {
      char* out = static_cast<char*>(self.data());
      const char* in = static_cast<const char*>(src.data());
      const int64_t bytes = self.numel() * size;
      if (bytes == 0) return [] {};
      if (bytes < kLargeCopy) return [=] { std::memmove(out, in, static_cast<size_t>(bytes)); };
      return [=] {
        ComputeExecutor().ParallelFor(bytes, kLargeCopy / 4, [=](int64_t begin, int64_t end) {
          std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
        });
      };
    }
    // Slices of a wider row, such as q, k and v of one projection.
    const auto to = AsRows(self, 1), from = AsRows(src, 1);
    if (self.sizes.n > 1 && to && from && to->cols * size >= 64) {
      char* out = static_cast<char*>(self.data());
      const char* in = static_cast<const char*>(src.data());
      return [=] { CopyRows(out, to->stride * size, in, from->stride * size, to->rows, to->cols * size); };
    }
  }
  return [out = ToTensor(self), in = ToTensor(src)] { out.copy_(in); };
}

ACLNN_OP(Cast, In(self), Type(dtype), Out(out)) { out.copy_(self); }

// out[i, :] = weight[indices[i], :]
ACLNN_PLAN(Embedding, Raw(weight), Raw(indices), Raw(out)) {
  RequireBase("weight", weight);
  RequireBase("indices", indices);
  Require(weight.sizes.n == 2, "weight has ", weight.sizes.n, " dimensions; it must have 2");
  Require(indices.dtype == DType::kI64 || indices.dtype == DType::kI32, "indices are ", DTypeName(indices.dtype),
          "; they must be int32 or int64");
  Require(out.numel() == indices.numel() * weight.sizes[1], "out has shape ", ToString(out.sizes), "; indices have ",
          ToString(indices.sizes), " and a row of weight has ", weight.sizes[1], " elements");
  const auto to = AsRows(out, 1), from = AsRows(weight, 1);
  if (!to || !from || !IsContiguous(indices) || out.dtype != weight.dtype) {
    return [w = ToTensor(weight), i = ToTensor(indices), o = ToTensor(out)] { Put(o, at::embedding(w, i.to(at::kLong))); };
  }
  const int64_t size = ItemSize(weight.dtype), rows = weight.sizes[0], row_bytes = weight.sizes[1] * size, count = indices.numel();
  char* o = static_cast<char*>(out.data());
  const char* w = static_cast<const char*>(weight.data());
  const int64_t o_stride = to->stride * size, w_stride = from->stride * size;
  const auto gather = [=]<class Index>(const Index* index) {
    return [=] {
      ComputeExecutor().ParallelFor(count, GrainFor(row_bytes), [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = index[i];
          Require(row >= 0 && row < rows, "indices[", i, "] is ", row, "; weight has ", rows, " rows");
          std::memcpy(o + i * o_stride, w + row * w_stride, static_cast<size_t>(row_bytes));
        }
      });
    };
  };
  if (indices.dtype == DType::kI64) return gather(static_cast<const int64_t*>(indices.data()));
  return gather(static_cast<const int32_t*>(indices.data()));
}

}  // namespace jumar::hostcann::aclnn
