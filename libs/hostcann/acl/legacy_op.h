// Descriptions of the legacy operator path (aclop), which torch_npu builds in libascendcl.so and hands to libacl_op_compiler.so.
#ifndef LIBS_HOSTCANN_ACL_LEGACY_OP_H_
#define LIBS_HOSTCANN_ACL_LEGACY_OP_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct AclTensorDesc {
  int32_t type = -1;
  int32_t format = -1;
  std::vector<int64_t> dims;
  std::string name;
  // How the bytes lie; as format and dims say unless they were set.
  int32_t storage_format = -1;
  std::vector<int64_t> storage_dims;
};
struct AclDataBuffer {
  void* data = nullptr;
  size_t bytes = 0;
};

#endif  // LIBS_HOSTCANN_ACL_LEGACY_OP_H_
