// Tensor descriptions, buffers and attributes of the legacy operator path. torch_npu builds them before it asks to compile.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "libs/hostcann/acl/acl_api.h"
#include "libs/hostcann/acl/error.h"
#include "libs/hostcann/acl/legacy_op.h"

using namespace jumar::hostcann;  // NOLINT: the C interface has no namespace

struct AclOpAttributes {
  std::vector<std::string> names;
};

namespace {

// Attribute values would only be read by a compiler of operators, which does not exist here; names serve its error text.
int AddAttribute(AclOpAttributes* attributes, const char* name) {
  if (attributes == nullptr || name == nullptr) return Fail(kInvalidParam, "an operator attribute needs a set and a name");
  attributes->names.emplace_back(name);
  return kOk;
}

}  // namespace

AclTensorDesc* aclCreateTensorDesc(int32_t type, int num_dims, const int64_t* dims, int32_t format) {
  if (num_dims < 0 || (num_dims > 0 && dims == nullptr)) {
    Fail(kInvalidParam, absl::StrCat("aclCreateTensorDesc: ", num_dims, " dimensions without sizes"));
    return nullptr;
  }
  const std::vector<int64_t> shape(dims, dims + num_dims);
  return new AclTensorDesc{type, format, shape, "", format, shape};
}
void aclDestroyTensorDesc(const AclTensorDesc* desc) { delete desc; }
aclError aclSetTensorShape(AclTensorDesc* desc, int num_dims, const int64_t* dims) {
  if (desc == nullptr || num_dims < 0 || (num_dims > 0 && dims == nullptr)) return Fail(kInvalidParam, "aclSetTensorShape: a null pointer");
  desc->storage_dims.assign(dims, dims + num_dims);
  return kOk;
}
aclError aclSetTensorFormat(AclTensorDesc* desc, int32_t format) {
  if (desc == nullptr) return Fail(kInvalidParam, "aclSetTensorFormat: a null pointer");
  desc->storage_format = format;
  return kOk;
}
aclError aclSetTensorPlaceMent(AclTensorDesc* desc, int32_t) {
  return desc == nullptr ? Fail(kInvalidParam, "aclSetTensorPlaceMent: a null pointer") : int{kOk};
}
void aclSetTensorDescName(AclTensorDesc* desc, const char* name) {
  if (desc != nullptr) desc->name = name == nullptr ? "" : name;
}
int32_t aclGetTensorDescType(const AclTensorDesc* desc) { return desc == nullptr ? -1 : desc->type; }
int32_t aclGetTensorDescFormat(const AclTensorDesc* desc) { return desc == nullptr ? -1 : desc->format; }
size_t aclGetTensorDescNumDims(const AclTensorDesc* desc) { return desc == nullptr ? 0 : desc->dims.size(); }
aclError aclGetTensorDescDimV2(const AclTensorDesc* desc, size_t index, int64_t* size) {
  if (desc == nullptr || size == nullptr || index >= desc->dims.size()) {
    return Fail(kInvalidParam, absl::StrCat("aclGetTensorDescDimV2: there is no dimension ", index));
  }
  *size = desc->dims[index];
  return kOk;
}

AclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes) { return new AclDataBuffer{data, bytes}; }
aclError aclDestroyDataBuffer(const AclDataBuffer* buffer) {
  delete buffer;
  return kOk;
}

AclOpAttributes* aclopCreateAttr() { return new AclOpAttributes(); }
void aclopDestroyAttr(const AclOpAttributes* attributes) { delete attributes; }
aclError aclopSetAttrBool(AclOpAttributes* a, const char* name, uint8_t) { return AddAttribute(a, name); }
aclError aclopSetAttrInt(AclOpAttributes* a, const char* name, int64_t) { return AddAttribute(a, name); }
aclError aclopSetAttrFloat(AclOpAttributes* a, const char* name, float) { return AddAttribute(a, name); }
aclError aclopSetAttrString(AclOpAttributes* a, const char* name, const char*) { return AddAttribute(a, name); }
aclError aclopSetAttrDataType(AclOpAttributes* a, const char* name, int32_t) { return AddAttribute(a, name); }
aclError aclopSetAttrListBool(AclOpAttributes* a, const char* name, int, const uint8_t*) { return AddAttribute(a, name); }
aclError aclopSetAttrListInt(AclOpAttributes* a, const char* name, int, const int64_t*) { return AddAttribute(a, name); }
aclError aclopSetAttrListFloat(AclOpAttributes* a, const char* name, int, const float*) { return AddAttribute(a, name); }
aclError aclopSetAttrListListInt(AclOpAttributes* a, const char* name, int, const int*, const int64_t* const*) {
  return AddAttribute(a, name);
}
