// Casts between ND and FRACTAL_NZ, the blocked layout in which a weight is streamed. The cast of a [.., rows, cols] tensor has
// the storage [.., cols / c0, rows / 16, 16, c0], c0 = 16 (32 for one-byte types), zero padded (libs/quant/fractal_nz.h).
#include <algorithm>
#include <cstring>

#include "libs/hostcann/aclnn/kernel.h"
#include "libs/hostcann/aclnn/op.h"
#include "libs/quant/fractal_nz.h"

namespace jumar::hostcann::aclnn {
namespace {

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

}  // namespace

// The storage shape and format that a cast of src to dst_format has; the caller releases *shape with delete[].
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
            " is not supported; hostcann casts between ND (2) and FRACTAL_NZ (29)");
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
  Require(IsBaseOrNz(src.format) && IsBaseOrNz(dst.format), "a cast from ", FormatName(src.format), " to ", FormatName(dst.format),
          " is not supported; hostcann casts between ND (2) and FRACTAL_NZ (29)");
  const bool from_nz = src.format == kFormatFractalNz, to_nz = dst.format == kFormatFractalNz;
  Require(src.dtype == dst.dtype && SameShape(src, dst) && IsContiguous(src) && IsContiguous(dst), "src is ", DTypeName(src.dtype),
          " ", ToString(src.sizes), " and dst ", DTypeName(dst.dtype), " ", ToString(dst.sizes),
          "; they must be of one type and shape, and contiguous");
  const int64_t size = ItemSize(src.dtype);
  if (from_nz == to_nz) {
    int64_t elements = 1;
    for (int64_t d : from_nz ? src.storage_sizes : src.sizes) elements *= d;
    return [from = src.data(), to = dst.data(), bytes = static_cast<size_t>(elements * size)] { std::memmove(to, from, bytes); };
  }
  const Matrices m = MatricesOf(src);
  const auto nz_bytes = quant::FractalNzBytes(m.rows, m.cols, size);
  Check(nz_bytes.status());
  const int64_t nd_bytes = m.rows * m.cols * size;
  const char* from = static_cast<const char*>(src.data());
  char* to = static_cast<char*>(dst.data());
  return [=, nz_bytes = *nz_bytes] {
    ComputeExecutor().ParallelFor(m.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Check(to_nz ? quant::PackFractalNz(m.rows, m.cols, size, from + i * nd_bytes, m.cols, to + i * nz_bytes)
                    : quant::UnpackFractalNz(m.rows, m.cols, size, from + i * nz_bytes, to + i * nd_bytes, m.cols));
      }
    });
  };
}

}  // namespace jumar::hostcann::aclnn
