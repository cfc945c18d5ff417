// libacl_op_compiler.so: the legacy operator path (aclop). hostcann has no compiler of operators, so every operator that comes this way
// is one that the wheel found no aclnn symbol for. Only Identity is done, by which torch_npu moves a tensor from one format to another.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/legacy_op.h"
#include "libs/hostcann/acl/runtime.h"

namespace {

constexpr aclError kOk = 0;
constexpr aclError kInvalidParam = 100000;
constexpr aclError kOpNotFound = 100024;
constexpr int32_t kJitCompile = 10;
constexpr int32_t kMaxOption = 16;

std::mutex g_mutex;
std::map<int32_t, std::string>& Options() {
  static auto* const options = new std::map<int32_t, std::string>{{kJitCompile, "disable"}};
  return *options;
}

// A symbol of the operator library, which the process has loaded already; null if it hasn't.
template <class Function>
Function* Operator(const char* symbol) {
  void* library = dlopen("libopapi.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  auto* found = reinterpret_cast<Function*>(dlsym(library, symbol));
  dlclose(library);  // the process keeps its own reference
  return found;
}

aclError RefuseOperator(const char* type) {
  std::string near;
  if (auto* names = Operator<const char*(const char*)>("JumarAclnnNearNames"); names != nullptr && type != nullptr) near = names(type);
  jumar::hostcann::SetRecentError(std::string("operator ") + (type == nullptr ? "(no name)" : type) +
                                  " is not available: hostcann has no aclnn operator for this call, and the legacy path (aclop) "
                                  "compiles operators for hardware only. " +
                                  (near.empty() ? "" : "Operators with such names: " + near + ". ") +
                                  "See libs/hostcann/README.md for how to add an operator");
  return kOpNotFound;
}

// The operator library's tensor for a description; null if the library isn't there.
void* MakeTensor(const AclTensorDesc& desc, const AclDataBuffer& buffer) {
  using Create = void*(const int64_t*, uint64_t, int32_t, const int64_t*, int64_t, int32_t, const int64_t*, uint64_t, void*);
  auto* create = Operator<Create>("aclCreateTensor");
  if (create == nullptr) return nullptr;
  std::vector<int64_t> strides(desc.dims.size());
  int64_t stride = 1;
  for (size_t i = desc.dims.size(); i-- > 0; stride *= desc.dims[i]) strides[i] = stride;
  return create(desc.dims.data(), desc.dims.size(), desc.type, strides.data(), 0, desc.storage_format, desc.storage_dims.data(),
                desc.storage_dims.size(), buffer.data);
}

// Copies a tensor into one of another format: aclnnNpuFormatCast, by its C interface.
aclError RunIdentity(const AclTensorDesc& from, const AclDataBuffer& from_data, const AclTensorDesc& to, const AclDataBuffer& to_data,
                     void* stream) {
  auto* prepare = Operator<int(const void*, void*, uint64_t*, void**)>("aclnnNpuFormatCastGetWorkspaceSize");
  auto* launch = Operator<int(void*, uint64_t, void*, void*)>("aclnnNpuFormatCast");
  auto* destroy = Operator<int(const void*)>("aclDestroyTensor");
  void* source = MakeTensor(from, from_data);
  void* target = MakeTensor(to, to_data);
  if (prepare == nullptr || launch == nullptr || destroy == nullptr || source == nullptr || target == nullptr) {
    return RefuseOperator("Identity");
  }
  uint64_t workspace = 0;
  void* executor = nullptr;
  int code = prepare(source, target, &workspace, &executor);
  if (code == 0) code = launch(nullptr, workspace, executor, stream);
  destroy(source);
  destroy(target);
  return code;
}

aclError Execute(const char* type, int num_inputs, const AclTensorDesc* const* input_descs, const AclDataBuffer* const* inputs,
                 int num_outputs, const AclTensorDesc* const* output_descs, const AclDataBuffer* const* outputs, void* stream) {
  if (type != nullptr && std::strcmp(type, "Identity") == 0 && num_inputs == 1 && num_outputs == 1) {
    return RunIdentity(*input_descs[0], *inputs[0], *output_descs[0], *outputs[0], stream);
  }
  return RefuseOperator(type);
}

}  // namespace

aclError aclopCompileAndExecute(const char* type, int num_inputs, const AclTensorDesc* const* input_descs,
                                const AclDataBuffer* const* inputs, int num_outputs, const AclTensorDesc* const* output_descs,
                                AclDataBuffer* const* outputs, const AclOpAttributes*, int32_t, int32_t, const char*, void* stream) {
  return Execute(type, num_inputs, input_descs, inputs, num_outputs, output_descs, outputs, stream);
}
aclError aclopCompileAndExecuteV2(const char* type, int num_inputs, AclTensorDesc** input_descs, AclDataBuffer** inputs, int num_outputs,
                                  AclTensorDesc** output_descs, AclDataBuffer** outputs, AclOpAttributes*, int32_t, int32_t,
                                  const char*, void* stream) {
  return Execute(type, num_inputs, input_descs, inputs, num_outputs, output_descs, outputs, stream);
}

// Options of the compiler are kept, so that what was set can be asked for.
aclError aclSetCompileopt(int32_t option, const char* value) {
  if (value == nullptr || option < 0 || option > kMaxOption) return kInvalidParam;
  std::lock_guard lock(g_mutex);
  Options()[option] = value;
  return kOk;
}
size_t aclGetCompileoptSize(int32_t option) {
  std::lock_guard lock(g_mutex);
  const auto it = Options().find(option);
  return it == Options().end() ? 1 : it->second.size() + 1;
}
aclError aclGetCompileopt(int32_t option, char* value, size_t length) {
  if (value == nullptr || length == 0) return kInvalidParam;
  std::lock_guard lock(g_mutex);
  const auto it = Options().find(option);
  const std::string text = it == Options().end() ? "" : it->second;
  const size_t copied = std::min(text.size(), length - 1);
  std::memcpy(value, text.data(), copied);
  value[copied] = '\0';
  return kOk;
}
