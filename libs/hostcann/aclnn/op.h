// How an operator is written here: one row.
//
//   ACLNN_OP(Add, In(self), In(other), Num(alpha), Out(out)) { at::add_out(out, self, other, alpha); }
//
// defines and exports the two C functions aclnnAddGetWorkspaceSize(self, other, alpha, out, &size, &executor) and
// aclnnAdd(workspace, size, executor, stream), and lists the operator in Rows(). The arguments stand in the order of
// the C call. Each is KIND(name); the kind decides the C type, what is checked, and what the body sees:
//
//   In, Out, OptIn, OptOut   aclTensor*       Tensor over device memory; optional<Tensor> for Opt*. Refuses private
//                                             formats such as FRACTAL_NZ.
//   Raw, OptRaw              aclTensor*       aclTensor by value (optional for OptRaw): any format, no ATen
//   Ret                      aclTensor*       aclTensor*: an output whose shape the body sets (synchronous operators)
//   Ins                      aclTensorList*   vector<Tensor>; an element that is null is an undefined Tensor
//   RawIns, OptRawIns        aclTensorList*   vector<aclTensor>
//   Num, OptNum              aclScalar*       Scalar; optional<Scalar>
//   Ints, OptInts            aclIntArray*     vector<int64_t>; optional of it
//   I64, I32, I8, F64, F32, Flag              by value
//   Text, OptText                             const char*; Text as std::string
//   Type                     aclDataType      at::ScalarType
//
// The body runs on the stream's worker, once per launch and once per replay of a captured graph: device data is read
// only there. What can be decided from shapes alone belongs before that, so that a wrong call fails at once:
//
//   ACLNN_PLAN(SwiGlu, Raw(x), I64(dim), Raw(out)) { Require(...); return [=] { ... }; }
//
// has a body that runs in GetWorkspaceSize and returns the task. Both may throw; the message gets the operator's name.
//
// In strict mode the arguments are first held against the documented limits (limits.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "libs/hostcann/acl/runtime.h"
#include "libs/hostcann/aclnn/acl_types.h"
#include "libs/hostcann/aclnn/describe.h"
#include "libs/hostcann/aclnn/foreach.h"
#include "libs/hostcann/aclnn/limits.h"

namespace jumar::hostcann::aclnn {

using at::Scalar;
using at::Tensor;
using OptTensor = std::optional<Tensor>;
using OptScalar = std::optional<Scalar>;
using IntList = std::vector<int64_t>;
using Task = std::function<void()>;

at::ScalarType ToScalarType(DType dtype);  // throws for types that ATen's CPU has not
Tensor ToTensor(const aclTensor& t);       // from_blob; doesn't look at the format
Scalar ToScalar(const aclScalar& s);

// A bad argument: 161002 to the caller.
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  std::ostringstream s;
  (s << ... << parts);
  throw ArgumentError(s.str());
}
// Require(x.dim() == 2, "self has ", x.dim(), " dimensions; it must have 2")
template <class... Parts>
void Require(bool condition, const Parts&... parts) {
  if (!condition) Fail(parts...);
}

// Writes value into out, converting the dtype; a value of the same number of elements is reshaped.
void Put(const Tensor& out, const Tensor& value);
// The result shape of a broadcast must be out's; names the shapes if not.
void CheckBroadcast(const Tensor& self, const Tensor& other, const Tensor& out);

namespace arg {  // kinds of arguments

Tensor BaseTensor(const char* name, const aclTensor* t);
const char* CheckedText(const char* name, const char* text);
template <class T>
const T& NotNull(const char* name, const T* p) {
  Require(p != nullptr, "argument `", name, "` is null");
  return *p;
}

struct In {
  using C = const aclTensor*;
  using Body = const Tensor&;
  static Tensor Capture(const char* name, C t) { return BaseTensor(name, t); }
};
struct Out {
  using C = aclTensor*;
  using Body = Tensor;  // by value: ATen's out-variants take a Tensor&
  static Tensor Capture(const char* name, C t) { return BaseTensor(name, t); }
};
struct OptIn {
  using C = const aclTensor*;
  using Body = const OptTensor&;
  static OptTensor Capture(const char* name, C t) { return t == nullptr ? OptTensor() : OptTensor(BaseTensor(name, t)); }
};
struct OptOut {
  using C = aclTensor*;
  using Body = const OptTensor&;
  static OptTensor Capture(const char* name, C t) { return OptIn::Capture(name, t); }
};
struct Raw {
  using C = const aclTensor*;
  using Body = const aclTensor&;
  static aclTensor Capture(const char* name, C t) { return NotNull(name, t); }
};
struct OptRaw {
  using C = const aclTensor*;
  using Body = const std::optional<aclTensor>&;
  static std::optional<aclTensor> Capture(const char*, C t) { return t == nullptr ? std::nullopt : std::optional<aclTensor>(*t); }
};
struct Ret {
  using C = aclTensor*;
  using Body = aclTensor*;
  static aclTensor* Capture(const char* name, C t) {
    BaseTensor(name, t);
    return t;
  }
};
struct Ins {
  using C = const aclTensorList*;
  using Body = const std::vector<Tensor>&;
  static std::vector<Tensor> Capture(const char* name, C list);
};
struct RawIns {
  using C = const aclTensorList*;
  using Body = const std::vector<aclTensor>&;
  static std::vector<aclTensor> Capture(const char* name, C list);
};
struct OptRawIns {
  using C = const aclTensorList*;
  using Body = const std::vector<aclTensor>&;  // empty if not given
  static std::vector<aclTensor> Capture(const char* name, C list) {
    return list == nullptr ? std::vector<aclTensor>() : RawIns::Capture(name, list);
  }
};
struct Num {
  using C = const aclScalar*;
  using Body = const Scalar&;
  static Scalar Capture(const char* name, C s) { return ToScalar(NotNull(name, s)); }
};
struct OptNum {
  using C = const aclScalar*;
  using Body = const OptScalar&;
  static OptScalar Capture(const char*, C s) { return s == nullptr ? OptScalar() : OptScalar(ToScalar(*s)); }
};
struct Ints {
  using C = const aclIntArray*;
  using Body = const IntList&;
  static IntList Capture(const char*, C a) { return a == nullptr ? IntList() : a->v; }
};
struct OptInts {
  using C = const aclIntArray*;
  using Body = const std::optional<IntList>&;
  static std::optional<IntList> Capture(const char*, C a) { return a == nullptr ? std::nullopt : std::optional<IntList>(a->v); }
};
template <class T>
struct Value {
  using C = T;
  using Body = T;
  static T Capture(const char*, T v) { return v; }
};
using I64 = Value<int64_t>;
using I32 = Value<int32_t>;
using I8 = Value<int8_t>;
using F64 = Value<double>;
using F32 = Value<float>;
using Flag = Value<bool>;
struct Text {
  using C = const char*;
  using Body = const std::string&;
  static std::string Capture(const char* name, C t) { return CheckedText(name, t); }
};
struct OptText {
  using C = const char*;
  using Body = const char*;  // null if not given; a body that runs later must copy it
  static const char* Capture(const char*, C t) { return t; }
};
struct Type {
  using C = int;
  using Body = at::ScalarType;
  static at::ScalarType Capture(const char*, C t) { return ToScalarType(static_cast<DType>(t)); }
};

}  // namespace arg

// The table of all operators of the library.
struct Row {
  const char* name;                            // "aclnnAdd"
  const char* arguments;                       // "In(self), In(other), Num(alpha), Out(out)"
  mutable std::atomic<uint64_t> launches = 0;  // calls of the second function; replays of a graph don't count
  Row(const char* name, const char* arguments);
};
const std::vector<const Row*>& Rows();  // in order of name

// Runs a task with what every operator needs on a worker: no autograd, one ATen thread (ComputeExecutor() is what
// owns the cores), and the operator's name in front of what goes wrong.
void RunGuarded(const char* op, const Task& task);

// Turns what goes wrong while an operator is prepared into its error code and the recent error message.
int ReportFailure(const char* op, const std::exception& error);

// What a trace tells of the call; `values` are the arguments of the row.
template <class... C>
std::unique_ptr<const TaskDetails> Describe(const Row& row, const C&... values) {
  Description description(row.name, row.arguments);
  (description.Add(values), ...);
  return description.Finish();
}

// Throws ArgumentError for a call outside of the documented limits of this process's chip.
void RequireLimits(const char* op, std::initializer_list<ArgView> arguments);

inline bool ChecksLimits() {
  static const bool checks = StrictMode();
  return checks;
}

template <class CheckArguments, class MakeTask, class MakeDetails>
int Prepare(const Row& row, uint64_t* workspace_size, aclOpExecutor** executor, const CheckArguments& check_arguments,
            const MakeTask& make_task, const MakeDetails& make_details) {
  try {
    arg::NotNull("workspaceSize", workspace_size);
    arg::NotNull("executor", executor);
    *workspace_size = 0;
    if (ChecksLimits()) [[unlikely]] check_arguments();
    *executor = new aclOpExecutor{row.name, [op = row.name, task = Task(make_task())] { RunGuarded(op, task); }, &row.launches};
    if (Tracing()) (*executor)->details = make_details();
    return kOk;
  } catch (const std::exception& error) {
    return ReportFailure(row.name, error);
  }
}

int Launch(aclOpExecutor* executor, void* stream);  // submits and destroys it

}  // namespace jumar::hostcann::aclnn

#define ACLNN_EXPORT extern "C" __attribute__((visibility("default")))

// KIND(name) -> KIND, name
#define JUMAR_ARG_In(x) In, x
#define JUMAR_ARG_Out(x) Out, x
#define JUMAR_ARG_OptIn(x) OptIn, x
#define JUMAR_ARG_OptOut(x) OptOut, x
#define JUMAR_ARG_Raw(x) Raw, x
#define JUMAR_ARG_OptRaw(x) OptRaw, x
#define JUMAR_ARG_Ret(x) Ret, x
#define JUMAR_ARG_Ins(x) Ins, x
#define JUMAR_ARG_RawIns(x) RawIns, x
#define JUMAR_ARG_OptRawIns(x) OptRawIns, x
#define JUMAR_ARG_Num(x) Num, x
#define JUMAR_ARG_OptNum(x) OptNum, x
#define JUMAR_ARG_Ints(x) Ints, x
#define JUMAR_ARG_OptInts(x) OptInts, x
#define JUMAR_ARG_I64(x) I64, x
#define JUMAR_ARG_I32(x) I32, x
#define JUMAR_ARG_I8(x) I8, x
#define JUMAR_ARG_F64(x) F64, x
#define JUMAR_ARG_F32(x) F32, x
#define JUMAR_ARG_Flag(x) Flag, x
#define JUMAR_ARG_Text(x) Text, x
#define JUMAR_ARG_OptText(x) OptText, x
#define JUMAR_ARG_Type(x) Type, x

#define JUMAR_APPLY(macro, ...) macro(__VA_ARGS__)
#define JUMAR_C_PARAM_(Kind, x) ::jumar::hostcann::aclnn::arg::Kind::C x
#define JUMAR_BODY_PARAM_(Kind, x) [[maybe_unused]] ::jumar::hostcann::aclnn::arg::Kind::Body x
#define JUMAR_CAPTURE_(Kind, x) ::jumar::hostcann::aclnn::arg::Kind::Capture(#x, x)
#define JUMAR_INIT_CAPTURE_(Kind, x) x = ::jumar::hostcann::aclnn::arg::Kind::Capture(#x, x)
#define JUMAR_NAME_(Kind, x) x
#define JUMAR_C_PARAM(a) JUMAR_APPLY(JUMAR_C_PARAM_, JUMAR_ARG_##a)
#define JUMAR_BODY_PARAM(a) JUMAR_APPLY(JUMAR_BODY_PARAM_, JUMAR_ARG_##a)
#define JUMAR_CAPTURE(a) JUMAR_APPLY(JUMAR_CAPTURE_, JUMAR_ARG_##a)
#define JUMAR_INIT_CAPTURE(a) JUMAR_APPLY(JUMAR_INIT_CAPTURE_, JUMAR_ARG_##a)
#define JUMAR_NAME(a) JUMAR_APPLY(JUMAR_NAME_, JUMAR_ARG_##a)

#define JUMAR_ACLNN_ENTRY(Name, MakeTask, ...)                                                                     \
  static const ::jumar::hostcann::aclnn::Row Row_##Name("aclnn" #Name, #__VA_ARGS__);                              \
  ACLNN_EXPORT int aclnn##Name##GetWorkspaceSize(JUMAR_MAP(JUMAR_C_PARAM, __VA_ARGS__), uint64_t* workspace_size_, \
                                                 aclOpExecutor** executor_) {                                      \
    return ::jumar::hostcann::aclnn::Prepare(                                                                      \
        Row_##Name, workspace_size_, executor_,                                                                    \
        [&] { ::jumar::hostcann::aclnn::RequireLimits(Row_##Name.name, {JUMAR_MAP(JUMAR_NAME, __VA_ARGS__)}); },   \
        MakeTask,                                                                                                  \
        [&] { return ::jumar::hostcann::aclnn::Describe(Row_##Name, JUMAR_MAP(JUMAR_NAME, __VA_ARGS__)); });       \
  }                                                                                                                \
  ACLNN_EXPORT int aclnn##Name(void* /*workspace*/, uint64_t /*size*/, aclOpExecutor* executor, void* stream) {    \
    return ::jumar::hostcann::aclnn::Launch(executor, stream);                                                     \
  }

#define ACLNN_OP(Name, ...)                                                                                                     \
  static void Run_##Name(JUMAR_MAP(JUMAR_BODY_PARAM, __VA_ARGS__));                                                             \
  JUMAR_ACLNN_ENTRY(                                                                                                            \
      Name, ([&] { return [JUMAR_MAP(JUMAR_INIT_CAPTURE, __VA_ARGS__)] { Run_##Name(JUMAR_MAP(JUMAR_NAME, __VA_ARGS__)); }; }), \
      __VA_ARGS__)                                                                                                              \
  static void Run_##Name(JUMAR_MAP(JUMAR_BODY_PARAM, __VA_ARGS__))

#define ACLNN_PLAN(Name, ...)                                                                  \
  static ::jumar::hostcann::aclnn::Task Plan_##Name(JUMAR_MAP(JUMAR_BODY_PARAM, __VA_ARGS__)); \
  JUMAR_ACLNN_ENTRY(                                                                           \
      Name, [&] { return Plan_##Name(JUMAR_MAP(JUMAR_CAPTURE, __VA_ARGS__)); }, __VA_ARGS__)   \
  static ::jumar::hostcann::aclnn::Task Plan_##Name(JUMAR_MAP(JUMAR_BODY_PARAM, __VA_ARGS__))
