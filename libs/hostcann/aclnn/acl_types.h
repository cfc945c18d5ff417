// The opaque objects of the aclnn C API (aclTensor, aclScalar, arrays, lists, executors) as hostcann
// represents them, without any framework. The API itself is in acl_types.cc: whoever calls it (torch_npu)
// finds it by dlsym, so there is no public header.
//
// A tensor is a strided view into device memory, which on hostcann the CPU can address (in strict mode by an alias only):
//   element (i0, i1, ...) of a tensor in a base format lies at base + itemsize * (offset + sum(i * strides)).
// In FRACTAL_NZ, storage_sizes tells how the bytes lie; see format_cast.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libs/hostcann/acl/runtime.h"

namespace jumar::hostcann::aclnn {

// aclDataType and aclFormat, by value, as far as they are used here.
enum class DType : int32_t {
  kF32 = 0,
  kF16 = 1,
  kI8 = 2,
  kI32 = 3,
  kU8 = 4,
  kI16 = 6,
  kU16 = 7,
  kU32 = 8,
  kI64 = 9,
  kU64 = 10,
  kF64 = 11,
  kBool = 12,
  kC64 = 16,
  kC128 = 17,
  kBF16 = 27,
  kI4 = 29,
  kC32 = 33,
  kF8E5M2 = 35,
  kF8E4M3 = 36,
};
inline constexpr int32_t kFormatND = 2;
inline constexpr int32_t kFormatFractalNz = 29;

int64_t ItemSize(DType dtype);           // in bytes; 0 if hostcann doesn't know the type
const char* DTypeName(DType dtype);      // "float16"
std::string FormatName(int32_t format);  // "FRACTAL_NZ (29)"
// Base formats (ND, NCHW, NHWC, NCL, NCDHW) only name the axes: the bytes lie as the strides say.
bool IsBaseFormat(int32_t format);

inline constexpr int kMaxDims = 16;
struct Dims {
  int64_t v[kMaxDims];
  int n = 0;
  int64_t operator[](int i) const { return v[i]; }
  const int64_t* begin() const { return v; }
  const int64_t* end() const { return v + n; }
};
std::string ToString(const Dims& dims);  // "[2, 3]"

}  // namespace jumar::hostcann::aclnn

struct aclTensor {
  jumar::hostcann::aclnn::DType dtype;
  int32_t format;
  jumar::hostcann::aclnn::Dims sizes, strides, storage_sizes;
  int64_t offset;  // in elements
  void* base;      // where operators reach the storage (DeviceAlias)
  void* address = nullptr;   // of the storage as the program knows it

  void* data() const { return static_cast<char*>(base) + offset * jumar::hostcann::aclnn::ItemSize(dtype); }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : sizes) n *= d;
    return n;
  }
};

struct aclScalar {
  jumar::hostcann::aclnn::DType dtype;
  alignas(16) unsigned char value[16];
};
struct aclIntArray {
  std::vector<int64_t> v;
};
struct aclFloatArray {
  std::vector<float> v;
};
struct aclBoolArray {
  std::vector<uint8_t> v;
};
struct aclTensorList {
  std::vector<const aclTensor*> v;
};
struct aclScalarList {
  std::vector<const aclScalar*> v;
};

// What GetWorkspaceSize prepares and the second call submits to a stream. Owns whatever it needs: the
// caller destroys its aclTensors right after the second call, and a captured graph runs it again and again.
struct aclOpExecutor {
  const char* name;
  std::function<void()> task;
  std::atomic<uint64_t>* launches;  // counter of the operator
  std::unique_ptr<const jumar::hostcann::TaskDetails> details = nullptr;  // while tracing
};

namespace jumar::hostcann::aclnn {

// Error codes of the first and the second phase of an aclnn call.
inline constexpr int kOk = 0;
inline constexpr int kParamNull = 161001;
inline constexpr int kParamInvalid = 161002;
inline constexpr int kInnerError = 561000;

}  // namespace jumar::hostcann::aclnn
