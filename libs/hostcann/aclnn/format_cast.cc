// Casts between the base formats and the private ones, in which the bytes lie in blocks of c0 = 16, zero padded:
//
//   FRACTAL_NZ    [.., rows, cols]  as  [.., cols / c0, rows / 16, 16, c0]   c0 = 32 for one-byte types (libs/quant/fractal_nz.h)
//   NC1HWC0       [n, c, h, w]      as  [n, c / 16, h, w, 16]
//   FRACTAL_Z     [n, c, h, w]      as  [c / 16 * h * w, n / 16, 16 (n), 16 (c)]
//   NDHWC         [n, c, d, h, w]   as  [n, d, h, w, c]
//   NDC1HWC0      [n, c, d, h, w]   as  [n, d, c / 16, h, w, 16]
//   FRACTAL_Z_3D  [n, c, d, h, w]   as  [d * c / 16 * h * w, n / 16, 16 (n), 16 (c)]
//
// Of a tensor with fewer than four dimensions the first is c, the second h, the third w.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {
namespace {

constexpr int64_t kBlock = 16;
enum Format : int32_t { kNc1hwc0 = 3, kFractalZ = 4, kNdhwc = 27, kNdc1hwc0 = 32, kFractalZ3d = 33 };

struct Matrices {
  int64_t count = 1, rows = 0, cols = 0;
};
Matrices MatricesOf(const aclTensor& t) {
  Require(t.sizes.n >= 2, "src has shape ", ToString(t.sizes), "; FRACTAL_NZ needs at least 2 dimensions");
  Matrices m{.rows = t.sizes[t.sizes.n - 2], .cols = t.sizes[t.sizes.n - 1]};
  for (int i = 0; i < t.sizes.n - 2; ++i) m.count *= t.sizes[i];
  return m;
}

bool IsBaseOrNz(int32_t format) { return IsBaseFormat(format) || format == kFormatFractalNz; }

// A private format of images: the axes of the base format, those of them that are cut into blocks, and the order in which the
// axes lie. A blocked axis counts twice: blocks, then elements of a block.
struct Layout {
  size_t axes;
  std::vector<size_t> blocked;
  std::vector<int64_t> order;
};
std::optional<Layout> LayoutOf(int32_t format) {
  switch (format) {
    case kNc1hwc0: return Layout{4, {1}, {0, 1, 3, 4, 2}};
    case kFractalZ: return Layout{4, {0, 1}, {2, 4, 5, 0, 1, 3}};
    case kNdhwc: return Layout{5, {}, {0, 2, 3, 4, 1}};
    case kNdc1hwc0: return Layout{5, {1}, {0, 3, 1, 4, 5, 2}};
    case kFractalZ3d: return Layout{5, {0, 1}, {4, 2, 5, 6, 0, 1, 3}};
    default: return std::nullopt;
  }
}

// A tensor of such a format: where its elements are.
struct Blocked {
  IntList sizes, padded;  // in the axes of the base format
  Tensor split;           // a view of the storage: the padded axes in order, blocked ones as two
  Tensor storage;
};
Blocked BlockedView(const aclTensor& t, const Layout& layout) {
  Blocked b;
  b.sizes.assign(t.sizes.begin(), t.sizes.end());
  Require(b.sizes.size() <= 4 || b.sizes.size() == layout.axes, "a tensor of shape ", ToString(t.sizes), " has no ",
          FormatName(t.format));
  if (layout.axes == 4 && b.sizes.size() < 4) {
    b.sizes.insert(b.sizes.begin(), 1);
    b.sizes.resize(4, 1);
  }
  Require(b.sizes.size() == layout.axes, "a tensor of shape ", ToString(t.sizes), " has no ", FormatName(t.format), "; it needs ",
          layout.axes, " dimensions");
  IntList split;
  for (size_t axis = 0; axis < layout.axes; ++axis) {
    const bool cut = std::find(layout.blocked.begin(), layout.blocked.end(), axis) != layout.blocked.end();
    const int64_t blocks = (b.sizes[axis] + kBlock - 1) / kBlock;
    split.push_back(cut ? blocks : b.sizes[axis]);
    if (cut) split.push_back(kBlock);
    b.padded.push_back(cut ? blocks * kBlock : b.sizes[axis]);
  }
  IntList stored, back(layout.order.size());
  int64_t elements = 1, have = 1;
  for (size_t i = 0; i < layout.order.size(); ++i) {
    stored.push_back(split[static_cast<size_t>(layout.order[i])]);
    back[static_cast<size_t>(layout.order[i])] = static_cast<int64_t>(i);
    elements *= stored.back();
  }
  for (int64_t d : t.storage_sizes) have *= d;
  Require(have == elements, "a tensor of shape ", ToString(t.sizes), " in ", FormatName(t.format), " has the storage ",
          ToString(t.storage_sizes), "; it must have ", elements, " elements");
  b.storage = at::from_blob(t.base, stored, at::TensorOptions().dtype(ToScalarType(t.dtype)));
  b.split = b.storage.permute(back);
  return b;
}

// Runs fn(matrix in FRACTAL_NZ, dense matrix, m) for each matrix of t, x being the dense one.
template <class Fn>
void ForEachNz(const aclTensor& t, const Tensor& x, const Fn& fn) {
  const Matrices m = MatricesOf(t);
  const int64_t size = ItemSize(t.dtype), dense_bytes = m.rows * m.cols * size;
  const auto nz_bytes = quant::FractalNzBytes(m.rows, m.cols, size);
  Check(nz_bytes.status());
  char* const nz = static_cast<char*>(t.base);
  char* const dense = static_cast<char*>(x.data_ptr());
  ComputeExecutor().ParallelFor(m.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) Check(fn(nz + i * *nz_bytes, dense + i * dense_bytes, m));
  });
}

// Reads the elements of t, of a private format, into x, which is dense and of t's shape.
void Unpack(const aclTensor& t, const Tensor& x) {
  if (const auto layout = LayoutOf(t.format)) {
    const Blocked b = BlockedView(t, *layout);
    Tensor inside = b.split.reshape(b.padded);
    for (size_t axis = 0; axis < layout->axes; ++axis) inside = inside.narrow(static_cast<int64_t>(axis), 0, b.sizes[axis]);
    x.view(b.sizes).copy_(inside);
    return;
  }
  ForEachNz(t, x, [size = ItemSize(t.dtype)](const char* nz, char* dense, const Matrices& m) {
    return quant::UnpackFractalNz(m.rows, m.cols, size, nz, dense, m.cols);
  });
}

// Writes the elements of x, dense, into t, of a private format, and zeros into t's padding.
void Pack(const Tensor& x, const aclTensor& t) {
  if (const auto layout = LayoutOf(t.format)) {
    const Blocked b = BlockedView(t, *layout);
    const Tensor padded = at::zeros(b.padded, x.options());
    Tensor inside = padded;
    for (size_t axis = 0; axis < layout->axes; ++axis) inside = inside.narrow(static_cast<int64_t>(axis), 0, b.sizes[axis]);
    inside.copy_(x.view(b.sizes));
    b.split.copy_(padded.view(b.split.sizes()));
    return;
  }
  ForEachNz(t, x, [size = ItemSize(t.dtype)](char* nz, const char* dense, const Matrices& m) {
    return quant::PackFractalNz(m.rows, m.cols, size, dense, m.cols, nz);
  });
}

}  // namespace

// The storage shape and format that a cast of src to dst_format has; the caller releases *shape with delete[]. torch_npu casts
// between other formats than these two through the legacy operator Identity (libs/hostcann/acl/op_compiler.cc).
ACLNN_EXPORT int aclnnNpuFormatCastCalculateSizeAndFormat(const aclTensor* src, int dst_format, int additional_dtype,
                                                          int64_t** shape, uint64_t* shape_size, int* actual_format) {
  static constexpr char kOp[] = "aclnnNpuFormatCastCalculateSizeAndFormat";
  try {
    arg::NotNull("src", src);
    arg::NotNull("dstShape", shape);
    arg::NotNull("dstShapeSize", shape_size);
    arg::NotNull("actualFormat", actual_format);
    Require(IsBaseOrNz(src->format) && (dst_format == kFormatND || dst_format == kFormatFractalNz), "a cast from ",
            FormatName(src->format), " to ", FormatName(dst_format),
            " is not supported; this operator casts between ND (2) and FRACTAL_NZ (29)");
    std::vector<int64_t> storage;
    if (dst_format == kFormatND) {
      storage.assign(src->sizes.begin(), src->sizes.end());
    } else {
      const Matrices m = MatricesOf(*src);
      const auto nz = quant::FractalNzShape(m.rows, m.cols, ItemSize(src->dtype));
      Check(nz.status());
      storage.assign(src->sizes.begin(), src->sizes.end() - 2);
      storage.insert(storage.end(), nz->begin(), nz->end());
    }
    *shape_size = storage.size();
    *shape = new int64_t[storage.size()];
    std::copy(storage.begin(), storage.end(), *shape);
    *actual_format = dst_format;
    return kOk;
  } catch (const std::exception& error) {
    return ReportFailure(kOp, error);
  }
}

ACLNN_PLAN(NpuFormatCast, Raw(src), Raw(dst)) {
  for (const aclTensor* t : {&src, &dst}) {
    Require(IsBaseOrNz(t->format) || LayoutOf(t->format), "a cast from ", FormatName(src.format), " to ", FormatName(dst.format),
            " is not supported; hostcann knows ND (2) and its kin, FRACTAL_NZ (29), NC1HWC0 (3), FRACTAL_Z (4), NDHWC (27), "
            "NDC1HWC0 (32) and FRACTAL_Z_3D (33)");
  }
  Require(src.dtype == dst.dtype && SameShape(src, dst) && IsContiguous(src) && IsContiguous(dst), "src is ", DTypeName(src.dtype),
          " ", ToString(src.sizes), " and dst ", DTypeName(dst.dtype), " ", ToString(dst.sizes),
          "; they must be of one type and shape, and contiguous");
  const bool from_base = IsBaseFormat(src.format), to_base = IsBaseFormat(dst.format);
  if (src.format == dst.format || (from_base && to_base)) {
    int64_t elements = 1;
    for (int64_t d : from_base ? src.sizes : src.storage_sizes) elements *= d;
    return [from = src.data(), to = dst.data(), bytes = static_cast<size_t>(elements * ItemSize(src.dtype))] {
      std::memmove(to, from, bytes);
    };
  }
  return [src, dst, from_base, to_base] {
    const Tensor x = from_base ? ToTensor(src) : to_base ? ToTensor(dst) : at::empty_like(ToTensor(src));
    if (!from_base) Unpack(src, x);
    if (!to_base) Pack(x, dst);
  };
}

}  // namespace jumar::hostcann::aclnn
