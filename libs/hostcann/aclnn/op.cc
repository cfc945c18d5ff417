#include "libs/hostcann/aclnn/op.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <c10/util/complex.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

extern "C" const char* aclrtGetSocName();  // of libascendcl.so

namespace jumar::hostcann::aclnn {
namespace {

// omp_set_num_threads of the OpenMP library that torch brought: it sets the calling thread's team size only. Its file
// has a hashed name, so it is found through libtorch_cpu, which depends on it. ATen sets the size itself when a thread first
// asks for it, so that comes first.
void UseOneAtenThread() {
  at::get_num_threads();
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return;
  if (auto* set = reinterpret_cast<void (*)(int)>(dlsym(torch, "omp_set_num_threads"))) set(1);
  dlclose(torch);
}

std::string WithOp(const char* op, const char* what) {
  return std::strncmp(what, "aclnn", 5) == 0 ? std::string(what) : std::string(op) + ": " + what;
}

std::string Shape(const Tensor& t) {
  std::ostringstream s;
  s << t.sizes();
  return s.str();
}

}  // namespace

at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kF16: return at::kHalf;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF64: return at::kDouble;
    case DType::kI8: return at::kChar;
    case DType::kU8: return at::kByte;
    case DType::kI16: return at::kShort;
    case DType::kU16: return at::kUInt16;
    case DType::kI32: return at::kInt;
    case DType::kU32: return at::kUInt32;
    case DType::kI64: return at::kLong;
    case DType::kU64: return at::kUInt64;
    case DType::kBool: return at::kBool;
    case DType::kC32: return at::kComplexHalf;
    case DType::kC64: return at::kComplexFloat;
    case DType::kC128: return at::kComplexDouble;
    case DType::kF8E5M2: return at::kFloat8_e5m2;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    case DType::kI4: break;
  }
  Fail("data type ", static_cast<int>(dtype), " (", DTypeName(dtype), ") is not supported by this operator of hostcann");
}

Tensor ToTensor(const aclTensor& t) {
  return at::from_blob(t.data(), at::IntArrayRef(t.sizes.v, static_cast<size_t>(t.sizes.n)),
                       at::IntArrayRef(t.strides.v, static_cast<size_t>(t.strides.n)),
                       at::TensorOptions().dtype(ToScalarType(t.dtype)));
}

Scalar ToScalar(const aclScalar& s) {
  const auto as = [&s]<class T>(T v) {
    std::memcpy(&v, s.value, sizeof(T));
    return v;
  };
  switch (s.dtype) {
    case DType::kF32: return Scalar(as(float()));
    case DType::kF64: return Scalar(as(double()));
    case DType::kF16: return Scalar(as(at::Half()));
    case DType::kBF16: return Scalar(as(at::BFloat16()));
    case DType::kI8: return Scalar(as(int8_t()));
    case DType::kU8: return Scalar(as(uint8_t()));
    case DType::kI16: return Scalar(as(int16_t()));
    case DType::kI32: return Scalar(as(int32_t()));
    case DType::kI64: return Scalar(as(int64_t()));
    case DType::kBool: return Scalar(as(bool()));
    case DType::kC64: return Scalar(as(c10::complex<float>()));
    case DType::kC128: return Scalar(as(c10::complex<double>()));
    default: Fail("a scalar of type ", DTypeName(s.dtype), " is not supported by hostcann");
  }
}

void Put(const Tensor& out, const Tensor& value) {
  if (value.sizes() == out.sizes()) {
    out.copy_(value);
  } else if (value.numel() == out.numel()) {
    out.copy_(value.reshape(out.sizes()));
  } else {
    Fail("the result has shape ", Shape(value), " but argument `out` has ", Shape(out));
  }
}

void CheckBroadcast(const Tensor& self, const Tensor& other, const Tensor& out) {
  const int64_t dims = std::max(self.dim(), other.dim());
  bool fits = out.dim() == dims;
  for (int64_t i = 1; i <= dims && fits; ++i) {
    const int64_t a = i <= self.dim() ? self.size(-i) : 1;
    const int64_t b = i <= other.dim() ? other.size(-i) : 1;
    fits = (a == b || a == 1 || b == 1) && out.size(-i) == (a == 1 ? b : a);
  }
  Require(fits, "shapes ", Shape(self), " and ", Shape(other), " don't broadcast to the output's ", Shape(out));
}

namespace arg {

Tensor BaseTensor(const char* name, const aclTensor* t) {
  NotNull(name, t);
  Require(IsBaseFormat(t->format), "argument `", name, "` has format ", FormatName(t->format),
          ", which this operator doesn't take; cast it to ND (2) with npu_format_cast first");
  return ToTensor(*t);
}

const char* CheckedText(const char* name, const char* text) {
  NotNull(name, text);
  return text;
}

std::vector<Tensor> Ins::Capture(const char* name, C list) {
  std::vector<Tensor> v;
  if (list == nullptr) return v;
  v.reserve(list->v.size());
  for (const aclTensor* t : list->v) v.push_back(t == nullptr ? Tensor() : BaseTensor(name, t));
  return v;
}

std::vector<aclTensor> RawIns::Capture(const char* name, C list) {
  std::vector<aclTensor> v;
  for (const aclTensor* t : NotNull(name, list).v) v.push_back(NotNull(name, t));
  return v;
}

}  // namespace arg

void RequireLimits(const char* op, std::initializer_list<ArgView> arguments) {
  const std::string wrong = CheckLimits(op, arguments, aclrtGetSocName());
  if (!wrong.empty()) Fail(wrong);
}

void RunGuarded(const char* op, const Task& task) {
  static thread_local const bool one_thread = [] {
    UseOneAtenThread();
    return true;
  }();
  (void)one_thread;
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  try {
    task();
  } catch (const c10::Error& error) {
    throw std::runtime_error(WithOp(op, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw std::runtime_error(WithOp(op, error.what()));
  }
}

int ReportFailure(const char* op, const std::exception& error) {
  if (const auto* c10_error = dynamic_cast<const c10::Error*>(&error)) {
    SetRecentError(WithOp(op, c10_error->what_without_backtrace()));
    return kParamInvalid;
  }
  SetRecentError(WithOp(op, error.what()));
  return dynamic_cast<const ArgumentError*>(&error) != nullptr ? kParamInvalid : kInnerError;
}

}  // namespace jumar::hostcann::aclnn
