#include "libs/hostcann/aclnn/acl_types.h"

#include <cstring>
#include <utility>

#include "libs/hostcann/acl/runtime.h"

#define JUMAR_EXPORT extern "C" __attribute__((visibility("default")))

namespace jumar::hostcann::aclnn {
namespace {

struct TypeInfo {
  DType dtype;
  int64_t size;
  const char* name;
};
constexpr TypeInfo kTypes[] = {
    {DType::kF32, 4, "float32"},
    {DType::kF16, 2, "float16"},
    {DType::kBF16, 2, "bfloat16"},
    {DType::kF64, 8, "float64"},
    {DType::kI8, 1, "int8"},
    {DType::kU8, 1, "uint8"},
    {DType::kI16, 2, "int16"},
    {DType::kU16, 2, "uint16"},
    {DType::kI32, 4, "int32"},
    {DType::kU32, 4, "uint32"},
    {DType::kI64, 8, "int64"},
    {DType::kU64, 8, "uint64"},
    {DType::kBool, 1, "bool"},
    {DType::kC32, 4, "complex32"},
    {DType::kC64, 8, "complex64"},
    {DType::kC128, 16, "complex128"},
    {DType::kF8E5M2, 1, "float8_e5m2"},
    {DType::kF8E4M3, 1, "float8_e4m3fn"},
    {static_cast<DType>(34), 1, "hifloat8"},
    {static_cast<DType>(37), 1, "float8_e8m0"},
};

constexpr DType kFloat4E2M1 = static_cast<DType>(40);  // two to a byte: no size (code_types.h)

const TypeInfo* Find(DType dtype) {
  for (const TypeInfo& t : kTypes) {
    if (t.dtype == dtype) return &t;
  }
  return nullptr;
}

Dims MakeDims(const int64_t* v, uint64_t n) {
  Dims d;
  d.n = static_cast<int>(n);
  if (n > 0) std::memcpy(d.v, v, n * sizeof(int64_t));
  return d;
}

Dims ContiguousStrides(const Dims& sizes) {
  Dims s;
  s.n = sizes.n;
  int64_t stride = 1;
  for (int i = sizes.n - 1; i >= 0; --i) {
    s.v[i] = stride;
    stride *= sizes[i];
  }
  return s;
}

int Fail(int code, std::string message) {
  SetRecentError(std::move(message));
  return code;
}

}  // namespace

int64_t ItemSize(DType dtype) {
  const TypeInfo* t = Find(dtype);
  return t == nullptr ? 0 : t->size;
}

const char* DTypeName(DType dtype) {
  if (const TypeInfo* t = Find(dtype)) return t->name;
  switch (static_cast<int>(dtype)) {  // types without a size, or that hostcann doesn't compute with
    case 13: return "string";
    case 29: return "int4";
    case 30: return "uint1";
    case 38: return "float6_e3m2";
    case 39: return "float6_e2m3";
    case 40: return "float4_e2m1";
    case 41: return "float4_e1m2";
    default: return "unsupported dtype";
  }
}

std::string FormatName(int32_t format) {
  constexpr std::pair<int32_t, const char*> kNames[] = {
      {0, "NCHW"},        {1, "NHWC"},   {2, "ND"},   {3, "NC1HWC0"},           {4, "FRACTAL_Z"},
      {29, "FRACTAL_NZ"}, {30, "NCDHW"}, {47, "NCL"}, {50, "FRACTAL_NZ_C0_16"}, {51, "FRACTAL_NZ_C0_32"}};
  for (const auto& [value, name] : kNames) {
    if (value == format) return std::string(name) + " (" + std::to_string(format) + ")";
  }
  return "format " + std::to_string(format);
}

bool IsBaseFormat(int32_t format) {
  switch (format) {
    case -1:  // undefined: the caller doesn't care
    case 0:   // NCHW
    case 1:   // NHWC
    case kFormatND:
    case 30:  // NCDHW
    case 47:  // NCL
      return true;
    default: return false;
  }
}

std::string ToString(const Dims& dims) {
  std::string s = "[";
  for (int i = 0; i < dims.n; ++i) s += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return s + "]";
}

}  // namespace jumar::hostcann::aclnn

using namespace jumar::hostcann::aclnn;  // NOLINT: the C API below is nothing but these types

JUMAR_EXPORT aclTensor* aclCreateTensor(const int64_t* view_dims, uint64_t view_dims_num, int data_type, const int64_t* stride,
                                        int64_t offset, int format, const int64_t* storage_dims, uint64_t storage_dims_num,
                                        void* tensor_data) {
  const DType dtype = static_cast<DType>(data_type);
  if (ItemSize(dtype) == 0 && dtype != kFloat4E2M1) {
    const std::string type = std::to_string(data_type) + " (" + DTypeName(dtype) + ")";
    Fail(kParamInvalid, "aclCreateTensor: data type " + type + " is not supported by hostcann");
    return nullptr;
  }
  if (view_dims_num > kMaxDims || storage_dims_num > kMaxDims) {
    Fail(kParamInvalid,
         "aclCreateTensor: a tensor of " + std::to_string(view_dims_num) + " dimensions; the limit is " + std::to_string(kMaxDims));
    return nullptr;
  }
  auto* t = new aclTensor;
  t->dtype = dtype;
  t->format = format;
  t->sizes = MakeDims(view_dims, view_dims_num);
  t->strides = stride != nullptr || view_dims_num == 0 ? MakeDims(stride, view_dims_num) : ContiguousStrides(t->sizes);
  t->storage_sizes = storage_dims == nullptr ? t->sizes : MakeDims(storage_dims, storage_dims_num);
  t->offset = offset;
  t->base = jumar::hostcann::DeviceAlias(tensor_data);
  t->address = tensor_data;
  return t;
}

JUMAR_EXPORT aclScalar* aclCreateScalar(void* value, int data_type) {
  const DType dtype = static_cast<DType>(data_type);
  const int64_t size = ItemSize(dtype);
  if (value == nullptr || size == 0) {
    Fail(kParamInvalid, value == nullptr
                            ? "aclCreateScalar: value is null"
                            : "aclCreateScalar: data type " + std::to_string(data_type) + " is not supported by hostcann");
    return nullptr;
  }
  auto* s = new aclScalar{dtype, {}};
  std::memcpy(s->value, value, static_cast<size_t>(size));
  return s;
}

JUMAR_EXPORT aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) { return new aclIntArray{{value, value + size}}; }
JUMAR_EXPORT aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size) {
  return new aclFloatArray{{value, value + size}};
}
JUMAR_EXPORT aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) { return new aclBoolArray{{value, value + size}}; }
JUMAR_EXPORT aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return new aclTensorList{{value, value + size}};
}
JUMAR_EXPORT aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size) {
  return new aclScalarList{{value, value + size}};
}

JUMAR_EXPORT int aclDestroyTensor(const aclTensor* tensor) {
  delete tensor;
  return kOk;
}
JUMAR_EXPORT int aclDestroyScalar(const aclScalar* scalar) {
  delete scalar;
  return kOk;
}
JUMAR_EXPORT int aclDestroyIntArray(const aclIntArray* array) {
  delete array;
  return kOk;
}
JUMAR_EXPORT int aclDestroyFloatArray(const aclFloatArray* array) {
  delete array;
  return kOk;
}
JUMAR_EXPORT int aclDestroyBoolArray(const aclBoolArray* array) {
  delete array;
  return kOk;
}
// A list owns its elements.
JUMAR_EXPORT int aclDestroyTensorList(const aclTensorList* list) {
  if (list != nullptr) {
    for (const aclTensor* t : list->v) delete t;
  }
  delete list;
  return kOk;
}
JUMAR_EXPORT int aclDestroyScalarList(const aclScalarList* list) {
  if (list != nullptr) {
    for (const aclScalar* s : list->v) delete s;
  }
  delete list;
  return kOk;
}

// The caller releases *view_dims with delete[].
JUMAR_EXPORT int aclGetViewShape(const aclTensor* tensor, int64_t** view_dims, uint64_t* view_dims_num) {
  if (tensor == nullptr || view_dims == nullptr || view_dims_num == nullptr)
    return Fail(kParamNull, "aclGetViewShape: an argument is null");
  *view_dims_num = static_cast<uint64_t>(tensor->sizes.n);
  *view_dims = new int64_t[static_cast<size_t>(tensor->sizes.n)];
  std::memcpy(*view_dims, tensor->sizes.v, static_cast<size_t>(tensor->sizes.n) * sizeof(int64_t));
  return kOk;
}
JUMAR_EXPORT int aclGetDataType(const aclTensor* tensor, int* data_type) {
  if (tensor == nullptr || data_type == nullptr) return Fail(kParamNull, "aclGetDataType: an argument is null");
  *data_type = static_cast<int>(tensor->dtype);
  return kOk;
}
JUMAR_EXPORT int aclGetFormat(const aclTensor* tensor, int* format) {
  if (tensor == nullptr || format == nullptr) return Fail(kParamNull, "aclGetFormat: an argument is null");
  *format = tensor->format;
  return kOk;
}
JUMAR_EXPORT int aclGetRawTensorAddr(const aclTensor* tensor, void** addr) {
  if (tensor == nullptr || addr == nullptr) return Fail(kParamNull, "aclGetRawTensorAddr: an argument is null");
  *addr = tensor->address;
  return kOk;
}
